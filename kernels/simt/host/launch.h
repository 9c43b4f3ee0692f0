// Launching a kernel on the emulator.
#pragma once

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include <cuda_runtime.h>

#include <heed/kernels/simt/dependent_launch.h>
#include <heed/kernels/simt/dynamic_shared.h>
#include <heed/kernels/simt/grid.h>
#include <heed/kernels/simt/host/location.h>

namespace heed::emulator {

/// A kernel with its arguments; run() is called once by every thread.
class LaunchBody {
 public:
  virtual ~LaunchBody() = default;
  virtual void run() = 0;
};

struct Launch {
  dim3 grid, block;
  unsigned cluster;  // blocks
  size_t shared_bytes;
  std::shared_ptr<LaunchBody> body;
  size_t body_bytes;
  const void* kernel;
  Location at;
  bool waits_itself;  // for what comes before it: each of its threads has to,
  bool early;         // since it may begin before that is over
};

/// Runs the launch now, or adds it to the graph that `stream` is capturing.
cudaError_t submit(Launch launch, cudaStream_t stream);

/// Runs every block; throws Error on the first mistake.
void run_grid(const Launch& launch);

/// Fails if `pointer` is neither null nor memory that the device can reach.
void check_pointer_argument(const void* pointer, int number, Location at);

template <class T>
void check_argument(const T& argument, int number, Location at) {
  if constexpr (std::is_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>>)
    check_pointer_argument(argument, number, at);
}

}  // namespace heed::emulator

namespace heed::simt {

cudaError_t poison(void* memory, size_t bytes, cudaStream_t stream);  // copy.cpp

/// A stream, and the place of the launch for messages.
struct LaunchStream {
  cudaStream_t stream;
  emulator::Location at;
  LaunchStream(cudaStream_t s = nullptr, emulator::Location where = emulator::Location::here())
      : stream(s), at(where) {}
};

template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), Grid grid, dim3 block, size_t shared_bytes,
                   LaunchStream stream, Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments), "launch: wrong number of kernel arguments");
  struct Body final : emulator::LaunchBody {
    void (*kernel)(Parameters...);
    std::tuple<std::decay_t<Parameters>...> arguments;
    Body(void (*k)(Parameters...), std::tuple<std::decay_t<Parameters>...> a)
        : kernel(k), arguments(std::move(a)) {}
    void run() override { std::apply(kernel, arguments); }
  };
  auto body = std::make_shared<Body>(kernel, std::tuple<std::decay_t<Parameters>...>(static_cast<Parameters>(
                                                 std::forward<Arguments>(arguments))...));
  std::apply(
      [&](const auto&... argument) {
        int number = 0;
        (emulator::check_argument(argument, ++number, stream.at), ...);
      },
      body->arguments);
  if (const cudaError_t error = allow_dynamic_shared(reinterpret_cast<const void*>(kernel), shared_bytes);
      error != cudaSuccess)
    return error;
  constexpr bool kWaits = waits_itself<Parameters...>();
  bool early = false;
  if constexpr (kWaits)
    if (const cudaError_t error =
            may_begin_early(early, reinterpret_cast<const void*>(kernel), stream.stream);
        error != cudaSuccess)
      return error;
  return emulator::submit({grid.blocks, block, grid.cluster, shared_bytes, body, sizeof(Body),
                           reinterpret_cast<const void*>(kernel), stream.at, kWaits, early},
                          stream.stream);
}

}  // namespace heed::simt

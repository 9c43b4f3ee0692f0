// Kernels that take as long as memory does: GELU, softmax, cross-entropy, embedding, Adam. The bytes are
// those that must be read and written once.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <heed/core/base/bfloat16.h>
#include <heed/kernels/activation.h>
#include <heed/kernels/cross_entropy.h>
#include <heed/kernels/embedding.h>
#include <heed/kernels/optimizer.h>
#include <heed/kernels/runtime.h>
#include <heed/kernels/softmax.h>

#include "device_bench.h"

namespace {

using namespace heed;
using bench::DeviceArray;

enum class Holds : uint8_t { numbers, ids, one_value, nothing };

struct Operand {
  int64_t count;
  DType dtype;
  Holds holds = Holds::nothing;
  double value = 0;     // the mean of numbers, what ids are below, or the one value
  bool result = false;  // compared with the CPU's
};

/// What is timed. `run` takes the operands' addresses, on the device or on the host.
struct Work {
  std::vector<Operand> operands;
  int64_t bytes;
  std::function<void(const std::vector<void*>& at, bool on_device)> run;
};

template <class T>
DeviceArray uploaded(int64_t count, DType dtype, const std::function<T(int64_t)>& value) {
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(value(i));
  DeviceArray array(count, dtype);
  cuda::copy_to_device(0, array.as<T>(), values.data(), values.size() * sizeof(T));
  cuda::synchronize(0);
  return array;
}

DeviceArray make(const Operand& o, uint64_t seed) {
  switch (o.holds) {
    case Holds::numbers:
      return {o.count, o.dtype, seed, static_cast<float>(o.value)};
    case Holds::ids:
      return uploaded<int64_t>(o.count, o.dtype,
                               [&](int64_t i) { return (i * 7919 + 11) % static_cast<int64_t>(o.value); });
    case Holds::one_value:
      if (o.dtype == DType::i64)
        return uploaded<int64_t>(1, o.dtype, [&](int64_t) { return static_cast<int64_t>(o.value); });
      return uploaded<double>(1, o.dtype, [&](int64_t) { return o.value; });
    case Holds::nothing:
      break;
  }
  return {o.count, o.dtype};
}

class Problem {
 public:
  explicit Problem(Work work) : work_(std::move(work)) {
    const int sets = bench::rotation(work_.bytes);
    for (int i = 0; i < sets; ++i) {
      uint64_t seed = 100 * static_cast<uint64_t>(i);
      sets_.emplace_back();
      for (const Operand& o : work_.operands) sets_.back().push_back(make(o, ++seed));
    }
    wrong_ = compare();
  }

  int sets() const { return static_cast<int>(sets_.size()); }
  int64_t bytes() const { return work_.bytes; }
  const std::string& wrong() const { return wrong_; }

  void operator()(int i) const {
    std::vector<void*> at;
    for (const DeviceArray& array : sets_[static_cast<size_t>(i)]) at.push_back(array.as<void>());
    work_.run(at, true);
  }

 private:
  // The first set against the CPU's kernels; empty if all is right.
  std::string compare() const {
    std::vector<std::vector<unsigned char>> host;
    std::vector<void*> at;
    for (const DeviceArray& array : sets_[0]) host.push_back(array.get<unsigned char>());
    for (auto& bytes : host) at.push_back(bytes.data());
    (*this)(0);
    work_.run(at, false);
    for (size_t i = 0; i < host.size(); ++i) {
      const Operand& o = work_.operands[i];
      if (!o.result) continue;
      const double error = o.dtype == DType::bf16 ? error_of<bfloat16>(sets_[0][i], at[i], o.count)
                                                  : error_of<float>(sets_[0][i], at[i], o.count);
      if (!(error <= (o.dtype == DType::bf16 ? 0x1p-7 : 0x1p-18)))
        return "operand " + std::to_string(i) + " is off by " + std::to_string(error);
    }
    return "";
  }

  template <class T>
  static double error_of(const DeviceArray& got, const void* want, int64_t count) {
    const T* values = static_cast<const T*>(want);
    return bench::relative_error(got.get<T>(), std::vector<T>(values, values + count));
  }

  Work work_;
  std::vector<std::vector<DeviceArray>> sets_;
  std::string wrong_;
};

#define HEED_ON(on_device, function, ...) on_device ? cuda::function(__VA_ARGS__) : cpu::function(__VA_ARGS__)

template <class T>
T* to(void* at) {
  return static_cast<T*>(at);
}

template <class T>
constexpr int64_t kSize = static_cast<int64_t>(sizeof(T));

template <class T>
Work gelu_forward(int64_t rows, int64_t cols) {
  const int64_t count = rows * cols;
  const DType type = dtype_of<T>();
  return {{{count, type, Holds::numbers}, {.count = count, .dtype = type, .result = true}},
          2 * count * kSize<T>,
          [=](const std::vector<void*>& at, bool on_device) {
            const kernels::ActivationForward<T> args{Activation::gelu, to<T>(at[0]), to<T>(at[1]), count};
            HEED_ON(on_device, activation_forward, args);
          }};
}

template <class T>
Work gelu_backward(int64_t rows, int64_t cols) {
  const int64_t count = rows * cols;
  const DType type = dtype_of<T>();
  return {{{count, type, Holds::numbers},
           {count, type, Holds::numbers},
           {.count = count, .dtype = type, .result = true}},
          3 * count * kSize<T>,
          [=](const std::vector<void*>& at, bool on_device) {
            const kernels::ActivationBackward<T> args{Activation::gelu, to<T>(at[0]), to<T>(at[1]),
                                                      to<T>(at[2]),     count,        false};
            HEED_ON(on_device, activation_backward, args);
          }};
}

template <class T>
Work softmax_forward(int64_t rows, int64_t cols) {
  const DType type = dtype_of<T>();
  return {{{rows * cols, type, Holds::numbers}, {.count = rows * cols, .dtype = type, .result = true}},
          2 * rows * cols * kSize<T>,
          [=](const std::vector<void*>& at, bool on_device) {
            const kernels::SoftmaxForward<T> args{to<T>(at[0]), to<T>(at[1]), rows, cols, false};
            HEED_ON(on_device, softmax_forward, args);
          }};
}

template <class T>
Work softmax_backward(int64_t rows, int64_t cols) {
  const DType type = dtype_of<T>();
  return {{{rows * cols, type, Holds::numbers, 0.01},
           {rows * cols, type, Holds::numbers},
           {.count = rows * cols, .dtype = type, .result = true}},
          3 * rows * cols * kSize<T>,
          [=](const std::vector<void*>& at, bool on_device) {
            const kernels::SoftmaxBackward<T> args{to<T>(at[0]), to<T>(at[1]), to<T>(at[2]), rows,
                                                   cols,         false,        false};
            HEED_ON(on_device, softmax_backward, args);
          }};
}

/// With its gradient.
template <class T>
Work cross_entropy(int64_t rows, int64_t cols) {
  const DType type = dtype_of<T>();
  return {{{rows * cols, type, Holds::numbers},
           {rows, DType::i64, Holds::ids, static_cast<double>(cols)},
           {.count = 1, .dtype = DType::f32, .result = true},
           {.count = 1, .dtype = DType::i64},
           {.count = rows * cols, .dtype = type, .result = true}},
          2 * rows * cols * kSize<T> + 12 * rows,
          [=](const std::vector<void*>& at, bool on_device) {
            const kernels::CrossEntropyForward<T> args{
                to<T>(at[0]),     to<int64_t>(at[1]), -1,           0.1,  true,
                to<float>(at[2]), to<int64_t>(at[3]), to<T>(at[4]), rows, cols};
            HEED_ON(on_device, cross_entropy_forward, args);
          }};
}

constexpr int64_t kVocabulary = 1000;

template <class T>
Work embedding_forward(int64_t rows, int64_t cols) {
  const DType type = dtype_of<T>();
  return {{{rows, DType::i64, Holds::ids, kVocabulary},
           {kVocabulary * cols, type, Holds::numbers},
           {.count = rows * cols, .dtype = type, .result = true}},
          (rows + kVocabulary) * cols * kSize<T> + 8 * rows,
          [=](const std::vector<void*>& at, bool on_device) {
            const kernels::EmbeddingForward<T> args{
                to<int64_t>(at[0]), to<T>(at[1]), nullptr, nullptr,     {}, 1.0,
                to<T>(at[2]),       rows,         cols,    kVocabulary, 0};
            HEED_ON(on_device, embedding_forward, args);
          }};
}

template <class T>
Work embedding_backward(int64_t rows, int64_t cols) {
  return {{{rows, DType::i64, Holds::ids, kVocabulary},
           {rows * cols, dtype_of<T>(), Holds::numbers},
           {.count = kVocabulary * cols, .dtype = DType::f32, .result = true}},
          rows * cols * kSize<T> + 4 * kVocabulary * cols + 8 * rows,
          [=](const std::vector<void*>& at, bool on_device) {
            const kernels::EmbeddingBackward<T> args{to<T>(at[1]),
                                                     to<int64_t>(at[0]),
                                                     nullptr,
                                                     {},
                                                     1.0,
                                                     -1,
                                                     to<float>(at[2]),
                                                     nullptr,
                                                     false,
                                                     false,
                                                     rows,
                                                     cols,
                                                     kVocabulary,
                                                     0};
            HEED_ON(on_device, embedding_backward, args);
          }};
}

/// Of bf16 with masters in f32.
template <class T>
Work adam(int64_t rows, int64_t cols) {
  const int64_t count = rows * cols;
  constexpr bool kMaster = sizeof(T) == 2;
  const auto floats = [&](double mean, bool result) {
    return Operand{count, DType::f32, Holds::numbers, mean, result};
  };
  return {{{count, dtype_of<T>(), Holds::numbers, 0, true},
           kMaster ? floats(0, true) : Operand{.count = 1, .dtype = DType::f32},
           floats(0, false),
           floats(0, true),
           floats(3, true),
           {1, DType::f64, Holds::one_value, 1e-3},
           {1, DType::i64, Holds::one_value, 5}},
          (kMaster ? 30 : 28) * count,
          [=](const std::vector<void*>& at, bool on_device) {
            const kernels::StepPart<T> part{to<float>(at[2]), count, to<T>(at[0]), 0, 0};
            const kernels::AdamStep<T> args{.slice = {.parts = {&part, 1},
                                                      .master = kMaster ? to<float>(at[1]) : nullptr,
                                                      .written = false,
                                                      .steps = to<int64_t>(at[6]),
                                                      .lr = to<double>(at[5]),
                                                      .lr_factor = 1.0,
                                                      .weight_decay = 0.01,
                                                      .gradient_norm = nullptr,
                                                      .clip = 0.0},
                                            .m = to<float>(at[3]),
                                            .v = to<float>(at[4]),
                                            .beta1 = 0.9,
                                            .beta2 = 0.999,
                                            .eps = 1e-8,
                                            .decoupled = true};
            HEED_ON(on_device, adam_step, args);
          }};
}

#undef HEED_ON

// Google Benchmark calls a function several times: the problem is kept until another is asked for.
const Problem& problem(const std::string& name, Work (*make)(int64_t, int64_t), int64_t rows, int64_t cols) {
  static std::unique_ptr<Problem> kept;
  static std::string kept_name;
  const std::string wanted = name + '/' + std::to_string(rows) + '/' + std::to_string(cols);
  if (!kept || kept_name != wanted) {
    kept.reset();
    kept = std::make_unique<Problem>(make(rows, cols));
    kept_name = wanted;
  }
  return *kept;
}

void add(const std::string& name, Work (*make)(int64_t, int64_t), int64_t rows, int64_t cols) {
  const auto run = [=](benchmark::State& state) {
    const Problem& p = problem(name, make, state.range(0), state.range(1));
    if (!p.wrong().empty()) return state.SkipWithError(p.wrong().c_str());
    bench::time_on_device(state, p.sets(), p.bytes(), [&](int i) { p(i); });
  };
  auto* bench = bench::add(name, run);
  if (bench::emulated())
    bench->Args({13, 40});
  else
    bench->Args({rows, cols});
}

template <class T>
void add_large(const std::string& dtype) {
  add("gelu_forward/" + dtype, gelu_forward<T>, 8192, 4096);
  add("cross_entropy/" + dtype, cross_entropy<T>, 4096, 8192);
  add("adam/" + dtype, adam<T>, 16384, 1024);
}

}  // namespace

int main(int argc, char** argv) {
  add_large<float>("f32");
  add_large<bfloat16>("bf16");
  add("gelu_backward/bf16", gelu_backward<bfloat16>, 8192, 4096);
  add("softmax_forward/bf16", softmax_forward<bfloat16>, 32768, 1024);
  add("softmax_backward/bf16", softmax_backward<bfloat16>, 32768, 1024);
  add("cross_entropy_of_many_rows/bf16", cross_entropy<bfloat16>, 16384, 32768);
  add("cross_entropy_of_long_rows/bf16", cross_entropy<bfloat16>, 1024, 50304);
  add("embedding_forward/bf16", embedding_forward<bfloat16>, 32768, 1024);
  add("embedding_backward/bf16", embedding_backward<bfloat16>, 32768, 1024);
  return bench::run_benchmarks(argc, argv);
}

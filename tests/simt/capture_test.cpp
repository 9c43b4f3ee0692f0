// kernels/capture.h: graphs of kernels, copies and fills, their memory, and what a capture refuses.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>
#include <heed/kernels/activation.h>
#include <heed/kernels/capture.h>
#include <heed/kernels/optimizer.h>
#include <heed/kernels/runtime.h>
#include <heed/kernels/simt/dependent_launch.h>
#include <heed/kernels/simt/host/emulator.h>

#include "device_buffer.h"
#include "device_test.h"

namespace heed::cuda {
namespace {

using heed::testing::DeviceBuffer;
using heed::testing::emulated;
using heed::testing::message_of;

// Something to record: *step moves on by one.
void advance(const DeviceBuffer<int64_t>& step) { advance_steps({step.data(), nullptr, {}, nullptr}); }

TEST(Capture, RecordsAndRepeats) {
  DeviceBuffer<int64_t> step(std::vector<int64_t>{5}), copy(std::vector<int64_t>{0, 0});
  const Graph graph(0, make_arena(0), [&] {
    advance(step);
    fill_bytes(0, copy.data(), 0xff, 2 * sizeof(int64_t));
    copy_on_device(0, copy.data() + 1, step.data(), sizeof(int64_t));
  });
  synchronize(0);
  EXPECT_EQ(step.get(), std::vector<int64_t>{5}) << "nothing runs before the launch";
  EXPECT_EQ(copy.get(), (std::vector<int64_t>{0, 0}));
  graph.launch();
  graph.launch();
  synchronize(0);
  EXPECT_EQ(step.get(), std::vector<int64_t>{7});
  EXPECT_EQ(copy.get(), (std::vector<int64_t>{-1, 7}));
}

TEST(Capture, WhatIsOnTheSideIsBesideTheRestUntilItJoins) {
  DeviceBuffer<int64_t> step(std::vector<int64_t>{5}), other(std::vector<int64_t>{1}), copy(1);
  const auto work = [&] {
    advance(step);
    on_side(0, [&] { advance(step); });
    advance(other);
    on_side(0, [&] { advance(step); });
    join_side(0);
    join_side(0);
    copy_on_device(0, copy.data(), step.data(), sizeof(int64_t));
  };
  work();
  EXPECT_EQ(copy.get(), std::vector<int64_t>{8}) << "done at once where nothing is recorded";
  const Graph graph(0, make_arena(0), work);
  if (emulated()) {
    EXPECT_EQ(graph.nodes(), 5) << "what orders the streams is no node";
  }
  for (const int64_t value : {11, 14}) {
    graph.launch();
    synchronize(0);
    EXPECT_EQ(copy.get(), std::vector<int64_t>{value});
  }
  EXPECT_EQ(other.get(), std::vector<int64_t>{4});
}

// On a device of compute capability `capability`, how many kernels of the graph of `work` begin early.
uint64_t early_kernels(int capability, const std::function<void()>& work) {
  struct Restore {
    emulator::Config saved = emulator::config();
    ~Restore() { emulator::config() = saved; }
  } const restore;
  emulator::config().compute_capability = capability;
  const Graph graph(0, make_arena(0), work);
  const auto launched = [&] {
    const uint64_t before = emulator::stats().early_launches;
    graph.launch();
    return emulator::stats().early_launches - before;
  };
  const uint64_t first = launched();
  EXPECT_EQ(launched(), first);
  return first;
}

TEST(Capture, AKernelBeginsEarlyWhereAllThatItDependsOnIsAKernel) {
  if (!emulated()) GTEST_SKIP() << "a real device does not tell";
  DeviceBuffer<int64_t> step(std::vector<int64_t>{5}), other(std::vector<int64_t>{1});
  const auto chain = [&] {
    for (int i = 0; i < 4; ++i) advance(step);
  };
  EXPECT_EQ(early_kernels(90, chain), 3u) << "the first depends on nothing";
  EXPECT_EQ(early_kernels(80, chain), 0u) << "code for this device does not wait";
  EXPECT_EQ(early_kernels(90,
                          [&] {
                            advance(step);
                            fill_bytes(0, other.data(), 0, sizeof(int64_t));
                            advance(step);
                            copy_on_device(0, other.data(), step.data(), sizeof(int64_t));
                            advance(step);
                            advance(step);
                          }),
            1u)
      << "behind a fill or a copy all is over";
  EXPECT_EQ(early_kernels(90,
                          [&] {
                            advance(step);
                            on_side(0, [&] { advance(other); });  // early
                            advance(step);                        // early
                            join_side(0);
                            advance(step);
                            advance(step);  // early
                          }),
            3u)
      << "not behind kernels of two streams";
  simt::allows_dependent_launch = false;
  EXPECT_EQ(early_kernels(90, chain), 0u);
  simt::allows_dependent_launch = true;
  const uint64_t before = emulator::stats().early_launches;
  chain();
  EXPECT_EQ(emulator::stats().early_launches, before) << "nor where nothing is recorded";
}

TEST(Capture, KernelsThatMayBeginEarlySeeWhatThoseInFrontWrote) {
  constexpr size_t kCount = 5000, kKernels = 12;
  std::vector<float> x(kCount);
  for (size_t i = 0; i < kCount; ++i) x[i] = static_cast<float>(i % 97) / 32.0f - 1.0f;
  const DeviceBuffer<float> in(x);
  std::vector<std::unique_ptr<DeviceBuffer<float>>> steps;
  for (size_t i = 0; i < kKernels; ++i) steps.push_back(std::make_unique<DeviceBuffer<float>>(kCount));
  const auto work = [&] {
    for (const auto& step : steps) fill_bytes(0, step->data(), 0xff, kCount * sizeof(float));
    const float* from = in.data();
    for (const auto& step : steps) {
      activation_forward(kernels::ActivationForward<float>{
          .activation = Activation::gelu, .x = from, .y = step->data(), .count = kCount});
      from = step->data();
    }
  };
  work();
  const std::vector<float> expected = steps.back()->get();
  EXPECT_EQ(std::count_if(expected.begin(), expected.end(), [](float y) { return y != y; }), 0);
  const Graph graph(0, make_arena(0), work);
  for (int i = 0; i < 3; ++i) {
    graph.launch();
    synchronize(0);
    EXPECT_EQ(steps.back()->get(), expected);
  }
}

TEST(Capture, WhatDoesNotJoinCannotBeRecorded) {
  DeviceBuffer<int64_t> step(std::vector<int64_t>{5});
  const auto arena = make_arena(0);
  EXPECT_NE(message_of<DeviceError>([&] {
              const Graph graph(0, arena, [&] { on_side(0, [&] { advance(step); }); });
            }).find("cudaErrorStreamCaptureUnjoined"),
            std::string::npos);
  const auto fails = [&] {
    on_side(0, [&] {
      advance(step);
      throw OutOfMemory("of the work");
    });
  };
  EXPECT_EQ(message_of<OutOfMemory>([&] { const Graph graph(0, arena, fails); }), "of the work");
  const Graph graph(0, arena, [&] { advance(step); });
  graph.launch();
  synchronize(0);
  EXPECT_EQ(step.get(), std::vector<int64_t>{6});
}

TEST(Capture, PinnedMemoryTravelsWithTheGraphOrBesideIt) {
  PinnedMemory host(2 * sizeof(int64_t));
  auto* const numbers = reinterpret_cast<int64_t*>(host.data());
  DeviceBuffer<int64_t> step(1);
  const Graph graph(0, make_arena(0), [&] {
    upload(0, step.data(), numbers, sizeof(int64_t));
    advance(step);
    download(0, numbers + 1, step.data(), sizeof(int64_t));
  });
  Event done(0);
  done.wait();  // was never recorded
  upload(0, nullptr, numbers, 0);
  download(0, numbers, nullptr, 0);
  for (const int64_t value : {3, 30}) {
    numbers[0] = value;
    graph.launch();
    done.record();
    done.wait();
    EXPECT_EQ(numbers[1], value + 1);
  }
}

TEST(Capture, AReportGoesWhereTheDevicesMemorySays) {
  constexpr int kPieces = 70;  // more than a launch takes
  DeviceBuffer<int64_t> step(std::vector<int64_t>{1}), values(kPieces), where(1);
  PinnedMemory reports(2 * 1024);
  std::vector<Piece> pieces{{step.data(), sizeof(int64_t), kReportHeader}};
  for (size_t i = 1; i < kPieces; ++i)
    pieces.push_back({values.data() + i, sizeof(int64_t), kReportHeader + i * sizeof(int64_t)});
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < kPieces; ++i) numbers.push_back(100 + i);
  values.set(numbers);
  const Graph graph(0, make_arena(0), [&] {
    advance(step);
    report(0, pieces, {nullptr, reinterpret_cast<std::byte* const*>(where.data())});
  });
  for (const size_t slot : {0, 1, 0}) {
    std::byte* const to = reports.data() + slot * 1024;
    where.set({static_cast<int64_t>(reinterpret_cast<uintptr_t>(to))});
    graph.launch();
    synchronize(0);
    const auto* const got = reinterpret_cast<const int64_t*>(to + kReportHeader);
    EXPECT_EQ(got[0], step.get()[0]);
    for (int i = 1; i < kPieces; ++i) EXPECT_EQ(got[i], 100 + i);
    EXPECT_EQ(reinterpret_cast<const kernels::WrongIndex*>(to)->use, kernels::IndexUse::none);
  }
}

TEST(Capture, TakesMemoryFromTheArenaAtFixedAddresses) {
  const std::shared_ptr<Allocator> arena = make_arena(0);
  EXPECT_EQ(capture_memory(0), nullptr);
  void *first = nullptr, *second = nullptr;
  const auto work = [&](void*& pointer) {
    EXPECT_EQ(capture_memory(0), arena);
    pointer = arena->allocate(1000);
    fill_bytes(0, pointer, 7, 1000);
    arena->deallocate(pointer, 1000);
  };
  const Graph a(0, arena, [&] { work(first); });
  const int64_t calls = arena->stats().system_calls;
  const Graph b(0, arena, [&] { work(second); });
  EXPECT_EQ(second, first) << "graphs share what they use one after another";
  EXPECT_EQ(arena->stats().system_calls, calls);
  arena->release_cached();
  EXPECT_EQ(arena->stats().cached, 1024) << "the graphs know the address";
  EXPECT_EQ(capture_memory(0), nullptr);
  a.launch();
  b.launch();
  synchronize(0);
}

TEST(Capture, WhatIsFreedMeanwhileIsFreedAfterwards) {
  Allocator& memory = allocator(0);
  void* before = memory.allocate(64);
  const Graph graph(0, make_arena(0), [&] { memory.deallocate(before, 64); });
  graph.launch();
  synchronize(0);
  EXPECT_EQ(memory.stats().in_use, 0);
}

TEST(Capture, RefusesWhatWaitsAndLeavesTheStreamUsable) {
  DeviceBuffer<int64_t> step(std::vector<int64_t>{1});
  int64_t host = 0;
  PinnedMemory pinned(8);
  Event event(0);
  const auto arena = make_arena(0);
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"copy_to_host", [&] { copy_to_host(0, &host, step.data(), sizeof host); }},
      {"copy_to_device", [&] { copy_to_device(0, step.data(), &host, sizeof host); }},
      {"synchronize", [] { synchronize(0); }},
      {"Event::wait", [&] { event.wait(); }},
      {"capture", [&] { const Graph inner(0, arena, [] {}); }},
  };
  for (const auto& call : calls) {
    EXPECT_EQ(message_of<StateError>([&] {
                const Graph graph(0, arena, [&] {
                  advance(step);
                  call.second();
                });
              }),
              std::string(call.first) +
                  ": the host would wait for cuda:0 within a captured step, which cannot be repeated; do it "
                  "before or after the step");
    EXPECT_EQ(capture_memory(0), nullptr);
    copy_to_host(0, &host, step.data(), sizeof host);
    EXPECT_EQ(host, 1) << "nothing of it was done";
  }
  const Graph graph(0, arena, [&] { advance(step); });
  graph.launch();
  synchronize(0);
  EXPECT_EQ(step.get(), std::vector<int64_t>{2});
}

TEST(Capture, AMistakeBehindOurBackIsReportedAtTheEnd) {
  void* pointer = nullptr;
  const auto arena = make_arena(0);
  EXPECT_NE(message_of<DeviceError>([&] {
              const Graph graph(0, arena, [&] { EXPECT_NE(cudaMalloc(&pointer, 8), cudaSuccess); });
            }).find("cudaErrorStreamCaptureInvalidated"),
            std::string::npos);
  static_cast<void>(cudaGetLastError());
  const Graph graph(0, arena, [] {});
  graph.launch();
  synchronize(0);
}

TEST(Capture, AnotherThreadMustWait) {
  DeviceBuffer<int64_t> step(std::vector<int64_t>{1});
  std::string launches, waits;
  const Graph graph(0, make_arena(0), [&] {
    std::thread([&] {
      launches = message_of<StateError>([&] { advance(step); });
      waits = message_of<StateError>([] { synchronize(0); });
    }).join();
  });
  for (const std::string& message : {launches, waits})
    EXPECT_EQ(message, "cuda:0: another thread is capturing a graph; a device is for one thread meanwhile");
}

TEST(Capture, OutOfMemoryCanBeRepeatedWithLess) {
  if (!emulated()) GTEST_SKIP() << "the memory of a real device is not ours to limit";
  const emulator::Config saved = emulator::config();
  emulator::config().device_memory = 1 << 20;
  const auto arena = make_arena(0);
  const auto take = [&](size_t bytes) {
    const Graph graph(0, arena, [&] { arena->deallocate(arena->allocate(bytes), bytes); });
    graph.launch();
  };
  EXPECT_NE(message_of<OutOfMemory>([&] { take(2 << 20); }).find("cuda:0: cannot allocate 2097152 bytes"),
            std::string::npos);
  take(512 << 10);
  emulator::config() = saved;
}

TEST(Capture, ALaunchNeitherAllocatesNorWaits) {
  if (!emulated()) GTEST_SKIP() << "a real device does not count";
  DeviceBuffer<float> g(std::vector<float>{3, 4});
  DeviceBuffer<double> norm(1);
  const kernels::GradientPart<float> part{g.data(), 2};
  const Graph graph(0, make_arena(0), [&] {
    gradient_norm(kernels::GradientNorm<float>{{&part, 1}, norm.data()});
  });
  const emulator::Stats before = emulator::stats();
  graph.launch();
  const emulator::Stats after = emulator::stats();
  EXPECT_EQ(after.graph_launches, before.graph_launches + 1);
  EXPECT_EQ(after.launches, before.launches + 1);
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.synchronizations, before.synchronizations);
  EXPECT_EQ(norm.get(), std::vector<double>{5});
}

}  // namespace
}  // namespace heed::cuda

#include <gtest/gtest.h>

#include <heed/nn/decoding/decoder_cache.h>

#include "on_device.h"
#include "op_check.h"
#include "search_model.h"

namespace heed::nn {
namespace {

// The logits of steps with a cache, and those of the last rows of full forwards.
test::Tensors cached_and_full(const Transformer& model, Device device) {
  const NoGrad no_grad;
  const Tokens source = Tokens::packed(kSources, device);
  const Tensor memory = model.encode(source);
  DecoderCache cache(model, memory, source.segments);
  std::vector<std::vector<int64_t>> targets(3);
  test::Tensors all_cached, all_full;
  for (int64_t step = 0; step < 40; ++step) {  // past the cache's first capacity
    std::vector<int64_t> ids;
    for (size_t i = 0; i < 3; ++i) {
      ids.push_back(step == 0 ? 1 : 3 + (step * 5 + static_cast<int64_t>(i) * 2) % 4);
      targets[i].push_back(ids.back());
    }
    const Tensor cached = cache.step(tensor(ids, {3}).to(device));
    if (step % 13 != 0 && step != 1 && step != 32) continue;
    all_cached.push_back(cached);
    const Tensor full = model.logits(model.decode(Tokens::packed(targets, device), memory, source.segments));
    for (int64_t i = 0; i < 3; ++i) {
      const int64_t last = (i + 1) * (step + 1) - 1;
      all_full.push_back(full.slice(0, last, last + 1));
    }
  }
  return {cat(all_cached, 0), cat(all_full, 0)};
}

TEST(DecoderCache, AStepEqualsTheLastRowOfAFullForward) {
  for (NormPlacement norm : {NormPlacement::pre, NormPlacement::post})
    for (PositionKind position :
         {PositionKind::sinusoidal, PositionKind::learned, PositionKind::relative, PositionKind::alibi,
          PositionKind::rotary, PositionKind::t5, PositionKind::none}) {
      SCOPED_TRACE(concat(name(norm), ' ', name(position)));
      const auto model = small_model(norm, position, 7);
      model->eval();
      const test::Tensors got = cached_and_full(*model, kCpu);
      EXPECT_LE(test::max_difference(got[0], got[1]), 1e-12);
      if (norm == NormPlacement::post) continue;  // one of them is enough for an emulated device
      test::check_f32([&](DType dtype, Device device) {
        test::move(*model, dtype, device);
        return cached_and_full(*model, device);
      });
    }
}

TEST(DecoderCache, SelectFollowsParents) {
  const auto model = small_model(NormPlacement::pre, PositionKind::sinusoidal, 7);
  model->eval();
  const NoGrad no_grad;
  const Tokens source = Tokens::packed(kSources);
  const Tensor memory = model->encode(source);
  DecoderCache cache(*model, memory, source.segments);
  cache.step(tensor<int64_t>({1, 1, 1}));
  cache.step(tensor<int64_t>({3, 4, 5}));
  const std::vector<int64_t> parents{2, 0};
  cache.select(parents);
  EXPECT_EQ(cache.rows(), 2);
  const Tensor after = cache.step(tensor<int64_t>({6, 6}));
  DecoderCache fresh(*model, memory, source.segments);
  fresh.step(tensor<int64_t>({1, 1, 1}));
  fresh.step(tensor<int64_t>({3, 4, 5}));
  const Tensor straight = fresh.step(tensor<int64_t>({6, 6, 6}));
  EXPECT_LE(max(abs(after.select(0, 0) - straight.select(0, 2))).item<double>(), 1e-13);
  EXPECT_LE(max(abs(after.select(0, 1) - straight.select(0, 0))).item<double>(), 1e-13);
  const std::vector<int64_t> wrong{5};
  EXPECT_THROW(cache.select(wrong), IndexError);
}

}  // namespace
}  // namespace heed::nn

// What is added to the CPU attention's scores, and what hides single keys of them.
#if defined(HEED_KERNELS_CPU_ATTENTION_BIAS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_ATTENTION_BIAS_INL_H_
#undef HEED_KERNELS_CPU_ATTENTION_BIAS_INL_H_
#else
#define HEED_KERNELS_CPU_ATTENTION_BIAS_INL_H_
#endif

#include <algorithm>
#include <limits>

#include <heed/kernels/attention.h>
#include <heed/kernels/cpu/attention/attention_blocking.h>
#include <heed/kernels/cpu/simd/simd.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

template <class T>
HWY_INLINE bool changes_scores(const kernels::AttentionBias<T>& b, const Visibility& visibility) {
  return b.bias || b.mask || b.alibi_slopes || b.relative || visibility.dilation > 1;
}

template <class T, class A>
HWY_INLINE void add_bias(const kernels::AttentionBias<T>& b, const BatchHead& p, const ScoreBlock& at,
                         A* scores, int64_t stride) {
  constexpr A kHidden = -std::numeric_limits<A>::infinity();
  for (int64_t i = 0; i < at.queries; ++i) {
    const T* bias = b.bias + p.sequence * b.bias_stride[0] + p.head * b.bias_stride[1] +
                    (at.query + i) * b.bias_stride[2] + at.key * b.bias_stride[3];
    for (int64_t k = 0; k < at.keys; ++k) {
      const A value = static_cast<A>(bias[k * b.bias_stride[3]]);
      A& score = scores[k * stride + i];
      score = value == kHidden ? kHidden : score + value;  // hides a NaN too
    }
  }
}

template <class T, class A>
HWY_INLINE void add_relative(const kernels::AttentionBias<T>& b, const BatchHead& p, const ScoreBlock& at,
                             int64_t diagonal, A* scores, int64_t stride) {
  const int64_t limit = b.relative_limit;
  const T* table = b.relative + p.head * (2 * limit + 1) + limit;
  for (int64_t k = 0; k < at.keys; ++k) {
    for (int64_t i = 0; i < at.queries; ++i)
      scores[k * stride + i] += static_cast<A>(table[std::clamp(at.key + k - diagonal - i, -limit, limit)]);
  }
}

template <class A>
HWY_INLINE void add_alibi(A slope, const ScoreBlock& at, int64_t diagonal, A* scores, int64_t stride) {
  for (int64_t k = 0; k < at.keys; ++k) {
    for (int64_t i = 0; i < at.queries; ++i) {
      const int64_t distance = at.key + k - diagonal - i;
      scores[k * stride + i] -= slope * static_cast<A>(distance < 0 ? -distance : distance);
    }
  }
}

/// Scores of single keys that a mask or dilation hides become -inf.
template <class T, class A>
HWY_INLINE void hide_keys(const kernels::AttentionBias<T>& b, const Visibility& visibility,
                          const BatchHead& p, const ScoreBlock& at, A* scores, int64_t stride) {
  constexpr A kHidden = -std::numeric_limits<A>::infinity();
  for (int64_t i = 0; i < at.queries; ++i) {
    if (b.mask) {
      const bool* mask = b.mask + p.sequence * b.mask_stride[0] + p.head * b.mask_stride[1] +
                         (at.query + i) * b.mask_stride[2] + at.key * b.mask_stride[3];
      for (int64_t k = 0; k < at.keys; ++k) {
        if (!mask[k * b.mask_stride[3]]) scores[k * stride + i] = kHidden;
      }
    }
    if (visibility.dilation <= 1) continue;
    for (int64_t k = 0; k < at.keys; ++k) {
      if (!visibility.visible(at.query + i, at.key + k, p.queries, p.keys)) scores[k * stride + i] = kHidden;
    }
  }
}

/// All that the bias and single hidden keys do to a block of scores; the intervals of VisibleKeys come later.
template <class T, class A>
HWY_NOINLINE void change_scores(const kernels::AttentionBias<T>& b, const Visibility& visibility,
                                const BatchHead& p, const ScoreBlock& at, A* scores, int64_t stride) {
  const int64_t diagonal = visibility.diagonal(at.query, p.queries, p.keys);
  if (b.bias) add_bias(b, p, at, scores, stride);
  if (b.alibi_slopes) add_alibi(static_cast<A>(b.alibi_slopes[p.head]), at, diagonal, scores, stride);
  if (b.relative) add_relative(b, p, at, diagonal, scores, stride);
  if (b.mask || visibility.dilation > 1) hide_keys(b, visibility, p, at, scores, stride);
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

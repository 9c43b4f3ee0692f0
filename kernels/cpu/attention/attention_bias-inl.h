// What the CPU attention's scores are capped by, what is added to them, and what hides single keys.
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
#include <heed/kernels/cpu/simd/math-inl.h>
#include <heed/kernels/cpu/simd/simd.h>
#include <heed/kernels/cpu/simd/tail-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// Whether the rule hides single keys, or a pattern's blocks need not be those of the loops.
inline bool hides_within_blocks(const VisibilityView& v) {
  return v.dilation > 1 || (v.blocks.given() && is_bottom_right(v.causal));
}

template <class T>
HWY_INLINE bool changes_scores(const kernels::AttentionScores<T>& args) {
  const kernels::AttentionBias<T>& b = args.bias;
  return args.logit_cap > 0 || b.bias || b.mask || b.alibi_slopes || b.relative ||
         hides_within_blocks(args.visibility);
}

/// Scores become cap tanh(score / cap), and slopes, if wanted, the derivative of that: `rows` of `count`.
template <class D>
HWY_INLINE void cap_scores(D d, hn::TFromD<D> cap, int64_t rows, int64_t count, int64_t stride,
                           hn::TFromD<D>* scores, hn::TFromD<D>* slopes) {
  const auto most = hn::Set(d, cap), one = hn::Set(d, hn::TFromD<D>(1));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < count; c += static_cast<int64_t>(hn::Lanes(d))) {
      const int64_t at = r * stride + c;
      const auto t = tanh(d, hn::Div(load_up_to(d, scores + at, count - c), most));
      store_up_to(hn::Mul(most, t), d, scores + at, count - c);
      if (slopes) store_up_to(hn::Mul(hn::Sub(one, t), hn::Add(one, t)), d, slopes + at, count - c);
    }
  }
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

/// Scores of single keys that a mask, dilation or a pattern hides become -inf.
template <class T, class A>
HWY_INLINE void hide_keys(const kernels::AttentionBias<T>& b, const VisibilityView& visibility,
                          const BatchHead& p, const ScoreBlock& at, A* scores, int64_t stride) {
  constexpr A kHidden = -std::numeric_limits<A>::infinity();
  const int64_t place = visibility.diagonal(at.query, p.queries, p.keys);
  const bool by_rule =
      visibility.dilation > 1 ||
      (visibility.blocks.given() &&
       visibility.blocks.block(place, place + at.queries, at.key, at.key + at.keys) != BlockVisibility::all);
  for (int64_t i = 0; i < at.queries; ++i) {
    if (b.mask) {
      const bool* mask = b.mask + p.sequence * b.mask_stride[0] + p.head * b.mask_stride[1] +
                         (at.query + i) * b.mask_stride[2] + at.key * b.mask_stride[3];
      for (int64_t k = 0; k < at.keys; ++k) {
        if (!mask[k * b.mask_stride[3]]) scores[k * stride + i] = kHidden;
      }
    }
    if (!by_rule) continue;
    for (int64_t k = 0; k < at.keys; ++k) {
      if (!visibility.sees(at.query + i, at.key + k, p.queries, p.keys)) scores[k * stride + i] = kHidden;
    }
  }
}

/// All that the cap, the bias and single hidden keys do to a block of scores, a row a key, or of one query's
/// keys side by side (stride 1); the intervals of VisibleKeys come later. Slopes: those of the cap, if any is
/// set, laid out as the scores; null if not wanted.
template <class T, class A>
HWY_NOINLINE void change_scores(const kernels::AttentionScores<T>& args, const BatchHead& p,
                                const ScoreBlock& at, A* scores, int64_t stride, A* slopes = nullptr) {
  const kernels::AttentionBias<T>& b = args.bias;
  const VisibilityView& visibility = args.visibility;
  const int64_t diagonal = visibility.diagonal(at.query, p.queries, p.keys);
  if (args.logit_cap > 0)
    cap_scores(Tag<A>(), static_cast<A>(args.logit_cap), stride == 1 ? 1 : at.keys,
               stride == 1 ? at.keys : at.queries, stride, scores, slopes);
  if (b.bias) add_bias(b, p, at, scores, stride);
  if (b.alibi_slopes) add_alibi(static_cast<A>(b.alibi_slopes[p.head]), at, diagonal, scores, stride);
  if (b.relative) add_relative(b, p, at, diagonal, scores, stride);
  if (b.mask || visibility.dilation > 1 || visibility.blocks.given())
    hide_keys(b, visibility, p, at, scores, stride);
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

// The forward of a query that is alone in its sequence, as all are in decoding: a vector holds neighbouring
// keys instead of neighbouring queries.
#if defined(HEED_KERNELS_CPU_ATTENTION_ONE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_ATTENTION_ONE_INL_H_
#undef HEED_KERNELS_CPU_ATTENTION_ONE_INL_H_
#else
#define HEED_KERNELS_CPU_ATTENTION_ONE_INL_H_
#endif

#include <utility>

#include <heed/kernels/cpu/attention/attention_forward-inl.h>
#include <heed/kernels/cpu/simd/horizontal_sums-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// scores[I] = q · row I for a vector of keys, of which the first `count` exist; -inf for the others.
template <class D, size_t... I>
HWY_INLINE void score_vector(D d, const Lane<D>* q, Rows<Lane<D>> keys, int64_t count, int64_t padded,
                             Lane<D>* scores, std::index_sequence<I...>) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const Lane<D>* const row[] = {keys.data + std::min(static_cast<int64_t>(I), count - 1) * keys.stride...};
  Vec<D> sum[sizeof...(I)];
  ((sum[I] = hn::Zero(d)), ...);
  for (int64_t c = 0; c < padded; c += lanes) {
    const auto x = hn::LoadU(d, q + c);
    ((sum[I] = hn::MulAdd(x, hn::LoadU(d, row[I] + c), sum[I])), ...);
  }
  const auto lowest = hn::Set(d, -std::numeric_limits<Lane<D>>::infinity());
  hn::StoreU(hn::IfThenElse(hn::FirstN(d, static_cast<size_t>(count)), horizontal_sums(d, sum), lowest), d,
             scores);
}

/// Scores of the keys that the query does not see become -inf.
template <class A>
HWY_INLINE void hide_unseen(const VisibleKeys& visible, const ScoreBlock& at, A* scores) {
  for (int64_t k = 0; k < at.keys; ++k) {
    const int64_t key = at.key + k;
    const bool sees = (key > visible.before[0] && key < visible.end[0]) || key < visible.global_end[0];
    if (!sees) scores[k] = -std::numeric_limits<A>::infinity();
  }
}

/// Turns whole vectors of scores into exponentials and updates the running softmax; returns what the sums of
/// earlier blocks, of which there are none if `first`, correction by.
template <class D>
HWY_INLINE Lane<D> softmax_row(D d, int64_t count, bool first, Lane<D>* scores, Lane<D>& row_max,
                               Lane<D>& row_sum) {
  using A = Lane<D>;
  constexpr A kLowest = -std::numeric_limits<A>::infinity();
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto largest = hn::Set(d, row_max);
  for (int64_t k = 0; k < count; k += lanes) largest = hn::Max(largest, hn::LoadU(d, scores + k));
  const A max_before = row_max;
  row_max = reduce_max(d, largest);
  const auto shift =
      hn::Set(d, row_max == kLowest ? A(0) : row_max);  // -inf: no key was seen yet, exp gives 0
  auto total = hn::Zero(d);
  for (int64_t k = 0; k < count; k += lanes) {
    const auto e = exp_fast(d, hn::Sub(hn::LoadU(d, scores + k), shift), kMinWeight);
    hn::StoreU(e, d, scores + k);
    total = hn::Add(total, e);
  }
  const A correction =
      first ? A(0) : hn::GetLane(exp_fast(d, hn::Sub(hn::Set(d, max_before), shift), kMinWeight));
  row_sum = row_sum * correction + reduce_sum(d, total);
  return correction;
}

/// out = correction * out + weights · rows, out counting as 0 if `first`. Four sums, which do not wait for
/// each other.
template <class D>
HWY_INLINE void weigh_row(D d, const Lane<D>* weights, Rows<Lane<D>> rows, int64_t keys, int64_t padded,
                          Lane<D> correction, bool first, Lane<D>* out) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t c = 0; c < padded; c += lanes) {
    auto s0 = first ? hn::Zero(d) : hn::Mul(hn::Set(d, correction), hn::LoadU(d, out + c));
    auto s1 = hn::Zero(d), s2 = s1, s3 = s1;
    const Lane<D>* row = rows.data + c;
    int64_t k = 0;
    for (; k + 4 <= keys; k += 4, row += 4 * rows.stride) {
      s0 = hn::MulAdd(hn::Set(d, weights[k]), hn::LoadU(d, row), s0);
      s1 = hn::MulAdd(hn::Set(d, weights[k + 1]), hn::LoadU(d, row + rows.stride), s1);
      s2 = hn::MulAdd(hn::Set(d, weights[k + 2]), hn::LoadU(d, row + 2 * rows.stride), s2);
      s3 = hn::MulAdd(hn::Set(d, weights[k + 3]), hn::LoadU(d, row + 3 * rows.stride), s3);
    }
    for (; k < keys; ++k, row += rows.stride) s0 = hn::MulAdd(hn::Set(d, weights[k]), hn::LoadU(d, row), s0);
    hn::StoreU(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), d, out + c);
  }
}

/// Without dropout, and without lse: a backward computes the scores as attend_block does, and would find
/// other roundings in it.
template <class T>
HWY_INLINE void attend_one(const kernels::AttentionForward<T>& args, const BatchHead& p, VisibleKeys& visible,
                           const AttentionScratch<accumulator_t<T>>& w) {
  using A = accumulator_t<T>;
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const std::make_index_sequence<static_cast<size_t>(kHorizontalSums<Tag<T>>)> all;
  pack_row(d, args.q.data + p.query_first * args.q.row_stride + p.head * args.q.head_stride, w.queries,
           args.width, w.padded, static_cast<A>(args.scale));
  find_visible_keys(args.visibility, p, 0, 1, visible);
  const bool changed = changes_scores(args);
  A most = -std::numeric_limits<A>::infinity(), sum = 0;
  bool first = true;
  for (int64_t key = visible.first / kKeyBlock * kKeyBlock; key < visible.last; key += kKeyBlock) {
    const ScoreBlock at{0, 1, key, std::min(kKeyBlock, visible.last - key), 1};
    const BlockVisibility seen = visible.block(key, key + at.keys);
    if (seen == BlockVisibility::none) continue;
    const auto rows = [&](const kernels::HeadsView<const T>& x, A* buffer) {
      return whole_rows(d, x.data + (p.key_first + key) * x.row_stride + p.key_head * x.head_stride,
                        x.row_stride, at.keys, args.width, w.padded, buffer);
    };
    const Rows<A> keys = rows(args.k, w.keys);
    for (int64_t k = 0; k < at.keys; k += lanes)
      score_vector(d, w.queries, {keys.data + k * keys.stride, keys.stride}, std::min(lanes, at.keys - k),
                   w.padded, w.scores + k, all);
    if (changed) change_scores(args, p, at, w.scores, 1);
    if (seen != BlockVisibility::all) hide_unseen(visible, at, w.scores);
    const A correction = softmax_row(d, at.keys, first, w.scores, most, sum);
    const Rows<A> values = rows(args.v, w.values);
    if ((changed || seen != BlockVisibility::all) &&
        !all_finite(d, values.data, values.stride, at.keys, w.padded)) {
      if (!first) shrink_rows(d, &correction, w.out, w.padded, 1);
      weigh_guarded(w.scores, 1, values, w.out, w.padded, 1, w.padded, at.keys, !first);
    } else {
      weigh_row(d, w.scores, values, at.keys, w.padded, correction, first, w.out);
    }
    first = false;
  }
  T* const out = args.out.data + p.query_first * args.out.row_stride + p.head * args.out.head_stride;
  if (sum == 0)
    std::fill_n(out, args.width, T(A(0)));
  else
    write_row(d, w.out, out, args.width, A(1) / sum, false);
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

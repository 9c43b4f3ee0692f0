#include <utility>

#include <hwy/cache_control.h>

#include <heed/kernels/cpu/convolution/convolution_columns.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/convolution/convolution_columns.cpp"
#include <heed/kernels/cpu/simd/simd.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// Most vectors of positions that are filled one after the other, and the least of rows for which to prepare
/// them.
constexpr int64_t kMaxVectors = 64, kMinRows = 24;
/// Whether to take a vector of pixels from two that lie side by side is an instruction or two.
constexpr bool kPermutes = HWY_TARGET == HWY_AVX3;

template <class A>
using PixelIndex = hn::TFromD<hn::RebindToSigned<Tag<A>>>;

/// out[c * taps + t] = pixels(image + c * plane + tap[t]), a vector for each channel and tap.
template <class A, class Pixels>
HWY_INLINE void fill_vector(const Columns<A>& args, const A* image, A* out, const Pixels& pixels) {
  const Tag<A> d;
  for (int64_t c = 0; c < args.channels; ++c, image += args.plane)
    for (int64_t t = 0; t < args.taps; ++t, out += args.width)
      hn::StoreU(pixels(image + args.tap[t]), d, out);
}

/// The same of pixels `place` from the first of them on, less than two vectors away.
template <class A>
struct Permutation {
  hn::Mask<Tag<A>> first;
  decltype(hn::IndicesFromVec(Tag<A>(), Vec<hn::RebindToSigned<Tag<A>>>())) lane;

  template <class V>
  HWY_INLINE explicit Permutation(V place)
      : first(hn::RebindMask(Tag<A>(), hn::Lt(place, lanes()))),
        lane(hn::IndicesFromVec(Tag<A>(), hn::And(place, hn::Sub(lanes(), hn::Set(Di(), 1))))) {}
  using Di = hn::RebindToSigned<Tag<A>>;
  static HWY_INLINE Vec<Di> lanes() { return hn::Set(Di(), static_cast<PixelIndex<A>>(hn::MaxLanes(Di()))); }
  HWY_INLINE Vec<Tag<A>> operator()(Vec<Tag<A>> low, Vec<Tag<A>> high) const {
    return hn::IfThenElse(first, hn::TableLookupLanes(low, lane), hn::TableLookupLanes(high, lane));
  }
};

/// Taps in threes side by side, which rise or fall (as in the gradient of x) by `step`, share what they load.
template <class A, class V>
HWY_INLINE void fill_threes(const Columns<A>& args, const A* image, A* out, V place, int64_t step) {
  const Tag<A> d;
  const hn::RebindToSigned<Tag<A>> di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), width = args.width, least = step > 0 ? 0 : 2;
  const auto next = hn::Set(di, static_cast<PixelIndex<A>>(step)),
             begin = hn::Add(place, hn::Set(di, static_cast<PixelIndex<A>>(least)));
  const Permutation<A> first(begin), second(hn::Add(begin, next)), third(hn::Add(begin, hn::Add(next, next)));
  for (int64_t c = 0; c < args.channels; ++c, image += args.plane)
    for (int64_t t = 0; t < args.taps; t += 3, out += 3 * width) {
      const A* const from = image + args.tap[t + least];
      const auto low = hn::LoadU(d, from), high = hn::LoadU(d, from + lanes);
      hn::StoreU(first(low, high), d, out);
      hn::StoreU(second(low, high), d, out + width);
      hn::StoreU(third(low, high), d, out + 2 * width);
    }
}

/// The step of taps that come in such threes, else 0.
template <class A>
HWY_INLINE int64_t step_of_threes(const Columns<A>& args) {
  if (args.taps % 3 != 0) return 0;
  const int64_t step = args.tap[1] - args.tap[0];
  bool all = step == 1 || step == -1;
  for (int64_t t = 0; all && t < args.taps; t += 3)
    all = args.tap[t + 1] - args.tap[t] == step && args.tap[t + 2] - args.tap[t + 1] == step;
  return all ? step : 0;
}

/// A vector of positions, whose pixels are `index` from the first of them on: they lie side by side, within
/// two vectors (where they go on in the next row), or further apart.
template <class A>
HWY_INLINE void fill_positions(const Columns<A>& args, const A* image, const PixelIndex<A>* index,
                               int64_t threes, A* out) {
  using Index = PixelIndex<A>;
  const Tag<A> d;
  const hn::RebindToSigned<Tag<A>> di;
  constexpr Index kLanes = static_cast<Index>(hn::MaxLanes(d));
  const auto place = hn::Sub(hn::LoadU(di, index), hn::Set(di, index[0]));
  if (hn::AllTrue(di, hn::Eq(place, hn::Iota(di, 0)))) {
    fill_vector(args, image, out, [d](const A* from) HWY_ATTR { return hn::LoadU(d, from); });
  } else if (threes != 0 && hn::AllTrue(di, hn::Lt(place, hn::Set(di, 2 * kLanes - 2)))) {
    fill_threes(args, image, out, place, threes);
  } else if (hn::AllTrue(di, hn::Lt(place, hn::Set(di, 2 * kLanes)))) {
    const Permutation<A> permute(place);
    fill_vector(args, image, out, [=](const A* from) HWY_ATTR {
      return permute(hn::LoadU(d, from), hn::LoadU(d, from + kLanes));
    });
  } else {
    fill_vector(args, image, out, [=](const A* from) HWY_ATTR { return hn::GatherIndex(d, from, place); });
  }
}

/// Into rows of whole vectors.
template <class A>
HWY_INLINE void fill_vectors(const Columns<A>& args, int64_t count) {
  using Index = PixelIndex<A>;
  const hn::RebindToSigned<Tag<A>> di;
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(di));
  Index index[(kMaxVectors + 2) * kLanes];  // of the pixel of each position; beyond the last they go on
  const int64_t first = args.runs[0].from;
  for (int64_t r = 0; r < args.run_count; ++r) {
    const PixelRun run = args.runs[r];
    for (int64_t i = 0; i < run.count + kLanes; i += kLanes)
      hn::StoreU(hn::Iota(di, static_cast<Index>(run.from - first + i)), di, index + run.to + i);
  }
  const int64_t threes = step_of_threes(args);
  for (int64_t i = 0; i < count; i += kLanes)
    fill_positions(args, args.image + first + index[i], index + i, threes, args.out + i);
}

/// Whether vectors of positions are filled one after the other.
template <class A>
HWY_INLINE bool fills_vectors(const Columns<A>& args, int64_t count) {
  constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(Tag<A>()));
  constexpr int64_t kFarthest = 1 << 30;  // indices have 32 bits
  return args.width % kLanes == 0 && args.channels * args.taps >= kMinRows && count <= kMaxVectors * kLanes &&
         args.runs[args.run_count - 1].from - args.runs[0].from < kFarthest;
}

template <class A>
HWY_INLINE void fill(const Columns<A> args) {
  if constexpr (kPermutes) {
    const PixelRun last = args.runs[args.run_count - 1];
    if (fills_vectors(args, last.to + last.count)) return fill_vectors(args, last.to + last.count);
  }
  const Tag<A> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  A* out = args.out;
  for (int64_t c = 0; c < args.channels; ++c)
    for (int64_t t = 0; t < args.taps; ++t, out += args.width) {
      const A* const image = args.image + c * args.plane + args.tap[t];
      for (int64_t r = 0; r < args.run_count; ++r) {
        const PixelRun run = args.runs[r];
        for (int64_t i = 0; i < run.count; i += lanes)
          hn::StoreU(hn::LoadU(d, image + run.from + i), d, out + run.to + i);
      }
    }
}

template <class A>
HWY_INLINE void store_zeros(A* out, int64_t count) {
  const Tag<A> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < count; i += lanes) store_n(hn::Zero(d), d, out + i, HWY_MIN(lanes, count - i));
}

/// out[i] = from[i * step]
template <class T, class A>
HWY_INLINE void copy_steps(const T* from, int64_t step, int64_t count, A* out) {
  const Tag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if (step == 1) {
    int64_t i = 0;
    for (; i + lanes <= count; i += lanes) hn::StoreU(load(d, from + i), d, out + i);
    if (i < count) store_n(load_n(d, from + i, count - i), d, out + i, count - i);
  } else if (step == 2) {
    for (int64_t i = 0; i < count; i += lanes) {
      const int64_t n = HWY_MIN(lanes, count - i), there = 2 * n - 1;
      const auto low = load_n(d, from + 2 * i, HWY_MIN(lanes, there));
      const auto high = there > lanes ? load_n(d, from + 2 * i + lanes, there - lanes) : hn::Zero(d);
      store_n(hn::ConcatEven(d, high, low), d, out + i, n);
    }
  } else {
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<A>(from[i * step]);
  }
}

/// Rows of a vector at most: what is written beyond one is written again with the next.
template <class T>
HWY_INLINE void pad_short_rows(const PaddedPlane<T>& args, accumulator_t<T>* out) {
  const Tag<T> d;
  const auto there = hn::AndNot(hn::FirstN(d, static_cast<size_t>(args.left)),
                                hn::FirstN(d, static_cast<size_t>(args.left + args.cols)));
  const T* from = args.from - args.left;
  for (int64_t r = 0; r < args.rows; ++r, from += args.from_row, out += args.left + args.cols + args.right) {
    hwy::Prefetch(from + args.next);
    hn::StoreU(hn::MaskedLoad(there, d, from), d, out);
  }
}

template <class T>
HWY_INLINE void pad_rows(const PaddedPlane<T>& args, accumulator_t<T>* out) {
  constexpr int64_t kLine = 64 / sizeof(T);
  const T* from = args.from;
  for (int64_t r = 0; r < args.rows; ++r, from += args.from_row, out += args.left + args.cols + args.right) {
    for (int64_t i = 0; i < args.cols * args.step; i += kLine) hwy::Prefetch(from + args.next + i);
    store_zeros(out, args.left);
    copy_steps(from, args.step, args.cols, out + args.left);
    store_zeros(out + args.left + args.cols, args.right);
  }
}

template <class T>
HWY_INLINE void pad(const PaddedPlane<T> args) {
  using A = accumulator_t<T>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Tag<T>()));
  const int64_t width = args.left + args.cols + args.right;
  A* const rows = args.out + args.above * width;
  store_zeros(args.out, args.above * width);
  bool done = false;
  if constexpr (std::is_same_v<T, A> && kMaskedMemory<T>) {
    done = args.step == 1 && width <= lanes;
    if (done) pad_short_rows(args, rows);
  }
  if (!done) pad_rows(args, rows);
  store_zeros(rows + args.rows * width, args.below * width);
}

/// Vectors of positions whose sums are made together: the more, the fewer loads of weights, and enough sums
/// that none is waited for.
template <int64_t Outputs>
constexpr int64_t kSumVectors = (HWY_TARGET == HWY_AVX3 ? 4 : 2) * (Outputs == 1 ? 2 : 1);

/// Sum i is that of output i / Vectors and of vector i % Vectors. Folds instead of loops: the sums must
/// become registers. Takes its arguments by value, which no store changes.
template <int64_t Outputs, class A, size_t... V, size_t... I>
HWY_INLINE void sum_vectors(const ColumnSums<A> args, const PixelRun* vectors, std::index_sequence<V...>,
                            std::index_sequence<I...>) {
  constexpr size_t kVectors = sizeof...(V);
  const Tag<A> d;
  const int64_t depth = args.channels * args.taps;
  Vec<Tag<A>> sums[sizeof...(I)], x[kVectors];
  const A* const image[] = {args.image + vectors[V].from...};
  const auto out = [&](size_t i) HWY_ATTR {
    return args.out + static_cast<int64_t>(i / kVectors) * args.out_stride + vectors[i % kVectors].to;
  };
  ((sums[I] = args.added ? load_n(d, out(I), vectors[I % kVectors].count) : hn::Zero(d)), ...);
  const A* weight = args.weight;
  for (int64_t c = 0; c < args.channels; ++c)
    for (int64_t t = 0; t < args.taps; ++t, ++weight) {
      const int64_t at = c * args.plane + args.tap[t];
      ((x[V] = hn::LoadU(d, image[V] + at)), ...);
      ((sums[I] = hn::MulAdd(hn::Set(d, weight[static_cast<int64_t>(I / kVectors) * depth]), x[I % kVectors],
                             sums[I])),
       ...);
    }
  ((store_n(sums[I], d, out(I), vectors[I % kVectors].count)), ...);
}

template <int64_t Outputs, class A>
HWY_INLINE void sum_runs(const ColumnSums<A>& args) {
  constexpr int64_t kVectors = kSumVectors<Outputs>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Tag<A>()));
  PixelRun vectors[kVectors];
  int64_t filled = 0;
  const auto flush = [&]() HWY_ATTR {
    for (int64_t i = filled; i < kVectors; ++i) vectors[i] = vectors[0];  // stored twice, with the same sums
    sum_vectors<Outputs>(args, vectors, std::make_index_sequence<kVectors>(),
                         std::make_index_sequence<Outputs * kVectors>());
    filled = 0;
  };
  for (int64_t r = 0; r < args.run_count; ++r) {
    const PixelRun run = args.runs[r];
    for (int64_t i = 0; i < run.count; i += lanes) {
      vectors[filled++] = {run.from + i, run.to + i, HWY_MIN(lanes, run.count - i)};
      if (filled == kVectors) flush();
    }
  }
  if (filled > 0) flush();
}

template <class A>
HWY_INLINE void sum(const ColumnSums<A>& args) {
  static_assert(kDirectOutputs == 4);
  switch (args.outputs) {
    case 1:
      return sum_runs<1>(args);
    case 2:
      return sum_runs<2>(args);
    case 3:
      return sum_runs<3>(args);
    default:
      return sum_runs<4>(args);
  }
}

void sum_f32(const ColumnSums<float>& args) { sum(args); }
void sum_f64(const ColumnSums<double>& args) { sum(args); }
void fill_f32(const Columns<float>& args) { fill(args); }
void fill_f64(const Columns<double>& args) { fill(args); }
void pad_f32(const PaddedPlane<float>& args) { pad(args); }
void pad_bf16(const PaddedPlane<bfloat16>& args) { pad(args); }
void pad_f64(const PaddedPlane<double>& args) { pad(args); }

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {

HWY_EXPORT(fill_f32);
HWY_EXPORT(fill_f64);
HWY_EXPORT(sum_f32);
HWY_EXPORT(sum_f64);
HWY_EXPORT(pad_f32);
HWY_EXPORT(pad_bf16);
HWY_EXPORT(pad_f64);

template <>
void pad_plane(const PaddedPlane<float>& args) {
  HEED_SIMD(pad_f32)(args);
}
template <>
void pad_plane(const PaddedPlane<bfloat16>& args) {
  HEED_SIMD(pad_bf16)(args);
}
template <>
void pad_plane(const PaddedPlane<double>& args) {
  HEED_SIMD(pad_f64)(args);
}

template <>
void fill_columns(const Columns<float>& args) {
  HEED_SIMD(fill_f32)(args);
}
template <>
void fill_columns(const Columns<double>& args) {
  HEED_SIMD(fill_f64)(args);
}

template <>
void sum_columns(const ColumnSums<float>& args) {
  HEED_SIMD(sum_f32)(args);
}
template <>
void sum_columns(const ColumnSums<double>& args) {
  HEED_SIMD(sum_f64)(args);
}

}  // namespace heed::cpu
#endif

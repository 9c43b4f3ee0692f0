// What the rows of all norms do with a residual and with gradients; follows simd.h.
#if defined(HEED_KERNELS_CPU_NORM_RESIDUAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEED_KERNELS_CPU_NORM_RESIDUAL_INL_H_
#undef HEED_KERNELS_CPU_NORM_RESIDUAL_INL_H_
#else
#define HEED_KERNELS_CPU_NORM_RESIDUAL_INL_H_
#endif

#include <heed/kernels/cpu/dropout_simd.h>
#include <heed/kernels/cpu/simd/streaming-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// Elements whose random bits are drawn at a time: few, so that prefetches made before are served meanwhile.
constexpr int64_t kChunk = 128;

/// Writes residual + dropout(x), also by non-temporal stores to `nontemporal` if it is not null, and takes
/// it into `sums` as it was stored.
template <class T, class Sums>
struct AddColumns {
  const T *residual, *x;
  T *out, *nontemporal;
  const Dropout* dropout;
  const uint8_t* keep_mask;  // a bit a column; null where nothing is dropped
  Sums sums;

  template <int I, class Io>
  HWY_INLINE void step(int64_t c, Io io) {
    prefetch_ahead(x + c);
    prefetch_ahead(residual + c);
    auto v = io.load(x + c);
    if (keep_mask != nullptr) v = apply_dropout(Tag<T>(), v, keep_mask, c, *dropout);
    v = hn::Add(io.load(residual + c), v);
    io.store(v, out + c);
    if (nontemporal != nullptr) NonTemporal<T>().store(v, nontemporal + c);
    if constexpr (std::is_same_v<T, bfloat16>) v = io.load(out + c);
    sums.template add<I>(v);
  }
};

/// Writes a row of residual + dropout(x) and returns its sums. What dropout keeps is written to
/// args.keep_mask or, where that is null, to `drawn`, a row's room.
template <class Sums, class T, class... Pipelined>
HWY_INLINE Sums add_row(const kernels::NormForward<T>& args, int64_t row, T* out, T* nontemporal,
                        uint8_t* drawn, Pipelined&... pipelined) {
  const int64_t first = row * args.cols;
  uint8_t* const keep_mask =
      args.keep_mask != nullptr ? args.keep_mask + row * keep_mask_bytes(args.cols) : drawn;
  AddColumns<T, Sums> columns{args.residual + first, args.x + first, out, nontemporal,
                              &args.dropout,         keep_mask,      {}};
  for (int64_t c = 0; c < args.cols; c += kChunk) {
    const int64_t n = std::min(kChunk, args.cols - c);
    if (args.dropout.active()) fill_keep_mask(args.dropout, first + c, n, keep_mask + c / 8);
    for_columns<T>(c, c + n, columns, pipelined...);
  }
  return columns.sums;
}

/// Hands the gradient of the sum, a row of it, on to residual and x.
template <class T>
struct StoreGradients {
  const T* gsum;
  T *gresidual, *gx;
  bool accumulate_residual, accumulate_x;
  const Dropout* dropout;
  const uint8_t* keep_mask;  // a bit a column; null where nothing is dropped

  template <class Io>
  HWY_INLINE void operator()(int64_t c, Vec<Tag<T>> v, Io io) const {
    if (gsum != nullptr) v = hn::Add(io.load(gsum + c), v);
    if (gresidual != nullptr)
      io.store(accumulate_residual ? hn::Add(io.load(gresidual + c), v) : v, gresidual + c);
    if (gx != nullptr) {
      if (keep_mask != nullptr) v = apply_dropout(Tag<T>(), v, keep_mask, c, *dropout);
      io.store(accumulate_x ? hn::Add(io.load(gx + c), v) : v, gx + c);
    }
  }
};

/// Stores the gradient of a row without a residual.
template <class T>
struct StoreGradient {
  T* gx;
  bool accumulate;

  template <class Io>
  HWY_INLINE void operator()(int64_t c, Vec<Tag<T>> v, Io io) const {
    if (gx == nullptr) return;
    io.store(accumulate ? hn::Add(io.load(gx + c), v) : v, gx + c);
  }
};

/// Where the gradients of rows of the sum go: operator() gives what takes a row's vectors.
template <class T, bool kResidual>
class GradientRows {
 public:
  explicit GradientRows(const kernels::NormBackward<T>& args)
      : args_(args),
        draws_(kResidual && args.dropout.active() && args.gx != nullptr && args.keep_mask == nullptr),
        drawn_(draws_ ? keep_mask_bytes(args.cols) : 0) {}

  HWY_INLINE auto operator()(int64_t row) const {
    const int64_t first = row * args_.cols;
    for (int64_t c = 0; draws_ && c < args_.cols; c += kChunk)
      fill_keep_mask(args_.dropout, first + c, std::min(kChunk, args_.cols - c), drawn_.data() + c / 8);
    if constexpr (!kResidual)
      return StoreGradient<T>{shifted(args_.gx, first), args_.accumulate_x};
    else
      return StoreGradients<T>{
          shifted(args_.gsum, first),
          shifted(args_.gresidual, first),
          shifted(args_.gx, first),
          args_.accumulate_residual,
          args_.accumulate_x,
          &args_.dropout,
          args_.keep_mask != nullptr ? args_.keep_mask + row * keep_mask_bytes(args_.cols) : drawn_.data()};
  }

 private:
  template <class P>
  static P* shifted(P* p, int64_t by) {
    return p == nullptr ? nullptr : p + by;
  }

  const kernels::NormBackward<T>& args_;
  const bool draws_;
  const Workspace<uint8_t> drawn_;
};

/// Whether a gradient, if it is wanted, may be written by non-temporal stores.
template <class T>
HWY_INLINE bool may_stream(const T* gradient, bool accumulate, const kernels::NormBackward<T>& args) {
  const int streams = args.residual ? 4 : 3;
  return gradient == nullptr ||
         (!accumulate && uses_nontemporal_stores(gradient, args.rows, args.cols, streams));
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

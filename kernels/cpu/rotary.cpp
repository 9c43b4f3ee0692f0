#include <algorithm>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/cpu/simd/typed_export.h>
#include <heed/kernels/cpu/tasks/grain.h>
#include <heed/kernels/rotary.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/rotary.cpp"
#include <heed/kernels/cpu/simd/simd.h>
// The -inl headers follow simd.h, which includes this file once per instruction set.
#include <heed/kernels/cpu/simd/columns-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// y[c] (+)= x[c] * own[c] + partner[c] * other[c], other negated if inverse. Without `partner` that of an
/// even column is the next one, that of an odd one the one before.
template <class T>
struct RotateColumns {
  const T *x, *partner;
  const accumulator_t<T>*own, *other;
  T* y;
  bool inverse, accumulate;

  template <int, class Io>
  HWY_INLINE void step(int64_t c, Io io) const {
    const Tag<T> d;
    const auto v = io.load(x + c);
    const auto w = partner == nullptr ? hn::Reverse2(d, v) : io.load(partner + c);
    auto factor = io.load(other + c);
    if (inverse) factor = hn::Neg(factor);
    auto turned = hn::MulAdd(w, factor, hn::Mul(v, io.load(own + c)));
    if (accumulate) turned = hn::Add(io.load(y + c), turned);
    io.store(turned, y + c);
  }
};

template <class T>
struct AccumulateColumns {
  const T* x;
  T* y;

  template <int, class Io>
  HWY_INLINE void step(int64_t c, Io io) const {
    io.store(hn::Add(io.load(y + c), io.load(x + c)), y + c);
  }
};

template <class T>
HWY_INLINE void copy_columns(const T* x, T* y, int64_t n, bool accumulate) {
  if (!accumulate) {
    std::copy_n(x, n, y);
    return;
  }
  AccumulateColumns<T> columns{x, y};
  for_columns<T>(0, n, columns);
}

template <class T>
void rotate_rows(const kernels::Rotary<T>& args, int64_t begin, int64_t end) {
  const int64_t cols = args.heads * args.width, half = args.rotated / 2;
  for (int64_t row = begin; row < end; ++row) {
    const accumulator_t<T>* const own = args.table + args.positions[row] * 2 * args.rotated;
    const accumulator_t<T>* const other = own + args.rotated;
    for (int64_t head = 0; head < args.rotated_heads; ++head) {
      const T* const x = args.x + row * cols + head * args.width;
      T* const y = args.y + row * cols + head * args.width;
      const auto rotate = [&](int64_t c, int64_t n, const T* partner) {
        RotateColumns<T> columns{x + c, partner, own + c, other + c, y + c, args.inverse, args.accumulate};
        for_columns<T>(0, n, columns);
      };
      if (args.pairing == RotaryPairing::interleaved) {
        rotate(0, args.rotated, nullptr);
      } else {
        rotate(0, half, x + half);
        rotate(half, half, x);
      }
      copy_columns(x + args.rotated, y + args.rotated, args.width - args.rotated, args.accumulate);
    }
    const int64_t rest = args.rotated_heads * args.width;
    copy_columns(args.x + row * cols + rest, args.y + row * cols + rest, cols - rest, args.accumulate);
  }
}
HEED_TYPED(rotate_rows, kernels::Rotary)

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {
namespace {

HEED_EXPORT_TYPED(rotate_rows)

}  // namespace

template <class T>
void rotary(const kernels::Rotary<T>& args) {
  kernels::check_positions(args.positions, args.rows, args.entries);
  const auto rotate = HEED_SIMD_OF(T, rotate_rows);
  parallel_for(args.rows, rows_per_task(args.rows, args.heads * args.width),
               [&](int64_t begin, int64_t end) { rotate(args, begin, end); });
}

template void rotary<float>(const kernels::Rotary<float>&);
template void rotary<bfloat16>(const kernels::Rotary<bfloat16>&);
template void rotary<double>(const kernels::Rotary<double>&);

}  // namespace heed::cpu
#endif

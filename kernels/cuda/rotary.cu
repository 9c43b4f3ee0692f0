#include <heed/kernels/cuda/elementwise.cuh>
#include <heed/kernels/cuda/indexing/wrong_index.cuh>
#include <heed/kernels/rotary.h>

namespace heed::cuda {
namespace {

// The space is that of y; operands 1 and 2 are the row and the column.
template <class T>
struct RotaryOp {
  static constexpr int kOperands = 3, kWidth = kVectorWidth<T>;
  kernels::Rotary<T> args;
  IndexGuard positions;

  // A vector lies in one head, and all of it is turned, with partners in one vector, or none.
  bool aligned() const {
    const int64_t run = args.pairing == RotaryPairing::half ? args.rotated / 2 : args.rotated;
    return args.width % kWidth == 0 && run % kWidth == 0 && aligned_for<kWidth>(args.x) &&
           aligned_for<kWidth>(args.y) && aligned_for<kWidth>(args.table);
  }

  // What the partners of columns c … c + kWidth - 1 of a head hold, whose first column is at `head`.
  template <int kWidth>
  __device__ __forceinline__ void load_partners(float (&out)[kWidth], const T* head, int64_t c) const {
    if (args.pairing == RotaryPairing::half) {
      const int64_t half = args.rotated / 2;
      return load(out, head + (c < half ? c + half : c - half));
    }
    if constexpr (kWidth == 1) {
      load(out, head + (c ^ 1));
    } else {
      float v[kWidth];
      load(v, head + c);
      for (int j = 0; j < kWidth; ++j) out[j] = v[j ^ 1];
    }
  }

  template <int kWidth>
  __device__ __forceinline__ void turn(float (&v)[kWidth], const T* head, int64_t row, int64_t c) const {
    const int64_t position = args.positions[row];
    if (!positions.holds(position, row)) {
      for (int j = 0; j < kWidth; ++j) v[j] = kNan;
      return;
    }
    const float* const entry = args.table + position * 2 * args.rotated;
    float partner[kWidth], own[kWidth], other[kWidth];
    load_partners(partner, head, c);
    load(own, entry + c);
    load(other, entry + args.rotated + c);
    for (int j = 0; j < kWidth; ++j)
      v[j] = v[j] * own[j] + partner[j] * (args.inverse ? -other[j] : other[j]);
  }

  template <int kWidth>
  __device__ __forceinline__ void run(const int64_t (&at)[3], unsigned) const {
    const int64_t head = at[2] / args.width, c = at[2] - head * args.width;
    float v[kWidth];
    load(v, args.x + at[0]);
    if (head < args.rotated_heads && c < args.rotated) turn(v, args.x + at[0] - c, at[1], c);
    if (args.accumulate) {
      float before[kWidth];
      load(before, args.y + at[0]);
      for (int j = 0; j < kWidth; ++j) v[j] += before[j];
    }
    store(args.y + at[0], v);
  }
};

}  // namespace

template <class T>
void rotary(const kernels::Rotary<T>& args) {
  elementwise("rotary", RotaryOp<T>{args, IndexGuard(kernels::IndexUse::rotary_position, args.entries)},
              rows_and_columns(args.rows, args.heads * args.width));
}

template void rotary<float>(const kernels::Rotary<float>&);
template void rotary<bfloat16>(const kernels::Rotary<bfloat16>&);

}  // namespace heed::cuda

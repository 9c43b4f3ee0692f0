#include <heed/kernels/cuda/elementwise.cuh>
#include <heed/kernels/cuda/indexing/wrong_index.cuh>
#include <heed/kernels/rotary.h>

namespace heed::cuda {
namespace {

// Of the halves that are turned with each other, a thread has both. The space is that of the columns but for
// all second halves: operands 1 and 2 are the row, and which of these columns of all heads.
template <class T>
struct RotaryOp {
  static constexpr int kOperands = 3, kWidth = kVectorWidth<T>;
  kernels::Rotary<T> args;
  IndexGuard positions;
  int64_t half;     // columns of a half; 0: partners are neighbours
  int64_t columns;  // of a head, but for the second half

  RotaryOp(const kernels::Rotary<T>& a)
      : args(a),
        positions(kernels::IndexUse::rotary_position, a.entries),
        half(a.pairing == RotaryPairing::half ? a.rotated / 2 : 0),
        columns(a.width - half) {}

  // A vector lies in one head, and all of it is turned, with partners in one vector, or none.
  bool aligned() const {
    const int64_t run = half > 0 ? half : args.rotated;
    return args.width % kWidth == 0 && run % kWidth == 0 && aligned_for<kWidth>(args.x) &&
           aligned_for<kWidth>(args.y) && aligned_for<kWidth>(args.table);
  }

  // v turned with its partner, by the table's factors from `entry` on.
  template <int kWidth>
  __device__ __forceinline__ void turn(float (&out)[kWidth], const float (&v)[kWidth],
                                       const float (&partner)[kWidth], const float* entry) const {
    float own[kWidth], other[kWidth];
    load(own, entry);
    load(other, entry + args.rotated);
    for (int j = 0; j < kWidth; ++j)
      out[j] = v[j] * own[j] + partner[j] * (args.inverse ? -other[j] : other[j]);
  }

  template <int kWidth>
  __device__ __forceinline__ void put(float (&v)[kWidth], int64_t place) const {
    if (args.accumulate) {
      float before[kWidth];
      load(before, args.y + place);
      for (int j = 0; j < kWidth; ++j) v[j] += before[j];
    }
    store(args.y + place, v);
  }

  // The factors of column c at a row's position; null where the table does not have it.
  __device__ __forceinline__ const float* entry(int64_t row, int64_t c) const {
    const int64_t position = args.positions[row];
    return positions.holds(position, row) ? args.table + position * 2 * args.rotated + c : nullptr;
  }

  template <int kWidth>
  __device__ __forceinline__ void run_halves(int64_t row, bool turned, int64_t c, int64_t place) const {
    float first[kWidth], second[kWidth], out[2][kWidth];
    load(first, args.x + place);
    load(second, args.x + place + half);
    const float* const factors = turned ? entry(row, c) : nullptr;
    if (factors != nullptr) {
      turn(out[0], first, second, factors);
      turn(out[1], second, first, factors + half);
    } else {
      for (int j = 0; j < kWidth; ++j) {
        out[0][j] = turned ? kNan : first[j];
        out[1][j] = turned ? kNan : second[j];
      }
    }
    put(out[0], place);
    put(out[1], place + half);
  }

  template <int kWidth>
  __device__ __forceinline__ void run_neighbours(int64_t row, bool turned, int64_t c, int64_t place) const {
    float v[kWidth], partner[kWidth], out[kWidth];
    load(v, args.x + place);
    if constexpr (kWidth == 1) {
      if (turned) load(partner, args.x + place + (c % 2 == 0 ? 1 : -1));
    } else {
      for (int j = 0; j < kWidth; ++j) partner[j] = v[j ^ 1];
    }
    const float* const factors = turned ? entry(row, c) : nullptr;
    if (factors != nullptr)
      turn(out, v, partner, factors);
    else
      for (int j = 0; j < kWidth; ++j) out[j] = turned ? kNan : v[j];
    put(out, place);
  }

  template <int kWidth>
  __device__ __forceinline__ void run(const int64_t (&at)[3], unsigned) const {
    const int64_t row = at[1], head = at[2] / columns, column = at[2] - head * columns;
    const int64_t c = column < half ? column : column + half;
    const int64_t place = (row * args.heads + head) * args.width + c;
    const bool turned = head < args.rotated_heads && c < args.rotated;
    column < half ? run_halves<kWidth>(row, turned, c, place) : run_neighbours<kWidth>(row, turned, c, place);
  }
};

}  // namespace

template <class T>
void rotary(const kernels::Rotary<T>& args) {
  const RotaryOp<T> op(args);
  elementwise("rotary", op, rows_and_columns(args.rows, args.heads * op.columns));
}

template void rotary<float>(const kernels::Rotary<float>&);
template void rotary<bfloat16>(const kernels::Rotary<bfloat16>&);

}  // namespace heed::cuda

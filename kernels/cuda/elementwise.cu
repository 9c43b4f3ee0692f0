#include <heed/kernels/cuda/convert.cuh>
#include <heed/kernels/cuda/elementwise.cuh>
#include <heed/kernels/division.h>
#include <heed/kernels/elementwise.h>

namespace heed::cuda {
namespace {

using kernels::BinaryOp;
using kernels::CompareOp;
using kernels::UnaryOp;

// Which operation it is is the same for all threads: one kernel per type has them all.

template <int kWidth, class M, class F>
__device__ __forceinline__ void each(M (&v)[kWidth], F f) {
#pragma unroll
  for (int j = 0; j < kWidth; ++j) v[j] = f(v[j]);
}

template <int kWidth>
__device__ __forceinline__ void apply(UnaryOp op, float (&v)[kWidth]) {
  switch (op) {
    case UnaryOp::negative:
      return each(v, [](float x) { return -x; });
    case UnaryOp::absolute:
      return each(v, [](float x) { return fabsf(x); });
    case UnaryOp::sign:
      return each(v, [](float x) { return x == 0.0f || x != x ? x : copysignf(1.0f, x); });
    case UnaryOp::exponential:
      return each(v, [](float x) { return expf(x); });
    case UnaryOp::logarithm:
      return each(v, [](float x) { return logf(x); });
    case UnaryOp::square_root:
      return each(v, [](float x) { return sqrtf(x); });
    case UnaryOp::reciprocal_square_root:
      return each(v, [](float x) { return 1.0f / sqrtf(x); });
    case UnaryOp::reciprocal:
      return each(v, [](float x) { return 1.0f / x; });
    case UnaryOp::sine:
      return each(v, [](float x) { return sinf(x); });
    case UnaryOp::cosine:
      return each(v, [](float x) { return cosf(x); });
    case UnaryOp::hyperbolic_tangent:
      return each(v, [](float x) { return tanhf(x); });
    case UnaryOp::sigmoid:
      return each(v, [](float x) { return 1.0f / (1.0f + expf(-x)); });
    case UnaryOp::error_function:
      return each(v, [](float x) { return erff(x); });
    case UnaryOp::square:
      return each(v, [](float x) { return x * x; });
    case UnaryOp::floor:
      return each(v, [](float x) { return floorf(x); });
    case UnaryOp::ceil:
      return each(v, [](float x) { return ceilf(x); });
    case UnaryOp::round:  // half to even
      return each(v, [](float x) { return nearbyintf(x); });
    case UnaryOp::log1p:
      return each(v, [](float x) { return log1pf(x); });
    case UnaryOp::expm1:
      return each(v, [](float x) { return expm1f(x); });
    case UnaryOp::softplus:
      return each(v, [](float x) { return (x > 0 ? x : 0.0f) + log1pf(expf(-fabsf(x))); });
    case UnaryOp::logical_not:
      break;
  }
}

template <int kWidth>
__device__ __forceinline__ void apply(UnaryOp, bool (&v)[kWidth]) {  // logical_not
  each(v, [](bool x) { return !x; });
}

template <int kWidth, class T>
__device__ __forceinline__ void apply(UnaryOp op, T (&v)[kWidth]) {
  const auto minus = [](T x) { return wrapping(T(0), x, [](auto a, auto b) { return a - b; }); };
  if (op == UnaryOp::negative) each(v, minus);
  if (op == UnaryOp::absolute) each(v, [minus](T x) { return x < 0 ? minus(x) : x; });
  if (op == UnaryOp::sign) each(v, [](T x) { return static_cast<T>((x > 0) - (x < 0)); });
  if (op == UnaryOp::square)
    each(v, [](T x) { return wrapping(x, x, [](auto a, auto b) { return a * b; }); });
}

template <int kWidth, class M, class F>
__device__ __forceinline__ void zip(M (&a)[kWidth], const M (&b)[kWidth], F f) {
#pragma unroll
  for (int j = 0; j < kWidth; ++j) a[j] = static_cast<M>(f(a[j], b[j]));
}

// What only floating numbers have.
template <int kWidth>
__device__ __forceinline__ void apply_floating(BinaryOp op, float (&a)[kWidth], const float (&b)[kWidth]) {
  switch (op) {
    case BinaryOp::divide:
      return zip(a, b, [](float x, float y) { return x / y; });
    case BinaryOp::power:
      return zip(a, b, [](float x, float y) { return powf(x, y); });
    case BinaryOp::leaky_relu:
      return zip(a, b, [](float x, float y) { return x > 0 ? x : y * x; });
    case BinaryOp::leaky_relu_slope:
      return zip(a, b, [](float x, float y) { return x > 0 ? 1.0f : y; });
    case BinaryOp::elu:
      return zip(a, b, [](float x, float y) { return x > 0 ? x : y * expm1f(x); });
    case BinaryOp::elu_slope:
      return zip(a, b, [](float x, float y) { return x > 0 ? 1.0f : y * expf(x); });
    default:
      break;
  }
}

/// a = op(a, b).
template <int kWidth, class M>
__device__ __forceinline__ void apply(BinaryOp op, M (&a)[kWidth], const M (&b)[kWidth]) {
  const auto arithmetic = [&](auto f) {
    zip(a, b, [f](M x, M y) {
      if constexpr (std::is_same_v<M, float>)
        return f(x, y);
      else
        return wrapping(x, y, f);
    });
  };
  switch (op) {
    case BinaryOp::add:
      return arithmetic([](auto x, auto y) { return x + y; });
    case BinaryOp::subtract:
      return arithmetic([](auto x, auto y) { return x - y; });
    case BinaryOp::multiply:
      return arithmetic([](auto x, auto y) { return x * y; });
    case BinaryOp::maximum:
      return zip(a, b, [](M x, M y) { return x > y || x != x ? x : y; });
    case BinaryOp::minimum:
      return zip(a, b, [](M x, M y) { return x < y || x != x ? x : y; });
    case BinaryOp::remainder:
      return zip(a, b, [](M x, M y) { return kernels::floor_remainder(x, y); });
    case BinaryOp::floor_divide:
      return zip(a, b, [](M x, M y) { return kernels::floor_quotient(x, y); });
    default:
      if constexpr (std::is_same_v<M, float>) apply_floating(op, a, b);
  }
}

template <int kWidth>
__device__ __forceinline__ void apply(BinaryOp op, bool (&a)[kWidth], const bool (&b)[kWidth]) {
  if (op == BinaryOp::logical_and)
    zip(a, b, [](bool x, bool y) { return x && y; });
  else
    zip(a, b, [](bool x, bool y) { return x || y; });
}

template <class M>
__device__ __forceinline__ bool holds(CompareOp op, M a, M b) {
  switch (op) {
    case CompareOp::equal:
      return a == b;
    case CompareOp::not_equal:
      return a != b;
    case CompareOp::less:
      return a < b;
    case CompareOp::less_equal:
      return a <= b;
    case CompareOp::greater:
      return a > b;
    case CompareOp::greater_equal:
      return a >= b;
  }
  return false;
}

template <class T>
struct MapOp {
  static constexpr int kOperands = 2, kWidth = kVectorWidth<T>;
  UnaryOp op;
  T* y;
  const T* x;

  bool aligned() const { return aligned_for<kWidth>(y) && aligned_for<kWidth>(x); }

  template <int kWidth>
  __device__ __forceinline__ void run(const int64_t (&at)[2], unsigned repeated) const {
    math_t<T> v[kWidth];
    read(v, x + at[1], repeated & 2);
    apply(op, v);
    store(y + at[0], v);
  }
};

template <class T>
struct PredicateOf {
  static constexpr int kOperands = 2, kWidth = kVectorWidth<T>;
  kernels::PredicateOp op;
  bool* y;
  const T* x;

  bool aligned() const { return aligned_for<kWidth>(y) && aligned_for<kWidth>(x); }

  template <int kWidth>
  __device__ __forceinline__ void run(const int64_t (&at)[2], unsigned repeated) const {
    float v[kWidth];
    bool out[kWidth];
    read(v, x + at[1], repeated & 2);
    for (int j = 0; j < kWidth; ++j)
      out[j] = op == kernels::PredicateOp::is_nan ? v[j] != v[j] : fabsf(v[j]) <= kMax<float>;
    store_raw(y + at[0], out);
  }
};

template <class T>
struct ZipOp {
  static constexpr int kOperands = 3, kWidth = kVectorWidth<T>;
  BinaryOp op;
  T* y;
  const T* a;
  const T* b;
  T scalar;

  bool aligned() const { return aligned_for<kWidth>(y) && aligned_for<kWidth>(a) && aligned_for<kWidth>(b); }

  template <int kWidth>
  __device__ __forceinline__ void take(math_t<T> (&v)[kWidth], const T* from, int64_t at,
                                       bool repeated) const {
    if (from == nullptr)
      for (int j = 0; j < kWidth; ++j) v[j] = scalar;
    else
      read(v, from + at, repeated);
  }

  template <int kWidth>
  __device__ __forceinline__ void run(const int64_t (&at)[3], unsigned repeated) const {
    math_t<T> left[kWidth], right[kWidth];
    take(left, a, at[1], repeated & 2);
    take(right, b, at[2], repeated & 4);
    apply(op, left, right);
    store(y + at[0], left);
  }
};

template <class T>
struct CompareTo {
  static constexpr int kOperands = 3, kWidth = kVectorWidth<T>;
  CompareOp op;
  bool* y;
  const T* a;
  const T* b;

  bool aligned() const { return aligned_for<kWidth>(y) && aligned_for<kWidth>(a) && aligned_for<kWidth>(b); }

  template <int kWidth>
  __device__ __forceinline__ void run(const int64_t (&at)[3], unsigned repeated) const {
    math_t<T> left[kWidth], right[kWidth];
    bool out[kWidth];
    read(left, a + at[1], repeated & 2);
    read(right, b + at[2], repeated & 4);
    for (int j = 0; j < kWidth; ++j) out[j] = holds(op, left[j], right[j]);
    store_raw(y + at[0], out);
  }
};

template <class T>
struct ClampTo {
  static constexpr int kOperands = 2, kWidth = kVectorWidth<T>;
  T* y;
  const T* x;
  T low, high;

  bool aligned() const { return aligned_for<kWidth>(y) && aligned_for<kWidth>(x); }

  template <int kWidth>
  __device__ __forceinline__ void run(const int64_t (&at)[2], unsigned repeated) const {
    using M = math_t<T>;
    const M least = low, most = high;
    M v[kWidth];
    read(v, x + at[1], repeated & 2);
    each(v, [=](M a) { return a < least ? least : a > most ? most : a; });
    store(y + at[0], v);
  }
};

template <class Bits>
struct WhereOp {  // on elements as they are
  static constexpr int kOperands = 4, kWidth = kVectorWidth<Bits>;
  Bits* y;
  const bool* condition;
  const Bits* a;
  const Bits* b;

  bool aligned() const {
    return aligned_for<kWidth>(y) && aligned_for<kWidth>(condition) && aligned_for<kWidth>(a) &&
           aligned_for<kWidth>(b);
  }

  template <int kWidth>
  __device__ __forceinline__ void run(const int64_t (&at)[4], unsigned repeated) const {
    bool choice[kWidth];
    Bits left[kWidth], right[kWidth];
    read(choice, condition + at[1], repeated & 2);
    read(left, a + at[2], repeated & 4);
    read(right, b + at[3], repeated & 8);
    for (int j = 0; j < kWidth; ++j) left[j] = choice[j] ? left[j] : right[j];
    store_raw(y + at[0], left);
  }
};

}  // namespace

template <class T>
void unary(const kernels::Unary<T>& args) {
  elementwise("unary", MapOp<T>{args.op, args.y, args.x}, args.index);
}

template <class T>
void predicate(const kernels::Predicate<T>& args) {
  elementwise("predicate", PredicateOf<T>{args.op, args.y, args.x}, args.index);
}

template <class T>
void binary(const kernels::Binary<T>& args) {
  elementwise("binary", ZipOp<T>{args.op, args.y, args.a, args.b, args.scalar}, args.index);
}

template <class T>
void compare(const kernels::Compare<T>& args) {
  elementwise("compare", CompareTo<T>{args.op, args.y, args.a, args.b}, args.index);
}

template <class T>
void clamp(const kernels::Clamp<T>& args) {
  elementwise("clamp", ClampTo<T>{args.y, args.x, args.low, args.high}, args.index);
}

template <class T>
void where(const kernels::Where<T>& args) {
  using Bits = unsigned_of_size<sizeof(T)>;
  elementwise("where",
              WhereOp<Bits>{reinterpret_cast<Bits*>(args.y), args.condition,
                            reinterpret_cast<const Bits*>(args.a), reinterpret_cast<const Bits*>(args.b)},
              args.index);
}

#define HEED_INSTANTIATE(T)                             \
  template void unary<T>(const kernels::Unary<T>&);     \
  template void binary<T>(const kernels::Binary<T>&);   \
  template void compare<T>(const kernels::Compare<T>&); \
  template void where<T>(const kernels::Where<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(int64_t)
HEED_INSTANTIATE(int32_t)
HEED_INSTANTIATE(bool)
template void clamp<float>(const kernels::Clamp<float>&);
template void clamp<bfloat16>(const kernels::Clamp<bfloat16>&);
template void clamp<int64_t>(const kernels::Clamp<int64_t>&);
template void clamp<int32_t>(const kernels::Clamp<int32_t>&);
template void predicate<float>(const kernels::Predicate<float>&);
template void predicate<bfloat16>(const kernels::Predicate<bfloat16>&);
#undef HEED_INSTANTIATE

}  // namespace heed::cuda

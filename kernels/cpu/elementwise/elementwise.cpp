#include <cmath>
#include <limits>
#include <type_traits>

#include <heed/core/base/check.h>
#include <heed/kernels/cpu/elementwise/elementwise-inl.h>
#include <heed/kernels/cpu/move_rows.h>
#include <heed/kernels/division.h>
#include <heed/kernels/elementwise.h>

namespace heed::cpu {

// ---- one operand

namespace {

template <class T, class F>
void map_all(const kernels::Unary<T>& args, int64_t grain, F f) {
  make_runs(args.index, grain, args.y, uses_nontemporal_stores(args.cost(), args.y, args.x),
            [&](const Run<2>& run, T* to) {
              map(run.n, to, run.step[0], args.x + run.at[1], run.step[1],
                  [f](T x) { return T(f(math_t<T>(x))); });
            });
}

// bool is a byte of 0 or 1, and of bytes the compiler makes vectors.
uint8_t* bytes(bool* p) { return reinterpret_cast<uint8_t*>(p); }
const uint8_t* bytes(const bool* p) { return reinterpret_cast<const uint8_t*>(p); }

template <class T>
void unary_floating(const kernels::Unary<T>& args) {
  using kernels::UnaryOp;
  using M = math_t<T>;
  switch (args.op) {
    case UnaryOp::negative:
      return map_all(args, kCheapGrain, [](M x) { return -x; });
    case UnaryOp::absolute:
      return map_all(args, kCheapGrain, [](M x) { return std::fabs(x); });
    case UnaryOp::sign:
      return map_all(args, kCheapGrain, [](M x) { return x == 0 || x != x ? x : std::copysign(M(1), x); });
    case UnaryOp::exponential:
      return map_all(args, kCostlyGrain, [](M x) { return std::exp(x); });
    case UnaryOp::logarithm:
      return map_all(args, kCostlyGrain, [](M x) { return std::log(x); });
    case UnaryOp::square_root:
      return map_all(args, kCheapGrain, [](M x) { return std::sqrt(x); });
    case UnaryOp::reciprocal_square_root:
      return map_all(args, kCheapGrain, [](M x) { return M(1) / std::sqrt(x); });
    case UnaryOp::reciprocal:
      return map_all(args, kCheapGrain, [](M x) { return M(1) / x; });
    case UnaryOp::sine:
      return map_all(args, kCostlyGrain, [](M x) { return std::sin(x); });
    case UnaryOp::cosine:
      return map_all(args, kCostlyGrain, [](M x) { return std::cos(x); });
    case UnaryOp::hyperbolic_tangent:
      return map_all(args, kCostlyGrain, [](M x) { return std::tanh(x); });
    case UnaryOp::sigmoid:
      return map_all(args, kCostlyGrain, [](M x) { return M(1) / (M(1) + std::exp(-x)); });
    case UnaryOp::error_function:
      return map_all(args, kCostlyGrain, [](M x) { return std::erf(x); });
    case UnaryOp::square:
      return map_all(args, kCheapGrain, [](M x) { return x * x; });
    case UnaryOp::floor:
      return map_all(args, kCheapGrain, [](M x) { return std::floor(x); });
    case UnaryOp::ceil:
      return map_all(args, kCheapGrain, [](M x) { return std::ceil(x); });
    case UnaryOp::round:  // half to even
      return map_all(args, kCheapGrain, [](M x) { return std::nearbyint(x); });
    case UnaryOp::log1p:
      return map_all(args, kCostlyGrain, [](M x) { return std::log1p(x); });
    case UnaryOp::expm1:
      return map_all(args, kCostlyGrain, [](M x) { return std::expm1(x); });
    case UnaryOp::softplus:
      return map_all(args, kCostlyGrain,
                     [](M x) { return (x > 0 ? x : M(0)) + std::log1p(std::exp(-std::fabs(x))); });
    case UnaryOp::logical_not:
      break;
  }
  HEED_ASSERT(false, "unary: operation ", int(args.op), " on ", dtype_of<T>());
}

bool is_costly(kernels::UnaryOp op) {
  using kernels::UnaryOp;
  return op == UnaryOp::exponential || op == UnaryOp::logarithm || op == UnaryOp::sine ||
         op == UnaryOp::cosine || op == UnaryOp::hyperbolic_tangent || op == UnaryOp::sigmoid ||
         op == UnaryOp::error_function || op == UnaryOp::log1p || op == UnaryOp::expm1 ||
         op == UnaryOp::softplus;
}

template <class T>
void unary_rows(const kernels::Unary<T>& args) {
  const auto row = unary_row<T>(args.op);
  HEED_ASSERT(row, "unary: operation ", int(args.op), " on ", dtype_of<T>());
  const int64_t grain = is_costly(args.op) ? kCostlyGrain : kRowGrain;
  make_runs(args.index, grain, args.y, uses_nontemporal_stores(args.cost(), args.y, args.x),
            [&](const Run<2>& run, T* to) {
              map_run(run.n, to, run.step[0], args.x + run.at[1], run.step[1], row);
            });
}

template <class T>
void unary_integer(const kernels::Unary<T>& args) {
  using kernels::UnaryOp;
  const auto negative = [](T x) { return wrapping(T(0), x, [](auto a, auto b) { return a - b; }); };
  switch (args.op) {
    case UnaryOp::negative:
      return map_all(args, kCheapGrain, negative);
    case UnaryOp::absolute:
      return map_all(args, kCheapGrain, [negative](T x) { return x < 0 ? negative(x) : x; });
    case UnaryOp::sign:
      return map_all(args, kCheapGrain, [](T x) { return (x > 0) - (x < 0); });
    case UnaryOp::square:
      return map_all(args, kCheapGrain,
                     [](T x) { return wrapping(x, x, [](auto a, auto b) { return a * b; }); });
    default:
      HEED_ASSERT(false, "unary: operation ", int(args.op), " on ", dtype_of<T>());
  }
}

}  // namespace

template <class T>
void unary(const kernels::Unary<T>& args) {
  if constexpr (kHasRows<T>) {
    unary_rows(args);
  } else if constexpr (kIsFloating<T>) {
    unary_floating(args);
  } else if constexpr (std::is_same_v<T, bool>) {
    HEED_ASSERT(args.op == kernels::UnaryOp::logical_not, "unary: operation ", int(args.op), " on bool");
    map_all(kernels::Unary<uint8_t>{args.op, bytes(args.y), bytes(args.x), args.index}, kCheapGrain,
            [](uint8_t x) { return x ^ 1; });
  } else {
    unary_integer(args);
  }
}

template <class T>
void predicate(const kernels::Predicate<T>& args) {
  using M = math_t<T>;
  const auto all = [&](auto f) {
    parallel_walk(args.index, kCheapGrain, [&](const Run<2>& run) {
      map(run.n, args.y + run.at[0], run.step[0], args.x + run.at[1], run.step[1], f);
    });
  };
  switch (args.op) {
    case kernels::PredicateOp::is_nan:
      return all([](T x) { return M(x) != M(x); });
    case kernels::PredicateOp::is_finite:
      return all([](T x) { return std::fabs(M(x)) <= std::numeric_limits<M>::max(); });
  }
}

// ---- two operands and three

namespace {

template <class T, class F>
void zip_all(const kernels::Binary<T>& args, int64_t grain, F f) {
  const bool nontemporal = uses_nontemporal_stores(args.cost(), args.y, args.a, args.b);
  make_runs(args.index, grain, args.y, nontemporal, [&](const Run<3>& run, T* to) {
    const T* a = args.a ? args.a + run.at[1] : &args.scalar;
    const T* b = args.b ? args.b + run.at[2] : &args.scalar;
    zip(run.n, to, run.step[0], a, args.a ? run.step[1] : 0, b, args.b ? run.step[2] : 0,
        [f](T left, T right) { return T(f(math_t<T>(left), math_t<T>(right))); });
  });
}

bool is_costly(kernels::BinaryOp op) {
  using kernels::BinaryOp;
  return op == BinaryOp::power || op == BinaryOp::remainder || op == BinaryOp::floor_divide ||
         op == BinaryOp::elu || op == BinaryOp::elu_slope;
}

template <class T>
void binary_rows(const kernels::Binary<T>& args) {
  const auto row = binary_row<T>(args.op);
  HEED_ASSERT(row, "binary: operation ", int(args.op), " on ", dtype_of<T>());
  const int64_t grain = is_costly(args.op) ? kCostlyGrain : kRowGrain;
  if (args.a && args.b && has_rows(args.index)) {
    const auto tile = [&](const Tile<3>& at) { zip_tile(at, args.y, args.a, args.b, row); };
    if (parallel_tiles(args.index, 1, tile) || parallel_tiles(args.index, 2, tile)) return;
  }
  const bool nontemporal = uses_nontemporal_stores(args.cost(), args.y, args.a, args.b);
  make_runs(args.index, grain, args.y, nontemporal, [&](const Run<3>& run, T* to) {
    const T* a = args.a ? args.a + run.at[1] : &args.scalar;
    const T* b = args.b ? args.b + run.at[2] : &args.scalar;
    zip_run(run.n, to, run.step[0], a, args.a ? run.step[1] : 0, b, args.b ? run.step[2] : 0, row);
  });
}

// What only floating numbers have.
template <class T>
void binary_floating(const kernels::Binary<T>& args) {
  using kernels::BinaryOp;
  using M = math_t<T>;
  switch (args.op) {
    case BinaryOp::divide:
      return zip_all(args, kCheapGrain, [](M a, M b) { return a / b; });
    case BinaryOp::power:
      return zip_all(args, kCostlyGrain, [](M a, M b) { return std::pow(a, b); });
    case BinaryOp::leaky_relu:
      return zip_all(args, kCheapGrain, [](M a, M b) { return a > 0 ? a : b * a; });
    case BinaryOp::leaky_relu_slope:
      return zip_all(args, kCheapGrain, [](M a, M b) { return a > 0 ? M(1) : b; });
    case BinaryOp::elu:
      return zip_all(args, kCostlyGrain, [](M a, M b) { return a > 0 ? a : b * std::expm1(a); });
    case BinaryOp::elu_slope:
      return zip_all(args, kCostlyGrain, [](M a, M b) { return a > 0 ? M(1) : b * std::exp(a); });
    default:
      HEED_ASSERT(false, "binary: operation ", int(args.op), " on ", dtype_of<T>());
  }
}

template <class T>
void binary_number(const kernels::Binary<T>& args) {
  using kernels::BinaryOp;
  using M = math_t<T>;
  const auto arithmetic = [&](auto f) {
    if constexpr (kIsFloating<T>)
      zip_all(args, kCheapGrain, f);
    else
      zip_all(args, kCheapGrain, [f](T a, T b) { return wrapping(a, b, f); });
  };
  switch (args.op) {
    case BinaryOp::add:
      return arithmetic([](auto a, auto b) { return a + b; });
    case BinaryOp::subtract:
      return arithmetic([](auto a, auto b) { return a - b; });
    case BinaryOp::multiply:
      return arithmetic([](auto a, auto b) { return a * b; });
    case BinaryOp::maximum:
      return zip_all(args, kCheapGrain, [](M a, M b) { return a > b || a != a ? a : b; });
    case BinaryOp::minimum:
      return zip_all(args, kCheapGrain, [](M a, M b) { return a < b || a != a ? a : b; });
    case BinaryOp::remainder:
      return zip_all(args, kCostlyGrain, kernels::floor_remainder<M>);
    case BinaryOp::floor_divide:
      return zip_all(args, kCostlyGrain, kernels::floor_quotient<M>);
    default:
      if constexpr (kIsFloating<T>) return binary_floating(args);
      HEED_ASSERT(false, "binary: operation ", int(args.op), " on ", dtype_of<T>());
  }
}

}  // namespace

template <class T>
void binary(const kernels::Binary<T>& args) {
  if constexpr (kHasRows<T>) {
    binary_rows(args);
  } else if constexpr (!std::is_same_v<T, bool>) {
    binary_number(args);
  } else {
    const kernels::Binary<uint8_t> all{args.op,       bytes(args.y), bytes(args.a),
                                       bytes(args.b), args.scalar,   args.index};
    if (args.op == kernels::BinaryOp::logical_and)
      return zip_all(all, kCheapGrain, [](int a, int b) { return a & b; });
    HEED_ASSERT(args.op == kernels::BinaryOp::logical_or, "binary: operation ", int(args.op), " on bool");
    zip_all(all, kCheapGrain, [](int a, int b) { return a | b; });
  }
}

template <class T>
void compare(const kernels::Compare<T>& args) {
  using kernels::CompareOp;
  using M = math_t<T>;
  const auto all = [&](auto f) {
    parallel_walk(args.index, kCheapGrain, [&](const Run<3>& run) {
      zip(run.n, args.y + run.at[0], run.step[0], args.a + run.at[1], run.step[1], args.b + run.at[2],
          run.step[2], [f](T a, T b) { return f(M(a), M(b)); });
    });
  };
  switch (args.op) {
    case CompareOp::equal:
      return all([](M a, M b) { return a == b; });
    case CompareOp::not_equal:
      return all([](M a, M b) { return a != b; });
    case CompareOp::less:
      return all([](M a, M b) { return a < b; });
    case CompareOp::less_equal:
      return all([](M a, M b) { return a <= b; });
    case CompareOp::greater:
      return all([](M a, M b) { return a > b; });
    case CompareOp::greater_equal:
      return all([](M a, M b) { return a >= b; });
  }
}

template <class T>
void clamp(const kernels::Clamp<T>& args) {
  constexpr int64_t kGrain = kHasRows<T> ? kRowGrain : kCheapGrain;
  const bool nontemporal = uses_nontemporal_stores(args.cost(), args.y, args.x);
  make_runs(args.index, kGrain, args.y, nontemporal, [&](const Run<2>& run, T* y) {
    const T* const x = args.x + run.at[1];
    if constexpr (kHasRows<T>) {
      map_run(run.n, y, run.step[0], x, run.step[1],
              [&](const UnaryRow<T>& row) { clamp_row(row, args.low, args.high); });
    } else {
      map(run.n, y, run.step[0], x, run.step[1], [&](T a) {
        return a < args.low ? args.low : a > args.high ? args.high : a;
      });
    }
  });
}

template <class T>
void where(const kernels::Where<T>& args) {
  constexpr int64_t kGrain = kHasRows<T> ? kRowGrain : kCheapGrain;
  const bool nontemporal = uses_nontemporal_stores(args.cost(), args.y, args.condition, args.a, args.b);
  make_runs(args.index, kGrain, args.y, nontemporal, [&](const Run<4>& run, T* y) {
    const bool* const condition = args.condition + run.at[1];
    const T *const a = args.a + run.at[2], *const b = args.b + run.at[3];
    if constexpr (kHasRows<T>) {
      if (run.step[0] == 1 && run.step[1] == 1 && (run.step[2] | 1) == 1 && (run.step[3] | 1) == 1)
        return where_row(WhereRow<T>{run.n, y, condition, a, b, run.step[2], run.step[3]});
    }
    for (int64_t i = 0; i < run.n; ++i)
      y[i * run.step[0]] = condition[i * run.step[1]] ? a[i * run.step[2]] : b[i * run.step[3]];
  });
}

#define HEED_INSTANTIATE(T)                             \
  template void unary<T>(const kernels::Unary<T>&);     \
  template void binary<T>(const kernels::Binary<T>&);   \
  template void compare<T>(const kernels::Compare<T>&); \
  template void where<T>(const kernels::Where<T>&);
#define HEED_INSTANTIATE_NUMBER(T) \
  HEED_INSTANTIATE(T)              \
  template void clamp<T>(const kernels::Clamp<T>&);
#define HEED_INSTANTIATE_FLOATING(T) \
  HEED_INSTANTIATE_NUMBER(T)         \
  template void predicate<T>(const kernels::Predicate<T>&);
HEED_INSTANTIATE_FLOATING(float)
HEED_INSTANTIATE_FLOATING(bfloat16)
HEED_INSTANTIATE_FLOATING(double)
HEED_INSTANTIATE_NUMBER(int64_t)
HEED_INSTANTIATE_NUMBER(int32_t)
HEED_INSTANTIATE(bool)
#undef HEED_INSTANTIATE_FLOATING
#undef HEED_INSTANTIATE_NUMBER
#undef HEED_INSTANTIATE

}  // namespace heed::cpu

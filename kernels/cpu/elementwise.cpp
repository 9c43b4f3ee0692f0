#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include <heed/core/base/check.h>
#include <heed/kernels/cpu/elementwise_rows.h>
#include <heed/kernels/cpu/strided-inl.h>
#include <heed/kernels/elementwise.h>

namespace heed::cpu {
namespace {

constexpr int64_t kCheapGrain = 32768;  // elements a task
constexpr int64_t kRowGrain = 16384;
constexpr int64_t kCostlyGrain = 4096;
constexpr int64_t kRowBuffer = 512;  // elements that are brought side by side at a time

template <class T>
inline constexpr bool kIsFloating = std::is_floating_point_v<T> || std::is_same_v<T, bfloat16>;

// Whether there are functions of whole rows (elementwise_rows.h).
template <class T>
inline constexpr bool kHasRows = std::is_same_v<T, float> || std::is_same_v<T, bfloat16>;

// The type in which elements are computed: bf16 in float, the others in their own.
template <class T>
using math_t = std::conditional_t<std::is_same_v<T, bfloat16>, float, T>;

template <class To, class From>
To convert(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (std::is_same_v<To, bool>) {
    return math_t<From>(x) != math_t<From>(0);
  } else if constexpr (std::is_integral_v<To> && kIsFloating<From>) {
    const math_t<From> v = x;
    constexpr auto kEnd = -math_t<From>(std::numeric_limits<To>::min());  // 2^31 or 2^63: exact
    if (!(v > -kEnd)) return v == v ? std::numeric_limits<To>::min() : To(0);
    return v < kEnd ? static_cast<To>(v) : std::numeric_limits<To>::max();
  } else if constexpr (std::is_same_v<To, bfloat16>) {
    return bfloat16(static_cast<float>(x));
  } else {
    return static_cast<To>(static_cast<math_t<From>>(x));
  }
}

// Integer arithmetic wraps.
template <class T, class F>
T wrapping(T a, T b, F f) {
  using U = std::make_unsigned_t<T>;
  return static_cast<T>(f(static_cast<U>(a), static_cast<U>(b)));
}

template <class Y, class X, class F>
void map(int64_t n, Y* y, int64_t step_y, const X* x, int64_t step_x, F f) {
  if (step_y == 1 && step_x == 1) {
    HEED_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) y[i] = f(x[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i * step_y] = f(x[i * step_x]);
  }
}

template <class Y, class A, class B, class F>
void zip(int64_t n, Y* y, int64_t step_y, const A* a, int64_t step_a, const B* b, int64_t step_b, F f) {
  if (step_y == 1 && step_a == 1 && step_b == 1) {
    HEED_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) y[i] = f(a[i], b[i]);
  } else if (step_y == 1 && step_a == 1 && step_b == 0) {
    const B right = *b;
    HEED_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) y[i] = f(a[i], right);
  } else if (step_y == 1 && step_a == 0 && step_b == 1) {
    const A left = *a;
    HEED_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) y[i] = f(left, b[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i * step_y] = f(a[i * step_a], b[i * step_b]);
  }
}

template <class T>
void fill_run(int64_t n, T* y, int64_t step, T value) {
  if (step == 1)
    for (int64_t i = 0; i < n; ++i) y[i] = value;
  else
    for (int64_t i = 0; i < n; ++i) y[i * step] = value;
}

// Elements that are not side by side pass through a buffer, so that their layout changes no bit.
template <class T>
const T* gather(const T* x, int64_t step, int64_t n, T* buffer) {
  if (step == 1) return x;
  for (int64_t i = 0; i < n; ++i) buffer[i] = x[i * step];
  return buffer;
}
template <class T>
void scatter(const T* row, T* y, int64_t step, int64_t n) {
  if (step == 1) return;
  for (int64_t i = 0; i < n; ++i) y[i * step] = row[i];
}

template <class T>
void map_run(int64_t n, T* y, int64_t step_y, const T* x, int64_t step_x, void (*row)(const UnaryRow<T>&)) {
  if (step_y == 1 && step_x == 1) return row({n, y, x});
  T from[kRowBuffer], to[kRowBuffer];
  for (int64_t i = 0; i < n; i += kRowBuffer) {
    const int64_t count = std::min(n - i, kRowBuffer);
    T* const result = step_y == 1 ? y + i : to;
    row({count, result, gather(x + i * step_x, step_x, count, from)});
    scatter(result, y + i * step_y, step_y, count);
  }
}

template <class T>
void zip_run(int64_t n, T* y, int64_t step_y, const T* a, int64_t step_a, const T* b, int64_t step_b,
             void (*row)(const BinaryRow<T>&)) {
  if (step_y == 1 && (step_a | 1) == 1 && (step_b | 1) == 1) return row({n, y, a, b, step_a, step_b});
  T left[kRowBuffer], right[kRowBuffer], to[kRowBuffer];
  for (int64_t i = 0; i < n; i += kRowBuffer) {
    const int64_t count = std::min(n - i, kRowBuffer);
    T* const result = step_y == 1 ? y + i : to;
    row({count, result, step_a == 0 ? a : gather(a + i * step_a, step_a, count, left),
         step_b == 0 ? b : gather(b + i * step_b, step_b, count, right), step_a != 0, step_b != 0});
    scatter(result, y + i * step_y, step_y, count);
  }
}

template <class T>
struct Sum {  // y + x, rounded once
  template <class X>
  T operator()(T y, X x) const {
    if constexpr (std::is_same_v<T, bool>) {
      return y || convert<bool>(x);
    } else if constexpr (std::is_integral_v<T>) {
      return wrapping(y, convert<T>(x), [](auto a, auto b) { return a + b; });
    } else if constexpr (std::is_same_v<T, double> || std::is_same_v<X, double>) {
      return convert<T>(static_cast<double>(y) + static_cast<double>(x));
    } else {
      return convert<T>(static_cast<float>(y) + static_cast<float>(x));
    }
  }
};

// Through a buffer, since rows of a tile that are a power of two apart push each other out of the cache.
template <class T>
void copy_tile(const Tile<2>& tile, T* y, const T* x) {
  T buffer[kTileSide][kTileSide + 1];
  for (int64_t j = 0; j < tile.n; ++j)
    for (int64_t i = 0; i < tile.rows; ++i) buffer[j][i] = x[tile.at[1] + i + j * tile.step[1]];
  for (int64_t i = 0; i < tile.rows; ++i)
    for (int64_t j = 0; j < tile.n; ++j)
      y[tile.at[0] + i * tile.row_step[0] + j * tile.step[0]] = buffer[j][i];
}

}  // namespace

template <class To, class From>
void copy(const kernels::Copy<To, From>& args) {
  if constexpr (std::is_same_v<To, From>) {
    const auto tile = [&](const Tile<2>& at) { copy_tile(at, args.y, args.x); };
    if (!args.accumulate && parallel_tiles(args.index, 1, tile)) return;
  }
  parallel_walk(args.index, kCheapGrain, [&](const Run<2>& run) {
    To* y = args.y + run.at[0];
    const From* x = args.x + run.at[1];
    if (args.accumulate) {
      if constexpr (std::is_same_v<To, From> && kHasRows<To>) {
        zip_run(run.n, y, run.step[0], static_cast<const To*>(y), run.step[0], x, run.step[1],
                binary_row<To>(kernels::BinaryOp::add));
      } else {
        zip(run.n, y, run.step[0], y, run.step[0], x, run.step[1], Sum<To>());
      }
    } else if (run.step[1] == 0) {
      fill_run(run.n, y, run.step[0], convert<To>(*x));
    } else if (std::is_same_v<To, From> && run.step[0] == 1 && run.step[1] == 1) {
      std::memmove(static_cast<void*>(y), x, static_cast<size_t>(run.n) * sizeof(To));
    } else if (std::is_same_v<To, From> && run.step[0] == 1 && run.step[1] == -1) {
      if constexpr (std::is_same_v<To, From>) std::reverse_copy(x - (run.n - 1), x + 1, y);
    } else if (kHasRows<To> && kHasRows<From> && run.step[0] == 1 && run.step[1] == 1) {
      if constexpr (std::is_same_v<To, bfloat16> && std::is_same_v<From, float>) narrow_row(run.n, y, x);
      if constexpr (std::is_same_v<To, float> && std::is_same_v<From, bfloat16>) widen_row(run.n, y, x);
    } else {
      map(run.n, y, run.step[0], x, run.step[1], convert<To, From>);
    }
  });
}

template <class T>
void fill(const kernels::Fill<T>& args) {
  parallel_walk(args.index, kCheapGrain,
                [&](const Run<1>& run) { fill_run(run.n, args.y + run.at[0], run.step[0], args.value); });
}

// ---- one operand
// --------------------------------------------------------------------------------------------

namespace {

template <class T, class F>
void map_all(const kernels::Unary<T>& args, int64_t grain, F f) {
  parallel_walk(args.index, grain, [&](const Run<2>& run) {
    map(run.n, args.y + run.at[0], run.step[0], args.x + run.at[1], run.step[1],
        [f](T x) { return T(f(math_t<T>(x))); });
  });
}

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
    case UnaryOp::logical_not:
      break;
  }
  HEED_ASSERT(false, "unary: operation ", int(args.op), " on ", dtype_of<T>());
}

bool is_costly(kernels::UnaryOp op) {
  using kernels::UnaryOp;
  return op == UnaryOp::exponential || op == UnaryOp::logarithm || op == UnaryOp::sine ||
         op == UnaryOp::cosine || op == UnaryOp::hyperbolic_tangent || op == UnaryOp::sigmoid ||
         op == UnaryOp::error_function;
}

template <class T>
void unary_rows(const kernels::Unary<T>& args) {
  const auto row = unary_row<T>(args.op);
  HEED_ASSERT(row, "unary: operation ", int(args.op), " on ", dtype_of<T>());
  parallel_walk(args.index, is_costly(args.op) ? kCostlyGrain : kRowGrain, [&](const Run<2>& run) {
    map_run(run.n, args.y + run.at[0], run.step[0], args.x + run.at[1], run.step[1], row);
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
    map_all(args, kCheapGrain, [](bool x) { return !x; });
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
// ---------------------------------------------------------------------------------

namespace {

template <class T, class F>
void zip_all(const kernels::Binary<T>& args, int64_t grain, F f) {
  parallel_walk(args.index, grain, [&](const Run<3>& run) {
    const T* a = args.a ? args.a + run.at[1] : &args.scalar;
    const T* b = args.b ? args.b + run.at[2] : &args.scalar;
    zip(run.n, args.y + run.at[0], run.step[0], a, args.a ? run.step[1] : 0, b, args.b ? run.step[2] : 0,
        [f](T left, T right) { return T(f(math_t<T>(left), math_t<T>(right))); });
  });
}

template <class T>
void binary_rows(const kernels::Binary<T>& args) {
  const auto row = binary_row<T>(args.op);
  HEED_ASSERT(row, "binary: operation ", int(args.op), " on ", dtype_of<T>());
  const int64_t grain = args.op == kernels::BinaryOp::power ? kCostlyGrain : kRowGrain;
  parallel_walk(args.index, grain, [&](const Run<3>& run) {
    const T* a = args.a ? args.a + run.at[1] : &args.scalar;
    const T* b = args.b ? args.b + run.at[2] : &args.scalar;
    zip_run(run.n, args.y + run.at[0], run.step[0], a, args.a ? run.step[1] : 0, b, args.b ? run.step[2] : 0,
            row);
  });
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
    case BinaryOp::divide:
      if constexpr (kIsFloating<T>) return zip_all(args, kCheapGrain, [](M a, M b) { return a / b; });
      break;
    case BinaryOp::power:
      if constexpr (kIsFloating<T>)
        return zip_all(args, kCostlyGrain, [](M a, M b) { return std::pow(a, b); });
      break;
    case BinaryOp::logical_and:
    case BinaryOp::logical_or:
      break;
  }
  HEED_ASSERT(false, "binary: operation ", int(args.op), " on ", dtype_of<T>());
}

}  // namespace

template <class T>
void binary(const kernels::Binary<T>& args) {
  if constexpr (kHasRows<T>) {
    binary_rows(args);
  } else if constexpr (!std::is_same_v<T, bool>) {
    binary_number(args);
  } else if (args.op == kernels::BinaryOp::logical_and) {
    zip_all(args, kCheapGrain, [](bool a, bool b) { return a & b; });
  } else {
    HEED_ASSERT(args.op == kernels::BinaryOp::logical_or, "binary: operation ", int(args.op), " on bool");
    zip_all(args, kCheapGrain, [](bool a, bool b) { return a | b; });
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
void where(const kernels::Where<T>& args) {
  parallel_walk(args.index, kCheapGrain, [&](const Run<4>& run) {
    T* y = args.y + run.at[0];
    const bool* condition = args.condition + run.at[1];
    const T* a = args.a + run.at[2];
    const T* b = args.b + run.at[3];
    if (run.step[0] == 1 && run.step[1] == 1 && run.step[2] == 1 && run.step[3] == 1) {
      HEED_INDEPENDENT
      for (int64_t i = 0; i < run.n; ++i) y[i] = condition[i] ? a[i] : b[i];
    } else {
      for (int64_t i = 0; i < run.n; ++i)
        y[i * run.step[0]] = condition[i * run.step[1]] ? a[i * run.step[2]] : b[i * run.step[3]];
    }
  });
}

#define HEED_INSTANTIATE_COPY(To)                                       \
  template void copy<To, float>(const kernels::Copy<To, float>&);       \
  template void copy<To, bfloat16>(const kernels::Copy<To, bfloat16>&); \
  template void copy<To, double>(const kernels::Copy<To, double>&);     \
  template void copy<To, int64_t>(const kernels::Copy<To, int64_t>&);   \
  template void copy<To, int32_t>(const kernels::Copy<To, int32_t>&);   \
  template void copy<To, bool>(const kernels::Copy<To, bool>&);
#define HEED_INSTANTIATE(T)                             \
  HEED_INSTANTIATE_COPY(T)                              \
  template void fill<T>(const kernels::Fill<T>&);       \
  template void unary<T>(const kernels::Unary<T>&);     \
  template void binary<T>(const kernels::Binary<T>&);   \
  template void compare<T>(const kernels::Compare<T>&); \
  template void where<T>(const kernels::Where<T>&);
#define HEED_INSTANTIATE_FLOATING(T) \
  HEED_INSTANTIATE(T)                \
  template void predicate<T>(const kernels::Predicate<T>&);
HEED_INSTANTIATE_FLOATING(float)
HEED_INSTANTIATE_FLOATING(bfloat16)
HEED_INSTANTIATE_FLOATING(double)
HEED_INSTANTIATE(int64_t)
HEED_INSTANTIATE(int32_t)
HEED_INSTANTIATE(bool)
#undef HEED_INSTANTIATE_FLOATING
#undef HEED_INSTANTIATE
#undef HEED_INSTANTIATE_COPY

}  // namespace heed::cpu

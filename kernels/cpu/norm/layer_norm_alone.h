// Rows of layer normalisation that are taken alone, in double: those whose sums overflow. They are rare, and
// the others pay nothing for them.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include <heed/core/base/dtype.h>

namespace heed::cpu {

/// A row with its statistics, which no finite elements make overflow.
template <class T>
class RowAlone {
  using A = accumulator_t<T>;

 public:
  using Sum = long double;  // double would lose digits of double

  RowAlone(const T* x, int64_t cols, double eps) : x_(x) {
    double largest = 0;
    for (int64_t c = 0; c < cols; ++c) largest = std::fmax(largest, std::fabs(double(A(x[c]))));
    if (largest > 0x1p500) scale_ = 0x1p-600;  // the squares of double overflow too
    const double n = static_cast<double>(cols);
    pivot_ = scaled(0);
    Sum sum = 0, squares = 0;
    for (int64_t c = 0; c < cols; ++c) sum += scaled(c) - pivot_;
    shift_ = static_cast<double>(sum / n);
    for (int64_t c = 0; c < cols; ++c) squares += centred(c) * centred(c);
    deviation_ = std::hypot(static_cast<double>(std::sqrt(squares / n)), std::sqrt(eps) * scale_);
  }

  /// Takes the rstd of the forward, which knows eps, unless it is too small for all its digits.
  void use(A rstd) {
    if (rstd >= std::numeric_limits<A>::min()) deviation_ = scale_ / rstd;
  }

  double normed(int64_t c) const { return centred(c) / deviation_; }
  double mean() const { return pivot_ / scale_ + shift_ / scale_; }
  double rstd() const { return scale_ / deviation_; }

 private:
  double scaled(int64_t c) const { return A(x_[c]) * scale_; }
  double centred(int64_t c) const { return scaled(c) - pivot_ - shift_; }

  const T* x_;
  double scale_ = 1, pivot_ = 0, shift_ = 0, deviation_ = 0;
};

/// Writes y and the statistics of row number `row`, x. `args` are those of a forward.
template <class T, class Args>
[[gnu::noinline]] void normalize_alone(const Args& args, int64_t row, const T* x) {
  using A = accumulator_t<T>;
  const RowAlone<T> alone(x, args.cols, args.eps);
  T* const y = args.y + row * args.cols;
  for (int64_t c = 0; c < args.cols; ++c) {
    const double weight = args.weight == nullptr ? 1 : A(args.weight[c]),
                 bias = args.bias == nullptr ? 0 : A(args.bias[c]);
    y[c] = T(static_cast<A>(alone.normed(c) * weight + bias));
  }
  if (args.mean == nullptr) return;
  args.mean[row] = static_cast<A>(alone.mean());
  args.rstd[row] = static_cast<A>(alone.rstd());
}

/// Writes gx of a row, and adds what the row adds to gweight and gbias if they are not null.
template <class T, class A = accumulator_t<T>>
[[gnu::noinline]] void gradient_alone(const T* gy, const T* x, const T* weight, A rstd, int64_t cols,
                                      A* gweight, A* gbias, A* gx) {
  RowAlone<T> alone(x, cols, 0);
  alone.use(rstd);
  const auto g = [&](int64_t c) { return double(A(gy[c])) * (weight == nullptr ? 1 : A(weight[c])); };
  typename RowAlone<T>::Sum sum = 0, product = 0;
  for (int64_t c = 0; c < cols; ++c) {
    sum += g(c);
    product += g(c) * alone.normed(c);
    if (gweight == nullptr) continue;
    gweight[c] += static_cast<A>(A(gy[c]) * alone.normed(c));
    gbias[c] += A(gy[c]);
  }
  const double n = static_cast<double>(cols), offset = static_cast<double>(sum / n),
               slope = static_cast<double>(product / n);
  for (int64_t c = 0; c < cols; ++c)
    gx[c] = static_cast<A>((g(c) - offset - alone.normed(c) * slope) * alone.rstd());
}

}  // namespace heed::cpu

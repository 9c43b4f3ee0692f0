// Tensors as text, in the manner of NumPy.
#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>
#include <vector>

#include <heed/core/ops.h>
#include <heed/core/tensor.h>

namespace heed {
namespace {

constexpr int64_t kMaxElements = 1000;  // larger tensors are abridged
constexpr int64_t kEdge = 3;            // entries at each end of an abridged axis
constexpr int kDigits = 4;              // after the point
constexpr size_t kLineWidth = 100;

// The positions along an axis that are shown; -1 stands for "...".
std::vector<int64_t> shown(int64_t size, bool abridged) {
  std::vector<int64_t> places;
  for (int64_t i = 0; i < size; ++i) {
    if (abridged && size > 2 * kEdge && i == kEdge) {
      places.push_back(-1);
      i = size - kEdge;
    }
    places.push_back(i);
  }
  return places;
}

// Calls f with each element that is shown, in order.
template <class F>
void for_each_shown(const Tensor& host, int axis, int64_t at, bool abridged, const F& f) {
  if (axis == host.rank()) return f(at);
  for (int64_t i : shown(host.shape()[axis], abridged))
    if (i >= 0) for_each_shown(host, axis + 1, at + i * host.strides()[axis], abridged, f);
}

// How all numbers of a tensor are written: fixed point with as many digits as they need, or scientific.
class Style {
 public:
  void see(double value) {
    if (!std::isfinite(value)) return;
    const double magnitude = std::fabs(value);
    largest_ = std::max(largest_, magnitude);
    if (magnitude > 0) smallest_ = std::min(smallest_, magnitude);
    whole_ &= value == std::trunc(value);
  }
  std::string text(double value) const {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    const bool scientific = largest_ >= 1e8 || smallest_ < 1e-4 || largest_ / smallest_ > 1e6;
    if (whole_ && largest_ < 1e8) return fixed_text(value, 0) + ".";
    return scientific ? scientific_text(value, kDigits) : fixed_text(value, kDigits);
  }

 private:
  double largest_ = 0, smallest_ = HUGE_VAL;
  bool whole_ = true;
};

template <class T>
std::string text(T value, const Style& style) {
  if constexpr (std::is_same_v<T, bool>)
    return value ? "true" : "false";
  else if constexpr (std::is_integral_v<T>)
    return std::to_string(value);
  else
    return style.text(static_cast<double>(value));
}

template <class T>
class Printer {
 public:
  Printer(std::string& out, const Tensor& host)
      : out_(out), host_(host), data_(host.data<T>()), abridged_(host.numel() > kMaxElements) {
    if constexpr (!std::is_integral_v<T>)
      for_each_shown(host_, 0, 0, abridged_, [&](int64_t at) { style_.see(static_cast<double>(data_[at])); });
    for_each_shown(host_, 0, 0, abridged_,
                   [&](int64_t at) { width_ = std::max(width_, text(data_[at], style_).size()); });
  }

  void print(int axis = 0, int64_t at = 0) {
    if (axis == host_.rank()) return number(at);
    out_ += '[';
    const bool innermost = axis + 1 == host_.rank();
    size_t column = static_cast<size_t>(axis) + 1;
    bool first = true;
    for (int64_t i : shown(host_.shape()[axis], abridged_)) {
      if (!first) column = separate(axis, innermost, column);
      first = false;
      if (i < 0)
        out_ += "...";
      else
        print(axis + 1, at + i * host_.strides()[axis]);
      column += i < 0 ? 3 : width_;
    }
    out_ += ']';
  }

 private:
  void number(int64_t at) {
    const std::string written = text(data_[at], style_);
    out_.append(width_ - written.size(), ' ') += written;
  }

  // What stands between two entries; the column after it.
  size_t separate(int axis, bool innermost, size_t column) {
    out_ += ',';
    const size_t indent = static_cast<size_t>(axis) + 1;
    if (innermost && column + 2 + width_ < kLineWidth) {
      out_ += ' ';
      return column + 2;
    }
    out_.append(innermost ? 1 : static_cast<size_t>(host_.rank() - axis - 1), '\n').append(indent, ' ');
    return indent;
  }

  std::string& out_;
  const Tensor& host_;
  const T* data_;
  bool abridged_;
  Style style_;
  size_t width_ = 0;
};

}  // namespace

void append_text(std::string& out, const Tensor& tensor) {
  if (!tensor.defined()) {
    out += "tensor(undefined)";
    return;
  }
  const Tensor host = tensor.detach().contiguous().to(kCpu);
  visit_dtype(host.dtype(), [&]<class T>() { Printer<T>(out, host).print(); });
  out += concat(" (", tensor.shape(), ' ', tensor.dtype(), ' ', tensor.device());
  if (tensor.requires_grad())
    out += tensor.is_leaf() ? ", requires grad" : concat(", made by ", tensor.operation());
  out += ')';
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) { return out << concat(tensor); }

}  // namespace heed

// Tensor: the value type that everything else in heed takes and returns.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <limits>
#include <type_traits>
#include <vector>

#include <heed/core/base/device.h>
#include <heed/core/base/dtype.h>
#include <heed/core/base/memory/ref_ptr.h>
#include <heed/core/shape.h>
#include <heed/core/storage.h>

namespace heed {

class Node;  // core/autograd/autograd.h
class TensorImpl;

/// Where the elements of a tensor lie: what a handle asks for most. Of a matrix all but the strides is in one
/// line of the cache: weights have left it when their next product asks.
struct TensorLayout : public RefCounted, public Pooled {
  TensorLayout(RefPtr<Storage> storage, const Shape& shape, const Shape& strides, int64_t offset,
               int64_t numel, DType dtype, bool contiguous)
      : dtype(dtype),
        contiguous(contiguous),
        storage(std::move(storage)),
        offset(offset),
        numel(numel),
        shape(shape),
        strides(strides) {}

  DType dtype;
  bool contiguous;
  RefPtr<Storage> storage;
  int64_t offset;  // elements
  int64_t numel;
  Shape shape;
  Shape strides;
};

/// What the factories of core/creation.h make.
struct TensorOptions {
  DType dtype = DType::f32;
  Device device = kCpu;
};

/// Options of Tensor::backward.
struct BackwardOptions {
  bool retain_graph = false;  // keep what the backward needs, so that it can run again
};

/// A handle on a strided array. Copying a Tensor copies the handle: both see the same elements. Views
/// (reshape, transpose, slice, …) share memory with their source. A default-constructed Tensor is undefined.
///
/// A Tensor may be read from several threads at once. Different tensors may be used from different threads
/// without locks, also when they share a graph's leaves for reading; writing to a tensor, or running backward
/// into the same gradients, from two threads at once is a data race.
class Tensor {
 public:
  Tensor() = default;

  bool defined() const { return static_cast<bool>(impl_); }
  explicit operator bool() const { return defined(); }

  const Shape& shape() const { return layout().shape; }
  const Shape& strides() const { return layout().strides; }
  int rank() const { return shape().rank(); }
  /// Size of an axis, which may count from the end; IndexError.
  int64_t size(int64_t axis) const { return shape()[axis]; }
  int64_t numel() const { return layout().numel; }
  DType dtype() const { return layout().dtype; }
  Device device() const { return layout().storage->device(); }
  TensorOptions options() const { return {dtype(), device()}; }
  bool is_contiguous() const { return layout().contiguous; }
  /// Of the first element, in elements from the start of the storage.
  int64_t offset() const { return layout().offset; }
  const RefPtr<Storage>& storage() const { return layout().storage; }

  /// The first element. T must be the tensor's dtype (DTypeError). Memory of the tensor's device. Whoever
  /// writes through it calls bump_version().
  template <class T>
  T* data() const {
    if (dtype() != dtype_of<T>()) fail_dtype(dtype_of<T>());
    return static_cast<T*>(raw_data());
  }
  void* raw_data() const {
    const TensorLayout& at = layout();
    std::byte* const first = at.storage->data();
    if (first == nullptr) fail_int8();
    return first + at.offset * size_of(at.dtype);
  }

  /// Notes a write into the tensor's memory: a backward that saved it will report it, packed copies of it go.
  void bump_version() const;
  int64_t version() const;

  /// The only element, from any device, converted to T; ShapeError if there is not exactly one. As an integer
  /// it loses its fraction; NumericError if it is NaN or T cannot hold it.
  template <class T>
  T item() const {
    static_assert(std::is_arithmetic_v<T>);
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      constexpr T kMin = std::numeric_limits<T>::min(), kMax = std::numeric_limits<T>::max();
      constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();  // no element exceeds that of an i64
      return static_cast<T>(item_as_integer(kMin, sizeof(T) < 8 ? static_cast<int64_t>(kMax) : kEnd));
    } else {
      return static_cast<T>(item_as_double());
    }
  }
  /// All elements in row-major order, on the host. T must be the tensor's dtype.
  template <class T>
  std::vector<T> to_vector() const;

  // Autograd ------------------------------------------------------------------------------------------------

  bool requires_grad() const;
  bool is_leaf() const;
  /// Marks a leaf as one that gradients are wanted for, or as frozen: a frozen one forgets its gradient and
  /// gets no other. AutogradError on a result of recorded operations.
  const Tensor& set_requires_grad(bool value = true) const;
  /// The accumulated gradient; undefined before the first backward and after zero_grad().
  Tensor grad() const;
  /// Forgets the gradient of a leaf. (Parameters::zero_grad does it for all of a model in one pass.)
  void zero_grad() const;
  /// Keeps the gradient of a tensor that is not a leaf, for grad().
  void retain_grad() const;
  /// Calls hook with the complete gradient during backward; a tensor that it returns takes the gradient's
  /// place. Returns an id for remove_hook.
  int register_hook(std::function<Tensor(const Tensor&)> hook) const;
  void remove_hook(int id) const;
  /// The same elements outside the graph.
  [[nodiscard]] Tensor detach() const;
  /// Adds d(this)/d(leaf) to the gradient of every leaf, starting from `gradient`, or from 1 for a tensor of
  /// one element. Iterative: graphs of any depth are fine on any stack.
  void backward(const Tensor& gradient = {}, BackwardOptions options = {}) const;
  /// Name of the operation that made this tensor; "" for a leaf.
  const char* operation() const;

  // Views and copies: the rest of the operations are functions of core/ops.h
  // ------------------------------------

  /// select(0, index). A const handle, so that nobody assigns to it: x[0] = y would leave x as it is; write
  /// x[0].copy_(y).
  [[nodiscard]] const Tensor operator[](int64_t index) const { return select(0, index); }
  [[nodiscard]] Tensor contiguous() const;
  [[nodiscard]] Tensor clone() const;  // a copy of its own, recorded
  /// Converted. Numbers become integers by truncation, the nearest there is where they are too large, 0 where
  /// they are NaN; bool asks whether they are not 0. Only floating-point results are recorded.
  [[nodiscard]] Tensor to(DType dtype) const;
  [[nodiscard]] Tensor to(Device device) const;
  /// Without copying; ShapeError where strides do not allow it.
  [[nodiscard]] Tensor view(const Shape& shape) const;
  /// Copies where a view will not do; one size may be -1.
  [[nodiscard]] Tensor reshape(const Shape& shape) const;
  [[nodiscard]] Tensor transpose(int64_t axis0, int64_t axis1) const;
  [[nodiscard]] Tensor permute(const Shape& axes) const;
  [[nodiscard]] Tensor expand(const Shape& shape) const;
  [[nodiscard]] Tensor unsqueeze(int64_t axis) const;
  [[nodiscard]] Tensor squeeze(int64_t axis) const;
  [[nodiscard]] Tensor select(int64_t axis, int64_t index) const;  // index -1 is the last
  [[nodiscard]] Tensor slice(int64_t axis, int64_t begin, int64_t end, int64_t step = 1) const;
  [[nodiscard]] Tensor flatten(int64_t first_axis = 0, int64_t last_axis = -1) const;

  // In-place writes: never recorded. AutogradError where the tensor or the source would need a gradient and
  // gradients are enabled; AliasError on a tensor whose elements overlap.
  // --------------------------------------

  const Tensor& fill_(double value) const;
  const Tensor& zero_() const { return fill_(0); }
  const Tensor& copy_(const Tensor& source) const;  // broadcasts, converts, crosses devices
  const Tensor& add_(const Tensor& other) const;    // other must broadcast to this shape
  const Tensor& mul_(double factor) const;

  // For core ------------------------------------------------------------------------------------------------
  explicit Tensor(RefPtr<TensorLayout> impl) : impl_(std::move(impl)) {}
  TensorImpl& impl() const;  // StateError if undefined

 private:
  const TensorLayout& layout() const {
    if (!impl_) fail_undefined();
    return *impl_;
  }
  [[noreturn]] static void fail_undefined();  // StateError
  [[noreturn]] void fail_dtype(DType wanted) const;
  [[noreturn]] void fail_int8() const;
  double item_as_double() const;
  int64_t item_as_integer(int64_t least, int64_t most) const;  // not rounded to a double on the way

  RefPtr<TensorLayout> impl_;  // a TensorImpl
};

/// Prints values (large tensors abridged), shape, dtype and device.
void append_text(std::string& out, const Tensor& tensor);
std::ostream& operator<<(std::ostream& out, const Tensor& tensor);

}  // namespace heed

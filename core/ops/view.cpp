// Views: other shapes and strides of the same memory, recorded, never copying (reshape and flatten copy where
// they must).
#include <algorithm>

#include <heed/core/base/int_math.h>
#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/ops/copy.h>
#include <heed/core/tensor_impl.h>

namespace heed {
namespace {

// The shape with a size of -1 replaced by what is left.
Shape infer_size(const Tensor& x, const Shape& wanted, const char* operation) {
  Shape shape = wanted;
  int unknown = -1;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] != -1) continue;
    HEED_CHECK(unknown < 0, ShapeError, operation, ": two sizes of ", wanted,
               " are -1; only one can be inferred");
    unknown = axis;
  }
  if (unknown >= 0) {
    shape[unknown] = 1;
    const int64_t rest = shape.numel();
    HEED_CHECK(rest > 0, ShapeError, operation, ": the -1 in ", wanted,
               " cannot be inferred, because another size is 0");
    HEED_CHECK(x.numel() % rest == 0, ShapeError, operation, ": ", x.numel(), " elements of ", x.shape(),
               " cannot be divided into ", wanted);
    shape[unknown] = x.numel() / rest;
  }
  HEED_CHECK(shape.numel() == x.numel(), ShapeError, operation, ": ", x.shape(), " has ", x.numel(),
             " elements, ", wanted, " has ", shape.numel());
  return shape;
}

// Strides with which x's elements, in row-major order, have `shape`; false if there are none.
bool reshaped_strides(const Tensor& x, const Shape& shape, Shape& strides) {
  strides = contiguous_strides(shape);
  if (x.is_contiguous()) return true;
  // Walk both shapes from the last axis; a group of x's axes that is walked as one can be cut anew.
  int to = shape.rank() - 1;
  for (int from = x.rank() - 1; from >= 0;) {
    const int64_t step = x.strides()[from];
    int64_t group = x.shape()[from--];
    while (from >= 0 && (x.shape()[from] == 1 || x.strides()[from] == group * step))
      group *= x.shape()[from--];
    int64_t stride = step, covered = 1;
    while (to >= 0 && (covered < group || shape[to] == 1)) {
      strides[to] = stride;
      stride *= shape[to];
      covered *= shape[to--];
    }
    if (covered != group) return false;
  }
  return true;
}

Tensor reshaped(const Tensor& x, const Shape& shape, const Shape& strides, const char* operation) {
  return record(
      operation, x, make_view(x, shape, strides, x.offset()),
      [original = x.shape()](const GradIn& gy, GradOut& gx) { gx.add(0, gy[0].reshape(original)); });
}

// Writes `g` into the part of the parent's gradient that `part` cuts out of it.
template <class Part>
void give_part(GradOut& gx, const Tensor& g, Part part) {
  const GradSlot slot = gx.into(0);
  if (!slot.accumulate) slot.tensor.zero_();
  copy_elements(part(slot.tensor), g, slot.accumulate);
}

struct SliceClosure {
  int axis;
  int64_t first, last, step;
  int64_t row;  // elements of one, along axis 0

  void operator()(const GradIn& gy, GradOut& gx) const {
    give_part(gx, gy[0], [&](const Tensor& whole) { return whole.slice(axis, first, last, step); });
  }

  /// Whole rows, one after another: a product by them writes its gradient where it belongs.
  bool is_part() const { return axis == 0 && step == 1; }

  int64_t first_element() const { return first * row; }
};

}  // namespace

// ---- shapes

Tensor Tensor::view(const Shape& wanted) const {
  const Shape target = infer_size(*this, wanted, "view");
  Shape strides;
  HEED_CHECK(reshaped_strides(*this, target, strides), ShapeError, "view: a tensor of shape ", shape(),
             " with strides ", this->strides(), " cannot be seen as ", target,
             " without copying; use reshape(), or contiguous() first");
  return reshaped(*this, target, strides, "view");
}

Tensor Tensor::reshape(const Shape& wanted) const {
  const Shape target = infer_size(*this, wanted, "reshape");
  if (target == shape()) return *this;
  Shape strides;
  if (reshaped_strides(*this, target, strides)) return reshaped(*this, target, strides, "reshape");
  return reshaped(clone(), target, contiguous_strides(target), "reshape");
}

Tensor Tensor::flatten(int64_t first_axis, int64_t last_axis) const {
  if (rank() == 0) return reshape({1});
  const int first = normalize_axis(first_axis, rank(), "flatten");
  const int last = normalize_axis(last_axis, rank(), "flatten");
  HEED_CHECK(first <= last, IndexError, "flatten: the first axis, ", first_axis, ", comes after the last, ",
             last_axis);
  Shape target;
  for (int axis = 0; axis < rank(); ++axis) {
    if (axis <= first || axis > last)
      target.append(shape()[axis]);
    else
      target[first] *= shape()[axis];
  }
  return reshape(target);
}

Tensor Tensor::unsqueeze(int64_t axis) const {
  const int place = normalize_axis(axis, rank() + 1, "unsqueeze");
  Shape target = shape(), strides = this->strides();
  strides.insert(place, place < rank() ? target[place] * strides[place] : 1);
  target.insert(place, 1);
  return reshaped(*this, target, strides, "unsqueeze");
}

Tensor Tensor::squeeze(int64_t axis) const {
  const int place = normalize_axis(axis, rank(), "squeeze");
  HEED_CHECK(shape()[place] == 1, ShapeError, "squeeze: axis ", axis, " of ", shape(), " has size ",
             shape()[place], ", not 1");
  Shape target = shape(), strides = this->strides();
  target.erase(place);
  strides.erase(place);
  return reshaped(*this, target, strides, "squeeze");
}

Tensor Tensor::expand(const Shape& wanted) const {
  const int added = wanted.rank() - rank();
  HEED_CHECK(added >= 0, ShapeError, "expand: ", shape(), " has more axes than ", wanted);
  Shape target = wanted, strides = wanted;
  for (int axis = 0; axis < target.rank(); ++axis) {
    const int64_t size = axis < added ? 1 : shape()[axis - added];
    if (target[axis] == -1 && axis >= added) target[axis] = size;
    HEED_CHECK(size == target[axis] || size == 1, ShapeError, "expand: ", shape(), " does not broadcast to ",
               wanted, ": axis ", axis - target.rank(), " has ", size, " and ", wanted[axis]);
    strides[axis] = axis >= added && size == target[axis] ? this->strides()[axis - added] : 0;
  }
  if (target == shape()) return *this;
  return record("expand", *this, make_view(*this, target, strides, offset()),
                [original = shape()](const GradIn& gy, GradOut& gx) { gx.add(0, sum_to(gy[0], original)); });
}

// ---- order of axes

Tensor Tensor::permute(const Shape& axes) const {
  HEED_CHECK(axes.rank() == rank(), IndexError, "permute: ", axes, " does not name each axis of ", shape(),
             " once; expected ", rank(), " axes");
  Shape target = shape(), strides = this->strides(), inverse = axes;
  uint32_t seen = 0;
  for (int to = 0; to < rank(); ++to) {
    const int from = normalize_axis(axes[to], rank(), "permute");
    HEED_CHECK(!(seen >> from & 1), IndexError, "permute: axis ", axes[to], " comes twice in ", axes);
    seen |= 1u << from;
    target[to] = shape()[from];
    strides[to] = this->strides()[from];
    inverse[from] = to;
  }
  return record("permute", *this, make_view(*this, target, strides, offset()),
                [inverse](const GradIn& gy, GradOut& gx) { gx.add(0, gy[0].permute(inverse)); });
}

Tensor Tensor::transpose(int64_t axis0, int64_t axis1) const {
  const int a = normalize_axis(axis0, rank(), "transpose"), b = normalize_axis(axis1, rank(), "transpose");
  Shape target = shape(), strides = this->strides();
  std::swap(target[a], target[b]);
  std::swap(strides[a], strides[b]);
  return record("transpose", *this, make_view(*this, target, strides, offset()),
                [a, b](const GradIn& gy, GradOut& gx) { gx.add(0, gy[0].transpose(a, b)); });
}

// ---- parts

Tensor Tensor::select(int64_t axis, int64_t index) const {
  const int place = normalize_axis(axis, rank(), "select");
  const int64_t size = shape()[place];
  HEED_CHECK(index >= -size && index < size, IndexError, "select: index ", index, " is not in [", -size, ", ",
             size - 1, "] along axis ", axis, " of ", shape());
  const int64_t at = index < 0 ? index + size : index;
  Shape target = shape(), strides = this->strides();
  target.erase(place);
  strides.erase(place);
  return record("select", *this, make_view(*this, target, strides, offset() + at * this->strides()[place]),
                [place, at](const GradIn& gy, GradOut& gx) {
                  give_part(gx, gy[0], [&](const Tensor& parent) { return parent.select(place, at); });
                });
}

Tensor Tensor::slice(int64_t axis, int64_t begin, int64_t end, int64_t step) const {
  const int place = normalize_axis(axis, rank(), "slice");
  HEED_CHECK(step > 0, IndexError, "slice: step is ", step,
             "; it must be at least 1 (flip() turns an axis around)");
  const int64_t size = shape()[place];
  const auto clip = [size](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size); };
  const int64_t first = clip(begin), last = std::max(first, clip(end));
  Shape target = shape(), strides = this->strides();
  target[place] = (last - first) / step + ((last - first) % step != 0);
  // The stride of a single element is never used; kept small, it cannot overflow.
  if (target[place] > 1) strides[place] *= step;
  const int64_t start = target[place] == 0 ? 0 : first * this->strides()[place];
  Tensor part = make_view(*this, target, strides, offset() + start);
  if (needs_grad({*this})) {
    const int64_t row = place == 0 && size > 0 ? numel() / size : 0;
    record("slice", {*this}, TensorList(part), SliceClosure{place, first, last, step, row});
  }
  return part;
}

std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t axis) {
  const int place = normalize_axis(axis, x.rank(), "split");
  HEED_CHECK(size > 0, ShapeError, "split: the size of a part is ", size, "; it must be at least 1");
  std::vector<Tensor> parts;
  const int64_t total = x.shape()[place];
  for (int64_t begin = 0; begin < total || begin == 0; begin += size)
    parts.push_back(x.slice(place, begin, begin + std::min(size, total - begin)));
  return parts;
}

std::vector<Tensor> chunk(const Tensor& x, int64_t count, int64_t axis) {
  const int place = normalize_axis(axis, x.rank(), "chunk");
  HEED_CHECK(count > 0, ShapeError, "chunk: the number of parts is ", count, "; it must be at least 1");
  const int64_t total = x.shape()[place];
  return split(x, std::max<int64_t>(1, ceil_divide(total, count)), place);
}

}  // namespace heed

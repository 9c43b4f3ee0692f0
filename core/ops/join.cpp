// Joining tensors, and turning an axis around.
#include <heed/core/base/memory/pooled_vector.h>
#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/ops/copy.h>
#include <heed/core/tensor_impl.h>

namespace heed {
namespace {

void check_joinable(const Tensor& first, const Tensor& other, size_t i, int axis) {
  check_same_kind(first, other, "cat");
  bool fits = other.rank() == first.rank();
  for (int a = 0; fits && a < first.rank(); ++a) fits = a == axis || other.shape()[a] == first.shape()[a];
  HEED_CHECK(fits, ShapeError, "cat: tensor ", i, " is ", other.shape(), ", tensor 0 is ", first.shape(),
             "; they may differ along axis ", axis, " only");
}

}  // namespace

Tensor cat(TensorList tensors, int64_t axis) {
  HEED_CHECK(tensors.size() > 0, ShapeError, "cat: no tensors to join");
  const Tensor& first = tensors[0];
  const int place = normalize_axis(axis, first.rank(), "cat");
  Shape shape = first.shape();
  shape[place] = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    check_joinable(first, tensors[i], i, place);
    shape[place] += tensors[i].shape()[place];
  }
  const Tensor y = empty(shape, first.options());
  PooledVector<int64_t> ends;
  for (const Tensor& tensor : tensors) {
    const int64_t begin = ends.empty() ? 0 : ends.back();
    ends.push_back(begin + tensor.shape()[place]);
    copy_elements(y.slice(place, begin, ends.back()), tensor);
  }
  return record("cat", tensors, y, [place, ends = std::move(ends)](const GradIn& gy, GradOut& gx) {
    for (size_t i = 0; i < ends.size(); ++i)
      if (gx.wants(static_cast<int>(i)))
        gx.add(static_cast<int>(i), gy[0].slice(place, i == 0 ? 0 : ends[i - 1], ends[i]));
  });
}

Tensor stack(TensorList tensors, int64_t axis) {
  HEED_CHECK(tensors.size() > 0, ShapeError, "stack: no tensors to join");
  const int place = normalize_axis(axis, tensors[0].rank() + 1, "stack");
  std::vector<Tensor> wider;
  for (const Tensor& tensor : tensors) {
    HEED_CHECK(tensor.shape() == tensors[0].shape(), ShapeError, "stack: tensor ", wider.size(), " is ",
               tensor.shape(), ", tensor 0 is ", tensors[0].shape(), "; they need one shape");
    wider.push_back(tensor.unsqueeze(place));
  }
  return cat(wider, place);
}

Tensor flip(const Tensor& x, int64_t axis) {
  const int place = normalize_axis(axis, x.rank(), "flip");
  Shape strides = x.strides();
  const int64_t last = std::max<int64_t>(0, x.shape()[place] - 1) * strides[place];
  strides[place] = -strides[place];
  const Tensor y = empty_like(x);
  copy_elements(y, make_view(x, x.shape(), strides, x.offset() + last));
  return record("flip", x, y, [place](const GradIn& gy, GradOut& gx) { gx.add(0, flip(gy[0], place)); });
}

}  // namespace heed

// Rows written in place by index.
#include <heed/core/index_put.h>
#include <heed/core/ops/common.h>
#include <heed/core/ops/indexing.h>
#include <heed/core/runtime/backend.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/core/tensor_impl.h>
#include <heed/kernels/embedding.h>
#include <heed/kernels/index_put.h>

namespace heed {
namespace {

constexpr const char* kName = "index_put_";

/// Whether the elements of each row lie side by side.
bool has_whole_rows(const Tensor& x) {
  int64_t elements = 1;
  for (int axis = x.rank() - 1; axis > 0; elements *= x.shape()[axis], --axis)
    if (x.shape()[axis] > 1 && x.strides()[axis] != elements) return false;
  return true;
}

void check(const Tensor& x, const Tensor& index, const Tensor& source) {
  check_same_kind(x, source, kName);
  check_floating(x, kName);
  check_index_dtype(index, x, kName);
  HEED_CHECK(x.rank() > 0 && x.is_contiguous(), ShapeError, kName,
             ": writes rows of a tensor without gaps, got ", x.shape(), " with strides ", x.strides());
  Shape wanted = x.shape();
  if (index.rank() == 1) wanted[0] = index.numel();
  HEED_CHECK(index.rank() == 1 && source.shape() == wanted, ShapeError, kName, ": an index of ",
             index.shape(), " and a source of ", source.shape(), " for a tensor of ", x.shape(),
             "; the index needs one axis, and the source a row for each of it");
  HEED_CHECK(source.numel() == 0 || x.storage() != source.storage(), AliasError, kName,
             ": the source is in the memory that is written; give a clone()");
  check_in_place(x, kName);
  HEED_CHECK(!grad_enabled() || !source.requires_grad(), AutogradError, kName,
             ": the source requires a gradient, which a write in place would lose; hold a NoGrad or detach() "
             "it");
}

/// On a device its kernel checks them.
void check_places(const Tensor& index, int64_t rows) {
  if (!backend(index.device()).host_memory) return;
  const int64_t* const values = index.data<int64_t>();
  for (int64_t i = 0; i < index.numel(); ++i)
    if (values[i] != kNoToken) kernels::check_index(kernels::IndexUse::index_put, values[i], i, rows);
}

}  // namespace

void index_put_(const Tensor& x, const Tensor& index, const Tensor& source) {
  check(x, index, source);
  const Tensor rows = has_whole_rows(source) ? source : source.contiguous(), places = index.contiguous();
  check_places(places, x.shape()[0]);
  const int64_t count = index.numel();
  if (count == 0 || x.numel() == 0) return;
  visit_floating(x.dtype(), kName, [&]<class T>() {
    HEED_DISPATCH(x.device(), index_put,
                  kernels::IndexPut<T>{.y = x.data<T>(),
                                       .x = rows.data<T>(),
                                       .index = places.data<int64_t>(),
                                       .count = count,
                                       .width = x.numel() / x.shape()[0],
                                       .rows = x.shape()[0],
                                       .stride_x = rows.strides()[0]});
  });
  x.bump_version();
}

}  // namespace heed

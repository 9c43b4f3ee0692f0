#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/kernels/embedding.h>
#include <heed/kernels/indexing.h>

namespace heed {
namespace {

/// For each row its sequence, kNoToken for none; for each sequence its length, 1 for none.
struct Rows {
  Tensor sequence, length;
};

Rows rows_of(const Segments& segments, int64_t rows, TensorOptions options) {
  std::vector<int64_t> sequence(static_cast<size_t>(rows), kNoToken);
  const Tensor length = empty({segments.count(), 1}, {options.dtype, kCpu});
  visit_floating(options.dtype, "segment_mean", [&]<class T>() {
    for (int64_t i = 0; i < segments.count(); ++i) {
      const int32_t count = segments.query_length(i);
      length.data<T>()[i] = static_cast<T>(static_cast<float>(std::max(1, count)));
      std::fill_n(sequence.begin() + segments.query_first(i), count, i);
    }
  });
  return {tensor(sequence, {rows}, options.device), length.to(options.device)};
}

}  // namespace

Tensor segment_mean(const Tensor& x, const Segments& segments) {
  HEED_CHECK(x.rank() > 0, ShapeError, "segment_mean: needs rows, got a tensor of rank 0");
  check_floating(x, "segment_mean");
  const int64_t rows = x.shape()[0], count = segments.count();
  HEED_CHECK(segments.query_rows_end() <= rows, ShapeError, "segment_mean: the segments end at row ",
             segments.query_rows_end(), " of ", rows);
  int64_t width = 1;
  Shape shape = x.shape();
  shape[0] = count;
  for (int axis = 1; axis < x.rank(); ++axis) width *= x.shape()[axis];
  const TensorOptions wide = accumulator_options(x);
  const Rows of = rows_of(segments, rows, wide);
  const Tensor sums = zeros({count, width}, wide), input = x.detach().contiguous();
  visit_floating(x.dtype(), "segment_mean", [&]<class T>() {
    HEED_DISPATCH(x.device(), index_select_backward,
                  kernels::IndexSelectBackward<T>{.gx = sums.data<math_t<T>>(),
                                                  .gy = input.data<T>(),
                                                  .index = of.sequence.data<int64_t>(),
                                                  .count = rows,
                                                  .width = width,
                                                  .rows = count});
  });
  const Tensor y = (sums / of.length).to(x.dtype()).reshape(shape);
  return record("segment_mean", x, y, [of, count, width, like = x.shape()](const GradIn& gy, GradOut& gx) {
    const Tensor g = gy[0].reshape({count, width}).to(of.length.dtype()) / of.length;
    gx.add(0, index_select(g.to(gy[0].dtype()), of.sequence).reshape(like));
  });
}

}  // namespace heed

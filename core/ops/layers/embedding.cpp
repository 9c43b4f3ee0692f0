#include <heed/core/int8_weight.h>
#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/ops/composed.h>
#include <heed/core/ops/layers/dropout_option.h>
#include <heed/core/runtime/backend.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/kernels/embedding.h>

namespace heed {
namespace {

struct EmbeddingCall {
  Saved ids, position_ids;
  Dropout dropout;
  double scale;
  int64_t padding_id, cols, vocabulary, positions;
};

void check_ids(const Tensor& ids, const char* what, const Tensor& weight) {
  HEED_CHECK(ids.dtype() == DType::i64, DTypeError, "embedding: ", what, " are ", ids.dtype(),
             "; they must be i64");
  HEED_CHECK(ids.device() == weight.device(), DeviceError, "embedding: ", what, " on ", ids.device(),
             ", weight on ", weight.device(), "; move one with to(Device)");
}

// Before dropout is drawn from a generator; the kernel of the CPU checks again. On a device the kernel alone
// does, and the host hears of it when it next waits for the device.
void check_range(const Tensor& ids, const Tensor& weight, const EmbeddingOptions& options) {
  if (!backend(ids.device()).host_memory) return;
  const Tensor rows = ids.contiguous(), position_rows = contiguous_or_undefined(options.position_ids);
  kernels::check_ids(rows.data<int64_t>(), data_or_null<int64_t>(position_rows), rows.numel(),
                     weight.shape()[0], position_rows.defined() ? options.position.shape()[0] : 0);
}

void check(const Tensor& ids, const Tensor& weight, const EmbeddingOptions& options) {
  HEED_CHECK(weight.rank() == 2, ShapeError, "embedding: weight is ", weight.shape(),
             ", expected [vocabulary, width]");
  check_floating(weight, "embedding");
  check_ids(ids, "ids", weight);
  HEED_CHECK(
      options.padding_id == kNoToken || (options.padding_id >= 0 && options.padding_id < weight.shape()[0]),
      ConfigError, "embedding: padding_id is ", options.padding_id, "; it must be in [0, ", weight.shape()[0],
      "), or -1 for none");
  const Tensor &position = options.position, &position_ids = options.position_ids;
  HEED_CHECK(position.defined() == position_ids.defined(), ConfigError, "embedding: ",
             position.defined() ? "position without position_ids; give each id its position"
                                : "position_ids without a position table");
  if (!position.defined()) return;
  HEED_CHECK(position.rank() == 2 && position.shape()[1] == weight.shape()[1], ShapeError,
             "embedding: position is ", position.shape(), ", expected [positions, ", weight.shape()[1], "]");
  check_same_kind(weight, position, "embedding");
  check_ids(position_ids, "position_ids", weight);
  HEED_CHECK(position_ids.shape() == ids.shape(), ShapeError, "embedding: position_ids are ",
             position_ids.shape(), ", ids ", ids.shape(), "; they must be equal");
}

template <class T>
void backward(const EmbeddingCall& call, const GradIn& gy, GradOut& gx) {
  using A = accumulator_t<T>;
  const Tensor g = gy[0].contiguous(), ids = *call.ids, position_ids = *call.position_ids;
  const GradSlot to_weight = accumulator_if_wanted(gx, 0), to_position = accumulator_if_wanted(gx, 1);
  HEED_DISPATCH(g.device(), embedding_backward,
                kernels::EmbeddingBackward<T>{.gy = g.data<T>(),
                                              .ids = ids.data<int64_t>(),
                                              .position_ids = data_or_null<int64_t>(position_ids),
                                              .dropout = call.dropout,
                                              .scale = call.scale,
                                              .padding_id = call.padding_id,
                                              .gweight = data_or_null<A>(to_weight.tensor),
                                              .gposition = data_or_null<A>(to_position.tensor),
                                              .accumulate_weight = to_weight.accumulate,
                                              .accumulate_position = to_position.accumulate,
                                              .rows = ids.numel(),
                                              .cols = call.cols,
                                              .vocabulary = call.vocabulary,
                                              .positions = call.positions});
}

}  // namespace

Tensor embedding(const Tensor& ids, const Tensor& weight, const EmbeddingOptions& options) {
  check(ids, weight, options);
  check_range(ids, weight, options);
  if (is_int8(weight)) {
    const Tensor rows = int8_rows(weight, ids.flatten());
    EmbeddingOptions all = options;
    all.padding_id = kNoToken;
    return embedding(arange(0, ids.numel(), 1, {DType::i64, kCpu}).reshape(ids.shape()), rows, all);
  }
  if (!detail::has_kernel<kernels::EmbeddingForward>(weight.device(), weight.dtype()))
    return composed::embedding(ids, weight, options);
  const Dropout dropout = draw_dropout(options.dropout, options.generator, "embedding");
  const Tensor &position = options.position, rows = ids.contiguous(), table = weight.contiguous(),
               position_rows = contiguous_or_undefined(options.position_ids),
               position_table = contiguous_or_undefined(position);
  const int64_t cols = weight.shape()[1], positions = position.defined() ? position.shape()[0] : 0;
  Shape shape = ids.shape();
  shape.append(cols);
  const Tensor y = empty(shape, weight.options());
  visit_floating(weight.dtype(), "embedding", [&]<class T>() {
    HEED_DISPATCH(y.device(), embedding_forward,
                  kernels::EmbeddingForward<T>{.ids = rows.data<int64_t>(),
                                               .weight = table.data<T>(),
                                               .position = data_or_null<T>(position_table),
                                               .position_ids = data_or_null<int64_t>(position_rows),
                                               .dropout = dropout,
                                               .scale = options.scale,
                                               .y = y.data<T>(),
                                               .rows = rows.numel(),
                                               .cols = cols,
                                               .vocabulary = weight.shape()[0],
                                               .positions = positions});
  });
  if (!needs_grad({weight, position})) return y;
  return record("embedding", {weight, position}, y,
                [call = EmbeddingCall{.ids = save(rows),
                                      .position_ids = save(position_rows),
                                      .dropout = dropout,
                                      .scale = options.scale,
                                      .padding_id = options.padding_id,
                                      .cols = cols,
                                      .vocabulary = weight.shape()[0],
                                      .positions = positions}](const GradIn& gy, GradOut& gx) {
                  visit_floating(gy[0].dtype(), "embedding", [&]<class T>() { backward<T>(call, gy, gx); });
                });
}

}  // namespace heed

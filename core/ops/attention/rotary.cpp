#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/ops/composed.h>
#include <heed/core/runtime/dispatch.h>

namespace heed {
namespace {

struct RotaryClosure {
  Saved positions, table;
  RotaryOptions options;  // with rotated_heads set

  void rotate(const Tensor& x, const Tensor& y, bool inverse, bool accumulate) const {
    const Tensor where = *positions, factors = *table;
    const auto [rows, cols] = rows_and_cols(x, "rotary");
    visit_floating(x.dtype(), "rotary", [&, rows = rows, cols = cols]<class T>() {
      HEED_DISPATCH(x.device(), rotary,
                    kernels::Rotary<T>{.x = x.data<T>(),
                                       .positions = where.data<int64_t>(),
                                       .table = factors.data<accumulator_t<T>>(),
                                       .y = y.data<T>(),
                                       .rows = rows,
                                       .heads = options.heads,
                                       .rotated_heads = options.rotated_heads,
                                       .width = cols / options.heads,
                                       .rotated = factors.shape()[2],
                                       .entries = factors.shape()[0],
                                       .pairing = options.pairing,
                                       .inverse = inverse,
                                       .accumulate = accumulate});
    });
  }

  void operator()(const GradIn& gy, GradOut& gx) const {
    const GradSlot slot = gx.into(0);
    rotate(gy[0].contiguous(), slot.tensor, true, slot.accumulate);
  }
};

void check(const Tensor& x, const Tensor& positions, const Tensor& table, const RotaryOptions& options) {
  const char* name = "rotary";
  const auto [rows, cols] = rows_and_cols(x, name);
  check_floating(x, name);
  HEED_CHECK(options.heads > 0 && cols % options.heads == 0, ConfigError, name, ": the ", cols,
             " columns of x do not divide into ", options.heads, " heads");
  HEED_CHECK(options.rotated_heads >= 0 && options.rotated_heads <= options.heads, ConfigError, name,
             ": rotated_heads is ", options.rotated_heads, "; it must be in [0, ", options.heads, "]");
  HEED_CHECK(positions.dtype() == DType::i64, DTypeError, name, ": positions are ", positions.dtype(),
             "; they must be i64");
  HEED_CHECK(positions.numel() == rows, ShapeError, name, ": positions are ", positions.shape(), "; x has ",
             rows, " rows");
  const int64_t width = cols / options.heads;
  HEED_CHECK(
      table.rank() == 3 && table.shape()[1] == 2 && table.shape()[2] % 2 == 0 && table.shape()[2] <= width,
      ShapeError, name, ": table is ", table.shape(),
      ", expected [positions, 2, rotated], rotated even and at most the head's width of ", width);
  const DType factors = accumulator_options(x).dtype;
  HEED_CHECK(table.dtype() == factors, DTypeError, name, ": table is ", table.dtype(), ", expected ", factors,
             " for x of ", x.dtype());
  HEED_CHECK(positions.device() == x.device() && table.device() == x.device(), DeviceError, name, ": x on ",
             x.device(), ", positions on ", positions.device(), ", table on ", table.device(),
             "; move them with to(Device)");
  HEED_CHECK(!needs_grad({table}), AutogradError, name, ": table requires a gradient, but it gets none");
}

}  // namespace

Tensor rotary(const Tensor& x, const Tensor& positions, const Tensor& table, const RotaryOptions& options) {
  check(x, positions, table, options);
  if (!detail::has_kernel<kernels::Rotary>(x.device(), x.dtype()))
    return composed::rotary(x, positions, table, options);
  RotaryClosure closure{save(positions.contiguous()), save(table.contiguous()), options};
  if (options.rotated_heads == 0) closure.options.rotated_heads = options.heads;
  const Tensor y = empty_like(x);
  closure.rotate(*Contiguous(x), y, false, false);
  if (!needs_grad({x})) return y;
  return record("rotary", {x}, y, std::move(closure));
}

}  // namespace heed

#include <cmath>

#include <heed/core/attention.h>
#include <heed/core/ops.h>
#include <heed/core/ops/attention/attention_call.h>
#include <heed/core/ops/common.h>
#include <heed/core/ops/layers/dropout_option.h>
#include <heed/core/runtime/backend.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/core/tensor_impl.h>

namespace heed {
namespace {

// Where q, k and v lie: operand i fills columns from column[i] on of matrix[source[i]].
struct Operands {
  const Tensor* matrix[3];
  int source[3];
  int64_t column[3];
  int64_t heads, key_heads, width;

  const Tensor& of(int operand) const { return *matrix[source[operand]]; }
};

const Tensor kNone;

// The inputs of record() are the three matrices (undefined where one holds several operands), then these.
constexpr int kBiasInput = 3, kRelativeInput = 4;

// ---- checks

int64_t checked_key_heads(const AttentionOptions& options, const char* name) {
  const int64_t heads = options.heads, key_heads = options.key_heads == 0 ? heads : options.key_heads;
  HEED_CHECK(heads > 0, ConfigError, name, ": heads is ", heads, "; it must be positive");
  HEED_CHECK(key_heads > 0 && heads % key_heads == 0, ConfigError, name, ": key_heads is ", options.key_heads,
             "; it must divide the ", heads, " heads");
  return key_heads;
}

int64_t head_width(const Tensor& q, int64_t heads, const char* name) {
  const int64_t cols = rows_and_cols(q, name).second;
  HEED_CHECK(cols > 0 && cols % heads == 0, ConfigError, name, ": q has ", cols,
             " columns, which do not divide into ", heads, " heads");
  return cols / heads;
}

void check_options(const AttentionOptions& options, const char* name) {
  const Visibility& rule = options.visibility;
  HEED_CHECK(std::isfinite(options.scale), ConfigError, name, ": scale is ", options.scale);
  const double cap = options.logit_cap;
  HEED_CHECK(cap == 0 || (cap >= 1e-30 && cap <= 1e30), ConfigError, name, ": logit_cap is ", cap,
             "; it must be 0 or between 1e-30 and 1e30");
  HEED_CHECK(rule.window_left >= -1 && rule.window_right >= -1, ConfigError, name, ": the window is ",
             rule.window_left, " to the left and ", rule.window_right,
             " to the right; -1 means no limit, and no number may be smaller");
  HEED_CHECK(rule.dilation >= 1, ConfigError, name, ": dilation is ", rule.dilation,
             "; it must be at least 1");
  HEED_CHECK(rule.global_tokens >= 0, ConfigError, name, ": global_tokens is ", rule.global_tokens,
             "; it cannot be negative");
}

// Positions that the pattern lacks would be hidden.
void check_blocks(const AttentionOptions& options, const Segments& segments, const char* name) {
  if (!options.blocks.defined()) return;
  const int64_t keys = segments.max_key(),
                places = is_bottom_right(options.visibility.causal) ? keys : segments.max_query();
  HEED_CHECK(options.blocks.query_blocks() >= pattern_blocks(places) &&
                 options.blocks.key_blocks() >= pattern_blocks(keys),
             ShapeError, name, ": a pattern of ", options.blocks.query_blocks(), " by ",
             options.blocks.key_blocks(), " blocks of ", BlockPattern::kBlock, " is too small for ", places,
             " positions of queries and ", keys, " keys");
}

void check_rows(const Tensor& x, int64_t rows_end, const char* side, const char* name) {
  const int64_t rows = rows_and_cols(x, name).first;
  HEED_CHECK(rows >= rows_end, ShapeError, name, ": the segments name ", side, " rows up to ", rows_end,
             ", but ", x.shape(), " has ", rows, " rows");
}

void check_table(const Tensor& x, const Tensor& table, DType dtype, const char* what, const char* name) {
  HEED_CHECK(table.dtype() == dtype, DTypeError, name, ": ", what, " is ", table.dtype(), "; it must be ",
             dtype, ", convert it with to(DType)");
  HEED_CHECK(table.device() == x.device(), DeviceError, name, ": ", what, " on ", table.device(),
             ", operands on ", x.device(), "; move one with to(Device)");
}

void check_keys(const Tensor& k, int64_t key_heads, int64_t width, const char* name) {
  HEED_CHECK(rows_and_cols(k, name).second == key_heads * width, ShapeError, name, ": k is ", k.shape(),
             ", expected ", key_heads, " heads of ", width, " columns as q has, ", key_heads * width,
             " in all");
}

void check_biases(const Tensor& x, const AttentionOptions& options, const char* name) {
  if (options.mask.bias().defined()) check_table(x, options.mask.bias(), x.dtype(), "the bias", name);
  if (options.mask.visible().defined())
    check_table(x, options.mask.visible(), DType::boolean, "the mask", name);
  if (const Tensor& slopes = options.alibi_slopes; slopes.defined()) {
    check_table(x, slopes, DType::f32, "alibi_slopes", name);
    HEED_CHECK(slopes.shape() == Shape{options.heads}, ShapeError, name, ": alibi_slopes is ", slopes.shape(),
               ", expected ", Shape{options.heads});
    HEED_CHECK(!needs_grad({slopes}), AutogradError, name,
               ": alibi_slopes require a gradient, but they get none; use `relative` for biases that learn");
  }
  if (const Tensor& table = options.relative; table.defined()) {
    check_table(x, table, x.dtype(), "relative", name);
    HEED_CHECK(table.rank() == 2 && table.shape()[0] == options.heads && table.shape()[1] % 2 == 1,
               ShapeError, name, ": relative is ", table.shape(), ", expected [", options.heads,
               ", 2 * limit + 1]");
  }
}

// Strides of x where it is broadcast to [sequences, heads, queries, keys]. A mask for longer sequences than
// there are is fine: positions count from the start of each.
std::array<int64_t, 4> broadcast_strides(const Tensor& x, const Segments& segments, int64_t heads,
                                         const char* what, const char* name) {
  std::array<int64_t, 4> strides{};
  if (!x.defined()) return strides;
  const Shape full{segments.count(), heads, segments.max_query(), segments.max_key()};
  bool fits = x.rank() <= 4;
  for (int axis = 0; fits && axis < x.rank(); ++axis) {
    const int to = axis + 4 - x.rank();
    const int64_t size = x.shape()[axis];
    if (size == 1) continue;
    fits = to < 2 ? size == full[to] : size >= full[to];
    strides[static_cast<size_t>(to)] = x.strides()[axis];
  }
  HEED_CHECK(fits, ShapeError, name, ": ", what, " is ", x.shape(),
             ", which does not broadcast to [sequences, heads, queries, keys] = ", full);
  return strides;
}

// ---- forward and backward

AttentionContext make_call(const Operands& operands, const Segments& segments,
                           const AttentionOptions& options, const char* name) {
  const Tensor& x = operands.of(0);
  check_options(options, name);
  check_blocks(options, segments, name);
  check_floating(x, name);
  check_rows(x, segments.query_rows_end(), "query", name);
  check_rows(operands.of(1), segments.key_rows_end(), "key", name);
  check_biases(x, options, name);
  // The gradient of a bias is laid out as the bias: where one is wanted the bias must have no gaps.
  const Tensor &given = options.mask.bias(), &visible = options.mask.visible();
  const Tensor bias = given.defined() && given.requires_grad() ? given.contiguous() : given;
  return {.segments = segments,
          .query_rows = rows_and_cols(x, name).first,
          .key_rows = rows_and_cols(operands.of(1), name).first,
          .heads = operands.heads,
          .key_heads = operands.key_heads,
          .width = operands.width,
          .scale = options.scale == 0 ? 1 / std::sqrt(static_cast<double>(operands.width)) : options.scale,
          .logit_cap = options.logit_cap,
          .visibility = options.visibility,
          .blocks = options.blocks,
          .bias = save(bias),
          .mask = save(visible),
          .alibi_slopes = save(contiguous_or_undefined(options.alibi_slopes)),
          .relative = save(contiguous_or_undefined(options.relative)),
          .bias_stride = broadcast_strides(bias, segments, operands.heads, "the bias", name),
          .mask_stride = broadcast_strides(visible, segments, operands.heads, "the mask", name)};
}

template <class T>
void forward(const AttentionContext& call, const Operands& operands, const Dropout& dropout,
             const Tensor& out, const Tensor& lse, const Tensor& keep_mask) {
  const auto view = [&](int i) {
    return heads_view<T, const T>(operands.of(i), operands.column[i], call.width);
  };
  HEED_DISPATCH(out.device(), attention_forward,
                kernels::AttentionForward<T>{call.scores<T>(view(0), view(1), out.device()), view(2), dropout,
                                             heads_view<T>(out, 0, call.width),
                                             data_or_null<accumulator_t<T>>(lse), keep_mask_bits(keep_mask)});
}

struct AttentionSaved {
  AttentionContext call;
  Saved matrix[3], out;
  int source[3];
  int64_t column[3];
  Tensor lse;
  Dropout dropout;
  Tensor keep_mask;  // undefined: drawn again
};

// A slot that the kernel adds to.
GradSlot zeroed_if_wanted(GradOut& gx, int input) {
  const GradSlot slot = accumulator_if_wanted(gx, input);
  if (slot.tensor.defined() && !slot.accumulate)
    fill_bytes(slot.tensor.raw_data(), slot.tensor.device(), 0,
               slot.tensor.numel() * size_of(slot.tensor.dtype()));
  return slot;
}

template <class T>
void backward(const AttentionSaved& saved, const GradIn& gy, GradOut& gx) {
  using A = accumulator_t<T>;
  const AttentionContext& call = saved.call;
  const Tensor g = gy[0].contiguous(), out = *saved.out;
  Tensor matrix[3];
  GradSlot slot[3];
  for (int i = 0; i < 3; ++i) {
    matrix[i] = *saved.matrix[i];
    slot[i] = slot_if_wanted(gx, i);
  }
  const GradSlot to_bias = zeroed_if_wanted(gx, kBiasInput),
                 to_relative = zeroed_if_wanted(gx, kRelativeInput);
  const auto view = [&](int i) {
    return heads_view<T, const T>(matrix[saved.source[i]], saved.column[i], call.width);
  };
  const auto gradient = [&](int i) {
    return heads_view<T>(slot[saved.source[i]].tensor, saved.column[i], call.width);
  };
  HEED_DISPATCH(
      g.device(), attention_backward,
      kernels::AttentionBackward<T>{
          call.scores<T>(view(0), view(1), g.device()), view(2), saved.dropout,
          heads_view<T, const T>(out, 0, call.width), heads_view<T, const T>(g, 0, call.width),
          saved.lse.data<A>(), gradient(0), gradient(1), gradient(2), slot[saved.source[0]].accumulate,
          slot[saved.source[1]].accumulate, slot[saved.source[2]].accumulate, data_or_null<A>(to_bias.tensor),
          data_or_null<A>(to_relative.tensor), keep_mask_bits(saved.keep_mask)});
}

// The columns of one operand, a row for each of the matrix.
Tensor columns(const Operands& operands, int i) {
  const Tensor& matrix = operands.of(i);
  const auto [rows, cols] = rows_and_cols(matrix, "attention");
  const int64_t heads = i == 0 ? operands.heads : operands.key_heads;
  return matrix.reshape({rows, cols})
      .slice(1, operands.column[i], operands.column[i] + heads * operands.width);
}

// What the three layouts share. `given` holds the inputs as they were given.
Tensor attend(const Operands& given, const Segments& segments, const AttentionOptions& options,
              const char* name) {
  const std::initializer_list<TensorList::Reference> inputs = {
      *given.matrix[0], *given.matrix[1], *given.matrix[2], options.mask.bias(), options.relative};
  const bool backward_follows = needs_grad(inputs);
  HEED_CHECK(!backward_follows || !segments.keys_shared(), AutogradError, name,
             ": sequences share key rows, which has no gradient; hold a NoGrad");
  const Contiguous whole[] = {Contiguous(*given.matrix[0]), Contiguous(*given.matrix[1]),
                              Contiguous(*given.matrix[2])};
  Operands operands = given;
  for (int i = 0; i < 3; ++i) operands.matrix[i] = &*whole[i];
  const AttentionContext call = make_call(operands, segments, options, name);
  const Tensor& q = operands.of(0);
  Shape shape = q.shape();
  shape[q.rank() - 1] = call.heads * call.width;
  if (!detail::has_kernel<kernels::AttentionForward>(q.device(), q.dtype()))
    return plain_attention(columns(given, 0), columns(given, 1), columns(given, 2), call, options)
        .reshape(shape);
  const Dropout dropout = draw_dropout(options.dropout, options.generator, name);
  const Tensor out = empty(shape, q.options());
  AttentionRecord* const watcher = AttentionRecord::current();
  const Tensor lse =
      backward_follows || watcher ? empty({call.heads, call.query_rows}, accumulator_options(q)) : Tensor();
  Tensor keep_mask;
  visit_floating(q.dtype(), name, [&]<class T>() {
    if (backward_follows && backend(q.device()).saves_dropout_masks)
      keep_mask =
          empty_keep_mask(cpu::attention_keep_mask_size<T>(segments.view(q.device()), call.heads, dropout));
    forward<T>(call, operands, dropout, out, lse, keep_mask);
  });

  if (watcher) {
    AttentionRecord::Call seen{.name = std::string(options.name),
                               .call = call,
                               .q = save(q),
                               .k = save(operands.of(1)),
                               .q_column = operands.column[0],
                               .k_column = operands.column[1],
                               .lse = lse,
                               .q_edge = {},
                               .k_edge = {},
                               .bias_edge = {},
                               .relative_edge = {}};
    if (backward_follows) {
      seen.q_edge = edge_of(given.of(0));
      seen.k_edge = edge_of(given.of(1));
      seen.bias_edge = edge_of(options.mask.bias());
      seen.relative_edge = edge_of(options.relative);
    }
    watcher->add(std::move(seen));
  }
  if (!backward_follows) return out;
  AttentionSaved saved{.call = call,
                       .matrix = {save(*whole[0]), save(*whole[1]), save(*whole[2])},
                       .out = save(out),
                       .source = {operands.source[0], operands.source[1], operands.source[2]},
                       .column = {operands.column[0], operands.column[1], operands.column[2]},
                       .lse = lse,
                       .dropout = dropout,
                       .keep_mask = keep_mask};
  return record(name, inputs, out, [saved = std::move(saved)](const GradIn& gy, GradOut& gx) {
    visit_floating(gy[0].dtype(), "attention", [&]<class T>() { backward<T>(saved, gy, gx); });
  });
}

// The heads of x [.., heads * width] with zeros behind their columns, or without the last of them.
Tensor with_width(const Tensor& x, int64_t heads, int64_t width) {
  Shape shape = x.shape(), apart = x.shape();
  const int64_t given = x.size(-1) / heads;
  if (given == width) return x;
  shape[x.rank() - 1] = heads * width;
  if (apart.rank() == kMaxRank) apart = {rows_and_cols(x, "attention").first, x.size(-1)};
  apart[apart.rank() - 1] = heads;
  apart.append(given);
  return pad(x.reshape(apart), {0, width - given}).reshape(shape);
}

// Columns of zeros change no score, and give columns of zeros.
Tensor attend_other_width(const Tensor& q, const Tensor& k, const Tensor& v, const Segments& segments,
                          const AttentionOptions& options, int64_t key_heads, int64_t width) {
  Shape rows_of_k = k.shape(), rows_of_v = v.shape();
  const int64_t cols = rows_and_cols(v, "attention").second, own = cols / key_heads;
  rows_of_k[k.rank() - 1] = cols;
  HEED_CHECK(rows_of_k == rows_of_v && cols == own * key_heads && cols > 0, ShapeError, "attention: k is ",
             k.shape(), ", v is ", v.shape(), "; they need the same rows, and v ", key_heads, " heads");
  AttentionOptions scaled = options;
  if (options.scale == 0) scaled.scale = 1 / std::sqrt(static_cast<double>(width));
  const int64_t both = std::max(width, own);
  const Tensor y = attention(with_width(q, options.heads, both), with_width(k, key_heads, both),
                             with_width(v, key_heads, both), segments, scaled);
  return with_width(y, options.heads, own);
}

}  // namespace

Tensor attention_scores(const Tensor& q, const Tensor& k, const Segments& segments,
                        const AttentionOptions& options, int64_t sequence) {
  const char* name = "attention_scores";
  const int64_t key_heads = checked_key_heads(options, name), width = head_width(q, options.heads, name);
  check_same_kind(q, k, name);
  check_keys(k, key_heads, width, name);
  HEED_CHECK(sequence >= 0 && sequence < segments.count(), IndexError, name, ": there is no sequence ",
             sequence, " among ", segments.count());
  const Operands operands{.matrix = {&q, &k, &k},
                          .source = {0, 1, 2},
                          .column = {0, 0, 0},
                          .heads = options.heads,
                          .key_heads = key_heads,
                          .width = width};
  return plain_scores(columns(operands, 0), columns(operands, 1),
                      make_call(operands, segments, options, name), options, sequence);
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const Segments& segments,
                 const AttentionOptions& options) {
  const char* name = "attention";
  const int64_t key_heads = checked_key_heads(options, name), width = head_width(q, options.heads, name);
  check_same_kind(q, k, name);
  check_same_kind(q, v, name);
  check_keys(k, key_heads, width, name);
  if (k.shape() != v.shape()) return attend_other_width(q, k, v, segments, options, key_heads, width);
  return attend({.matrix = {&q, &k, &v},
                 .source = {0, 1, 2},
                 .column = {0, 0, 0},
                 .heads = options.heads,
                 .key_heads = key_heads,
                 .width = width},
                segments, options, name);
}

Tensor attention_qkv(const Tensor& qkv, const Segments& segments, const AttentionOptions& options) {
  const char* name = "attention_qkv";
  const int64_t heads = options.heads, key_heads = checked_key_heads(options, name),
                cols = rows_and_cols(qkv, name).second, width = cols / (heads + 2 * key_heads);
  HEED_CHECK(cols > 0 && cols == (heads + 2 * key_heads) * width, ConfigError, name, ": qkv has ", cols,
             " columns, which do not divide into ", heads, " heads of q and ", key_heads, " each of k and v");
  return attend({.matrix = {&qkv, &kNone, &kNone},
                 .source = {0, 0, 0},
                 .column = {0, heads * width, (heads + key_heads) * width},
                 .heads = heads,
                 .key_heads = key_heads,
                 .width = width},
                segments, options, name);
}

Tensor attention_kv(const Tensor& q, const Tensor& kv, const Segments& segments,
                    const AttentionOptions& options) {
  const char* name = "attention_kv";
  const int64_t key_heads = checked_key_heads(options, name), width = head_width(q, options.heads, name);
  check_same_kind(q, kv, name);
  HEED_CHECK(rows_and_cols(kv, name).second == 2 * key_heads * width, ShapeError, name, ": kv is ",
             kv.shape(), ", expected k and v of ", key_heads, " heads of ", width, " columns as q has, ",
             2 * key_heads * width, " in all");
  return attend({.matrix = {&q, &kv, &kNone},
                 .source = {0, 1, 1},
                 .column = {0, 0, key_heads * width},
                 .heads = options.heads,
                 .key_heads = key_heads,
                 .width = width},
                segments, options, name);
}

}  // namespace heed

#include "bench/operations.h"

#include <algorithm>

#include <heed/core/attention.h>
#include <heed/core/base/check.h>
#include <heed/core/convolution.h>
#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/core/recurrent.h>

namespace heed::bench {
namespace {

// ---- Inputs

constexpr int64_t kPeriod = 2003;

/// Tensors that an operation on rows x cols reads or results in.
enum class Kind {
  matrix,
  positive,  // a matrix that logarithms and roots are defined for
  other,     // a matrix of the other element type: bf16 where this is f32, and f32 otherwise
  half,      // every second column
  row,       // an element for each column
  column,    // an element for each row
  number,    // one element
  mask,      // truth values
  truths,    // one for each row
  integers,  // i64
  columns,   // i64: for each element the index of a column
  rows,      // i64: for each row the index of another
  classes,   // i64: for each row the index of a column
  best       // i64: for each column the index of a row
};
using enum Kind;

double bytes_of(Kind kind, const Sizes& s, DType dtype) {
  const double width = static_cast<double>(size_of(dtype)), long_width = sizeof(int64_t);
  const double height = static_cast<double>(s[0]), count = static_cast<double>(s[0] * s[1]);
  switch (kind) {
    case row:
      return width * static_cast<double>(s[1]);
    case column:
      return width * height;
    case half:
      return width * count / 2;
    case number:
      return width;
    case mask:
      return count;
    case truths:
      return height;
    case integers:
    case columns:
      return long_width * count;
    case rows:
    case classes:
      return long_width * height;
    case best:
      return long_width * static_cast<double>(s[1]);
    case other:
      return static_cast<double>(size_of(dtype == DType::f32 ? DType::bf16 : DType::f32)) * count;
    default:
      return width * count;
  }
}

/// Those of filled() times 500, as whole numbers.
Tensor filled_integers(const Shape& shape, int64_t seed) {
  return (filled(shape, seed, DType::f32) * 500).to(DType::i64);
}

/// The same from 0 to count - 1.
Tensor filled_indices(const Shape& shape, int64_t seed, int64_t count) {
  const Tensor ids = filled_integers(shape, seed);
  int64_t* const at = ids.data<int64_t>();
  std::for_each(at, at + ids.numel(), [count](int64_t& id) { id = (id + 1000) % count; });
  return ids;
}

Tensor input(Kind kind, const Sizes& s, int64_t seed, DType dtype) {
  switch (kind) {
    case positive:
      return abs(filled({s[0], s[1]}, seed, dtype)) + 0.5;
    case row:
      return filled({s[1]}, seed, dtype);
    case column:
      return filled({s[0], 1}, seed, dtype);
    case mask:
      return greater(filled({s[0], s[1]}, seed, dtype), scalar(0, {.dtype = dtype}));
    case integers:
      return filled_integers({s[0], s[1]}, seed);
    case columns:
      return filled_indices({s[0], s[1]}, seed, s[1]);
    case rows:
      return filled_indices({s[0]}, seed, s[0]);
    case classes:
      return filled_indices({s[0]}, seed, s[1]);
    default:
      return filled({s[0], s[1]}, seed, dtype);
  }
}

// ---- Operations on rows x cols

struct Arguments {
  std::vector<Tensor> inputs;
  double dropout;
  Shape shape;
  DType dtype;

  const Tensor& operator[](size_t i) const { return inputs[i]; }
};
using Call = Tensor (*)(const Arguments&);

struct RowWise {
  const char* name;
  std::vector<Kind> inputs, results;
  Call call;
};

template <auto function>
Tensor of_one(const Arguments& a) {
  return function(a[0]);
}

template <auto function>
Tensor of_two(const Arguments& a) {
  return function(a[0], a[1]);
}

using One = Tensor (*)(const Tensor&);
using Two = Tensor (*)(const Tensor&, const Tensor&);
constexpr One kOne(One function) { return function; }
constexpr Two kTwo(Two function) { return function; }

Tensor truth(bool value) { return scalar(value ? 1 : 0); }

const std::vector<RowWise>& table() {
  using A = const Arguments&;
  static const std::vector<RowWise> all = {
      // What models are made of.
      {"layer_norm", {matrix, row, row}, {matrix}, [](A a) { return layer_norm(a[0], a[1], a[2]); }},
      {"residual_layer_norm",
       {matrix, matrix, row, row},
       {matrix, matrix},
       [](A a) { return post_layer_norm(a[0], a[1], a[2], a[3], {.p = a.dropout}); }},
      {"gelu", {matrix}, {matrix}, of_one<kOne(gelu)>},
      {"gelu_tanh", {matrix}, {matrix}, of_one<kOne(gelu_tanh)>},
      {"relu", {matrix}, {matrix}, of_one<kOne(relu)>},
      {"silu", {matrix}, {matrix}, of_one<kOne(silu)>},
      {"dropout", {matrix}, {matrix}, [](A a) { return dropout(a[0], {.p = a.dropout}); }},
      {"softmax", {matrix}, {matrix}, [](A a) { return softmax(a[0]); }},
      {"softmax_columns", {matrix}, {matrix}, [](A a) { return softmax(a[0], 0); }},
      {"log_softmax", {matrix}, {matrix}, [](A a) { return log_softmax(a[0]); }},
      {"cross_entropy", {matrix, classes}, {number}, [](A a) { return cross_entropy(a[0], a[1]); }},

      // Element by element.
      {"add", {matrix, matrix}, {matrix}, of_two<kTwo(add)>},
      {"add_row", {matrix, row}, {matrix}, of_two<kTwo(add)>},
      {"add_column", {matrix, column}, {matrix}, of_two<kTwo(add)>},
      {"add_number", {matrix}, {matrix}, [](A a) { return a[0] + 1.0; }},
      {"add_transposed",
       {matrix, matrix},
       {matrix},
       [](A a) {
         return a[0] + a[1].reshape({a.shape[1], a.shape[0]}).transpose(0, 1);
       }},
      {"add_integers", {integers, integers}, {integers}, of_two<kTwo(add)>},
      {"multiply", {matrix, matrix}, {matrix}, of_two<kTwo(multiply)>},
      {"divide", {matrix, positive}, {matrix}, of_two<kTwo(divide)>},
      {"maximum", {matrix, matrix}, {matrix}, of_two<kTwo(maximum)>},
      {"power_of_two", {positive, matrix}, {matrix}, of_two<kTwo(power)>},
      {"power", {positive}, {matrix}, [](A a) { return power(a[0], 2.5); }},
      {"cube", {matrix}, {matrix}, [](A a) { return power(a[0], 3); }},
      {"reciprocal", {positive}, {matrix}, [](A a) { return power(a[0], -1); }},
      {"sqrt", {positive}, {matrix}, of_one<kOne(sqrt)>},
      {"rsqrt", {positive}, {matrix}, of_one<kOne(rsqrt)>},
      {"exp", {matrix}, {matrix}, of_one<kOne(exp)>},
      {"log", {positive}, {matrix}, of_one<kOne(log)>},
      {"tanh", {matrix}, {matrix}, of_one<kOne(tanh)>},
      {"sigmoid", {matrix}, {matrix}, of_one<kOne(sigmoid)>},
      {"erf", {matrix}, {matrix}, of_one<kOne(erf)>},
      {"sin", {matrix}, {matrix}, of_one<kOne(sin)>},
      {"abs", {matrix}, {matrix}, of_one<kOne(abs)>},
      {"negate", {matrix}, {matrix}, [](A a) { return -a[0]; }},
      {"floor", {matrix}, {matrix}, of_one<kOne(floor)>},
      {"round", {matrix}, {matrix}, of_one<kOne(round)>},
      {"sign", {matrix}, {matrix}, of_one<kOne(sign)>},
      {"clamp", {matrix}, {matrix}, [](A a) { return clamp(a[0], -1, 1); }},

      // Truth values, and other types.
      {"greater", {matrix, matrix}, {mask}, of_two<kTwo(greater)>},
      {"greater_row", {matrix, row}, {mask}, of_two<kTwo(greater)>},
      {"is_finite", {matrix}, {mask}, of_one<kOne(is_finite)>},
      {"all_finite", {matrix}, {}, [](A a) { return truth(all_finite(a[0])); }},
      {"array_equal", {matrix}, {}, [](A a) { return truth(array_equal(a[0], a[0])); }},
      {"logical_not", {mask}, {mask}, of_one<kOne(logical_not)>},
      {"logical_and", {mask, mask}, {mask}, of_two<kTwo(logical_and)>},
      {"where", {mask, matrix, matrix}, {matrix}, [](A a) { return where(a[0], a[1], a[2]); }},
      {"masked_fill", {matrix, mask}, {matrix}, [](A a) { return masked_fill(a[0], a[1], 0); }},
      {"masked",
       {matrix},
       {matrix},
       [](A a) { return masked_fill(a[0], greater(a[0].detach(), a[0].detach().slice(0, 0, 1)), 0); }},
      {"convert",
       {matrix},
       {other},
       [](A a) { return a[0].to(a.dtype == DType::f32 ? DType::bf16 : DType::f32); }},
      {"to_integers", {matrix}, {integers}, [](A a) { return a[0].to(DType::i64); }},
      {"from_integers", {integers}, {matrix}, [](A a) { return a[0].to(a.dtype); }},
      {"from_mask", {mask}, {matrix}, [](A a) { return a[0].to(a.dtype); }},

      // Reductions and what runs along an axis.
      {"sum", {matrix}, {number}, [](A a) { return sum(a[0]); }},
      {"sum_rows", {matrix}, {column}, [](A a) { return sum(a[0], {.axes = {1}}); }},
      {"sum_columns", {matrix}, {row}, [](A a) { return sum(a[0], {.axes = {0}}); }},
      {"sum_integers", {integers}, {}, [](A a) { return sum(a[0]); }},
      {"count", {mask}, {}, [](A a) { return sum(a[0]); }},
      {"mean_rows", {matrix}, {column}, [](A a) { return mean(a[0], {.axes = {1}}); }},
      {"variance", {matrix}, {column}, [](A a) { return variance(a[0], {.axes = {1}}); }},
      {"norm", {matrix}, {number}, [](A a) { return norm(a[0]); }},
      {"norm_rows", {matrix}, {column}, [](A a) { return norm(a[0], {.axes = {1}}); }},
      {"max", {matrix}, {number}, [](A a) { return max(a[0]); }},
      {"max_rows", {matrix}, {column}, [](A a) { return max(a[0], {.axes = {1}}); }},
      {"max_columns", {matrix}, {row}, [](A a) { return max(a[0], {.axes = {0}}); }},
      {"max_rows_integers", {integers}, {column}, [](A a) { return max(a[0], {.axes = {1}}); }},
      {"argmax_rows", {matrix}, {classes}, [](A a) { return argmax(a[0], 1); }},
      {"argmax_columns", {matrix}, {best}, [](A a) { return argmax(a[0], 0); }},
      {"any", {mask}, {}, [](A a) { return any(a[0]); }},
      {"any_rows", {mask}, {truths}, [](A a) { return any(a[0], {.axes = {1}}); }},
      {"logsumexp", {matrix}, {column}, [](A a) { return logsumexp(a[0], {.axes = {1}}); }},
      {"log_sum_exp_columns", {matrix}, {row}, [](A a) { return logsumexp(a[0], {.axes = {0}}); }},
      {"cumsum", {matrix}, {matrix}, [](A a) { return cumsum(a[0], 1); }},
      {"cumulative_sum_columns", {matrix}, {matrix}, [](A a) { return cumsum(a[0], 0); }},
      {"sort", {matrix}, {matrix, integers}, [](A a) { return sort(a[0], 1).first; }},
      {"topk", {matrix}, {column}, [](A a) { return topk(a[0], 10, 1).first; }},

      // What only moves.
      {"transpose", {matrix}, {matrix}, [](A a) { return a[0].transpose(0, 1).contiguous(); }},
      {"flip", {matrix}, {matrix}, [](A a) { return flip(a[0], 1); }},
      {"flip_columns", {matrix}, {matrix}, [](A a) { return flip(a[0], 0); }},
      {"every_second", {half}, {half}, [](A a) { return a[0].slice(1, 0, a.shape[1], 2).contiguous(); }},
      {"tril", {matrix}, {matrix}, [](A a) { return tril(a[0]); }},
      {"cat_rows", {matrix, matrix}, {matrix, matrix}, [](A a) { return cat(a.inputs, 1); }},
      {"cat_columns", {matrix, matrix}, {matrix, matrix}, [](A a) { return cat(a.inputs, 0); }},
      {"stack", {matrix, matrix}, {matrix, matrix}, [](A a) { return stack(a.inputs, 2); }},
      {"gather", {matrix, columns}, {matrix}, [](A a) { return gather(a[0], 1, a[1]); }},
      {"index_select", {matrix, rows}, {matrix}, of_two<kTwo(index_select)>},
      {"scatter_add",
       {matrix, columns, matrix},
       {matrix},
       [](A a) { return scatter_add(a[0], 1, a[1], a[2]); }},
      {"one_hot", {classes}, {matrix}, [](A a) { return one_hot(a[0], a.shape[1], a.dtype); }},

      // Made of nothing.
      {"zeros", {}, {matrix}, [](A a) { return zeros(a.shape, {.dtype = a.dtype}); }},
      {"full", {}, {matrix}, [](A a) { return full(a.shape, 1, {.dtype = a.dtype}); }},
      {"arange", {}, {integers}, [](A a) { return arange(0, a.shape[0] * a.shape[1]); }},
      {"rand", {}, {matrix}, [](A a) { return rand(a.shape, {.dtype = a.dtype}); }},
      {"randn", {}, {matrix}, [](A a) { return randn(a.shape, {.dtype = a.dtype}); }},
      {"randint", {}, {integers}, [](A a) { return randint(0, 1000, a.shape); }}};
  return all;
}

const RowWise* find(const std::string& name) {
  const auto at =
      std::find_if(table().begin(), table().end(), [&](const RowWise& r) { return r.name == name; });
  return at == table().end() ? nullptr : &*at;
}

/// Whether its result has a gradient.
bool is_differentiable(const RowWise& r) {
  constexpr Kind kFloating[] = {matrix, other, half, row, column, number};
  return !r.results.empty() && std::count(std::begin(kFloating), std::end(kFloating), r.results.front()) > 0;
}

Operation row_wise(const RowWise& r, const Sizes& s, DType dtype) {
  Arguments arguments{{}, 0, {s[0], s[1]}, dtype};
  std::vector<Tensor> learned;
  for (const Kind kind : r.inputs) {
    const int64_t seed = static_cast<int64_t>(arguments.inputs.size()) + 1;
    arguments.inputs.push_back(input(kind, s, seed, dtype));
    if (is_differentiable(r) && is_floating(arguments.inputs.back().dtype()))
      learned.push_back(arguments.inputs.back());
  }
  const auto call = [arguments, run = r.call](double rate) mutable {
    arguments.dropout = rate;
    return run(arguments);
  };
  return {learned, call, std::string_view(r.name).substr(0, 4) == "rand"};
}

// ---- Others

Operation attention_of(const Sizes& s, DType dtype, Causal causal) {
  const Shape shape{s[0] * s[1], s[2] * s[3]};
  const std::vector<Tensor> qkv{filled(shape, 1, dtype), filled(shape, 2, dtype), filled(shape, 3, dtype)};
  const Segments segments = Segments::dense(s[0], s[1]);
  AttentionOptions options{.heads = s[2]};
  options.visibility.causal = causal;
  return {qkv, [=](double) { return attention(qkv[0], qkv[1], qkv[2], segments, options); }};
}

Operation linear_of(const Sizes& s, DType dtype) {
  const std::vector<Tensor> in{filled({s[0], s[1]}, 1, dtype), filled({s[2], s[1]}, 2, dtype)};
  return {in, [=](double) { return linear(in[0], in[1]); }};
}

/// Sequences x length x width, of which the input is as wide.
Operation recurrent_of(const Sizes& s, DType dtype, CellKind kind) {
  const int64_t all = gate_count(kind) * s[2];
  const std::vector<Tensor> in{filled({s[0] * s[1], s[2]}, 1, dtype), filled({all, s[2]}, 2, dtype) * 0.02,
                               filled({all, s[2]}, 3, dtype) * 0.02, filled({all}, 4, dtype),
                               filled({all}, 5, dtype)};
  const Segments segments = Segments::dense(s[0], s[1]);
  return {in, [=](double) {
            return recurrent(kind, linear(in[0], in[1], in[3]), in[2], segments, {.bias = in[4]}).output;
          }};
}

/// Batch x channels x size x outputs x kernel x stride, of square images that keep their size but for the
/// stride.
Operation conv2d_of(const Sizes& s, DType dtype) {
  const std::vector<Tensor> in{filled({s[0], s[1], s[2], s[2]}, 1, dtype),
                               filled({s[3], s[1], s[4], s[4]}, 2, dtype)};
  const Convolution2dOptions options{.stride = s[5], .padding = s[4] / 2};
  return {in, [=](double) { return conv2d(in[0], in[1], {}, options); }};
}

}  // namespace

Operation operation(const std::string& name, const Sizes& sizes, DType dtype) {
  if (const RowWise* r = find(name)) return row_wise(*r, sizes, dtype);
  if (name == "attention") return attention_of(sizes, dtype, Causal::none);
  if (name == "causal_attention") return attention_of(sizes, dtype, Causal::top_left);
  if (name == "lstm") return recurrent_of(sizes, dtype, CellKind::lstm);
  if (name == "gru") return recurrent_of(sizes, dtype, CellKind::gru);
  if (name == "conv2d") return conv2d_of(sizes, dtype);
  HEED_CHECK(name == "linear" || name == "product", ConfigError, "there is no kernel '", name, "'");
  return linear_of(sizes, dtype);
}

std::vector<std::string> row_wise_operations() {
  std::vector<std::string> names;
  for (const RowWise& r : table()) names.emplace_back(r.name);
  return names;
}

double row_wise_bytes(const std::string& name, const Sizes& sizes, DType dtype) {
  const RowWise* r = find(name);
  HEED_CHECK(r, ConfigError, "there is no row-wise kernel '", name, "'");
  double bytes = 0;
  for (const std::vector<Kind>& tensors : {r->inputs, r->results})
    for (const Kind kind : tensors) bytes += bytes_of(kind, sizes, dtype);
  return bytes;
}

Tensor filled(const Shape& shape, int64_t seed, DType dtype) {
  std::vector<float> table(kPeriod);
  for (int64_t i = 0; i < kPeriod; ++i)
    table[static_cast<size_t>(i)] = static_cast<float>(
        static_cast<double>((i * i * 7 + i * 11 + seed * 97) % kPeriod) * 4 / static_cast<double>(kPeriod) -
        2);
  const Tensor x = empty(shape);
  float* const to = x.data<float>();
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = table[static_cast<size_t>(i % kPeriod)];
  return x.to(dtype);
}

}  // namespace heed::bench

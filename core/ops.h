// Every operation on tensors, with those of losses.h and sampling.h. Shapes broadcast as in NumPy where two
// tensors meet. Axes may count from the end. Unless it says otherwise an operation is recorded and has a
// gradient. Errors: ShapeError, DTypeError, DeviceError, IndexError with the operation's name. Attention is
// in core/attention.h, recurrent layers in core/recurrent.h, convolution and pooling in core/convolution.h,
// batch and group norm in core/channel_norm.h, making tensors in core/creation.h.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include <heed/core/autograd/autograd.h>
#include <heed/core/creation.h>
#include <heed/core/losses.h>
#include <heed/core/sampling.h>
#include <heed/core/segments.h>
#include <heed/core/tensor.h>
#include <heed/kernels/activation.h>
#include <heed/kernels/indexing.h>
#include <heed/kernels/rotary.h>

namespace heed {

namespace detail {
Tensor& assign(const char* operation, Tensor& target, const Tensor& value);
}

// ---- arithmetic, element by element
// --------------------------------------------------------------------------- Both operands have one dtype;
// scalars take the tensor's.

[[nodiscard]] Tensor add(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor subtract(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor multiply(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor divide(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor power(const Tensor& a, const Tensor& b);
/// Where a and b are equal each gets half of the gradient, where the result is NaN all of it.
[[nodiscard]] Tensor maximum(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor minimum(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor maximum(const Tensor& a, double b);
[[nodiscard]] Tensor minimum(const Tensor& a, double b);

[[nodiscard]] inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
[[nodiscard]] inline Tensor operator-(const Tensor& a, const Tensor& b) { return subtract(a, b); }
[[nodiscard]] inline Tensor operator*(const Tensor& a, const Tensor& b) { return multiply(a, b); }
[[nodiscard]] inline Tensor operator/(const Tensor& a, const Tensor& b) { return divide(a, b); }
[[nodiscard]] Tensor operator+(const Tensor& a, double b);
[[nodiscard]] Tensor operator-(const Tensor& a, double b);
[[nodiscard]] Tensor operator*(const Tensor& a, double b);
[[nodiscard]] Tensor operator/(const Tensor& a, double b);
[[nodiscard]] Tensor operator+(double a, const Tensor& b);
[[nodiscard]] Tensor operator-(double a, const Tensor& b);
[[nodiscard]] Tensor operator*(double a, const Tensor& b);
[[nodiscard]] Tensor operator/(double a, const Tensor& b);
[[nodiscard]] Tensor operator-(const Tensor& a);

/// a = a + b, recorded: a becomes another tensor, and what else saw the old one, a view of it too, still
/// does. Only a leaf that requires a gradient, such as a parameter, is written in place, as by copy_(): under
/// NoGrad.
inline Tensor& operator+=(Tensor& a, const Tensor& b) { return detail::assign("+=", a, a + b); }
inline Tensor& operator-=(Tensor& a, const Tensor& b) { return detail::assign("-=", a, a - b); }
inline Tensor& operator*=(Tensor& a, const Tensor& b) { return detail::assign("*=", a, a * b); }
inline Tensor& operator/=(Tensor& a, const Tensor& b) { return detail::assign("/=", a, a / b); }
inline Tensor& operator+=(Tensor& a, double b) { return detail::assign("+=", a, a + b); }
inline Tensor& operator-=(Tensor& a, double b) { return detail::assign("-=", a, a - b); }
inline Tensor& operator*=(Tensor& a, double b) { return detail::assign("*=", a, a * b); }
inline Tensor& operator/=(Tensor& a, double b) { return detail::assign("/=", a, a / b); }

/// Division as in Python: the quotient is rounded down, the remainder has b's sign. Integers are divided
/// without a detour through floating numbers; a divisor of 0 among them is a DataError, for which the host
/// waits for a device. The quotient's gradient is 0.
[[nodiscard]] Tensor floor_divide(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor floor_divide(const Tensor& a, double b);
[[nodiscard]] Tensor remainder(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor remainder(const Tensor& a, double b);

[[nodiscard]] Tensor exp(const Tensor& x);
[[nodiscard]] Tensor expm1(const Tensor& x);  // e^x - 1, with all digits near 0
[[nodiscard]] Tensor log(const Tensor& x);
[[nodiscard]] Tensor log1p(const Tensor& x);  // log(1 + x), with all digits near 0
[[nodiscard]] Tensor reciprocal(const Tensor& x);
[[nodiscard]] Tensor sqrt(const Tensor& x);
[[nodiscard]] Tensor rsqrt(const Tensor& x);
[[nodiscard]] Tensor sin(const Tensor& x);
[[nodiscard]] Tensor cos(const Tensor& x);
[[nodiscard]] Tensor tanh(const Tensor& x);
[[nodiscard]] Tensor sigmoid(const Tensor& x);
[[nodiscard]] Tensor erf(const Tensor& x);
[[nodiscard]] Tensor abs(const Tensor& x);  // gradient 0 at 0
[[nodiscard]] Tensor square(const Tensor& x);
[[nodiscard]] Tensor power(const Tensor& x, double exponent);
/// The gradient passes inside and at the bounds, not outside. Without a bound on one side: -HUGE_VAL or
/// HUGE_VAL, also of integers. NaN stays, without a gradient.
[[nodiscard]] Tensor clamp(const Tensor& x, double low, double high);
[[nodiscard]] Tensor floor(const Tensor& x);  // gradient 0, as round and sign
[[nodiscard]] Tensor round(const Tensor& x);
[[nodiscard]] Tensor sign(const Tensor& x);

// ---- comparison and choice: results are bool, and no gradient goes through them

[[nodiscard]] Tensor equal(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor not_equal(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor less(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor less_equal(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor greater(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor greater_equal(const Tensor& a, const Tensor& b);
/// b is taken in a's dtype; ConfigError for a number that an integer dtype does not have.
[[nodiscard]] Tensor equal(const Tensor& a, double b);
[[nodiscard]] Tensor not_equal(const Tensor& a, double b);
[[nodiscard]] Tensor less(const Tensor& a, double b);
[[nodiscard]] Tensor less_equal(const Tensor& a, double b);
[[nodiscard]] Tensor greater(const Tensor& a, double b);
[[nodiscard]] Tensor greater_equal(const Tensor& a, double b);
[[nodiscard]] Tensor logical_and(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor logical_or(const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor logical_not(const Tensor& a);
[[nodiscard]] Tensor is_nan(const Tensor& x);
[[nodiscard]] Tensor is_finite(const Tensor& x);
/// Whether no element is NaN or infinite.
[[nodiscard]] bool all_finite(const Tensor& x);
/// Whether shapes, dtypes and all elements are equal (NaN equals nothing).
[[nodiscard]] bool array_equal(const Tensor& a, const Tensor& b);

/// condition ? a : b, element by element; condition is bool.
[[nodiscard]] Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor where(const Tensor& condition, const Tensor& a, double b);
[[nodiscard]] Tensor where(const Tensor& condition, double a, const Tensor& b);
/// x with `value` where mask (bool, broadcast) is true.
[[nodiscard]] Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);

// ---- reductions
// ------------------------------------------------------------------------------------------------- Over the
// given axes, all if none are given. keep: leave reduced axes with size 1.

/// The axes of a reduction: {0, -1}, or a vector. A vector that is empty reduces nothing; {} is all axes.
class ReducedAxes {
 public:
  ReducedAxes() = default;
  ReducedAxes(std::initializer_list<int64_t> axes) : all_(false), list_(axes) {}
  ReducedAxes(std::vector<int64_t> axes) : all_(false), list_(std::move(axes)) {}

  bool all() const { return all_; }
  const std::vector<int64_t>& list() const { return list_; }

 private:
  bool all_ = true;
  std::vector<int64_t> list_;
};

struct ReduceOptions {
  ReducedAxes axes = {};
  bool keep = false;
};

[[nodiscard]] Tensor sum(const Tensor& x, const ReduceOptions& options = {});   // of nothing: 0
[[nodiscard]] Tensor mean(const Tensor& x, const ReduceOptions& options = {});  // of nothing: NaN
[[nodiscard]] Tensor prod(const Tensor& x,
                          const ReduceOptions& options = {});  // of nothing: 1; right gradients at 0
/// The mean of each segment's rows (its query rows) of x [rows, ..]: [segments, ..]. An empty segment gives
/// zeros. StateError for segments that the device alone knows.
[[nodiscard]] Tensor segment_mean(const Tensor& x, const Segments& segments);
/// Sum of squared differences from the mean over (n - correction).
[[nodiscard]] Tensor variance(const Tensor& x, const ReduceOptions& options = {}, int64_t correction = 1);
/// NaN where any element is. The gradient is shared among equal maxima, or among the NaNs. Of nothing:
/// ShapeError.
[[nodiscard]] Tensor max(const Tensor& x, const ReduceOptions& options = {});
[[nodiscard]] Tensor min(const Tensor& x, const ReduceOptions& options = {});
[[nodiscard]] Tensor norm(const Tensor& x, const ReduceOptions& options = {});  // Euclidean; gradient 0 at 0
[[nodiscard]] Tensor logsumexp(const Tensor& x, const ReduceOptions& options = {});
[[nodiscard]] Tensor cumsum(const Tensor& x, int64_t axis);
/// i64, the first of equals, or the first NaN.
[[nodiscard]] Tensor argmax(const Tensor& x, int64_t axis, bool keep = false);
[[nodiscard]] Tensor argmin(const Tensor& x, int64_t axis, bool keep = false);
[[nodiscard]] Tensor any(const Tensor& x, const ReduceOptions& options = {});  // bool
[[nodiscard]] Tensor all(const Tensor& x, const ReduceOptions& options = {});
/// The k largest along an axis, largest first, the earlier of equals first: {values, i64 indices}. NaN is
/// above everything, here and in sort.
[[nodiscard]] std::pair<Tensor, Tensor> topk(const Tensor& x, int64_t k, int64_t axis = -1);
/// Ascending (or descending), stable: {values, i64 indices}.
[[nodiscard]] std::pair<Tensor, Tensor> sort(const Tensor& x, int64_t axis = -1, bool descending = false);
/// Sums x over what broadcasting `shape` to x.shape() repeated: the gradient of a broadcast.
[[nodiscard]] Tensor sum_to(const Tensor& x, const Shape& shape);

// ---- joining, choosing, rearranging

[[nodiscard]] Tensor cat(TensorList tensors, int64_t axis);
[[nodiscard]] Tensor stack(TensorList tensors, int64_t axis);
/// Views; the last may be smaller.
[[nodiscard]] std::vector<Tensor> split(const Tensor& x, int64_t size, int64_t axis);
/// Views of these sizes, which must add up to the axis's.
[[nodiscard]] std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& sizes, int64_t axis);
[[nodiscard]] std::vector<Tensor> chunk(const Tensor& x, int64_t count, int64_t axis);
/// out[…, i, …] = x[…, index[…, i, …], …]: index (i64) has x's rank and is no larger on the other axes.
[[nodiscard]] Tensor gather(const Tensor& x, int64_t axis, const Tensor& index);
/// Rows of x along axis 0 by i64 index of any shape: index.shape + x.shape[1:]. kNoToken (-1) gives a row of
/// zeros.
[[nodiscard]] Tensor index_select(const Tensor& x, const Tensor& index);
/// Along an axis, by i64 index [n]. An index of kNoToken gives zeros here too.
[[nodiscard]] Tensor index_select(const Tensor& x, int64_t axis, const Tensor& index);
/// x with y[…, index[…, i, …], …] replaced by source[…, i, …], or combined with it: the opposite of gather,
/// with its rules for the index. In the order of i: of several elements that replace one the last stays and
/// has the gradient.
[[nodiscard]] Tensor scatter(const Tensor& x, int64_t axis, const Tensor& index, const Tensor& source,
                             ScatterOp op = ScatterOp::replace);
[[nodiscard]] Tensor scatter(const Tensor& x, int64_t axis, const Tensor& index, double value,
                             ScatterOp op = ScatterOp::replace);
[[nodiscard]] Tensor scatter_add(const Tensor& x, int64_t axis, const Tensor& index, const Tensor& source);
/// x with x[indices[0], indices[1], …] replaced by values, or added to it: i64 indices of the leading axes,
/// which broadcast to one shape; values broadcast to that shape and the other axes. In order, as scatter.
[[nodiscard]] Tensor index_put(const Tensor& x, const std::vector<Tensor>& indices, const Tensor& values,
                               bool accumulate = false);
/// Where x is not 0, in row-major order: i64 [count, rank]. The host waits for a device, as in masked_select.
[[nodiscard]] Tensor nonzero(const Tensor& x);
/// The elements of x where mask (bool, broadcast with x) is true, in row-major order: [count].
[[nodiscard]] Tensor masked_select(const Tensor& x, const Tensor& mask);
[[nodiscard]] Tensor one_hot(const Tensor& ids, int64_t classes, DType dtype = DType::f32);
[[nodiscard]] Tensor flip(const Tensor& x, int64_t axis);
/// Elements move `shift` places along an axis; what leaves at one end comes in at the other.
[[nodiscard]] Tensor roll(const Tensor& x, int64_t shift, int64_t axis);
/// x with `value` before and after each axis: two amounts for an axis, those of the last axis first. Negative
/// ones cut off.
[[nodiscard]] Tensor pad(const Tensor& x, const std::vector<int64_t>& amounts, double value = 0);
/// x as often as it says along each axis, those of new axes first.
[[nodiscard]] Tensor repeat(const Tensor& x, const std::vector<int64_t>& counts);
/// Elements above (below) the diagonal set to zero.
[[nodiscard]] Tensor tril(const Tensor& x, int64_t diagonal = 0);
[[nodiscard]] Tensor triu(const Tensor& x, int64_t diagonal = 0);

// ---- matrix products

/// [.., m, k] x [.., k, n] → [.., m, n] with broadcast leading axes; a vector counts as a row on the left and
/// a column on the right, and its axis goes from the result. On processors with AMX the CPU takes each f32
/// element of large products, here and in linear and attention, to within 1.2e-38: those below 2e-31 lose
/// digits, subnormal ones all of them. HEED_ISA=avx512 keeps them (docs/numbers.md).
[[nodiscard]] Tensor matmul(const Tensor& a, const Tensor& b);

/// Products of the operands' elements summed over the axes that the result does not name: "bik,bjk->bij". A
/// letter for each axis; one that comes twice in an operand is its diagonal. "..." stands for all other axes
/// of an operand, which broadcast from the last on, as in "...ij,jk->...ik". Without "->" the result has
/// those of
/// "..." and then the letters that come once, in alphabetical order. Several operands are multiplied from
/// left to right. ConfigError, ShapeError.
[[nodiscard]] Tensor einsum(const std::string& equation, TensorList operands);

struct LinearOptions {
  Activation activation = Activation::none;
  double dropout = 0;              // of the activation's result
  Generator* generator = nullptr;  // null: default_generator()
  bool wide = false;               // the product alone, unrounded: of bf16 it is f32
};
/// dropout(activation(x weightᵀ + bias)), fused. x [.., in], weight [out, in], bias [out] or undefined → [..,
/// out]. Of a weight that stacks those of several layers take slices along axis 0: their gradients are
/// written into that of the whole. Under NoGrad the CPU may keep a packed copy of a parameter with its
/// memory, as large as itself, until the next write to it: for products of few rows, as in decoding
/// (NoPackedCopies forbids it).
[[nodiscard]] Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                            const LinearOptions& options = {});

// ---- neural network operations

[[nodiscard]] Tensor activation(const Tensor& x, Activation which);
[[nodiscard]] Tensor relu(const Tensor& x);
[[nodiscard]] Tensor gelu(const Tensor& x);  // exact
[[nodiscard]] Tensor gelu_tanh(const Tensor& x);
[[nodiscard]] Tensor silu(const Tensor& x);
[[nodiscard]] Tensor softplus(const Tensor& x, double beta = 1);        // log(1 + e^(beta x)) / beta
[[nodiscard]] Tensor leaky_relu(const Tensor& x, double slope = 0.01);  // x, or slope x where x <= 0
[[nodiscard]] Tensor elu(const Tensor& x, double alpha = 1);            // x, or alpha (e^x - 1) where x <= 0
/// activation(gate) * up for x = [gate | up] along the last axis: SwiGLU with silu (arXiv 2002.05202).
[[nodiscard]] Tensor gated(const Tensor& x, Activation which);

struct DropoutOptions {
  double p = 0;                    // in [0, 1)
  Generator* generator = nullptr;  // null: default_generator()
};
/// Zeroes each element with probability p and scales the others by 1 / (1 - p). p = 0 returns x.
[[nodiscard]] Tensor dropout(const Tensor& x, const DropoutOptions& options);
/// residual + dropout(x), in one pass.
[[nodiscard]] Tensor residual_dropout(const Tensor& residual, const Tensor& x,
                                      const DropoutOptions& options = {});

/// (x - mean) / sqrt(variance + eps) * weight + bias over the last axis; weight and bias [cols] or undefined.
[[nodiscard]] Tensor layer_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                                double eps = 1e-5);

struct ResidualNorm {
  Tensor sum;     // residual + dropout(x)
  Tensor normed;  // the norm of sum
};
/// Residual connection, dropout and layer norm in one pass each way, for pre-norm blocks, which go on with
/// both.
[[nodiscard]] ResidualNorm residual_layer_norm(const Tensor& residual, const Tensor& x, const Tensor& weight,
                                               const Tensor& bias, const DropoutOptions& dropout = {},
                                               double eps = 1e-5);
/// The same for post-norm blocks, which go on with the norm alone: where the device can, the sum is not
/// written.
[[nodiscard]] Tensor post_layer_norm(const Tensor& residual, const Tensor& x, const Tensor& weight,
                                     const Tensor& bias, const DropoutOptions& dropout = {},
                                     double eps = 1e-5);

/// x / sqrt(mean of x² + eps) * weight over the last axis (arXiv 1910.07467); weight [cols] or undefined.
[[nodiscard]] Tensor rms_norm(const Tensor& x, const Tensor& weight = {}, double eps = 1e-6);
/// Residual connection, dropout and RMS norm in one pass each way.
[[nodiscard]] ResidualNorm residual_rms_norm(const Tensor& residual, const Tensor& x, const Tensor& weight,
                                             const DropoutOptions& dropout = {}, double eps = 1e-6);
/// The norm of residual + dropout(x) alone, as post_layer_norm.
[[nodiscard]] Tensor post_rms_norm(const Tensor& residual, const Tensor& x, const Tensor& weight,
                                   const DropoutOptions& dropout = {}, double eps = 1e-6);

[[nodiscard]] Tensor softmax(const Tensor& x, int64_t axis = -1);  // a row of -inf gives zeros
[[nodiscard]] Tensor log_softmax(const Tensor& x, int64_t axis = -1);

struct RotaryOptions {
  int64_t heads = 1;          // heads that the columns of x divide into
  int64_t rotated_heads = 0;  // the first of them, which are turned; 0: all
  RotaryPairing pairing = RotaryPairing::half;
};
/// Rotary positions (arXiv 2104.09864): in each of the heads, pairs of the first columns of x turned by the
/// angles of the row's position; the other columns as they are. x [.., columns], positions i64 [rows], one
/// for each row of x; table [entries, 2, rotated] as nn::rotary_table makes it, in f32 (f64 for f64 x): for
/// each column the cosine, and the sine with the sign that its partner gets. The gradient turns back.
/// IndexError for a position outside the table.
[[nodiscard]] Tensor rotary(const Tensor& x, const Tensor& positions, const Tensor& table,
                            const RotaryOptions& options = {});

struct EmbeddingOptions {
  double scale = 1;
  Tensor position = {};      // [positions, D], added; may require grad
  Tensor position_ids = {};  // i64, the shape of ids
  double dropout = 0;
  int64_t padding_id = -1;         // this row of weight gets no gradient
  Generator* generator = nullptr;  // null: default_generator()
};
/// dropout(scale * weight[ids] + position[position_ids]), fused. ids i64 [..], weight [V, D] → [.., D]. An id
/// of kNoToken (-1) gives zeros.
[[nodiscard]] Tensor embedding(const Tensor& ids, const Tensor& weight, const EmbeddingOptions& options = {});

}  // namespace heed

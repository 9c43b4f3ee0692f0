#include <heed/nn/layers/dropout.h>
#include <heed/nn/layers/feed_forward.h>

namespace heed::nn {
namespace {

constexpr std::pair<const char*, FeedForwardKind> kNames[] = {{"relu", FeedForwardKind::relu},
                                                              {"gelu", FeedForwardKind::gelu},
                                                              {"gelu_tanh", FeedForwardKind::gelu_tanh},
                                                              {"silu", FeedForwardKind::silu},
                                                              {"swiglu", FeedForwardKind::swiglu}};

Activation activation_of(FeedForwardKind kind) {
  switch (kind) {
    case FeedForwardKind::relu:
      return Activation::relu;
    case FeedForwardKind::gelu:
      return Activation::gelu;
    case FeedForwardKind::gelu_tanh:
      return Activation::gelu_tanh;
    case FeedForwardKind::silu:
    case FeedForwardKind::swiglu:
      return Activation::silu;
  }
  return Activation::none;
}

}  // namespace

FeedForwardKind parse_feed_forward(const std::string& text) {
  for (const auto& entry : kNames)
    if (text == entry.first) return entry.second;
  throw ConfigError(
      concat("unknown activation '", text, "'; expected relu, gelu, gelu_tanh, silu or swiglu"));
}

const char* name(FeedForwardKind kind) { return kNames[static_cast<size_t>(kind)].first; }

FeedForward::FeedForward(int64_t d_model, int64_t d_ff, const FeedForwardOptions& options,
                         Generator& generator)
    : kind(options.kind),
      dropout_rate(options.dropout),
      linear1(d_model, d_ff, options.bias, generator),
      linear2(d_ff, d_model, options.bias, generator) {
  check_dropout_rate(dropout_rate, "FeedForward");
  if (kind == FeedForwardKind::swiglu)
    linear_gate = std::make_unique<Linear>(d_model, d_ff, false, generator);
}

Tensor FeedForward::operator()(const Tensor& x) const {
  const double p = training() ? dropout_rate : 0;
  if (!linear_gate) return linear2(linear1(x, {.activation = activation_of(kind), .dropout = p}));
  return linear2(dropout(gated(cat({(*linear_gate)(x), linear1(x)}, -1), Activation::silu), {.p = p}));
}

void FeedForward::visit(Visitor& v) {
  v("linear1", linear1);
  v("linear2", linear2);
  if (linear_gate) v("linear_gate", *linear_gate);
}

std::string FeedForward::describe() const {
  return concat("FeedForward(", linear1.weight.size(1), ", ", linear1.weight.size(0), ", ", name(kind),
                ", dropout ", dropout_rate, ")");
}

}  // namespace heed::nn

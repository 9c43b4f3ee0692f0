// Position-wise feed-forward network.
#pragma once

#include <memory>

#include <heed/nn/layers/linear.h>

namespace heed::nn {

/// The function between the two linear layers. swiglu multiplies silu of a gate with a second projection
/// (arXiv 2002.05202).
enum class FeedForwardKind { relu, gelu, gelu_tanh, silu, swiglu };

/// "relu", "gelu", "gelu_tanh", "silu" or "swiglu"; ConfigError on anything else.
FeedForwardKind parse_feed_forward(const std::string& name);
const char* name(FeedForwardKind kind);

struct FeedForwardOptions {
  FeedForwardKind kind = FeedForwardKind::relu;
  double dropout = 0;  // of the activation, while training
  bool bias = true;    // of linear1 and linear2
};

/// linear2(dropout(f(linear1(x)))), [.., d_model] → [.., d_model]; for swiglu
/// linear2(dropout(silu(linear_gate(x)) * linear1(x))).
class FeedForward : public Module {
 public:
  FeedForward(int64_t d_model, int64_t d_ff, const FeedForwardOptions& options = {},
              Generator& generator = default_generator());

  Tensor operator()(const Tensor& x) const;

  /// The parts carry the names of torch.nn.TransformerEncoderLayer, so a layer lists them among its own.
  void visit(Visitor& v) override;
  std::string describe() const override;

  FeedForwardKind kind;
  double dropout_rate;
  Linear linear1, linear2;
  std::unique_ptr<Linear> linear_gate;  // swiglu only
};

}  // namespace heed::nn

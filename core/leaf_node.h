// The end of the graph: collects the gradient of a tensor that nothing computed. Private to core: not
// installed.
#pragma once

#include <heed/core/autograd.h>

namespace heed {

class LeafNode final : public Node {
 public:
  LeafNode(const Shape& shape, DType dtype, Device device);

  bool is_leaf() const override { return true; }
  bool released() const override { return false; }
  void release_saved() override {}

  /// Without hooks gradients are written straight into grad(), but one whose memory may become that of grad()
  /// waits for complete(), when what else held it may have let go. With hooks all are collected first.
  GradSlot slot(int output, DType dtype) override;
  void collect(int output, const Tensor& gradient) override;
  void complete() override;
  const Tensor& gradient(int output) const override;

  Tensor grad() const { return has_grad_ ? grad_ : Tensor(); }
  /// Forgets the gradient; an arena slot keeps its memory.
  void forget() {
    has_grad_ = false;
    if (!bound_) grad_ = {};
  }
  void set_has_grad(bool value) { has_grad_ = value; }
  /// Fixes where the gradient lives: the slot of a parameter arena. Its dtype may be wider than the tensor's.
  void bind(const Tensor& slot);
  bool bound() const { return bound_; }

 private:
  void apply(const GradIn&, GradOut&) override {}
  bool may_become_grad(const Tensor& gradient) const;
  void accumulate(Tensor gradient);
  void settle();  // adds what waits

  Tensor grad_;
  bool has_grad_ = false;
  bool bound_ = false;
};

/// The node of a leaf that requires grad; null for any other tensor.
LeafNode* leaf_node(const Tensor& tensor);

}  // namespace heed

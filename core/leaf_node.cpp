#include <heed/core/creation.h>
#include <heed/core/leaf_node.h>
#include <heed/core/tensor_impl.h>

namespace heed {

LeafNode::LeafNode(const Shape& shape, DType dtype, Device device) : Node("", 0) {
  outputs().push_back({shape, dtype, device, {}, false, false, {}, {}});
}

GradSlot LeafNode::slot(int output, DType dtype) {
  const Output& self = outputs()[static_cast<size_t>(output)];
  if (!self.hooks.empty()) return Node::slot(output, dtype);
  if (!grad_.defined() && dtype == self.dtype) grad_ = empty(self.shape, {self.dtype, self.device});
  if (!grad_.defined() || grad_.dtype() != dtype) return {};
  return {grad_, std::exchange(has_grad_, true)};
}

void LeafNode::collect(int output, const Tensor& gradient) {
  if (outputs()[static_cast<size_t>(output)].hooks.empty())
    accumulate(gradient);
  else
    Node::collect(output, gradient);
}

void LeafNode::complete() {
  Output& self = outputs()[0];
  if (self.hooks.empty() || !self.gradient.defined()) return;
  Node::complete();
  accumulate(std::exchange(self.gradient, {}));
}

const Tensor& LeafNode::gradient(int output) const {
  static const Tensor none;
  if (!outputs()[static_cast<size_t>(output)].hooks.empty()) return Node::gradient(output);
  return has_grad_ ? grad_ : none;
}

void LeafNode::accumulate(const Tensor& gradient) {
  const Output& self = outputs()[0];
  if (!grad_.defined()) grad_ = empty(self.shape, {self.dtype, self.device});
  if (has_grad_)
    grad_.add_(gradient);
  else
    grad_.copy_(gradient);
  has_grad_ = true;
}

void LeafNode::bind(const Tensor& slot) {
  if (has_grad_) slot.copy_(grad_);
  grad_ = slot;
  bound_ = true;
}

LeafNode* leaf_node(const Tensor& tensor) {
  Node* node = tensor.impl().node.get();
  return node && node->is_leaf() ? static_cast<LeafNode*>(node) : nullptr;
}

}  // namespace heed

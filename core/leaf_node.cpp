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
  settle();
  if (!grad_.defined() && dtype == self.dtype) grad_ = empty(self.shape, {self.dtype, self.device});
  if (!grad_.defined() || grad_.dtype() != dtype) return {};
  return {grad_, std::exchange(has_grad_, true)};
}

void LeafNode::collect(int output, const Tensor& gradient) {
  const Output& self = outputs()[static_cast<size_t>(output)];
  if (!self.hooks.empty()) return Node::collect(output, gradient);
  settle();
  if (may_become_grad(gradient))
    Node::collect(output, gradient);
  else
    accumulate(gradient);
}

void LeafNode::complete() {
  Node::complete();
  settle();
}

const Tensor& LeafNode::gradient(int output) const {
  static const Tensor none;
  const Output& self = outputs()[static_cast<size_t>(output)];
  if (!self.hooks.empty() || self.gradient.defined()) return self.gradient;
  return has_grad_ ? grad_ : none;
}

// All of its memory, and no part of an arena: nothing else would be kept alive.
bool LeafNode::may_become_grad(const Tensor& gradient) const {
  const Output& self = outputs()[0];
  return !grad_.defined() && gradient.dtype() == self.dtype && gradient.device() == self.device &&
         gradient.strides() == contiguous_strides(self.shape) && !gradient.requires_grad() &&
         !gradient.storage()->is_part() &&
         gradient.storage()->bytes() == gradient.numel() * size_of(gradient.dtype());
}

void LeafNode::accumulate(Tensor gradient) {
  const Output& self = outputs()[0];
  const bool held_by_others = !gradient.impl().unique() || !gradient.storage()->unique();
  if (!held_by_others && may_become_grad(gradient)) {
    grad_ = std::move(gradient);
  } else {
    if (!grad_.defined()) grad_ = empty(self.shape, {self.dtype, self.device});
    if (has_grad_)
      grad_.add_(gradient);
    else
      grad_.copy_(gradient);
  }
  has_grad_ = true;
}

void LeafNode::settle() {
  Output& self = outputs()[0];
  if (self.gradient.defined()) accumulate(std::exchange(self.gradient, {}));
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

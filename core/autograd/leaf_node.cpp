#include <atomic>

#include <heed/core/autograd/backward_run.h>
#include <heed/core/autograd/leaf_node.h>
#include <heed/core/base/warning.h>
#include <heed/core/creation.h>
#include <heed/core/tensor_impl.h>

namespace heed {
namespace {

std::atomic<uint64_t> steps{0};
WarningCause no_list_has_it;

}  // namespace

void LeafNode::begin_step() { steps.fetch_add(1, std::memory_order_relaxed); }

void LeafNode::begin(Tensor gradient) {
  grad_ = std::move(gradient);
  first_written_ = 0;
  end_written_ = grad_.numel();
  step_ = steps.load(std::memory_order_relaxed);
}

// Others have forgotten the gradients of the steps before: if a leaf outside of every list still adds to its
// own, it is most likely a part that its module does not list.
void LeafNode::warn_if_forgotten() const {
  if (bound_ || step_ == steps.load(std::memory_order_relaxed)) return;
  no_list_has_it.warn(concat("backward: a tensor of shape ", outputs()[0].shape,
                             " that requires a gradient still holds that of a step before, since no "
                             "parameters() has it: no optimizer "
                             "trains it. List it in its module's visit(), or call its zero_grad()"));
}

LeafNode::LeafNode(const Shape& shape, DType dtype, Device device) : Node("", 0), gradient_dtype_(dtype) {
  outputs().push_back({shape, dtype, device, {}, false, false, {}, {}});
}

GradSlot LeafNode::slot(int output, DType dtype) {
  if (frozen) return {};
  const Output& self = outputs()[static_cast<size_t>(output)];
  if (!self.hooks.empty()) {
    BackwardRun::before_adding_to(self.gradient);
    return Node::slot(output, dtype);
  }
  settle();
  if (dtype != gradient_dtype_) return {};
  const bool accumulate = grad_.defined();
  if (accumulate)
    begin_adding();
  else
    begin(empty(self.shape, {dtype, self.device}));
  return {grad_, accumulate};
}

GradSlot LeafNode::part_slot(int, DType dtype, int64_t first_element, const Shape& shape) {
  settle();
  if (dtype != gradient_dtype_) return {};
  const int64_t first = first_element, end = first + shape.numel();
  const bool fresh = !grad_.defined();
  if (fresh) {
    begin(empty(outputs()[0].shape, {dtype, outputs()[0].device}));
    first_written_ = first, end_written_ = end;
    if (BackwardRun* run = BackwardRun::current()) run->note_parts_of(*this);
  }
  const Tensor part = make_view(grad_, shape, contiguous_strides(shape), grad_.offset() + first);
  if (fresh) return {part, false};
  if (const bool below = end == first_written_; below || first == end_written_) {
    (below ? first_written_ : end_written_) = below ? first : end;
    return {part, false};
  }
  check_repeatable();
  warn_if_forgotten();
  if (first < first_written_ || end > end_written_) complete_parts();
  BackwardRun::before_adding_to(part);
  return {part, true};
}

void LeafNode::complete_parts() {
  if (!grad_.defined()) return;
  const int64_t count = grad_.numel(), size = size_of(grad_.dtype());
  const auto clear = [&](int64_t first, int64_t end) {
    if (first < end)
      fill_bytes(static_cast<std::byte*>(grad_.raw_data()) + first * size, grad_.device(), 0,
                 (end - first) * size);
  };
  clear(0, first_written_);
  clear(end_written_, count);
  first_written_ = 0;
  end_written_ = count;
}

void LeafNode::begin_adding() {
  check_repeatable();
  warn_if_forgotten();
  complete_parts();
  BackwardRun::before_adding_to(grad_);
}

const Tensor& LeafNode::grad() const {
  if (BackwardRun* run = BackwardRun::current()) run->settle();
  return grad_;
}

void LeafNode::collect(int output, const Tensor& gradient) {
  if (frozen) return;  // since it was recorded
  const Output& self = outputs()[static_cast<size_t>(output)];
  if (!self.hooks.empty()) {
    BackwardRun::before_adding_to(self.gradient);
    return Node::collect(output, gradient);
  }
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
  const Output& self = outputs()[static_cast<size_t>(output)];
  const Tensor& own = grad();  // settles
  return !self.hooks.empty() || self.gradient.defined() ? self.gradient : own;
}

// All of its memory, and no part of more: nothing else would be kept alive.
bool LeafNode::may_become_grad(const Tensor& gradient) const {
  const Output& self = outputs()[0];
  return !grad_.defined() && gradient.dtype() == gradient_dtype_ && gradient.device() == self.device &&
         gradient.strides() == contiguous_strides(self.shape) && !gradient.requires_grad() &&
         !gradient.storage()->is_part() &&
         gradient.storage()->bytes() == gradient.numel() * size_of(gradient.dtype());
}

// A captured step may add only to what it made itself: other memory may long be another's when it is
// repeated.
void LeafNode::check_repeatable() const {
  HEED_CHECK(!is_capturing(grad_.device()) || grad_.storage()->is_captured(), StateError,
             "backward: each repetition of the captured step would add to a gradient from before it; call "
             "zero_grad() before the step");
}

void LeafNode::accumulate(Tensor gradient) {
  const Output& self = outputs()[0];
  const bool held_by_others = !gradient.impl().unique() || !gradient.storage()->unique();
  if (!held_by_others && may_become_grad(gradient)) {
    begin(std::move(gradient));
  } else if (grad_.defined()) {
    begin_adding();
    grad_.add_(gradient);
  } else {
    const Tensor mine = empty(self.shape, {gradient_dtype_, self.device});
    mine.copy_(gradient);
    begin(mine);
  }
}

void LeafNode::settle() {
  Output& self = outputs()[0];
  if (self.gradient.defined()) accumulate(std::exchange(self.gradient, {}));
}

void LeafNode::freeze(bool value) {
  frozen = value;
  if (value) forget();
}

void LeafNode::bind(DType dtype, Device device, DType gradient_dtype) {
  outputs()[0].dtype = dtype;
  outputs()[0].device = device;
  if (grad_.defined()) grad_ = grad_.to(device).to(gradient_dtype);
  gradient_dtype_ = gradient_dtype;
  bound_ = true;
}

LeafNode* leaf_node(const Tensor& tensor) {
  Node* node = tensor.impl().node.get();
  return node && node->is_leaf() ? static_cast<LeafNode*>(node) : nullptr;
}

}  // namespace heed

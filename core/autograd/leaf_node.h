// The end of the graph: collects the gradient of a tensor that nothing computed. Private to core: not
// installed.
#pragma once

#include <heed/core/autograd/autograd.h>

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
  /// Parts side by side are written, each without what is beside it; at the end of the backward the rest
  /// gets zeros.
  GradSlot part_slot(int output, DType dtype, int64_t first_element, const Shape& shape) override;
  void collect(int output, const Tensor& gradient) override;
  void complete() override;
  const Tensor& gradient(int output) const override;

  /// In a hook: as far as it has come.
  const Tensor& grad() const;
  /// Zeros where no part was written.
  void complete_parts();
  /// Forgets the gradient, whose memory is free for others.
  void forget() { grad_ = {}; }
  /// Parameters have forgotten their gradients, as after an optimizer's step.
  static void begin_step();
  /// Whether gradients are wanted no more. One that was there is forgotten.
  void freeze(bool value);
  /// Makes it that of a parameter, moved or converted, whose gradient may be of a wider dtype.
  void bind(DType dtype, Device device, DType gradient_dtype);
  bool bound() const { return bound_; }
  /// One more optimizer steps it, or one less.
  void add_holder() { ++holders_; }
  void remove_holder() { --holders_; }
  bool held() const { return holders_ > 0; }

 private:
  void apply(const GradIn&, GradOut&) override {}
  bool may_become_grad(const Tensor& gradient) const;
  void begin_adding();  // to all of grad_
  void check_repeatable() const;
  void accumulate(Tensor gradient);
  void settle();  // adds what waits
  void begin(Tensor gradient);
  void warn_if_forgotten() const;

  Tensor grad_;
  int64_t first_written_ = 0,
          end_written_ = 0;  // elements of grad_ that are written, or will be; all at last
  DType gradient_dtype_;
  uint64_t step_ = 0;  // in which grad_ was begun
  bool bound_ = false;
  int holders_ = 0;
};

/// The node of a leaf that requires grad, or did so before it was frozen; null for any other tensor.
LeafNode* leaf_node(const Tensor& tensor);

}  // namespace heed

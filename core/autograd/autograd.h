// Recording what was computed, and running it backwards.
//
// An operation computes its outputs, then calls record() with a closure that turns the gradients of the
// outputs into gradients of the inputs. That closure is the only thing autograd knows about an operation;
// programs that use heed add operations of their own in the same way.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include <heed/core/base/memory/pooled_vector.h>
#include <heed/core/tensor.h>

namespace heed {

/// While one lives on a thread, that thread records nothing: for evaluation, decoding and optimizer steps.
class NoGrad {
 public:
  [[nodiscard]] NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool previous_;
};

/// Whether this thread records.
bool grad_enabled();

/// While one lives on a thread, each backward there checks every gradient and throws NumericError naming the
/// operation that made the first NaN or infinity.
class DetectAnomaly {
 public:
  [[nodiscard]] DetectAnomaly();
  ~DetectAnomaly();
  DetectAnomaly(const DetectAnomaly&) = delete;
  DetectAnomaly& operator=(const DetectAnomaly&) = delete;

 private:
  bool previous_;
};

/// Tensors as the arguments of record(): a braced list, an array or a vector. Undefined ones stand for
/// optional inputs that are absent. Copies no Tensor: the counts of a model's weights are shared by all
/// threads that use it.
class TensorList {
 public:
  /// A Tensor in a braced list.
  class Reference {
   public:
    Reference(const Tensor& tensor) : tensor_(&tensor) {}
    const Tensor& get() const { return *tensor_; }

   private:
    const Tensor* tensor_;
  };

  class Iterator {
   public:
    Iterator(const TensorList& list, size_t index) : list_(list), index_(index) {}
    const Tensor& operator*() const { return list_[index_]; }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    friend bool operator!=(const Iterator& a, const Iterator& b) { return a.index_ != b.index_; }

   private:
    const TensorList& list_;
    size_t index_;
  };

  TensorList(std::initializer_list<Reference> tensors)
      : references_(std::data(tensors)), size_(tensors.size()) {}
  TensorList(const Tensor& tensor) : tensors_(&tensor), size_(1) {}
  TensorList(std::span<const Tensor> tensors) : tensors_(tensors.data()), size_(tensors.size()) {}
  TensorList(const std::vector<Tensor>& tensors) : tensors_(tensors.data()), size_(tensors.size()) {}

  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, size_}; }
  size_t size() const { return size_; }
  const Tensor& operator[](size_t i) const { return references_ ? references_[i].get() : tensors_[i]; }

 private:
  const Reference* references_ = nullptr;  // of a braced list; else null
  const Tensor* tensors_ = nullptr;
  size_t size_;
};

/// Whether record() with these inputs would record: an operation asks before it keeps what only a backward
/// needs.
bool needs_grad(TensorList inputs);

/// Where a gradient goes: memory of the input's shape, contiguous, to be written, or added to if accumulate.
struct GradSlot {
  Tensor tensor;
  bool accumulate = false;
};

/// The gradients that reached the outputs. IndexError, naming the operation, for an output it does not have.
class GradIn {
 public:
  GradIn(const Node& node, bool last) : node_(node), last_(last) {}
  /// Of output i; undefined if none reached it (never so for an operation with one output). May be strided.
  const Tensor& operator[](int i) const;
  /// Whether that is memory without gaps which nobody else needs: the closure may write over it.
  bool owned(int i) const;
  /// Whether the closure will not be called again: it may drop what it saved as soon as it has used it.
  bool last() const { return last_; }

 private:
  const Node& node_;
  bool last_;
};

/// Takes the gradients of the inputs. What is wrong in them is an error that names the operation: IndexError
/// for an input it does not have, AutogradError for one that needs no gradient, ShapeError and DeviceError
/// for a gradient that does not fit its input.
class GradOut {
 public:
  explicit GradOut(Node& node) : node_(node) {}
  GradOut(const GradOut&) = delete;
  GradOut& operator=(const GradOut&) = delete;

  /// Whether input i needs a gradient: to be asked before one is computed where there are several inputs.
  bool wants(int i) const;
  /// The slot of input i, in the input's dtype: the gradient of a leaf, or what the graph already holds.
  GradSlot into(int i);
  /// The same in accumulator_t of the input's dtype (f32 for bf16): for sums over many rows, such as weights.
  GradSlot into_accumulator(int i);
  /// Whether what into() gave for input i may be written as late as when the backward comes to the leaves
  /// (BackwardRun): nobody looks at it before.
  bool may_wait(int i) const;
  /// Adds a gradient computed elsewhere, of the input's shape, in any dtype. It may be strided and may share
  /// memory with others.
  void add(int i, const Tensor& gradient);

 private:
  friend class Node;
  struct Pending {
    int input;
    Tensor tensor;
  };

  GradSlot into(int i, DType dtype);
  void finish();  // adds what could not be written in place

  Node& node_;
  PooledVector<Pending> pending_;
  PooledVector<int> given_;  // inputs whose slot was handed out in this call
};

/// A recorded operation. Made by record(); of interest to core alone.
class Node : public RefCounted, public Pooled {
 public:
  struct Edge {
    RefPtr<Node> node;  // null: the input needs no gradient
    int output = 0;
  };
  struct Hook {
    int id;
    std::function<Tensor(const Tensor&)> call;
  };
  struct Output {
    Shape shape;
    DType dtype;
    Device device;
    Tensor gradient;      // what has been collected so far
    bool owned = false;   // gradient is memory of ours that can be added to
    bool retain = false;  // keep a copy for Tensor::grad
    Tensor retained;
    PooledVector<Hook> hooks;
  };

  Node(const char* name, uint64_t sequence) : name_(name), sequence_(sequence) {}

  const char* name() const { return name_; }
  uint64_t sequence() const { return sequence_; }
  PooledVector<Edge>& edges() { return edges_; }
  const PooledVector<Edge>& edges() const { return edges_; }
  PooledVector<Output>& outputs() { return outputs_; }
  const PooledVector<Output>& outputs() const { return outputs_; }

  virtual bool is_leaf() const { return false; }
  /// Runs the closure, `last` if for the last time, and hands the gradients on.
  void run(bool last);
  /// Whether the closure is still there.
  virtual bool released() const = 0;
  /// Whether output `output` can be computed again from what the closure keeps.
  virtual bool recomputes(int) const { return false; }
  /// Computes it, bit by bit as it was. AutogradError if the closure was dropped.
  virtual Tensor recompute() const { return {}; }
  /// Drops the closure and what it keeps.
  virtual void release_saved() = 0;

  /// Slot for a gradient of output `output` in `dtype`, or a null tensor where it is kept in another dtype.
  virtual GradSlot slot(int output, DType dtype);
  /// The same for a part of output `output`, of a shape and from an element on; of gradient_holder() only.
  virtual GradSlot part_slot(int output, DType dtype, int64_t first_element, const Shape& shape);
  /// The node whose gradient slot() gives memory of: the leaf that output 0 is a part of, as long as nothing
  /// else asks for the part's own gradient; else this one.
  Node& gradient_holder();
  /// Adds to the gradient of output `output`.
  virtual void collect(int output, const Tensor& gradient);
  /// What has been collected for output `output`; undefined if nothing has.
  virtual const Tensor& gradient(int output) const { return outputs_[static_cast<size_t>(output)].gradient; }
  /// Applies hooks to a complete gradient and keeps it where that was asked.
  virtual void complete();

  bool queued = false;  // in the list of the running backward
  bool frozen = false;  // of a leaf: it wants no gradient any more

 protected:
  /// Whether output 0 is a view without gaps of the only input.
  virtual bool is_part() const { return false; }
  void destroy() noexcept override;  // iterative, so that the end of a long graph needs no deep stack
  virtual void apply(const GradIn& gy, GradOut& gx) = 0;

 private:
  const char* name_;
  uint64_t sequence_;
  PooledVector<Edge> edges_;
  PooledVector<Output> outputs_;
  Node* next_destroyed_ = nullptr;
};

/// A tensor kept for the backward. get() throws AutogradError if it was written to since: an error, never a
/// wrong gradient. Of a large one that its operation can compute again (record()) the operation is kept
/// instead, and get() computes it anew.
class Saved {
 public:
  Saved() = default;
  explicit Saved(const Tensor& tensor);
  Tensor get() const;
  Tensor operator*() const { return get(); }
  bool defined() const { return tensor_.defined() || maker_; }

 private:
  Tensor tensor_;       // undefined if it is computed again,
  RefPtr<Node> maker_;  // by this
  int64_t version_ = 0;
  const char* operation_ = "";
};

/// Keeps an input or output for the backward, outside the graph (so that an output can be kept too).
inline Saved save(const Tensor& tensor) { return Saved(tensor); }

namespace detail {

/// A closure whose output may be a view without gaps of its only input, from an element on.
template <class F>
concept Viewing = requires(const F& closure) {
  { closure.is_part() } -> std::convertible_to<bool>;
  { closure.first_element() } -> std::convertible_to<int64_t>;
};

template <class F>
concept Recomputing = requires(const F& closure) {
  { F::kRecomputed } -> std::convertible_to<int>;
  { closure.recompute() } -> std::convertible_to<Tensor>;
};

[[noreturn]] void throw_released(const char* operation);

template <class F>
class ClosureNode final : public Node {
 public:
  ClosureNode(const char* name, uint64_t sequence, F&& closure)
      : Node(name, sequence), closure_(std::move(closure)) {}
  bool released() const override { return !closure_.has_value(); }
  void release_saved() override { closure_.reset(); }
  bool recomputes(int output) const override {
    if constexpr (Recomputing<F>) return output == F::kRecomputed;
    return false;
  }
  Tensor recompute() const override {
    if constexpr (Recomputing<F>) {
      if (!closure_) throw_released(name());
      return closure_->recompute();
    }
    return {};
  }

  GradSlot slot(int output, DType dtype) override {
    if constexpr (Viewing<F>) {
      if (&gradient_holder() != this) return part_slot(output, dtype, 0, outputs()[0].shape);
    }
    return Node::slot(output, dtype);
  }

  GradSlot part_slot(int output, DType dtype, int64_t first_element, const Shape& shape) override {
    if constexpr (Viewing<F>)
      return edges()[0].node->part_slot(edges()[0].output, dtype, closure_->first_element() + first_element,
                                        shape);
    return Node::part_slot(output, dtype, first_element, shape);
  }

 private:
  bool is_part() const override {
    if constexpr (Viewing<F>) return closure_ && closure_->is_part();
    return false;
  }
  void apply(const GradIn& gy, GradOut& gx) override { (*closure_)(gy, gx); }
  std::optional<F> closure_;
};

uint64_t next_sequence();
void attach(const RefPtr<Node>& node, TensorList inputs, TensorList outputs);

}  // namespace detail

/// Records that `outputs` were computed from `inputs`, unless gradients are off or no input needs one. `name`
/// must be a string literal. `backward` is called at most once (again if the graph is retained) with the
/// gradients of the outputs; it must not keep an input or output except through save(). AutogradError for an
/// output that is no new floating-point tensor. docs/custom_operations.md shows how to write one. Where it is
/// an object with `static constexpr int kRecomputed`, the number of an output, and `Tensor recompute()
/// const`, which computes that from what the backward needs anyway, operations that save() a large such
/// output keep no memory for it (Chen et al., arXiv 1604.06174).
template <class F>
requires std::invocable<F&, const GradIn&, GradOut&>
void record(const char* name, TensorList inputs, TensorList outputs, F backward) {
  if (!needs_grad(inputs)) return;
  detail::attach(make_ref<detail::ClosureNode<F>>(name, detail::next_sequence(), std::move(backward)), inputs,
                 outputs);
}

/// The same for one output, which it returns.
template <class F>
requires std::invocable<F&, const GradIn&, GradOut&> Tensor record(const char* name, TensorList inputs,
                                                                   const Tensor& output, F backward) {
  record(name, inputs, TensorList(output), std::move(backward));
  return output;
}

/// What an operation says instead of record() where a gradient would be needed but there is none:
/// AutogradError if gradients are on and an input needs one. (Results that are integers or bool need none.)
void not_differentiable(const char* name, TensorList inputs);

}  // namespace heed

#include <algorithm>
#include <atomic>

#include <heed/core/autograd/autograd.h>
#include <heed/core/autograd/backward_run.h>
#include <heed/core/autograd/leaf_node.h>
#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/core/tensor_impl.h>

namespace heed {
namespace {

thread_local bool recording = true;
thread_local bool detecting_anomaly = false;

}  // namespace

NoGrad::NoGrad() : previous_(std::exchange(recording, false)) {}
NoGrad::~NoGrad() { recording = previous_; }
bool grad_enabled() { return recording; }

DetectAnomaly::DetectAnomaly() : previous_(std::exchange(detecting_anomaly, true)) {}
DetectAnomaly::~DetectAnomaly() { detecting_anomaly = previous_; }

bool needs_grad(TensorList inputs) {
  if (!recording) return false;
  for (const Tensor& input : inputs)
    if (input.defined() && input.requires_grad()) return true;
  return false;
}

void not_differentiable(const char* name, TensorList inputs) {
  HEED_CHECK(!needs_grad(inputs), AutogradError, name,
             ": has no gradient, but an input requires one; detach() it or hold a NoGrad");
}

// ---- saved tensors

// In bytes. The memory of smaller tensors costs less than the pass that computes them again.
constexpr int64_t kWorthRecomputing = 3 * int64_t{1} << 18;

Saved::Saved(const Tensor& tensor) {
  if (!tensor.defined()) return;
  const TensorImpl& impl = tensor.impl();
  if (impl.node && tensor.version() == 0 && impl.node->recomputes(impl.output) &&
      tensor.numel() * size_of(tensor.dtype()) >= kWorthRecomputing) {
    maker_ = impl.node;
    return;
  }
  tensor_ = tensor.detach();  // never the handle itself: an output's would hold the node that holds it
  version_ = tensor.version();
  operation_ = tensor.operation();
}

Tensor Saved::get() const {
  if (maker_) return maker_->recompute();
  HEED_CHECK(!tensor_.defined() || tensor_.version() == version_, AutogradError, "a tensor of shape ",
             tensor_.shape(), *operation_ ? concat(" made by ", operation_) : std::string(),
             " that backward needs was changed in place: it is at version ", tensor_.version(), ", expected ",
             version_, "; write to a clone() instead");
  return tensor_;
}

// ---- gradients in and out of a node

namespace {

template <class List>
void check_number(const char* operation, const char* what, int i, const List& list) {
  HEED_CHECK(i >= 0 && static_cast<size_t>(i) < list.size(), IndexError, operation, ": its backward names ",
             what, " ", i, ", but there are ", list.size(), ", counted from 0");
}

const Node::Output& output_of(const Node& node, int i) {
  check_number(node.name(), "output", i, node.outputs());
  return node.outputs()[static_cast<size_t>(i)];
}

const Node::Edge& edge_to(const Node& node, int i) {
  check_number(node.name(), "input", i, node.edges());
  return node.edges()[static_cast<size_t>(i)];
}

const Node::Edge& wanted_edge_to(const Node& node, int i) {
  const Node::Edge& edge = edge_to(node, i);
  HEED_CHECK(edge.node, AutogradError, node.name(), ": its backward gives a gradient to input ", i,
             ", which needs none; ask gx.wants(", i, ") first");
  return edge;
}

const Node::Output& target_of(const Node::Edge& edge) {
  return edge.node->outputs()[static_cast<size_t>(edge.output)];
}

}  // namespace

const Tensor& GradIn::operator[](int i) const { return output_of(node_, i).gradient; }

bool GradIn::owned(int i) const { return output_of(node_, i).owned; }

bool GradOut::wants(int i) const { return static_cast<bool>(edge_to(node_, i).node); }

GradSlot GradOut::into(int i, DType dtype) {
  const Node::Edge& edge = wanted_edge_to(node_, i);
  const bool shared = std::any_of(given_.begin(), given_.end(), [&](int other) {
    const Node::Edge& seen = node_.edges()[static_cast<size_t>(other)];
    return &seen.node->gradient_holder() == &edge.node->gradient_holder() && seen.output == edge.output;
  });
  given_.push_back(i);
  if (!shared) {
    GradSlot slot = edge.node->slot(edge.output, dtype);
    if (slot.tensor.defined()) return slot;
  }
  // The same tensor came in twice, or parts of it, or its gradient is kept in another dtype: write apart, add
  // when done.
  const Node::Output& target = target_of(edge);
  pending_.push_back({i, empty(target.shape, {dtype, target.device})});
  return {pending_.back().tensor, false};
}

GradSlot GradOut::into(int i) { return into(i, target_of(wanted_edge_to(node_, i)).dtype); }

GradSlot GradOut::into_accumulator(int i) {
  const DType dtype = target_of(wanted_edge_to(node_, i)).dtype;
  return into(i, dtype == DType::bf16 ? DType::f32 : dtype);
}

bool GradOut::may_wait(int i) const {
  const bool apart = std::any_of(pending_.begin(), pending_.end(),
                                 [i](const Pending& pending) { return pending.input == i; });
  return !apart && BackwardRun::current() != nullptr &&
         wanted_edge_to(node_, i).node->gradient_holder().is_leaf();
}

void GradOut::add(int i, const Tensor& gradient) {
  const Node::Edge& edge = wanted_edge_to(node_, i);
  const Node::Output& target = target_of(edge);
  HEED_CHECK(gradient.defined(), AutogradError, node_.name(), ": the gradient for input ", i,
             " is undefined");
  HEED_CHECK(gradient.shape() == target.shape, ShapeError, node_.name(), ": a gradient of shape ",
             gradient.shape(), " for input ", i, " of shape ", target.shape, "; sum_to() undoes a broadcast");
  HEED_CHECK(gradient.device() == target.device, DeviceError, node_.name(), ": a gradient on ",
             gradient.device(), " for input ", i, " on ", target.device, "; move it with to(Device)");
  edge.node->collect(edge.output, gradient);
}

void GradOut::finish() {
  for (const Pending& pending : pending_) add(pending.input, pending.tensor);
}

Node::Edge edge_of(const Tensor& x) {
  if (!x.defined() || !x.requires_grad()) return {};
  return {x.impl().node, x.impl().output};
}

Tensor with_edge(const Tensor& x, const Node::Edge& edge) {
  Tensor handle = x.detach();
  handle.impl().node = edge.node;
  handle.impl().output = edge.output;
  return handle;
}

// ---- nodes

void Node::run(bool last) {
  NoGrad no_grad;
  const GradIn gy(*this, last);
  GradOut gx(*this);
  apply(gy, gx);
  gx.finish();
}

Node& Node::gradient_holder() {
  const Output& out = outputs_[0];
  if (is_leaf() || !is_part() || !out.hooks.empty() || out.retain || out.gradient.defined()) return *this;
  Node& holder = edges_[0].node->gradient_holder();
  const bool takes_parts = holder.is_leaf() && !holder.frozen && holder.outputs_[0].hooks.empty();
  return takes_parts ? holder : *this;
}

GradSlot Node::slot(int output, DType dtype) {
  Output& out = outputs_[static_cast<size_t>(output)];
  if (dtype != out.dtype) return {};
  if (!out.gradient.defined()) {
    out.gradient = empty(out.shape, {out.dtype, out.device});
    out.owned = true;
    return {out.gradient, false};
  }
  if (!out.owned) {
    out.gradient = out.gradient.clone();
    out.owned = true;
  }
  return {out.gradient, true};
}

GradSlot Node::part_slot(int, DType, int64_t, const Shape&) { return {}; }

void Node::collect(int output, const Tensor& gradient) {
  Output& out = outputs_[static_cast<size_t>(output)];
  const Tensor converted = gradient.to(out.dtype);
  if (!out.gradient.defined()) {
    out.gradient = converted;
    out.owned = false;
    return;
  }
  const GradSlot own = slot(output, out.dtype);
  own.tensor.add_(converted);
}

void Node::complete() {
  for (Output& out : outputs_) {
    if (!out.gradient.defined()) continue;
    if (!out.hooks.empty()) out.owned = false;  // a hook may keep what it is given
    for (size_t i = 0; i < out.hooks.size(); ++i) {
      const Tensor replaced = out.hooks[i].call(out.gradient);
      if (!replaced.defined()) continue;
      HEED_CHECK(replaced.shape() == out.shape && replaced.dtype() == out.dtype, AutogradError,
                 "a hook returned a gradient of shape ", replaced.shape(), " and dtype ", replaced.dtype(),
                 " for a tensor of shape ", out.shape, " and dtype ", out.dtype);
      out.gradient = replaced.detach();
    }
    if (out.retain) out.retained = out.gradient.clone();
  }
}

void Node::destroy() noexcept {
  // Deleting a node drops its edges, which may end in the next node: a list instead of recursion.
  thread_local Node* waiting = nullptr;
  thread_local bool draining = false;
  next_destroyed_ = waiting;
  waiting = this;
  if (draining) return;
  draining = true;
  while (waiting) {
    Node* node = std::exchange(waiting, waiting->next_destroyed_);
    delete node;
  }
  draining = false;
}

namespace detail {

void throw_released(const char* operation) {
  throw AutogradError(
      concat("backward through ", operation,
             " a second time: the graph was freed; pass {.retain_graph = true} to the first backward"));
}

uint64_t next_sequence() {
  static std::atomic<uint64_t> sequence{1};  // 0 is for leaves: they come last in every backward
  return sequence.fetch_add(1, std::memory_order_relaxed);
}

namespace {

// Before anything is attached to a graph.
void check_outputs(const char* operation, TensorList outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& output = outputs[i];
    HEED_CHECK(output.defined(), AutogradError, operation, ": output ", i, " is undefined");
    HEED_CHECK(is_floating(output.dtype()), AutogradError, operation, ": output ", i, " is ", output.dtype(),
               "; only floating-point tensors have gradients");
    HEED_CHECK(!output.requires_grad(), AutogradError, operation, ": output ", i, " is ",
               output.is_leaf() ? "a leaf that requires a gradient"
                                : concat("the result of ", output.operation(), " already"),
               "; record a new tensor, or its detach()");
    for (size_t j = 0; j < i; ++j)
      HEED_CHECK(&output.impl() != &outputs[j].impl(), AutogradError, operation, ": outputs ", j, " and ", i,
                 " are one tensor; record a detach() of it");
  }
}

}  // namespace

void attach(const RefPtr<Node>& node, TensorList inputs, TensorList outputs) {
  check_outputs(node->name(), outputs);
  node->edges().reserve(inputs.size());
  for (const Tensor& input : inputs) node->edges().push_back(edge_of(input));
  node->outputs().reserve(outputs.size());
  int index = 0;
  for (const Tensor& output : outputs) {
    TensorImpl& impl = output.impl();
    node->outputs().push_back({impl.shape, impl.dtype, output.device(), {}, false, false, {}, {}});
    impl.node = node;
    impl.output = index++;
  }
}

}  // namespace detail

// ---- backward

namespace {

bool received_gradient(const Node& node) {
  return std::any_of(node.outputs().begin(), node.outputs().end(),
                     [](const Node::Output& output) { return output.gradient.defined(); });
}

bool earlier(const RefPtr<Node>& a, const RefPtr<Node>& b) { return a->sequence() < b->sequence(); }

void check_finite(const Node& producer, const Node::Edge& edge) {
  const Tensor& gradient = edge.node->gradient_holder().gradient(edge.output);
  if (!gradient.defined() || all_finite(gradient)) return;
  throw NumericError(concat(
      "backward: the gradient that ", producer.name(), " computed for its input of shape ", gradient.shape(),
      *edge.node->name() ? concat(", made by ", edge.node->name(), ",") : "", " holds a NaN or infinity"));
}

// The nodes that wait for their turn, the latest first. All consumers of a node have a higher sequence number
// than the node itself, so a node that comes up has received every gradient it will get, if any.
class Queue {
 public:
  ~Queue() {  // leaves nothing behind, whatever happened
    for (const RefPtr<Node>& node : heap_) forget(*node);
  }
  bool empty() const { return heap_.empty(); }
  void push(const RefPtr<Node>& node) {
    if (node->queued) return;
    node->queued = true;
    heap_.push_back(node);
    std::push_heap(heap_.begin(), heap_.end(), earlier);
  }
  RefPtr<Node> pop() {
    std::pop_heap(heap_.begin(), heap_.end(), earlier);
    RefPtr<Node> node = std::move(heap_.back());
    heap_.pop_back();
    return node;
  }
  static void forget(Node& node) {
    node.queued = false;
    for (Node::Output& output : node.outputs()) output.gradient = {};
  }

 private:
  PooledVector<RefPtr<Node>> heap_;
};

struct ForgetAtEnd {
  Node& node;
  ~ForgetAtEnd() { Queue::forget(node); }
};

}  // namespace

void run_backward(const Tensor& root, const Tensor& seed, BackwardOptions options) {
  BackwardRun run;
  Queue queue;
  const TensorImpl& impl = root.impl();
  impl.node->collect(impl.output, seed);
  queue.push(impl.node);
  while (!queue.empty()) {
    const RefPtr<Node> node = queue.pop();
    const ForgetAtEnd forget{*node};
    if (node->is_leaf()) run.settle();  // from here on they are looked at
    if (!received_gradient(*node)) continue;
    node->complete();
    if (node->is_leaf()) continue;
    if (node->released()) detail::throw_released(node->name());
    for (const Node::Edge& edge : node->edges())
      if (edge.node) queue.push(edge.node);  // before it gets anything: a throw then leaves nothing behind
    node->run(!options.retain_graph);
    if (detecting_anomaly) {
      for (const Node::Edge& edge : node->edges())
        if (edge.node) check_finite(*node, edge);
    }
    if (!options.retain_graph) node->release_saved();
  }
  run.settle();
}

}  // namespace heed

#include <heed/core/autograd/autograd.h>
#include <heed/core/autograd/leaf_node.h>
#include <heed/core/creation.h>
#include <heed/core/tensor.h>
#include <heed/core/tensor_impl.h>

namespace heed {

void run_backward(const Tensor& root, const Tensor& seed, BackwardOptions options);

// ---- handles

TensorImpl& Tensor::impl() const {
  if (!impl_) fail_undefined();
  return static_cast<TensorImpl&>(*impl_);
}

void Tensor::fail_undefined() { throw StateError("an undefined tensor was used; give it a value first"); }

void Tensor::bump_version() const { impl().storage->bump_version(); }
int64_t Tensor::version() const { return impl().storage->version(); }

void Tensor::fail_dtype(DType wanted) const {
  throw DTypeError(concat("asked for ", wanted, " elements of a ", dtype(), " tensor of shape ", shape()));
}

void Tensor::fail_int8() const {
  throw StateError(
      concat("the elements of a matrix ", shape(),
             " were asked for that is kept as 8-bit integers: only linear and embedding use it"));
}

double Tensor::item_as_double() const {
  HEED_CHECK(numel() == 1, ShapeError, "item: needs a tensor of one element, got shape ", shape());
  const Tensor host = detach().to(kCpu);
  return visit_dtype(dtype(), [&]<class T>() { return static_cast<double>(*host.data<T>()); });
}

int64_t Tensor::item_as_integer(int64_t least, int64_t most) const {
  int64_t value = 0;
  if (dtype() == DType::i64 && numel() == 1) {
    value = *detach().to(kCpu).data<int64_t>();
  } else {
    const double number = item_as_double();
    HEED_CHECK(number >= -0x1p63 && number < 0x1p63, NumericError, "item: ", number, ", the element of an ",
               dtype(), " tensor, does not fit a 64-bit integer");
    value = static_cast<int64_t>(number);
  }
  HEED_CHECK(value >= least && value <= most, NumericError, "item: ", value,
             " does not fit the integer asked for, which lies between ", least, " and ", most);
  return value;
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  const Tensor host = detach().to(kCpu).contiguous();
  const T* first = host.data<T>();
  return std::vector<T>(first, first + host.numel());
}
template std::vector<float> Tensor::to_vector() const;
template std::vector<bfloat16> Tensor::to_vector() const;
template std::vector<double> Tensor::to_vector() const;
template std::vector<int64_t> Tensor::to_vector() const;
template std::vector<int32_t> Tensor::to_vector() const;
template std::vector<bool> Tensor::to_vector() const;

// ---- making handles

Tensor make_tensor(RefPtr<Storage> storage, const Shape& shape, const Shape& strides, int64_t offset,
                   DType dtype) {
  const int64_t numel = shape.numel();
  const int64_t *const size = shape.begin(), *const step = strides.begin();
  bool contiguous = true;
  int64_t stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0 && numel > 0; --axis) {
    contiguous &= size[axis] == 1 || step[axis] == stride;
    stride *= size[axis];
  }
  return Tensor(make_ref<TensorImpl>(std::move(storage), shape, strides, offset, numel, dtype, contiguous));
}

Tensor make_contiguous(RefPtr<Storage> storage, const Shape& shape, int64_t numel, DType dtype) {
  return Tensor(
      make_ref<TensorImpl>(std::move(storage), shape, contiguous_strides(shape), 0, numel, dtype, true));
}

Tensor make_view(const Tensor& source, const Shape& shape, const Shape& strides, int64_t offset) {
  return make_tensor(source.storage(), shape, strides, offset, source.dtype());
}

// ---- autograd

bool Tensor::requires_grad() const {
  const Node* node = impl().node.get();
  return node && !node->frozen;
}
bool Tensor::is_leaf() const { return !impl().node || impl().node->is_leaf(); }
const char* Tensor::operation() const { return impl().node ? impl().node->name() : ""; }

const Tensor& Tensor::set_requires_grad(bool value) const {
  HEED_CHECK(is_leaf(), AutogradError, "set_requires_grad: this tensor is the result of ", operation(),
             "; only leaves can change, detach() it first");
  HEED_CHECK(!value || is_floating(dtype()), AutogradError, "set_requires_grad: a ", dtype(),
             " tensor has no gradient; only f32, bf16 and f64 do");
  if (!is_floating(dtype()) || (value && requires_grad())) return *this;
  if (!impl().node) impl().node = make_ref<LeafNode>(shape(), dtype(), device());
  if (value) impl().storage->mark_parameter();
  leaf_node(*this)->freeze(!value);  // it stays: what it knows of its Parameters outlives being frozen
  return *this;
}

Tensor Tensor::grad() const {
  if (!requires_grad()) return {};
  if (const LeafNode* leaf = leaf_node(*this)) return leaf->grad();
  return impl().node->outputs()[static_cast<size_t>(impl().output)].retained;
}

void Tensor::zero_grad() const {
  if (!requires_grad()) return;
  LeafNode* leaf = leaf_node(*this);
  HEED_CHECK(leaf, AutogradError, "zero_grad: this tensor is the result of ", operation(), ", not a leaf");
  leaf->forget();
}

void Tensor::retain_grad() const {
  HEED_CHECK(requires_grad(), AutogradError, "retain_grad: this tensor does not require a gradient");
  if (!is_leaf()) impl().node->outputs()[static_cast<size_t>(impl().output)].retain = true;
}

int Tensor::register_hook(std::function<Tensor(const Tensor&)> hook) const {
  HEED_CHECK(requires_grad(), AutogradError, "register_hook: this tensor does not require a gradient");
  auto& hooks = impl().node->outputs()[static_cast<size_t>(impl().output)].hooks;
  const int id = hooks.empty() ? 0 : hooks.back().id + 1;
  hooks.push_back({id, std::move(hook)});
  return id;
}

void Tensor::remove_hook(int id) const {
  if (!requires_grad()) return;
  std::erase_if(impl().node->outputs()[static_cast<size_t>(impl().output)].hooks,
                [id](const Node::Hook& hook) { return hook.id == id; });
}

Tensor Tensor::detach() const { return make_view(*this, shape(), strides(), offset()); }

void Tensor::backward(const Tensor& gradient, BackwardOptions options) const {
  HEED_CHECK(requires_grad(), AutogradError,
             "backward: this tensor has no graph; it does not depend on a tensor that requires a gradient, "
             "or it was "
             "computed under NoGrad");
  if (!gradient.defined()) {
    HEED_CHECK(numel() == 1, AutogradError, "backward: a tensor of shape ", shape(),
               " needs a gradient to start from; only a tensor of one element starts from 1");
    run_backward(*this, full(shape(), 1, this->options()), options);
    return;
  }
  HEED_CHECK(gradient.shape() == shape() && gradient.dtype() == dtype() && gradient.device() == device(),
             AutogradError, "backward: the gradient to start from is ", gradient.dtype(), " ",
             gradient.shape(), " on ", gradient.device(), ", the tensor ", dtype(), " ", shape(), " on ",
             device());
  run_backward(*this, gradient.detach(), options);
}

}  // namespace heed

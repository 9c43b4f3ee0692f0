#include <bit>
#include <unordered_map>
#include <unordered_set>

#include <heed/core/base/divide.h>
#include <heed/core/creation.h>
#include <heed/core/dispatch.h>
#include <heed/core/gradient_parts.h>
#include <heed/core/leaf_node.h>
#include <heed/core/tensor_impl.h>

namespace heed {
namespace {

constexpr int64_t kSlotBytes = 128;

DType gradient_dtype_of(DType dtype) { return dtype == DType::bf16 ? DType::f32 : dtype; }

// Slots start at multiples that are 128 bytes in the narrowest dtype an arena may have.
int64_t aligned(int64_t elements) { return round_up(elements, kSlotBytes / size_of(DType::bf16)); }

}  // namespace

struct Parameters::State {
  std::vector<Parameter> parameters;
  std::vector<int64_t> offsets;
  std::unordered_map<std::string, size_t> by_name;
  int64_t elements = 0;  // of an arena, gaps included
  int64_t numel = 0;
  Tensor values;
  bool held = false;

  // Points each handle at its slot of the arena. The memory that held the parameters goes back to the system:
  // as much as they all take, which nothing else may ask for.
  void bind(const Tensor& new_values) {
    const Device old_device = parameters.front().tensor.device();
    const int64_t value_size = size_of(new_values.dtype());
    for (size_t i = 0; i < parameters.size(); ++i) {
      TensorImpl& impl = parameters[i].tensor.impl();
      const Ref<Storage> slot =
          make_ref<Storage>(new_values.storage(), offsets[i] * value_size, impl.numel * value_size);
      const Tensor target = make_contiguous(slot, impl.shape, impl.numel, new_values.dtype());
      target.copy_(parameters[i].tensor.detach());
      impl.storage = slot;
      impl.dtype = new_values.dtype();
      impl.strides = target.strides();
      impl.offset = 0;
      impl.contiguous = true;
      leaf_node(parameters[i].tensor)->bind(impl.dtype, slot->device(), gradient_dtype_of(impl.dtype));
    }
    values = new_values;
    allocator(old_device).release_cached();
  }
};

Parameters::Parameters(std::vector<Parameter> list) : state_(std::make_shared<State>()) {
  std::unordered_map<const TensorImpl*, size_t> seen;
  std::unordered_set<std::string> names;
  for (Parameter& parameter : list) {
    const std::string& name = parameter.name;
    HEED_CHECK(!name.empty(), ConfigError, "Parameters: a parameter has an empty name");
    HEED_CHECK(names.insert(name).second, ConfigError, "Parameters: the name '", name, "' is used twice");
    const LeafNode* leaf = leaf_node(parameter.tensor);
    HEED_CHECK(leaf, ConfigError, "Parameters: '", name, "' is not a leaf that requires a gradient");
    HEED_CHECK(!leaf->bound(), StateError, "Parameters: '", name, "' belongs to other Parameters already");
    const auto [found, is_new] = seen.emplace(&parameter.tensor.impl(), state_->parameters.size());
    if (is_new)
      state_->parameters.push_back(parameter);
    else
      state_->parameters[found->second].aliases.push_back(name);
    state_->by_name.emplace(name, found->second);
    const Parameter& first = state_->parameters.front();
    HEED_CHECK(parameter.tensor.dtype() == first.tensor.dtype() &&
                   parameter.tensor.device() == first.tensor.device(),
               ConfigError, "Parameters: '", name, "' is ", parameter.tensor.dtype(), " on ",
               parameter.tensor.device(), ", '", first.name, "' ", first.tensor.dtype(), " on ",
               first.tensor.device(), "; all must agree");
  }
  for (const Parameter& parameter : state_->parameters) {
    state_->offsets.push_back(state_->elements);
    state_->numel += parameter.tensor.numel();
    state_->elements += aligned(parameter.tensor.numel());
  }
  if (state_->parameters.empty()) return;
  state_->bind(zeros({state_->elements}, state_->parameters.front().tensor.options()));
}

int64_t Parameters::size() const { return state_ ? static_cast<int64_t>(state_->parameters.size()) : 0; }
const Parameter& Parameters::operator[](int64_t i) const {
  return state_->parameters[static_cast<size_t>(i)];
}
const Parameter* Parameters::begin() const { return state_ ? state_->parameters.data() : nullptr; }
const Parameter* Parameters::end() const { return begin() + size(); }

const Parameter* Parameters::find(const std::string& name) const {
  if (!state_) return nullptr;
  const auto found = state_->by_name.find(name);
  return found == state_->by_name.end() ? nullptr : &state_->parameters[found->second];
}

int64_t Parameters::numel() const { return state_ ? state_->numel : 0; }
DType Parameters::dtype() const { return values().dtype(); }
DType Parameters::gradient_dtype() const { return gradient_dtype_of(dtype()); }
Device Parameters::device() const { return values().device(); }
int64_t Parameters::offset(int64_t i) const { return state_->offsets[static_cast<size_t>(i)]; }
const Tensor& Parameters::gradient(int64_t i) const { return leaf_node((*this)[i].tensor)->grad(); }

PooledVector<int64_t> Parameters::with_gradient() const {
  PooledVector<int64_t> result;
  result.reserve(static_cast<size_t>(size()));
  for (int64_t i = 0; i < size(); ++i)
    if (gradient(i).defined()) result.push_back(i);
  return result;
}

const Tensor& Parameters::values() const {
  HEED_CHECK(size() > 0, StateError, "Parameters: there are none");
  return state_->values;
}

Tensor Parameters::make_arena(DType dtype) const { return zeros({values().numel()}, {dtype, device()}); }

Tensor Parameters::slot(const Tensor& arena, int64_t i) const {
  const Shape& shape = (*this)[i].tensor.shape();
  return make_view(arena, shape, contiguous_strides(shape), offset(i));
}

void Parameters::zero_grad() const {
  for (const Parameter& parameter : *this) leaf_node(parameter.tensor)->forget();
}

double Parameters::gradient_norm() const {
  return size() == 0 ? 0 : std::bit_cast<double>(measure_gradient_norm().item<int64_t>());
}

Tensor Parameters::measure_gradient_norm() const {
  const Tensor result = empty({1}, {DType::i64, device()});
  const auto run = [&]<class A>() {
    const auto parts = gradient_parts<A>(*this, with_gradient());
    HEED_DISPATCH(device(), gradient_norm,
                  kernels::GradientNorm<A>{.gradients = parts,
                                           .norm = reinterpret_cast<double*>(result.data<int64_t>())});
  };
  if (gradient_dtype() == DType::f64)
    run.template operator()<double>();
  else
    run.template operator()<float>();
  return result;
}

void Parameters::rebuild(DType dtype, Device device) const {
  HEED_CHECK(!state_->held, StateError, "Parameters: cannot become ", dtype, " on ", device,
             ": an optimizer holds them; move or convert the model before making the optimizer");
  state_->bind(zeros({state_->elements}, {dtype, device}));
}

void Parameters::to(Device target) const {
  if (size() > 0 && target != device()) rebuild(dtype(), target);
}

void Parameters::to(DType target) const {
  if (size() > 0 && target != dtype()) rebuild(target, device());
}

void Parameters::hold() const {
  if (state_) state_->held = true;
}

}  // namespace heed

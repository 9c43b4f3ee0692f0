#include <algorithm>
#include <bit>
#include <unordered_map>

#include <heed/core/autograd/leaf_node.h>
#include <heed/core/base/glob.h>
#include <heed/core/base/int_math.h>
#include <heed/core/creation.h>
#include <heed/core/parameters.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/core/tensor_impl.h>
#include <heed/kernels/optimizer.h>

namespace heed {
namespace {

constexpr int64_t kSlotBytes = 128;

DType gradient_dtype_of(DType dtype) { return dtype == DType::bf16 ? DType::f32 : dtype; }

// Slots start at multiples that are 128 bytes in the narrowest dtype an arena may have.
int64_t aligned(int64_t elements) { return round_up(elements, kSlotBytes / size_of(DType::bf16)); }

bool is_of(const Tensor& tensor, const TensorOptions& kind) {
  return tensor.dtype() == kind.dtype && tensor.device() == kind.device;
}

void point_at_slot(const Tensor& tensor, const Tensor& arena, int64_t offset) {
  TensorImpl& impl = tensor.impl();
  const int64_t size = size_of(arena.dtype());
  const RefPtr<Storage> slot = make_ref<Storage>(arena.storage(), offset * size, impl.numel * size);
  slot->mark_parameter();
  const Tensor target = make_contiguous(slot, impl.shape, impl.numel, arena.dtype());
  target.copy_(tensor.detach());
  impl.storage = slot;
  impl.dtype = target.dtype();
  impl.strides = target.strides();
  impl.offset = 0;
  impl.contiguous = true;
  leaf_node(tensor)->bind(impl.dtype, slot->device(), gradient_dtype_of(impl.dtype));
}

// Points each handle at a slot of a new arena. The memory that held the tensors goes back to the system: as
// much as they all take, which nothing else may ask for.
void pack(const std::vector<Tensor>& tensors, const TensorOptions& kind) {
  int64_t elements = 0;
  for (const Tensor& tensor : tensors) elements += aligned(tensor.numel());
  const Tensor arena = empty({elements}, kind);
  std::vector<Device> devices;  // where they were
  int64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    if (std::find(devices.begin(), devices.end(), tensor.device()) == devices.end())
      devices.push_back(tensor.device());
    point_at_slot(tensor, arena, offset);
    const int64_t end = offset + tensor.numel();
    offset += aligned(tensor.numel());
    arena.slice(0, end, offset).zero_();
  }
  for (const Device device : devices) allocator(device).release_cached();
}

// The tensors of each kind in an arena of their own.
void pack_by_kind(const std::vector<std::pair<Tensor, TensorOptions>>& all) {
  std::vector<std::pair<TensorOptions, std::vector<Tensor>>> kinds;
  for (const auto& [tensor, kind] : all) {
    auto place = kinds.begin();
    while (place != kinds.end() && !(place->first.dtype == kind.dtype && place->first.device == kind.device))
      ++place;
    if (place == kinds.end()) place = kinds.insert(place, {kind, {}});
    place->second.push_back(tensor);
  }
  for (const auto& entry : kinds) pack(entry.second, entry.first);
}

}  // namespace

// ---- names

bool Parameter::fits(std::string_view pattern) const {
  if (matches(pattern, name)) return true;
  for (const std::string& alias : aliases)
    if (matches(pattern, alias)) return true;
  return false;
}

std::vector<Parameter> join_tied(std::vector<Parameter> parameters) {
  std::unordered_map<const TensorImpl*, size_t> seen;
  std::unordered_map<std::string_view, const TensorImpl*> names;
  for (const Parameter& parameter : parameters) {
    HEED_CHECK(!parameter.name.empty(), ConfigError, "Parameters: a parameter has an empty name");
    HEED_CHECK(names.emplace(parameter.name, &parameter.tensor.impl()).second, ConfigError,
               "Parameters: the name '", parameter.name, "' is used twice");
  }
  std::vector<Parameter> joined;
  for (Parameter& parameter : parameters) {
    const auto [found, is_new] = seen.emplace(&parameter.tensor.impl(), joined.size());
    if (is_new)
      joined.push_back(std::move(parameter));
    else
      joined[found->second].aliases.push_back(std::move(parameter.name));
  }
  return joined;
}

void check_pattern(std::string_view who, const std::string& pattern, std::span<const Parameter> parameters) {
  for (const Parameter& parameter : parameters)
    if (parameter.fits(pattern)) return;
  constexpr size_t kShown = 4;
  std::string names;
  for (size_t i = 0; i < std::min(kShown, parameters.size()); ++i)
    names += concat(i > 0 ? ", '" : "'", parameters[i].name, "'");
  throw ConfigError(concat(who, ": the pattern '", pattern, "' fits none of the ", parameters.size(),
                           " parameters: ", names, parameters.size() > kShown ? ", …" : ""));
}

// ---- the list

struct Parameters::State {
  std::vector<Parameter> parameters;
  std::unordered_map<std::string, size_t> by_name;
  int64_t numel = 0;
};

Parameters::Parameters(std::vector<Parameter> list) : state_(std::make_shared<State>()) {
  state_->parameters = join_tied(std::move(list));
  std::vector<std::pair<Tensor, TensorOptions>> unpacked;
  for (size_t i = 0; i < state_->parameters.size(); ++i) {
    const Parameter& parameter = state_->parameters[i];
    const LeafNode* leaf = leaf_node(parameter.tensor);
    HEED_CHECK(leaf, ConfigError, "Parameters: '", parameter.name, "' is no leaf that requires a gradient",
               parameter.tensor.is_leaf()
                   ? "; call set_requires_grad(), or set_requires_grad(false) to freeze it"
                   : concat(" but the result of ", parameter.tensor.operation()));
    if (!leaf->bound()) unpacked.emplace_back(parameter.tensor, parameter.tensor.options());
    state_->by_name.emplace(parameter.name, i);
    for (const std::string& alias : parameter.aliases) state_->by_name.emplace(alias, i);
    state_->numel += parameter.tensor.numel();
  }
  pack_by_kind(unpacked);
}

int64_t Parameters::size() const { return state_ ? static_cast<int64_t>(state_->parameters.size()) : 0; }
const Parameter& Parameters::operator[](int64_t i) const {
  HEED_CHECK(i >= 0 && i < size(), IndexError, "Parameters: there is no parameter ", i, " among ", size());
  return state_->parameters[static_cast<size_t>(i)];
}
const Parameter* Parameters::begin() const { return state_ ? state_->parameters.data() : nullptr; }
const Parameter* Parameters::end() const { return begin() + size(); }

const Parameter* Parameters::find(const std::string& name) const {
  if (!state_) return nullptr;
  const auto found = state_->by_name.find(name);
  return found == state_->by_name.end() ? nullptr : &state_->parameters[found->second];
}

bool Parameters::consists_of(const std::vector<Parameter>& list) const {
  return std::equal(begin(), end(), list.begin(), list.end(), [](const Parameter& a, const Parameter& b) {
    return &a.tensor.impl() == &b.tensor.impl() && a.name == b.name && a.aliases == b.aliases;
  });
}

int64_t Parameters::numel() const { return state_ ? state_->numel : 0; }

// Any of them, as all are of one kind.
const Tensor& Parameters::representative() const {
  HEED_CHECK(size() > 0, StateError, "Parameters: there are none");
  const Parameter& first = *begin();
  for (const Parameter& parameter : *this)
    HEED_CHECK(is_of(parameter.tensor, first.tensor.options()), ConfigError, "Parameters: '", parameter.name,
               "' is ", parameter.tensor.dtype(), " on ", parameter.tensor.device(), ", '", first.name, "' ",
               first.tensor.dtype(), " on ", first.tensor.device(), "; all must agree here");
  return first.tensor;
}

DType Parameters::dtype() const { return representative().dtype(); }
DType Parameters::gradient_dtype() const { return gradient_dtype_of(dtype()); }
Device Parameters::device() const { return representative().device(); }
const Tensor& Parameters::gradient(int64_t i) const { return leaf_node((*this)[i].tensor)->grad(); }

PooledVector<int64_t> Parameters::with_gradient() const {
  PooledVector<int64_t> result;
  result.reserve(static_cast<size_t>(size()));
  for (int64_t i = 0; i < size(); ++i)
    if (gradient(i).defined()) result.push_back(i);
  return result;
}

void Parameters::zero_grad() const {
  LeafNode::begin_step();
  for (const Parameter& parameter : *this) leaf_node(parameter.tensor)->forget();
}

double Parameters::gradient_norm() const {
  return size() == 0 ? 0 : std::bit_cast<double>(measure_gradient_norm().item<int64_t>());
}

Tensor Parameters::measure_gradient_norm() const {
  const Tensor result = empty({1}, {DType::i64, device()});
  const auto run = [&]<class A>() {
    PooledVector<kernels::GradientPart<A>> parts;
    parts.reserve(static_cast<size_t>(size()));
    for (const int64_t i : with_gradient()) parts.push_back({gradient(i).data<A>(), gradient(i).numel()});
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

// ---- moving

void Parameters::convert(const std::function<TensorOptions(const Tensor&)>& target) const {
  std::vector<std::pair<Tensor, TensorOptions>> changed;
  for (const Parameter& parameter : *this) {
    const TensorOptions kind = target(parameter.tensor);
    if (is_of(parameter.tensor, kind)) continue;
    HEED_CHECK(!leaf_node(parameter.tensor)->held(), StateError, "Parameters: '", parameter.name,
               "' cannot become ", kind.dtype, " on ", kind.device,
               ": an optimizer holds them; move or convert the model before making the optimizer");
    changed.emplace_back(parameter.tensor, kind);
  }
  pack_by_kind(changed);
}

void Parameters::to(Device device) const {
  convert([device](const Tensor& tensor) { return TensorOptions{tensor.dtype(), device}; });
}

void Parameters::to(DType dtype) const {
  HEED_CHECK(is_floating(dtype), DTypeError, "Parameters: parameters cannot become ", dtype,
             "; only f32, bf16 and f64 have gradients");
  convert([dtype](const Tensor& tensor) { return TensorOptions{dtype, tensor.device()}; });
}

void Parameters::hold() const {
  for (const Parameter& parameter : *this) leaf_node(parameter.tensor)->add_holder();
}

void Parameters::release() const {
  for (const Parameter& parameter : *this)
    HEED_CHECK(leaf_node(parameter.tensor)->held(), StateError, "Parameters: '", parameter.name,
               "' is released, but nothing holds it");
  for (const Parameter& parameter : *this) leaf_node(parameter.tensor)->remove_holder();
}

bool Parameters::is_held(int64_t i) const { return leaf_node((*this)[i].tensor)->held(); }

}  // namespace heed

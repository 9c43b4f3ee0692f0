#include <algorithm>
#include <functional>

#include <heed/core/autograd/backward_run.h>
#include <heed/core/base/int_math.h>
#include <heed/core/runtime/dispatch.h>
#include <heed/kernels/capture.h>
#include <heed/kernels/linear.h>

namespace heed {
namespace {

constexpr int64_t kMaxBytes = int64_t{64} << 20;  // of what is kept for products that wait

const std::byte* begin_of(const Tensor& x) { return static_cast<const std::byte*>(x.raw_data()); }
const std::byte* end_of(const Tensor& x) { return begin_of(x) + x.numel() * size_of(x.dtype()); }

bool overlap(const Tensor& a, const Tensor& b) {
  return a.defined() && b.defined() && begin_of(a) < end_of(b) && begin_of(b) < end_of(a);
}

// While a step is recorded, `work` is done beside what comes next, up to join().
#if HEED_CUDA_AVAILABLE
void beside(Device device, const std::function<void()>& work) { cuda::on_side(device.index, work); }
void join(Device device) { cuda::join_side(device.index); }
#else
void beside(Device, const std::function<void()>& work) { work(); }
void join(Device) {}
#endif

}  // namespace

BackwardRun::BackwardRun() : outer_(std::exchange(current_, this)) {
  if (outer_) outer_->settle();  // this one may add to what waits there
}

BackwardRun::~BackwardRun() {
  try {
    settle();
  } catch (...) {  // as after the error that brought us here, some gradients are not whole
  }
  current_ = outer_;
}

void BackwardRun::put_off(Product product) {
  const auto fits = [&](const PooledVector<Product>& others) {
    return others.empty() ||
           (others[0].g.device() == product.g.device() && others[0].g.dtype() == product.g.dtype());
  };
  if (!fits(products_) || !fits(begun_) || bytes_ >= kMaxBytes) compute(), wait();
  constexpr int64_t kTile = kernels::kWeightTile;
  tiles_ += ceil_divide(product.in, kTile) * ceil_divide(product.out, kTile);
  bytes_ += product.rows * (product.in + product.out) * size_of(product.g.dtype());
  products_.push_back(std::move(product));
  if (tiles_ >= kernels::kWeightTiles) compute();
}

void BackwardRun::note_parts_of(LeafNode& leaf) {
  leaf.retain();
  parts_.push_back(RefPtr<Node>(&leaf));
}

void BackwardRun::before_adding_to(const Tensor& gradient) {
  if (!current_) return;
  const auto writes = [&](const Product& product) {
    return overlap(gradient, product.gweight.tensor) || overlap(gradient, product.gbias.tensor);
  };
  const auto any = [&](const PooledVector<Product>& products) {
    return std::any_of(products.begin(), products.end(), writes);
  };
  if (any(current_->products_) || any(current_->begun_)) current_->compute(), current_->wait();
}

void BackwardRun::do_all() {
  compute();
  wait();
  for (const RefPtr<Node>& leaf : std::exchange(parts_, {})) static_cast<LeafNode&>(*leaf).complete_parts();
}

void BackwardRun::compute() {
  if (products_.empty()) return;
  if (products_[0].g.dtype() == DType::bf16)
    compute_products<bfloat16>();
  else
    compute_products<float>();
  begun_.insert(begun_.end(), products_.begin(), products_.end());
  products_.clear();
  tiles_ = 0;
}

template <class T>
void BackwardRun::compute_products() const {
  using A = accumulator_t<T>;
  PooledVector<kernels::WeightProduct<T>> all;
  all.reserve(products_.size());
  for (const Product& p : products_)
    all.push_back({.g = p.g.data<T>(),
                   .x = p.x.data<T>(),
                   .gweight = p.gweight.tensor.data<A>(),
                   .gbias = p.gbias.tensor.defined() ? p.gbias.tensor.data<A>() : nullptr,
                   .accumulate_weight = p.gweight.accumulate,
                   .accumulate_bias = p.gbias.accumulate,
                   .rows = p.rows,
                   .in = p.in,
                   .out = p.out});
  const Device device = products_[0].g.device();
  beside(device, [&] { HEED_DISPATCH(device, weight_products, kernels::WeightProducts<T>{all}); });
}

void BackwardRun::wait() {
  if (begun_.empty()) return;
  join(begun_[0].g.device());
  begun_.clear();
  bytes_ = 0;
}

}  // namespace heed

// Attention on the device, of sequences of one length side by side; the operations are those of the matrix
// products (the causal ones' half), the bytes those that must be read and written once.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <heed/core/base/bfloat16.h>
#include <heed/kernels/attention.h>
#include <heed/kernels/runtime.h>

#include "device_bench.h"

namespace {

using namespace heed;
using bench::DeviceArray;

struct Shape {
  int64_t sequences, heads, length, width;
  bool causal;

  bool operator==(const Shape&) const = default;
  int64_t rows() const { return sequences * length; }
  int64_t elements() const { return rows() * heads * width; }
  double products() const {  // multiply-adds of one of the products, twice
    const double all = 2.0 * double(elements()) * double(length);
    return causal ? all / 2 : all;
  }
};

/// Where the sequences lie, in the memory of the device or of the host.
class Lengths {
 public:
  explicit Lengths(const Shape& shape)
      : shape_(shape),
        first_(static_cast<size_t>(shape.sequences)),
        length_(first_.size(), static_cast<int32_t>(shape.length)),
        device_first_(shape.sequences, DType::i64),
        device_length_(shape.sequences, DType::i32) {
    for (size_t i = 0; i < first_.size(); ++i) first_[i] = static_cast<int64_t>(i) * shape.length;
    cuda::copy_to_device(0, device_first_.as<int64_t>(), first_.data(), first_.size() * sizeof(int64_t));
    cuda::copy_to_device(0, device_length_.as<int32_t>(), length_.data(), length_.size() * sizeof(int32_t));
    cuda::synchronize(0);
  }

  SegmentsView on_device() const {
    return view(device_first_.as<int64_t>(), device_length_.as<int32_t>(), shape_.sequences);
  }
  /// Of the first sequence alone.
  SegmentsView on_host() const { return view(first_.data(), length_.data(), 1); }

 private:
  SegmentsView view(const int64_t* first, const int32_t* length, int64_t count) const {
    const auto longest = static_cast<int32_t>(shape_.length);
    return {
        count, first, first, length, length, longest, longest, count * shape_.length, count * shape_.length};
  }

  Shape shape_;
  std::vector<int64_t> first_;
  std::vector<int32_t> length_;
  DeviceArray device_first_, device_length_;
};

/// q, k and v of a row stand side by side, as a model's projection leaves them.
template <class T>
struct Set {
  DeviceArray qkv, out, gout, gqkv, lse;
};

template <class T>
class Problem {
 public:
  explicit Problem(const Shape& shape) : shape_(shape), lengths_(shape) {
    const int64_t count = shape.elements(), statistics = shape.heads * shape.rows();
    const int sets = bench::rotation(8 * count * static_cast<int64_t>(sizeof(T)));
    for (int i = 0; i < sets; ++i) {
      const auto seed = static_cast<uint64_t>(10 * i);
      sets_.push_back({DeviceArray(3 * count, kType, seed + 1), DeviceArray(count, kType),
                       DeviceArray(count, kType, seed + 2), DeviceArray(3 * count, kType),
                       DeviceArray(statistics, DType::f32)});
    }
    for (int i = sets - 1; i >= 0; --i) forward(i);
    backward(0);
    wrong_ = compare();
  }

  const Shape& shape() const { return shape_; }
  int sets() const { return static_cast<int>(sets_.size()); }
  const std::string& wrong() const { return wrong_; }

  void forward(int i) const {
    const Set<T>& s = sets_[static_cast<size_t>(i)];
    cuda::attention_forward(forward_args(s.qkv.template as<T>(), s.out.template as<T>(),
                                         s.lse.template as<float>(), lengths_.on_device(), shape_.rows(),
                                         shape_.heads));
  }

  void backward(int i) const {
    const Set<T>& s = sets_[static_cast<size_t>(i)];
    cuda::attention_backward(backward_args(
        s.qkv.template as<T>(), s.out.template as<T>(), s.gout.template as<T>(), s.lse.template as<float>(),
        s.gqkv.template as<T>(), lengths_.on_device(), shape_.rows(), shape_.heads));
  }

 private:
  static constexpr DType kType = dtype_of<T>();

  int64_t row() const { return shape_.heads * shape_.width; }
  template <class U>
  kernels::HeadsView<U> part(U* qkv, int64_t number) const {
    return {qkv + number * row(), 3 * row(), shape_.width};
  }
  template <class U>
  kernels::HeadsView<U> whole(U* rows) const {
    return {rows, row(), shape_.width};
  }

  kernels::AttentionScores<T> scores(const T* qkv, SegmentsView segments, int64_t rows, int64_t heads) const {
    return {.q = part(qkv, 0),
            .k = part(qkv, 1),
            .segments = segments,
            .query_rows = rows,
            .key_rows = rows,
            .heads = heads,
            .key_heads = heads,
            .width = shape_.width,
            .scale = 1 / std::sqrt(static_cast<double>(shape_.width)),
            .logit_cap = 0,
            .visibility = Visibility{.causal = shape_.causal ? Causal::top_left : Causal::none},
            .bias = {}};
  }

  kernels::AttentionForward<T> forward_args(const T* qkv, T* out, float* lse, SegmentsView segments,
                                            int64_t rows, int64_t heads) const {
    return {scores(qkv, segments, rows, heads), part(qkv, 2), {}, whole(out), lse};
  }

  kernels::AttentionBackward<T> backward_args(const T* qkv, const T* out, const T* gout, const float* lse,
                                              T* gqkv, SegmentsView segments, int64_t rows,
                                              int64_t heads) const {
    return {scores(qkv, segments, rows, heads),
            part(qkv, 2),
            {},
            whole(out),
            whole(gout),
            lse,
            part(gqkv, 0),
            part(gqkv, 1),
            part(gqkv, 2),
            false,
            false,
            false,
            nullptr,
            nullptr};
  }

  // The first sequence of the first set against the CPU's kernels, of long ones the first head alone, since
  // that takes seconds; empty if all is right.
  std::string compare() const {
    const int64_t heads = shape_.length > 1024 ? 1 : shape_.heads;
    const auto first = [&](const DeviceArray& array, int64_t per_row) {
      std::vector<T> values = array.get<T>();
      values.resize(static_cast<size_t>(shape_.length * per_row));
      return values;
    };
    const auto of_heads = [&](const std::vector<T>& values) {
      std::vector<T> kept;
      for (auto at = values.begin(); at != values.end(); at += row())
        kept.insert(kept.end(), at, at + heads * shape_.width);
      return kept;
    };
    const Set<T>& s = sets_[0];
    const auto qkv = first(s.qkv, 3 * row()), gout = first(s.gout, row());
    std::vector<T> out(gout.size()), gqkv(qkv.size());
    std::vector<float> lse(static_cast<size_t>(heads * shape_.length));
    const SegmentsView one = lengths_.on_host();
    cpu::attention_forward(forward_args(qkv.data(), out.data(), lse.data(), one, shape_.length, heads));
    cpu::attention_backward(backward_args(qkv.data(), out.data(), gout.data(), lse.data(), gqkv.data(), one,
                                          shape_.length, heads));
    const double unit = sizeof(T) == 2 ? 0x1p-6 : 0x1p-18;
    const double out_error = bench::relative_error(of_heads(first(s.out, row())), of_heads(out));
    const double gradient_error = bench::relative_error(of_heads(first(s.gqkv, 3 * row())), of_heads(gqkv));
    if (out_error <= unit && gradient_error <= unit) return "";
    return "the output is off by " + std::to_string(out_error) + ", the gradients by " +
           std::to_string(gradient_error);
  }

  Shape shape_;
  Lengths lengths_;
  std::vector<Set<T>> sets_;
  std::string wrong_;
};

// Google Benchmark calls a function several times: the problem is kept until another shape is asked for.
template <class T>
const Problem<T>& problem(const Shape& shape) {
  static std::unique_ptr<Problem<T>> kept;
  if (!kept || !(kept->shape() == shape)) {
    kept.reset();
    kept = std::make_unique<Problem<T>>(shape);
  }
  return *kept;
}

template <class T, bool kBackward>
void attention(benchmark::State& state) {
  const Shape shape{state.range(0), state.range(1), state.range(2), state.range(3), state.range(4) != 0};
  const Problem<T>& p = problem<T>(shape);
  if (!p.wrong().empty()) return state.SkipWithError(p.wrong().c_str());
  const int64_t moved = (kBackward ? 8 : 4) * shape.elements() * static_cast<int64_t>(sizeof(T)) +
                        shape.heads * shape.rows() * static_cast<int64_t>(sizeof(float));
  bench::time_on_device(state, p.sets(), moved, [&](int i) { kBackward ? p.backward(i) : p.forward(i); });
  state.counters["flops_per_second"] = benchmark::Counter((kBackward ? 5 : 2) * shape.products(),
                                                          benchmark::Counter::kIsIterationInvariantRate);
}

// About 16,384 rows each: short sequences first, then long ones.
constexpr Shape kShapes[] = {{1024, 8, 16, 16, false},   {512, 8, 32, 16, false},   {256, 8, 64, 64, false},
                             {128, 8, 128, 64, true},    {16, 16, 1024, 64, false}, {16, 16, 1024, 64, true},
                             {4, 16, 4096, 64, false},   {4, 16, 4096, 64, true},   {4, 16, 4096, 128, false},
                             {4, 16, 4096, 128, true},   {1, 16, 16384, 64, false}, {1, 16, 16384, 64, true},
                             {1, 16, 16384, 128, false}, {1, 16, 16384, 128, true}};
constexpr Shape kEmulatedShapes[] = {{2, 2, 37, 16, true}, {1, 1, 140, 64, false}};

// Both directions of a shape one after the other, which share what it is made of.
void add(const Shape& s) {
  const auto each = [&](const char* name, void (*function)(benchmark::State&)) {
    bench::add(name, function)->Args({s.sequences, s.heads, s.length, s.width, s.causal});
  };
  each("attention_forward/bf16", attention<bfloat16, false>);
  each("attention_backward/bf16", attention<bfloat16, true>);
}

}  // namespace

int main(int argc, char** argv) {
  if (bench::emulated())
    for (const Shape& s : kEmulatedShapes) add(s);
  else
    for (const Shape& s : kShapes) add(s);
  return bench::run_benchmarks(argc, argv);
}

#include "bench/kernel_cases.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>
#include <map>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <heed/core/attention.h>
#include <heed/core/autograd.h>
#include <heed/core/base/check.h>
#include <heed/core/base/parallel_for.h>
#include <heed/core/creation.h>
#include <heed/core/ops.h>

namespace heed::bench {
namespace {

/// An operation on inputs of one case. `call` takes the rate of dropout.
struct Operation {
  std::vector<Tensor> inputs;  // that get gradients
  std::function<Tensor(double)> call;
  bool random = false;  // each program draws other numbers, which are not to be compared
};
using Values = std::vector<std::vector<double>>;
using Sizes = std::vector<int64_t>;

// ---- Inputs
// ------------------------------------------------------------------------------------------------

constexpr int64_t kPeriod = 2003;

/// Element i is (7 i² + 11 i + 97 seed) mod 2003, spread over -2 … 2.
Tensor filled(const Shape& shape, int64_t seed, DType dtype) {
  std::vector<float> table(kPeriod);
  for (int64_t i = 0; i < kPeriod; ++i)
    table[static_cast<size_t>(i)] = static_cast<float>(
        static_cast<double>((i * i * 7 + i * 11 + seed * 97) % kPeriod) * 4 / static_cast<double>(kPeriod) -
        2);
  const Tensor x = empty(shape);
  float* const to = x.data<float>();
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = table[static_cast<size_t>(i % kPeriod)];
  return x.to(dtype);
}

std::vector<double> sampled(const Tensor& x) {
  constexpr int64_t kMost = 64;
  const Tensor flat = x.detach().to(DType::f32).contiguous();
  const int64_t n = flat.numel(), count = std::min(n, kMost);
  std::vector<double> values;
  for (int64_t j = 0; j < count; ++j)
    values.push_back(flat.data<float>()[count == n ? j : j * (n - 1) / (kMost - 1)]);
  return values;
}

// ---- Operations
// --------------------------------------------------------------------------------------------

Operation attention_of(const Sizes& s, DType dtype, Causal causal) {
  const Shape shape{s[0] * s[1], s[2] * s[3]};
  const std::vector<Tensor> qkv{filled(shape, 1, dtype), filled(shape, 2, dtype), filled(shape, 3, dtype)};
  const Segments segments = Segments::dense(s[0], s[1]);
  AttentionOptions options{.heads = s[2]};
  options.visibility.causal = causal;
  return {qkv, [=](double) { return attention(qkv[0], qkv[1], qkv[2], segments, options); }};
}

Operation residual_layer_norm_of(const Sizes& s, DType dtype) {
  const std::vector<Tensor> in{filled({s[0], s[1]}, 1, dtype), filled({s[0], s[1]}, 2, dtype),
                               filled({s[1]}, 3, dtype), filled({s[1]}, 4, dtype)};
  return {in,
          [=](double rate) { return residual_layer_norm(in[0], in[1], in[2], in[3], {.p = rate}).normed; }};
}

Operation layer_norm_of(const Sizes& s, DType dtype) {
  const std::vector<Tensor> in{filled({s[0], s[1]}, 1, dtype), filled({s[1]}, 2, dtype),
                               filled({s[1]}, 3, dtype)};
  return {in, [=](double) { return layer_norm(in[0], in[1], in[2]); }};
}

Operation cross_entropy_of(const Sizes& s, DType dtype) {
  const Tensor x = filled({s[0], s[1]}, 1, dtype), targets = empty({s[0]}, {.dtype = DType::i64});
  for (int64_t r = 0; r < s[0]; ++r) targets.data<int64_t>()[r] = r * 7 % s[1];
  return {{x}, [=](double) { return cross_entropy(x, targets); }};
}

Operation linear_of(const Sizes& s, DType dtype) {
  const std::vector<Tensor> in{filled({s[0], s[1]}, 1, dtype), filled({s[2], s[1]}, 2, dtype)};
  return {in, [=](double) { return linear(in[0], in[1]); }};
}

/// Functions of one matrix, from which logarithms and roots get what they are defined for.
using Map = Tensor (*)(const Tensor&);
const std::map<std::string, Map>& maps() {
  static const std::map<std::string, Map> all = {
      {"gelu", gelu},
      {"gelu_tanh", gelu_tanh},
      {"softmax", [](const Tensor& x) { return softmax(x); }},
      {"exp", exp},
      {"log", log},
      {"sqrt", sqrt},
      {"tanh", tanh},
      {"sigmoid", sigmoid},
      {"erf", erf},
      {"sin", sin},
      {"cube", [](const Tensor& x) { return power(x, 3); }},
      {"power", [](const Tensor& x) { return power(x, 2.5); }},
      {"clamp", [](const Tensor& x) { return clamp(x, -1, 1); }},
      {"masked",
       [](const Tensor& x) { return masked_fill(x, greater(x.detach(), x.detach().slice(0, 0, 1)), 0); }},
      {"flip", [](const Tensor& x) { return flip(x, 1); }},
      {"transpose", [](const Tensor& x) { return x.transpose(0, 1).contiguous(); }},
      {"cumulative_sum", [](const Tensor& x) { return cumulative_sum(x, 1); }},
      {"sort", [](const Tensor& x) { return sort(x, 1).first; }},
      {"topk", [](const Tensor& x) { return topk(x, 10, 1).first; }},
      {"sum_rows", [](const Tensor& x) { return sum(x, {.axes = {1}}); }},
      {"sum_columns", [](const Tensor& x) { return sum(x, {.axes = {0}}); }},
      {"max_rows", [](const Tensor& x) { return max(x, {.axes = {1}}); }},
      {"log_sum_exp", [](const Tensor& x) { return log_sum_exp(x, {.axes = {1}}); }},
      {"variance", [](const Tensor& x) { return variance(x, {.axes = {1}}); }}};
  return all;
}

Operation map_of(const std::string& name, const Sizes& s, DType dtype) {
  Tensor x = filled({s[0], s[1]}, 1, dtype);
  if (name == "log" || name == "sqrt" || name == "power") x = abs(x) + 0.5;
  return {{x}, [x, map = maps().at(name)](double) { return map(x); }};
}

Operation pair_of(const Sizes& s, DType dtype, Tensor (*pair)(const Tensor&, const Tensor&)) {
  const std::vector<Tensor> in{filled({s[0], s[1]}, 1, dtype), filled({s[0], s[1]}, 2, dtype)};
  return {in, [=](double) { return pair(in[0], in[1]); }};
}

Operation random_of(const std::string& name, const Sizes& s, DType dtype) {
  const auto call = [=, shape = Shape{s[0], s[1]}](double) {
    if (name == "randint") return randint(0, 1000, shape);
    return name == "rand" ? rand(shape, {.dtype = dtype}) : randn(shape, {.dtype = dtype});
  };
  return {{}, call, true};
}

Operation operation_of(const std::string& name, const Sizes& s, DType dtype) {
  if (maps().count(name) > 0) return map_of(name, s, dtype);
  if (name == "rand" || name == "randn" || name == "randint") return random_of(name, s, dtype);
  if (name == "add") return pair_of(s, dtype, add);
  if (name == "multiply") return pair_of(s, dtype, multiply);
  if (name == "layer_norm") return layer_norm_of(s, dtype);
  if (name == "residual_layer_norm") return residual_layer_norm_of(s, dtype);
  if (name == "cross_entropy") return cross_entropy_of(s, dtype);
  if (name == "attention") return attention_of(s, dtype, Causal::none);
  if (name == "causal_attention") return attention_of(s, dtype, Causal::top_left);
  HEED_CHECK(name == "linear" || name == "product", ConfigError, "there is no kernel '", name, "'");
  return linear_of(s, dtype);
}

// ---- What the machine can do
// -------------------------------------------------------------------------------

constexpr int64_t kCacheBytes = int64_t{32} << 20;  // more than that is written around the caches

/// Copies with whatever stores are fastest.
void copy_range(const char* from, char* to, int64_t count, bool around_caches) {
#if defined(__SSE2__)
  if (around_caches) {
    for (int64_t i = 0; i < count; i += 16)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                       _mm_load_si128(reinterpret_cast<const __m128i*>(from + i)));
    _mm_sfence();
    return;
  }
#endif
  std::memcpy(to, from, static_cast<size_t>(count));
}

void copy(const Tensor& from, const Tensor& to) {
  constexpr int64_t kChunk = 64 << 10;
  const int64_t bytes = from.numel() * size_of(from.dtype());
  const bool around_caches = bytes > kCacheBytes && bytes % 16 == 0;
  const char* source = static_cast<const char*>(from.raw_data());
  char* target = static_cast<char*>(to.raw_data());
  parallel_for(bytes, kChunk, [=](int64_t begin, int64_t end) {
    copy_range(source + begin, target + begin, end - begin, around_caches);
  });
}

// ---- The list
// ----------------------------------------------------------------------------------------------

std::string shape_text(const Sizes& sizes) {
  std::string text;
  for (const int64_t size : sizes) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

/// Matrices of [rows, cols] that a direction has to read and write, each once.
struct Passes {
  const char *operation, *direction;
  int matrices;
};
constexpr Passes kRowWise[] = {{"layer_norm", "forward", 2},
                               {"layer_norm", "backward", 3},
                               {"residual_layer_norm", "forward", 4},
                               {"residual_layer_norm", "backward", 4},
                               {"gelu", "forward", 2},
                               {"gelu", "backward", 3},
                               {"gelu_tanh", "forward", 2},
                               {"gelu_tanh", "backward", 3},
                               {"softmax", "forward", 2},
                               {"softmax", "backward", 3},
                               {"cross_entropy", "forward", 1},
                               {"cross_entropy", "both", 2},
                               {"add", "forward", 3},
                               {"multiply", "forward", 3},
                               {"exp", "forward", 2},
                               {"log", "forward", 2},
                               {"sqrt", "forward", 2},
                               {"tanh", "forward", 2},
                               {"sigmoid", "forward", 2},
                               {"erf", "forward", 2},
                               {"sin", "forward", 2},
                               {"cube", "forward", 2},
                               {"power", "forward", 2},
                               {"clamp", "forward", 2},
                               {"masked", "forward", 2},
                               {"flip", "forward", 2},
                               {"transpose", "forward", 2},
                               {"cumulative_sum", "forward", 2},
                               {"sort", "forward", 2},
                               {"topk", "forward", 1},
                               {"sum_rows", "forward", 1},
                               {"sum_columns", "forward", 1},
                               {"max_rows", "forward", 1},
                               {"log_sum_exp", "forward", 1},
                               {"variance", "forward", 1},
                               {"rand", "forward", 1},
                               {"randn", "forward", 1}};

void add_row_wise(const Sizes& shape, DType dtype, std::vector<KernelCase>& cases) {
  const double matrix = static_cast<double>(shape[0] * shape[1] * size_of(dtype));
  const std::string text = shape_text(shape), copy = "copy/forward/" + text;
  cases.push_back({copy, 2 * matrix, 0, copy});
  for (const Passes& p : kRowWise)
    cases.push_back({concat(p.operation, "/", p.direction, "/", text), p.matrices * matrix, 0, copy});
  const double integers = static_cast<double>(shape[0] * shape[1] * size_of(DType::i64));
  cases.push_back({"randint/forward/" + text, integers, 0, copy});
}

/// Of a causal triangle only the visible part counts.
void add_attention(const Sizes& s, bool causal, const std::string& product, std::vector<KernelCase>& cases) {
  const double length = static_cast<double>(s[1]),
               pairs = causal ? length * (length + 1) / 2 : length * length;
  const double one = 2 * static_cast<double>(s[0] * s[2] * s[3]) * pairs;
  const std::string name = causal ? "causal_attention" : "attention";
  cases.push_back({name + "/forward/" + shape_text(s), 0, 2 * one, product});
  cases.push_back({name + "/backward/" + shape_text(s), 0, 5 * one, product});
}

}  // namespace

std::vector<KernelCase> kernel_cases(bool tiny, DType dtype) {
  using List = std::vector<Sizes>;
  const List matrices = tiny ? List{{48, 32}} : List{{672, 128}, {4096, 768}, {16384, 1024}};
  const List layers = tiny ? List{{16, 24, 32}} : List{{672, 128, 384},  {672, 128, 512},  {672, 512, 128},
                                                       {672, 512, 1536}, {672, 512, 2048}, {672, 2048, 512},
                                                       {256, 768, 2304}, {256, 768, 3072}, {256, 3072, 768}};
  const Sizes most = tiny ? Sizes{48, 48, 48} : Sizes{1024, 1024, 1024};
  const std::string product = "product/forward/" + shape_text(most);
  std::vector<KernelCase> cases;
  for (const Sizes& shape : matrices) add_row_wise(shape, dtype, cases);
  cases.push_back({product, 0, 2 * static_cast<double>(most[0] * most[1] * most[2]), product});
  for (const Sizes& shape :
       tiny ? List{{2, 5, 2, 16}} : List{{32, 12, 8, 16}, {32, 21, 8, 16}, {1, 1024, 12, 64}})
    add_attention(shape, false, product, cases);
  add_attention(tiny ? Sizes{1, 9, 2, 8} : Sizes{1, 8192, 8, 64}, true, product, cases);
  for (const Sizes& s : layers) {
    const double one = 2 * static_cast<double>(s[0] * s[1] * s[2]);
    cases.push_back({"linear/forward/" + shape_text(s), 0, one, product});
    cases.push_back({"linear/backward/" + shape_text(s), 0, 2 * one, product});
  }
  return cases;
}

const KernelCase& floor_of(const KernelCase& c, const std::vector<KernelCase>& all) {
  return *std::find_if(all.begin(), all.end(),
                       [&](const KernelCase& other) { return other.name == c.floor; });
}

Kernel::Kernel(const std::string& name, DType dtype) : name_(name) {
  const size_t first = name.find('/'), second = name.find('/', first + 1);
  HEED_CHECK(second != std::string::npos, ConfigError, "'", name, "' is not operation/direction/shape");
  const std::string operation = name.substr(0, first), direction = name.substr(first + 1, second - first - 1);
  Sizes sizes;
  for (const char *at = name.data() + second, *end = name.data() + name.size(); at < end;) {
    int64_t size = 0;
    const auto [next, error] = std::from_chars(at + 1, end, size);
    HEED_CHECK(error == std::errc() && size > 0, ConfigError, "'", name, "' has no such shape");
    sizes.push_back(size);
    at = next;
  }
  if (operation == "copy") {
    const Tensor from = filled({sizes[0], sizes[1]}, 1, dtype), to = zeros_like(from);
    work_ = [=] { copy(from, to); };
    values_ = [=] { return copy(from, to), Values{sampled(to)}; };
    return;
  }
  constexpr double kDropout = 0.1;
  const Operation op = operation_of(operation, sizes, dtype);
  if (direction == "forward" &&
      operation == "cross_entropy") {  // evaluation: the gradient is made on the way
    work_ = [=] {
      const NoGrad no_grad;
      op.call(kDropout);
    };
    values_ = [=] { return Values{sampled(op.call(0))}; };
    return;
  }
  for (const Tensor& input : op.inputs) input.set_requires_grad();
  const auto gradients = [=](const Tensor& y, const Tensor& gy, bool retain) {
    for (const Tensor& input : op.inputs) input.zero_grad();
    y.backward(gy, {.retain_graph = retain});
  };
  const auto sampled_gradients = [=] {
    Values values;
    for (const Tensor& input : op.inputs) values.push_back(sampled(input.grad()));
    return values;
  };
  if (direction == "forward") {
    work_ = [=] { op.call(kDropout); };
    values_ = [=] { return op.random ? Values{} : Values{sampled(op.call(0))}; };
  } else if (direction == "both") {
    work_ = [=] { gradients(op.call(kDropout), {}, false); };
    values_ = [=] { return gradients(op.call(0), {}, false), sampled_gradients(); };
  } else {
    HEED_CHECK(direction == "backward", ConfigError, "'", name, "': there is no direction '", direction, "'");
    const Tensor y = op.call(kDropout), gy = filled(y.shape(), 5, dtype);
    work_ = [=] { gradients(y, gy, true); };
    values_ = [=] { return gradients(op.call(0), gy, false), sampled_gradients(); };
  }
}

double median_seconds(const Kernel& kernel) {
  std::vector<double> times;
  kernel.run();
  for (double total = 0; total < 0.05 || times.size() < 3; total += times.back()) {
    const auto begin = std::chrono::steady_clock::now();
    kernel.run();
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

const Kernel& Kernels::operator()(const std::string& name) {
  const auto at = std::find_if(kept_.begin(), kept_.end(), [&](const Kernel& k) { return k.name() == name; });
  if (at != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, at);
  } else {
    if (kept_.size() > 1) kept_.pop_back();
    kept_.emplace_front(name, dtype_);
  }
  return kept_.front();
}

}  // namespace heed::bench

#include "bench/kernel_cases.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <heed/core/autograd/autograd.h>
#include <heed/core/base/check.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/core/creation.h>
#include <heed/core/recurrent.h>

#include "bench/operations.h"

namespace heed::bench {
namespace {

using Values = std::vector<std::vector<double>>;

std::vector<double> sampled(const Tensor& x) {
  constexpr int64_t kMax = 64;
  const Tensor flat = x.detach().to(DType::f32).contiguous();
  const int64_t n = flat.numel(), count = std::min(n, kMax);
  std::vector<double> values;
  for (int64_t j = 0; j < count; ++j)
    values.push_back(flat.data<float>()[count == n ? j : j * (n - 1) / (kMax - 1)]);
  return values;
}

// ---- What the machine can do

constexpr int64_t kCacheBytes = int64_t{32} << 20;  // more than that is written around the caches

/// Copies in whatever way is fastest: what does not stay in a cache is asked for ahead, no whole number of
/// pages, and written around the caches.
void copy_range(const char* from, char* to, int64_t count, bool around_caches) {
#if defined(__SSE2__)
  if (around_caches) {
    constexpr int64_t kAhead = 4608, kLine = 64;
    for (int64_t i = 0; i < count; i += 16) {
      if (i % kLine == 0) _mm_prefetch(from + i + kAhead, _MM_HINT_T0);
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                       _mm_load_si128(reinterpret_cast<const __m128i*>(from + i)));
    }
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

std::string shape_text(const Sizes& sizes) {
  std::string text;
  for (const int64_t size : sizes) text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}

/// Gradients of a row-wise operation that are timed, with the matrices of [rows, cols] that have to be read
/// and written.
struct Gradients {
  const char *operation, *direction;
  int matrices;
};
constexpr Gradients kGradients[] = {{"layer_norm", "backward", 3}, {"residual_layer_norm", "backward", 4},
                                    {"gelu", "backward", 3},       {"gelu_tanh", "backward", 3},
                                    {"softmax", "backward", 3},    {"cross_entropy", "both", 2}};

void add_row_wise(const Sizes& shape, DType dtype, std::vector<KernelCase>& cases) {
  const double matrix = static_cast<double>(shape[0] * shape[1] * size_of(dtype));
  const std::string text = shape_text(shape), copy = "copy/forward/" + text;
  cases.push_back({copy, 2 * matrix, 0, copy});
  for (const std::string& operation : row_wise_operations()) {
    cases.push_back({concat(operation, "/forward/", text), row_wise_bytes(operation, shape, dtype), 0, copy});
    for (const Gradients& g : kGradients)
      if (operation == g.operation)
        cases.push_back({concat(operation, "/", g.direction, "/", text), g.matrices * matrix, 0, copy});
  }
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

/// Recurrent layers, and the convolutions of ResNet-18 and of a classifier of digits, with their gradients.
void add_layers(bool tiny, const std::string& product, std::vector<KernelCase>& cases) {
  using List = std::vector<Sizes>;
  for (const Sizes& s : tiny ? List{{2, 3, 8}} : List{{32, 64, 256}})
    for (const CellKind kind : {CellKind::lstm, CellKind::gru}) {
      const double one = 4.0 * static_cast<double>(s[0] * s[1] * s[2] * s[2] * gate_count(kind));
      const std::string name = kind == CellKind::lstm ? "lstm" : "gru";
      cases.push_back({name + "/forward/" + shape_text(s), 0, one, product});
      cases.push_back({name + "/backward/" + shape_text(s), 0, 2 * one, product});
    }
  for (const Sizes& s : tiny ? List{{2, 3, 8, 4, 3, 2}}
                             : List{{8, 3, 224, 64, 7, 2},
                                    {8, 64, 56, 64, 3, 1},
                                    {8, 64, 56, 128, 3, 2},
                                    {8, 64, 56, 128, 1, 2},
                                    {8, 128, 28, 128, 3, 1},
                                    {8, 256, 14, 256, 3, 1},
                                    {8, 512, 7, 512, 3, 1},
                                    {64, 1, 28, 16, 3, 1},
                                    {64, 16, 14, 32, 3, 1},
                                    {64, 32, 7, 64, 3, 1}}) {
    const int64_t out = (s[2] + 2 * (s[4] / 2) - s[4]) / s[5] + 1;
    const double one = 2.0 * static_cast<double>(s[0] * s[3] * out * out * s[1] * s[4] * s[4]);
    cases.push_back({"conv2d/forward/" + shape_text(s), 0, one, product});
    cases.push_back({"conv2d/backward/" + shape_text(s), 0, 2 * one, product});
  }
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
  if (dtype == DType::f32) add_layers(tiny, product, cases);
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
  const Operation op = bench::operation(operation, sizes, dtype);
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
    for (const Tensor& input : op.inputs)
      if (input.shape().rank() > 1 || dtype == DType::f32) values.push_back(sampled(input.grad()));
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

#include <cmath>
#include <cstdio>
#include <unordered_map>

#include <heed/core/ops.h>
#include <heed/nn/attention/multi_head_attention.h>
#include <heed/nn/detail/text_table.h>
#include <heed/nn/inspection.h>

namespace heed::nn {
namespace {

// On the CPU, as CUDA has no f64.
Tensor in_f64(const Tensor& x) { return x.detach().to(kCpu).to(DType::f64); }

double norm_of(const Tensor& x) { return x.defined() ? norm(in_f64(x)).item<double>() : 0; }

// The attentions of a module: from the names of their stacked projections to the heads.
class StackedProjections final : public Visitor {
 public:
  explicit StackedProjections(Module& module) {
    add("", module);
    walk("", module);
  }
  std::unordered_map<std::string, HeadLayout> heads;

 private:
  void on_parameter(const std::string&, Tensor&, bool) override {}
  void on_module(const std::string& name, Module& child) override {
    add(name + '.', child);
    walk(name, child);
  }
  void add(const std::string& prefix, Module& module) {
    const auto* attention = dynamic_cast<const MultiHeadAttention*>(&module);
    if (!attention) return;
    heads[prefix + "in_proj_weight"] = heads[prefix + "in_proj_bias"] = attention->layout;
  }
};

std::string first_parts(const std::string& name, int parts) {
  size_t end = 0;
  for (int i = 0; i < parts && end != std::string::npos; ++i) end = name.find('.', end + (i > 0));
  return name.substr(0, end);
}

std::string shortest(double value) { return significant_text(value, 4); }

}  // namespace

void check_finite(const Tensor& x, const std::string& what) {
  if (x.numel() == 0) return;
  const NoGrad no_grad;
  const double largest = max(abs(x.detach())).item<double>();
  HEED_CHECK(std::isfinite(largest), NumericError, what, " holds a value that is ",
             std::isnan(largest) ? "NaN" : "infinite");
}

void check_finite(Module& module, const std::string& file) {
  for (const Parameter& parameter : module.parameters())
    check_finite(parameter.tensor, concat(file, ": '", parameter.name, "'"));
}

Statistics statistics(const Tensor& x) {
  HEED_CHECK(x.numel() > 0, ShapeError, "statistics: the tensor of shape ", x.shape(), " has no elements");
  const NoGrad no_grad;
  const Tensor values = in_f64(x);
  return {mean(values).item<double>(), sqrt(variance(values, {}, 0)).item<double>(),
          min(values).item<double>(), max(values).item<double>()};
}

std::vector<GradientNorm> gradient_norms(Module& module) {
  const NoGrad no_grad;
  std::vector<GradientNorm> norms;
  const StackedProjections stacked(module);
  for (const Parameter& parameter : module.named_parameters()) {
    const Tensor values = parameter.tensor, gradient = values.grad();
    const auto found = stacked.heads.find(parameter.name);
    if (found == stacked.heads.end()) {
      norms.push_back({parameter.name, norm_of(gradient), norm_of(values)});
      continue;
    }
    const int64_t q = found->second.query_columns(), k = found->second.key_columns();
    const int64_t first[] = {0, q, q + k, q + 2 * k};
    const auto part = [&](const Tensor& x, int64_t i) {
      return x.defined() ? x.slice(0, first[i], first[i + 1]) : x;
    };
    for (int64_t i = 0; i < 3; ++i)
      norms.push_back(
          {concat(parameter.name, '[', "qkv"[i], ']'), norm_of(part(gradient, i)), norm_of(part(values, i))});
  }
  return norms;
}

std::vector<GradientNorm> join_norms(const std::vector<GradientNorm>& norms, int parts) {
  std::vector<GradientNorm> joined;
  for (const GradientNorm& n : norms) {
    const std::string name = first_parts(n.name, parts);
    if (joined.empty() || joined.back().name != name) joined.push_back({name});
    joined.back().gradient = std::hypot(joined.back().gradient, n.gradient);
    joined.back().value = std::hypot(joined.back().value, n.value);
  }
  return joined;
}

std::string gradient_table(const std::vector<GradientNorm>& norms) {
  std::vector<std::vector<std::string>> rows{{"parameter", "gradient", "value", "gradient/value"}};
  for (const GradientNorm& n : norms)
    rows.push_back({n.name, shortest(n.gradient), shortest(n.value),
                    n.value > 0 ? shortest(n.gradient / n.value) : "-"});
  return aligned(rows, 1);
}

}  // namespace heed::nn

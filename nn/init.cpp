#include <cmath>

#include <heed/core/autograd.h>
#include <heed/core/base/pattern.h>
#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/nn/init.h>

namespace heed::nn {
namespace {

constexpr std::pair<const char*, Initializer> kNames[] = {{"pytorch", Initializer::pytorch},
                                                          {"xavier_uniform", Initializer::xavier_uniform},
                                                          {"xavier_normal", Initializer::xavier_normal},
                                                          {"kaiming_uniform", Initializer::kaiming_uniform},
                                                          {"kaiming_normal", Initializer::kaiming_normal},
                                                          {"normal", Initializer::normal},
                                                          {"zeros", Initializer::zeros}};

bool fits_any_name(const std::string& pattern, const Parameter& parameter) {
  if (matches(pattern, parameter.name)) return true;
  for (const std::string& alias : parameter.aliases)
    if (matches(pattern, alias)) return true;
  return false;
}

}  // namespace

Initializer parse_initializer(const std::string& name) {
  std::string known;
  for (const auto& entry : kNames) {
    if (name == entry.first) return entry.second;
    known += concat(known.empty() ? "" : ", ", entry.first);
  }
  throw ConfigError(concat("unknown initializer '", name, "'; expected one of ", known));
}

void initialize(const Tensor& tensor, Initializer initializer, Generator& generator, double deviation) {
  NoGrad no_grad;
  const auto fan = [&](int64_t axis) {
    HEED_CHECK(tensor.rank() == 2, ShapeError, "initialize: Xavier and Kaiming need a matrix, got ",
               tensor.shape());
    return static_cast<double>(tensor.size(axis));
  };
  const auto symmetric = [&](double bound) { uniform_(tensor, -bound, bound, generator); };
  switch (initializer) {
    case Initializer::pytorch:
      return;
    case Initializer::xavier_uniform:
      return symmetric(std::sqrt(6 / (fan(0) + fan(1))));
    case Initializer::xavier_normal:
      return normal_(tensor, 0, std::sqrt(2 / (fan(0) + fan(1))), generator);
    case Initializer::kaiming_uniform:
      return symmetric(std::sqrt(6 / fan(1)));
    case Initializer::kaiming_normal:
      return normal_(tensor, 0, std::sqrt(2 / fan(1)), generator);
    case Initializer::normal:
      return normal_(tensor, 0, deviation, generator);
    case Initializer::zeros:
      tensor.zero_();
      return;
  }
}

void initialize(Module& module, const std::vector<InitRule>& rules, Generator& generator) {
  for (const Parameter& parameter : module.parameters())
    for (const InitRule& rule : rules)
      if (fits_any_name(rule.pattern, parameter)) {
        const Tensor& tensor = parameter.tensor;
        HEED_CHECK(rule.stacked == 1 || (rule.stacked > 1 && tensor.size(0) % rule.stacked == 0), ShapeError,
                   "initialize: '", parameter.name, "' ", tensor.shape(), " is not ", rule.stacked,
                   " matrices on top of each other");
        for (const Tensor& part : chunk(tensor.detach(), rule.stacked, 0))
          initialize(part, rule.initializer, generator, rule.deviation);
        break;
      }
}

std::vector<InitRule> matrix_rules(Initializer initializer, double deviation) {
  return {
      {"*norm*", Initializer::pytorch}, {"*bias", Initializer::zeros}, {"*weight", initializer, deviation}};
}

}  // namespace heed::nn

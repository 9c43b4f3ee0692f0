#include <cmath>

#include <heed/core/autograd/autograd.h>
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

bool needs_matrix(Initializer initializer) {
  return initializer == Initializer::xavier_uniform || initializer == Initializer::xavier_normal ||
         initializer == Initializer::kaiming_uniform || initializer == Initializer::kaiming_normal;
}

void check_rule(const InitRule& rule, const Parameter& parameter) {
  const Shape& shape = parameter.tensor.shape();
  HEED_CHECK(rule.stacked == 1 || (rule.stacked > 1 && shape.rank() > 0 && shape[0] % rule.stacked == 0),
             ShapeError, "initialize: '", parameter.name, "' ", shape, " is not ", rule.stacked,
             " matrices on top of each other");
  HEED_CHECK(std::isfinite(rule.deviation) && rule.deviation >= 0, ConfigError,
             "initialize: the deviation for '", rule.pattern, "' must be finite and not negative, got ",
             rule.deviation);
  HEED_CHECK(!needs_matrix(rule.initializer) || shape.rank() == 2, ShapeError, "initialize: '",
             parameter.name, "' ", shape, " is no matrix, as Xavier and Kaiming need");
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
  const std::vector<Parameter> parameters = module.named_parameters();
  for (const InitRule& rule : rules)
    if (!rule.optional) check_pattern("initialize", rule.pattern, parameters);
  std::vector<std::pair<const Parameter*, const InitRule*>> chosen;
  for (const Parameter& parameter : parameters)
    for (const InitRule& rule : rules)
      if (parameter.fits(rule.pattern)) {
        check_rule(rule, parameter);
        chosen.emplace_back(&parameter, &rule);
        break;
      }
  for (const auto& [parameter, rule] : chosen) {
    const Tensor all = parameter->tensor.detach();
    for (const Tensor& part : rule->stacked > 1 ? chunk(all, rule->stacked, 0) : std::vector<Tensor>{all})
      initialize(part, rule->initializer, generator, rule->deviation);
  }
}

std::vector<InitRule> matrix_rules(Initializer initializer, double deviation) {
  return {{.pattern = "*norm*", .initializer = Initializer::pytorch, .optional = true},
          {.pattern = "*bias", .initializer = Initializer::zeros, .optional = true},
          {.pattern = "*weight", .initializer = initializer, .deviation = deviation, .optional = true}};
}

}  // namespace heed::nn

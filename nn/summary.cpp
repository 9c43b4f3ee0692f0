#include <utility>

#include <heed/nn/detail/text_table.h>
#include <heed/nn/summary.h>

namespace heed::nn {
namespace {

std::string first_part(const std::string& name) { return name.substr(0, name.find('.')); }

class TreePrinter final : public Visitor {
 public:
  explicit TreePrinter(Module& module) : text_(module.describe()) { walk("", module); }
  std::string text_;

 private:
  void on_parameter(const std::string&, Tensor&, bool) override {}
  void on_module(const std::string& name, Module& child) override {
    depth_ += 2;
    text_ += concat('\n', std::string(depth_, ' '),
                    name.size() > parent_.size() ? name.substr(parent_.size()) + ": " : "", child.describe());
    const std::string outer = std::exchange(parent_, name + '.');
    walk(name, child);
    parent_ = outer;
    depth_ -= 2;
  }

  std::string parent_;
  size_t depth_ = 0;
};

}  // namespace

std::vector<ComponentCount> count_parameters(Module& module) {
  std::vector<ComponentCount> counts;
  for (const Parameter& parameter : module.named_parameters()) {
    const std::string part = first_part(parameter.name);
    if (counts.empty() || counts.back().name != part) counts.push_back({part, 0});
    counts.back().parameters += parameter.tensor.numel();
  }
  return counts;
}

std::string component_table(Module& module) {
  std::vector<std::vector<std::string>> rows;
  for (const ComponentCount& count : count_parameters(module))
    rows.push_back({count.name, grouped(count.parameters)});
  int64_t all = 0;
  for (const Parameter& parameter : module.named_parameters()) all += parameter.tensor.numel();
  rows.push_back({"parameters", grouped(all)});
  return aligned(rows, 1);
}

std::string parameter_table(Module& module) {
  std::vector<std::vector<std::string>> rows;
  for (const Parameter& parameter : module.named_parameters()) {
    std::string name = parameter.name;
    for (const std::string& alias : parameter.aliases) name += " = " + alias;
    if (!parameter.tensor.requires_grad()) name += " (frozen)";
    rows.push_back({name, concat(parameter.tensor.shape()), grouped(parameter.tensor.numel())});
  }
  return aligned(rows, 2);
}

std::string module_tree(Module& module) { return TreePrinter(module).text_; }

int64_t flops_per_token(const TransformerConfig& c) {
  const HeadLayout heads = c.head_layout().of(c.d_model);
  const int64_t attention = 2 * c.d_model * (heads.query_columns() + heads.key_columns());
  const int64_t feed_forward = (c.activation == FeedForwardKind::swiglu ? 3 : 2) * c.d_model * c.d_ff;
  return 2 * (c.encoder_layers * (attention + feed_forward) +
              c.decoder_layers * (2 * attention + feed_forward) + c.d_model * c.target_vocabulary);
}

int64_t attention_flops_per_token(const TransformerConfig& c, int64_t length) {
  const int64_t all = 4 * length * c.head_layout().of(c.d_model).query_columns();
  return c.encoder_layers * all + c.decoder_layers * (all / 2 + all);
}

}  // namespace heed::nn

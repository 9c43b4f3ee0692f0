#include <algorithm>
#include <cmath>

#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/nn/attention/attention_heads.h>
#include <heed/nn/attention/attention_statistics.h>

namespace heed::nn {
namespace {

constexpr double kLineShare = 0.5, kExplained = 0.5, kEven = 0.95;

class AttentionFinder final : public Visitor {
 public:
  explicit AttentionFinder(Module& module) { look_at("", module); }
  std::vector<MultiHeadAttention*> found;

 private:
  void on_parameter(const std::string&, Tensor&, bool) override {}
  void on_module(const std::string& name, Module& child) override { look_at(name, child); }
  void look_at(const std::string& prefix, Module& module) {
    if (auto* attention = dynamic_cast<MultiHeadAttention*>(&module)) found.push_back(attention);
    walk(prefix, module);
  }
};

// A line through a map, and the weight that each head has on it.
struct MapLine {
  std::string name;
  int64_t rows;
  std::vector<double> shares;
};

std::string diagonal_name(int64_t offset, bool cross) {
  if (cross) return concat("diagonal ", offset > 0 ? "+" : "", offset);
  switch (offset) {
    case -1:
      return "previous";
    case 0:
      return "itself";
    case 1:
      return "next";
    default:
      return offset < 0 ? concat(-offset, " back") : concat(offset, " ahead");
  }
}

// Diagonals and mirrors through at least half of the rows or keys, whichever are fewer, and the first and the
// last key. `mean` is the mean of all sequences' maps, [heads, queries, keys].
std::vector<MapLine> lines_through(const Tensor& mean, bool cross) {
  const int64_t queries = mean.size(1), keys = mean.size(2);
  const int64_t least = std::max<int64_t>(2, (std::min(queries, keys) + 1) / 2);
  std::vector<MapLine> lines;
  const auto add = [&](std::string name, const Tensor& pattern, int64_t least_rows) {
    const auto rows = sum(pattern.to(DType::i64)).item<int64_t>();
    if (rows < least_rows) return;
    lines.push_back({std::move(name), rows, attention_share(mean, pattern).to_vector<double>()});
  };
  for (int64_t offset = 1 - queries; offset < keys; ++offset)
    add(diagonal_name(offset, cross), diagonal_pattern(queries, keys, offset), least);
  for (int64_t place = 0; place < queries + keys - 1; ++place)
    add(concat("mirror ", place), mirror_pattern(queries, keys, place), least);
  add("first", key_pattern(queries, keys, 0), 1);
  if (keys > 1) add("last", key_pattern(queries, keys, keys - 1), 1);
  return lines;
}

// Where no line has its half.
HeadRole diffuse_role(double evenness, double place, double symbol) {
  if (evenness >= kEven) return {"even", evenness};
  if (std::max(place, symbol) < kExplained) return {"mixed", std::max(place, symbol)};
  return place >= symbol ? HeadRole{"by place", place} : HeadRole{"by symbol", symbol};
}

}  // namespace

std::vector<MultiHeadAttention*> attentions(Module& module) { return AttentionFinder(module).found; }

HeadAblation::HeadAblation(const std::vector<Head>& heads) {
  for (const Head& head : heads) {
    const int64_t count = head.attention->layout.heads;
    HEED_CHECK(head.number >= 0 && head.number < count, IndexError, "HeadAblation: there is no head ",
               head.number, "; the attention has heads 0 to ", count - 1);
  }
  for (const auto& [attention, number] : heads) {
    Tensor& mask = attention->head_mask;
    before_.emplace_back(attention, mask);
    const Tensor kept =
        not_equal(arange(0, attention->layout.heads), static_cast<double>(number)).to(DType::f32);
    mask = mask.defined() ? mask * kept.to(mask.device()) : kept;
  }
}

HeadAblation::~HeadAblation() {
  for (auto it = before_.rbegin(); it != before_.rend(); ++it) it->first->head_mask = it->second;
}

std::vector<HeadRole> head_roles(const Tensor& weights, const Tensor& query_ids, const Tensor& key_ids,
                                 const HeadRoleOptions& options) {
  const NoGrad no_grad;
  const std::vector<double> place = explained_by_place(weights).to_vector<double>(),
                            symbol =
                                query_ids.defined()
                                    ? explained_by_symbols(weights, query_ids, key_ids).to_vector<double>()
                                    : std::vector<double>(place.size(), 0);
  const Tensor maps = mean(weights.detach().to(kCpu).to(DType::f64), {.axes = {0}});
  const Tensor visible = maximum(sum(greater(max(maps, {.axes = {0}}), 0).to(DType::f64), {.axes = {1}}), 1);
  const double most = mean(log(visible)).item<double>() / std::log(2.0);
  const std::vector<double> entropy = mean(attention_entropy(weights), {.axes = {0, 2}}).to_vector<double>();
  const std::vector<MapLine> lines = lines_through(maps, options.cross);

  std::vector<HeadRole> roles;
  for (size_t h = 0; h < place.size(); ++h) {
    std::vector<const MapLine*> strong;
    for (const MapLine& line : lines)
      if (line.shares[h] >= kLineShare) strong.push_back(&line);
    std::stable_sort(strong.begin(), strong.end(), [h](const MapLine* a, const MapLine* b) {
      return a->shares[h] * static_cast<double>(a->rows) > b->shares[h] * static_cast<double>(b->rows);
    });
    if (strong.empty()) {
      roles.push_back(diffuse_role(most > 0 ? entropy[h] / most : 1, place[h], symbol[h]));
      continue;
    }
    HeadRole role{strong.front()->name, strong.front()->shares[h]};
    for (size_t i = 1; i < strong.size(); ++i) role.name += concat(", ", strong[i]->name);
    roles.push_back(std::move(role));
  }
  return roles;
}

}  // namespace heed::nn

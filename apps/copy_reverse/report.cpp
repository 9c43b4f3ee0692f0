#include "apps/copy_reverse/report.h"

#include <cmath>

#include <heed/nn/summary.h>
#include <heed/version.h>

#include "apps/common/report/report.h"
#include "apps/copy_reverse/figures.h"

namespace heed::apps {
namespace {

constexpr int64_t kMaxWeights = 300'000;  // in a report, about 2 MB

Json texts(const data::Task& task, std::span<const int64_t> symbols) {
  Json list = Json::array();
  for (const int64_t symbol : symbols) list.push_back(task.text(symbol));
  return list;
}

Json to_json(const data::Task& task, const Prediction& p) {
  return {{"source", texts(task, p.pair.source)},
          {"target", texts(task, p.pair.target)},
          {"output", texts(task, p.output.tokens)},
          {"finished", p.output.finished},
          {"right", p.right}};
}

Json to_json(const data::Task& task, const std::vector<Prediction>& predictions) {
  Json list = Json::array();
  for (const Prediction& p : predictions) list.push_back(to_json(task, p));
  return list;
}

Json to_json(const std::vector<StepPoint>& points) {
  Json list = Json::array();
  for (const StepPoint& p : points) list.push_back(Json::array({p.step, p.loss, p.lr, p.grad_norm}));
  return list;
}

// [heads][queries][keys], four digits.
Json to_json(const Tensor& weights) {
  const std::vector<float> values = weights.to_vector<float>();
  size_t at = 0;
  Json heads = Json::array();
  for (int64_t h = 0; h < weights.size(0); ++h) {
    Json rows = Json::array();
    for (int64_t q = 0; q < weights.size(1); ++q) {
      Json row = Json::array();
      for (int64_t k = 0; k < weights.size(2); ++k)
        row.push_back(std::round(1e4 * static_cast<double>(values[at++])) / 1e4);
      rows.push_back(std::move(row));
    }
    heads.push_back(std::move(rows));
  }
  return heads;
}

Json attention_of(const AttentionMaps& maps, const std::string& title) {
  const auto kind = [&](const char* name, AttentionKind which, const std::vector<std::string>& queries,
                        const std::vector<std::string>& keys) {
    Json layers = Json::array();
    for (const AttentionMaps::Map* map : maps.of(which)) layers.push_back(to_json(map->weights));
    return Json{{"name", name}, {"queries", queries}, {"keys", keys}, {"layers", std::move(layers)}};
  };
  Json kinds = Json::array();
  for (Json& k : std::vector<Json>{
           kind("decoder on source", AttentionKind::cross, maps.target_tokens, maps.source_tokens),
           kind("decoder", AttentionKind::target, maps.target_tokens, maps.target_tokens),
           kind("encoder", AttentionKind::source, maps.source_tokens, maps.source_tokens)})
    if (!k.at("layers").empty()) kinds.push_back(std::move(k));
  return {{"title", title}, {"kinds", std::move(kinds)}};
}

Json attention_examples(nn::Seq2SeqModel& model, const TrainedRun& run) {
  Json list = Json::array();
  int64_t left = kMaxWeights;
  const auto show = [&](const Prediction& p) {
    left -= count_weights(run.settings, std::ssize(p.pair.source), std::ssize(p.output.tokens));
    if (left < 0) return;
    const data::Marks marks = run.settings.marks();
    const data::Task task = run.settings.task_rule();
    if (p.output.tokens.empty() && !marks.end) return;
    const AttentionMaps maps = attention_maps(model, p.pair.source, p.output.tokens, marks, task);
    Json one = attention_of(maps, concat(task.text(p.pair.source), p.right ? " \u2713" : " \u2717"));
    if (!one.at("kinds").empty()) list.push_back(std::move(one));
  };
  if (!run.examples.empty()) show(run.examples.front());
  if (!run.result) return list;
  for (const Prediction& p : run.result->failures)
    if (run.examples.empty() || p.pair != run.examples.front().pair) return show(p), list;
  return list;
}

}  // namespace

Json to_json(const Evaluation& e) {
  return {{"loss", e.loss},
          {"token_accuracy", e.token_accuracy},
          {"sequence_accuracy", e.sequence_accuracy},
          {"pairs", e.pairs}};
}

void write_run_report(nn::Seq2SeqModel& model, const TrainedRun& run) {
  const Settings& s = run.settings;
  Json settings = Json::array(), components = Json::array(), parameters = Json::array();
  const Json all = Json::parse(run.settings_json);
  for (const auto& [name, value] : all.items())
    settings.push_back(Json::array({name, value.is_string() ? value.get<std::string>() : value.dump()}));
  if (!s.data.empty()) settings.push_back(Json::array({"data", s.data.string()}));
  for (const nn::ComponentCount& c : nn::count_parameters(model))
    components.push_back(Json::array({c.name, c.parameters}));
  for (const Parameter& p : model.parameters())
    parameters.push_back(Json::array({p.name, concat(p.tensor.shape()), p.tensor.numel()}));
  const std::string task = s.data.empty() ? s.task : s.data.filename().string();
  write_report(s.out / "report.html",
               {{"title", concat("Training report: ", task)},
                {"subtitle", concat("heed ", HEED_VERSION, ", seed ", s.seed, ", ",
                                    run.metrics.epochs().size(), " epochs, ", model.describe())},
                {"result", run.result ? to_json(*run.result) : Json()},
                {"epochs", run.metrics.epochs()},
                {"steps", to_json(run.metrics.steps())},
                {"settings", settings},
                {"components", components},
                {"parameters", parameters},
                {"attention", attention_examples(model, run)},
                {"examples", to_json(s.task_rule(), run.examples)},
                {"failures", run.result ? to_json(s.task_rule(), run.result->failures) : Json::array()}});
}

}  // namespace heed::apps

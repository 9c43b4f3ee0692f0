// The commands that use a trained model: eval, decode, logits, attention, info.
#include <cstdio>

#include <heed/core/ops.h>
#include <heed/core/serialize.h>
#include <heed/nn/inspection.h>
#include <heed/nn/parameter.h>
#include <heed/nn/summary.h>

#include "apps/common/json_lines.h"
#include "apps/common/options/option_values.h"
#include "apps/common/program.h"
#include "apps/common/progress.h"
#include "apps/common/seq2seq.h"
#include "apps/common/text.h"
#include "apps/copy_reverse/commands.h"
#include "apps/copy_reverse/figures.h"
#include "apps/copy_reverse/report.h"
#include "apps/copy_reverse/trained.h"

namespace heed::apps {
namespace {

void print(const Json& object, bool json, const std::string& text) {
  if (json)
    JsonLines().write(object);
  else
    std::printf("%s\n", text.c_str());
}

std::string percent(double share) { return fixed_text(100 * share, 2) + " %"; }

}  // namespace

Evaluation evaluate_with_progress(nn::Seq2SeqModel& model, const data::PairDataset& dataset,
                                  EvaluationOptions options) {
  Progress progress("evaluating", dataset.size(), "pairs");
  options.on_batch = [&](int64_t pairs) { progress.advance(pairs); };
  return evaluate(model, dataset, options);
}

void evaluate_model(const EvalSettings& s) {
  Trained trained = open_model(s);
  use_pairs(trained.settings, s);
  const auto pairs = pairs_of(s, trained);
  const Evaluation e = evaluate_with_progress(
      *trained.model, *pairs, {.marks = trained.marks(), .max_decode_length = s.max_decode_length});
  print(to_json(e), s.json,
        concat("loss ", e.loss, "  tokens ", percent(e.token_accuracy), "  whole sequences ",
               percent(e.sequence_accuracy), " of ", e.pairs));
}

void decode(const DecodeSettings& s) {
  const Trained trained = open_model(s);
  const data::Task task = trained.settings.task_rule();
  std::vector<data::Pair> pairs;
  for (const std::string& text : s.sources)
    pairs.push_back(pair_of(task.symbols(text, trained.settings.vocab), trained.settings));
  if (!s.data.empty() || pairs.empty()) {
    const auto dataset = pairs_of(s, trained);
    for (int64_t i = 0; i < dataset->size(); ++i) pairs.push_back(dataset->get(0, i));
  }
  constexpr size_t kBatch = 256;
  for (size_t first = 0; first < pairs.size(); first += kBatch) {
    const std::vector<data::Pair> part(
        pairs.begin() + static_cast<int64_t>(first),
        pairs.begin() + static_cast<int64_t>(std::min(first + kBatch, pairs.size())));
    int64_t longest = 0;
    for (const data::Pair& pair : part) longest = std::max(longest, static_cast<int64_t>(pair.source.size()));
    const nn::DecodeOptions options{
        .max_length = longest_output(s.max_decode_length, longest, *trained.model),
        .beam = s.beam,
        .length_penalty = s.length_penalty,
        .on_step = throw_if_stopped};
    const std::vector<int64_t> numbers(part.size());
    const train::Seq2SeqBatch batch =
        train::to_tensors(data::pack(part, numbers, trained.marks()), trained.device);
    std::vector<nn::Hypothesis> outputs;
    for (auto& hypotheses :
         nn::beam_search(*trained.model, batch.source, search_for(part, trained.marks(), options)))
      outputs.push_back(std::move(hypotheses.front()));
    for (const auto& [pair, best, right] : grade(outputs, part, trained.marks())) {
      print({{"source", pair.source},
             {"output", best.tokens},
             {"score", best.score},
             {"finished", best.finished}},
            s.json,
            concat(task.text(pair.source), "  ->  ", task.text(best.tokens),
                   best.finished || !trained.marks().end ? "" : " …"));
    }
  }
}

void logits(const LogitsSettings& s) {
  const Trained trained = open_model(s);
  const auto pairs = pairs_of(s, trained);
  HEED_CHECK(s.data.empty() || s.out != s.data, ConfigError, "--out and --data are the same file");
  const NoGrad no_grad;
  std::vector<Tensor> parts;
  for (int64_t first = 0; first < pairs->size(); first += 256) {
    throw_if_stopped();
    std::vector<data::Pair> part;
    for (int64_t i = first; i < std::min(first + 256, pairs->size()); ++i) part.push_back(pairs->get(0, i));
    const std::vector<int64_t> numbers(part.size());
    const train::Seq2SeqBatch batch =
        train::to_tensors(data::pack(part, numbers, trained.marks()), trained.device);
    parts.push_back(trained.model->forward(batch.source, batch.target).to(DType::f32));
    nn::check_finite(parts.back(), "the logits");
  }
  const Tensor all = cat(parts, 0);
  save_tensors(s.out, {{"logits", all}});
  print({{"file", s.out.string()}, {"rows", all.size(0)}, {"vocab", all.size(1)}}, s.json,
        concat(printable(s.out.string()), ": ", all.shape()));
}

void attention(const AttentionSettings& s) {
  const Trained trained = open_model(s);
  const int64_t vocab = trained.settings.vocab;
  const data::Task task = trained.settings.task_rule();
  const data::TokenIds source = task.symbols(s.input, vocab);
  data::TokenIds target;
  if (s.target.empty()) {
    const nn::DecodeOptions decode{.max_length = longest_output(0, std::ssize(source), *trained.model),
                                   .on_step = throw_if_stopped};
    const nn::Hypothesis output =
        predict(*trained.model, {pair_of(source, trained.settings)}, trained.marks(), decode).front().output;
    target.assign(output.tokens.begin(), output.tokens.end());
  } else {
    target = task.symbols(s.target, vocab);
    trained.settings.check_lengths(std::ssize(source), std::ssize(target));
  }
  const std::filesystem::path out = s.out.empty() ? s.model : s.out;
  constexpr int64_t kMaxWeights = int64_t{1} << 26;  // 256 MiB
  const int64_t weights = count_weights(trained.settings, std::ssize(source), std::ssize(target));
  const AttentionMaps maps = attention_maps(*trained.model, source, target, trained.marks(), task,
                                            weights <= kMaxWeights ? MapSize::whole : MapSize::drawable);
  NamedTensors tensors;
  for (const AttentionMaps::Map& map : maps.maps) tensors.emplace_back(map.name, map.weights);
  throw_if_stopped();
  const std::vector<Figure> figures = save_attention_figures(maps, out, s.layer, s.head);
  save_tensors(out / "attention.safetensors", tensors);
  Json files = Json::array({(out / "attention.safetensors").string()});
  std::string text = concat("source ", task.text(source), "\noutput ", task.text(target), "\n  ",
                            printable((out / "attention.safetensors").string()));
  if (maps.source_block > 1 || maps.target_block > 1)
    text += concat(": the largest weight of each ", maps.source_block, " source by ", maps.target_block,
                   " target symbols, as in the figures; whole maps would take ", weights / (1 << 18), " MiB");
  for (const Figure& figure : figures) {
    if (!figure.drawn) text += concat("\n", figure.message);
    for (const auto& file : figure.files) {
      files.push_back(file.string());
      text += concat("\n  ", printable(file.string()));
    }
  }
  print({{"source", source},
         {"output", target},
         {"source_block", maps.source_block},
         {"target_block", maps.target_block},
         {"files", files}},
        s.json, text);
}

void info(const InfoSettings& s, const Settings& fresh) {
  std::error_code ignored;
  const bool trained = std::filesystem::exists(s.model / "config.toml", ignored);
  const Settings settings = trained ? load_settings(s.model) : fresh;
  apply(s);
  const nn::ShapesOnly shapes_only;
  const std::unique_ptr<nn::Seq2SeqModel> made = blank_model(settings);
  nn::Seq2SeqModel& model = *made;
  Json components = Json::object();
  int64_t parameters = 0;
  for (const nn::ComponentCount& count : nn::count_parameters(model)) {
    components[count.name] = count.parameters;
    parameters += count.parameters;
  }
  const int64_t length = settings.max_length + 2,
                attention_flops = nn::attention_flops_per_token(settings.model_config(), length);
  const bool counted = settings.model == SequenceModel::transformer;
  if (s.json) {
    Json object{{"parameters", parameters}, {"components", components}, {"bytes", parameters * 4}};
    if (counted) {
      object["flops_per_token"] = nn::flops_per_token(settings.model_config());
      object["attention_flops_per_token"] = attention_flops;
    }
    JsonLines().write(object);
    return;
  }
  if (s.tree) std::printf("%s\n", nn::module_tree(model).c_str());
  std::printf("%s\n", nn::parameter_table(model).c_str());
  std::printf("%s\n", nn::component_table(model).c_str());
  std::printf("weights %s MB in f32; training keeps four times that\n",
              fixed_text(4e-6 * static_cast<double>(parameters), 2).c_str());
  if (!counted) return;
  const auto millions = [](int64_t flops) { return fixed_text(1e-6 * static_cast<double>(flops), 2); };
  std::printf(
      "about %s million floating-point operations a token, forward, and %s in attention itself at %s "
      "tokens\n",
      millions(nn::flops_per_token(settings.model_config())).c_str(), millions(attention_flops).c_str(),
      std::to_string(length).c_str());
}

}  // namespace heed::apps

// The commands that use a trained model: eval, run, info.
#include <cstdio>

#include <heed/core/io/atomic_file.h>
#include <heed/nn/summary.h>

#include "apps/common/json_lines.h"
#include "apps/common/lines.h"
#include "apps/common/program.h"
#include "apps/common/progress.h"
#include "apps/common/text.h"
#include "apps/translate/commands.h"
#include "apps/translate/corpus.h"
#include "apps/translate/train_output.h"

namespace heed::apps {
namespace {

void print(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

/// Texts that one model of an ensemble was trained on would flatter all.
void check_same_split(const EvalSettings& s, const Settings& first) {
  for (size_t i = 1; i < s.models.size(); ++i) {
    const std::string& folder = s.models[i];
    const Settings other = load_settings(folder);
    HEED_CHECK(other.valid_share == first.valid_share && other.test_share == first.test_share, ConfigError,
               folder, " was trained with --valid-share ", other.valid_share, " and --test-share ",
               other.test_share, ", ", s.models.front(), " with ", first.valid_share, " and ",
               first.test_share,
               ": the one learned from the other's test; give texts new to both, with --part all");
  }
}

/// `trained`: the settings of the first model.
data::TextPairs pairs_of(const EvalSettings& s, Settings trained) {
  if (s.part != Part::all) check_same_split(s, trained);
  trained.data = {s.data.string()};
  if (s.part == Part::all) trained.valid_share = trained.test_share = 0;
  data::TextPairs pairs;
  data::TextSplits splits;
  if (s.part == Part::all) {
    pairs = read_pairs(s.data, trained);
    data::filter(pairs, {.duplicates = false});
  } else {
    splits = read_corpus(trained).splits;
    pairs = s.part == Part::train ? splits.train : s.part == Part::valid ? splits.valid : splits.test;
  }
  HEED_CHECK(pairs.size() > 0, DataError, s.data.string(), " has no pair in that part");
  return pairs;
}

using Alignments = std::vector<nn::TextAlignment>;  // of each output, or none

Json result_of(const std::string& source, const std::vector<nn::TextOutput>& outputs,
               const Alignments& alignments) {
  Json list = Json::array();
  for (size_t n = 0; n < outputs.size(); ++n) {
    const nn::TextOutput& o = outputs[n];
    list.push_back({{"text", o.text}, {"score", o.score}, {"finished", o.finished}});
    if (!alignments.empty()) list.back()["alignment"] = to_json(alignments[n]);
  }
  return {{"source", source}, {"outputs", list}};
}

/// "0-1 1-0": each output word behind the source word that it attends to most, from 0, as aligners write it.
std::string to_text(const nn::TextAlignment& a) {
  std::string text;
  for (int64_t o = 0; !a.weights.empty() && o < std::ssize(a.output); ++o)
    text += concat(o > 0 ? " " : "", a.source_of(o), "-", o);
  return text;
}

/// Prints what becomes of texts; `named` says which text an output is of.
class Runner {
 public:
  Runner(const TextSettings& settings, bool named)
      : settings_(settings), named_(named), model_(load_model(settings)) {}

  void operator()(const std::vector<std::string>& texts) const {
    const auto outputs = model_.run(texts, settings_.options());
    for (size_t i = 0; i < texts.size(); ++i) show(texts[i], outputs[i]);
    std::fflush(stdout);
  }

 private:
  Alignments alignments(const std::string& source, const std::vector<nn::TextOutput>& outputs) const {
    if (!settings_.alignment) return {};
    std::vector<std::vector<int64_t>> tokens;
    for (const nn::TextOutput& o : outputs) tokens.push_back(o.tokens);
    return nn::align(model_, std::vector<std::string>(tokens.size(), source), tokens);
  }

  void show(const std::string& source, const std::vector<nn::TextOutput>& outputs) const {
    const Alignments aligned = alignments(source, outputs);
    if (settings_.json) return JsonLines().write(result_of(source, outputs, aligned));
    for (size_t n = 0; n < outputs.size(); ++n) {
      const nn::TextOutput& o = outputs[n];
      std::string line = named_ ? concat(printable(source), "  ->  ") : std::string();
      if (settings_.best > 1) line += concat(fixed_text(o.score, 3), "  ");
      line += printable(o.text);
      if (!o.finished) line += " …";
      if (!aligned.empty()) line += concat("\t", to_text(aligned[n]));
      std::printf("%s\n", line.c_str());
    }
  }

  const TextSettings& settings_;
  bool named_;
  nn::TextModel model_;
};

/// Lines are run as they come where a person types them, else many together.
void run_lines(const TextSettings& s) {
  LineReader reader(s.input);
  const bool typed = reader.typed();
  const Runner runner(s, typed);
  const size_t together = typed ? 1 : 2048;
  std::vector<std::string> texts;
  std::string line;
  const auto prompt = [&] {
    if (typed) std::fputs("> ", stderr);
  };
  for (prompt(); reader.next(line); prompt()) {
    texts.push_back(line);
    if (texts.size() < together) continue;
    runner(texts);
    texts.clear();
  }
  if (!texts.empty()) runner(texts);
  if (typed) std::fputs("\n", stderr);
}

}  // namespace

nn::TextModel load_model(const UseSettings& s) { return nn::load_text_ensemble(s.models, apply(s)); }

nn::TextOptions SearchSettings::options(int64_t best) const {
  return {.beam = std::max(beam, best),
          .best = best,
          .length_penalty = length_penalty,
          .max_length = max_length,
          .batch_tokens = batch_tokens,
          .on_step = throw_if_stopped};
}

nn::TextOptions TextSettings::options() const {
  nn::TextOptions result = SearchSettings::options(best);
  result.min_length = min_length;
  result.prefix = prefix;
  if (!samples()) return result;
  result.beam = best;
  result.sample = SampleOptions{.temperature = temperature.value_or(1), .top_k = top_k, .top_p = top_p};
  return result;
}

TextEvaluation evaluate_with_progress(const nn::TextModel& model, const std::vector<Example>& examples,
                                      nn::TextOptions options, size_t keep_failures) {
  Progress progress("evaluating", std::ssize(examples), "texts");
  options.on_step = throw_if_stopped;
  options.on_batch = [&](int64_t texts) { progress.advance(texts); };
  return evaluate_texts(model, examples, options, keep_failures);
}

void evaluate_model(const EvalSettings& s) {
  HEED_CHECK(!s.data.empty(), ConfigError,
             "eval needs pairs: give the file of the training, or another, with --data");
  const nn::TextModel model = load_model(s);
  const Settings trained = load_settings(s.models.front());
  const TextEvaluation result = evaluate_with_progress(model, group_by_source(pairs_of(s, trained)),
                                                       s.options(), static_cast<size_t>(s.failures));
  if (s.json) return JsonLines().write(to_json(result));
  print(describe(result, trained.format));
  for (const Judged& f : result.failures)
    print(concat("  ", shorten(f.example.source, 40), "  ->  ", shorten(f.output, 60), "   should be  ",
                 shorten(f.example.references.front(), 60)));
}

void run_model(const TextSettings& s) {
  HEED_CHECK(s.texts.empty() || s.input.empty(), ConfigError,
             "texts come from the arguments or from --input, not both");
  if (!s.texts.empty()) return Runner(s, true)(s.texts);
  run_lines(s);
}

void info(const InfoSettings& s) {
  const nn::TextModel model = nn::load_text_model(s.model.string(), apply(s));
  const auto side = [](const data::Tokenizer& t) {
    const data::TokenizerOptions& o = t.options();
    return Json{{"tokenizer", data::name(o.kind)},
                {"vocab", t.vocab()},
                {"normalization", data::name(o.normalization)},
                {"lowercase", o.lowercase}};
  };
  const int64_t parameters = model.model().parameters().numel();
  if (s.json)
    return JsonLines().write({{"parameters", parameters},
                              {"source", side(model.source())},
                              {"target", side(model.target())},
                              {"max_output", model.max_output()},
                              {"flops_per_token", nn::flops_per_token(model.model().config())}});
  if (s.tree) print(nn::module_tree(model.model()));
  print(nn::component_table(model.model()));
  for (const auto& [name, t] : {std::pair("source", &model.source()), std::pair("target", &model.target())})
    print(concat(name, ": ", t->vocab(), " ids, ", data::name(t->options().kind), ", ",
                 data::name(t->options().normalization), t->options().lowercase ? ", small letters" : ""));
  print(concat("outputs of at most ", model.max_output(), " tokens"));
}

}  // namespace heed::apps

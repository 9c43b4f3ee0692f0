// Labels of texts, by a classifier that `train` made.
#include <heed/core/ops.h>

#include "apps/common/console.h"
#include "apps/common/json_lines.h"
#include "apps/common/program.h"
#include "apps/common/text.h"
#include "apps/embed/commands.h"

namespace heed::apps {
namespace {

void report_accuracy(const ClassifySettings& s, const nn::TextClassifier& classifier) {
  const LabeledTexts test = labeled_texts(data::read_text_pairs(s.data.string()), s.label);
  const double part = accuracy(classifier, test);
  if (s.json) return JsonLines().write({{"accuracy", part}, {"texts", test.texts.size()}});
  write_out(concat(fixed_text(100 * part, 2), " % of ", grouped(std::ssize(test.texts)), " are right\n"));
}

void print_label(const ClassifySettings& s, const nn::TextClassifier& classifier, const std::string& text,
                 const Tensor& row) {
  const std::vector<std::string>& labels = classifier.labels();
  const auto best = static_cast<size_t>(argmax(row, 0).item<int64_t>());
  const auto probability = [&](size_t i) { return row.select(0, static_cast<int64_t>(i)).item<double>(); };
  if (!s.json)
    return write_out(concat(printable(labels[best]), "  ", fixed_text(probability(best), 3), "  ",
                            shorten(text, 100), "\n"));
  Json all = Json::object();
  for (size_t i = 0; i < labels.size(); ++i) all[labels[i]] = probability(i);
  JsonLines().write({{"text", text}, {"label", labels[best]}, {"probabilities", std::move(all)}});
}

}  // namespace

void classify(const ClassifySettings& s) {
  const int sources = !s.texts.empty() + !s.input.empty() + !s.data.empty();
  HEED_CHECK(sources <= 1, ConfigError, "texts come from the arguments, from --input or from --data");
  const Device device = apply(s);
  check_model(s.model);
  HEED_CHECK(std::filesystem::exists(s.model / "classifier.json"), ConfigError, s.model.string(),
             " has no classifier.json: embed train --task labels makes a classifier");
  const auto classifier = nn::load_text_classifier(s.model.string(), device, s.dtype);
  if (!s.data.empty()) return report_accuracy(s, *classifier);
  const std::vector<std::string> texts = s.texts.empty() ? read_lines(s.input) : s.texts;
  const Tensor probabilities =
      classifier->probabilities(texts, {.on_batch = [](int64_t) { throw_if_stopped(); }});
  for (size_t i = 0; i < texts.size(); ++i)
    print_label(s, *classifier, texts[i], probabilities.select(0, static_cast<int64_t>(i)));
}

}  // namespace heed::apps

// The commands that use a trained model: eval, predict.
#include <cstdio>

#include "apps/common/console.h"
#include "apps/common/figures/presentation.h"
#include "apps/vit/commands.h"

namespace heed::apps {
namespace {

// Of a text that names a picture of the file, counted from 0.
int64_t picture_number(const std::string& text, int64_t count) {
  const std::optional<int64_t> number = parse_integer(text);
  HEED_CHECK(number && *number >= 0 && *number < count, ConfigError, "'", text,
             "' is no picture of the file, whose numbers are 0 to ", count - 1);
  return *number;
}

// Some pictures of a data set.
class Chosen final : public data::ImageDataset {
 public:
  Chosen(const data::ImageDataset& all, std::vector<int64_t> numbers)
      : all_(all), numbers_(std::move(numbers)) {}
  int64_t size() const override { return std::ssize(numbers_); }
  data::LabeledImage get(int64_t epoch, int64_t index) const override {
    return all_.get(epoch, numbers_[static_cast<size_t>(index)]);
  }
  std::string fingerprint() const override { return all_.fingerprint(); }
  data::ImageSize image_size() const override { return all_.image_size(); }
  int64_t classes() const override { return all_.classes(); }

 private:
  const data::ImageDataset& all_;
  std::vector<int64_t> numbers_;
};

std::vector<int64_t> test_numbers(const Trained& trained) {
  const data::EveryNth test(trained.pictures, trained.settings.test_every, false);
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < test.size(); ++i) numbers.push_back(test.number(i));
  return numbers;
}

}  // namespace

Trained open_model(const ModelSettings& s) {
  Settings settings = load_settings(s.model);
  const Device device = apply(s);
  settings.data = s.data;
  settings.labels = s.labels;
  const auto images = read_pictures(settings);
  Classifier classifier = load_classifier(settings, images->image_size(), s.model, device);
  settings.take_from(*images);
  auto pictures = std::make_shared<data::TransformedImages>(
      images, data::ImageTransform{.white = static_cast<float>(*settings.white)});
  return {std::move(settings), std::move(pictures), std::move(classifier), device};
}

void evaluate(const EvalSettings& s) {
  const Trained trained = open_model(s);
  std::vector<int64_t> numbers;
  if (s.all)
    for (int64_t i = 0; i < trained.pictures->size(); ++i) numbers.push_back(i);
  else
    numbers = test_numbers(trained);
  const Judgement result = grade(trained.classifier, Chosen(*trained.pictures, numbers));

  Presentation presentation(s.json, {});
  presentation.line(concat("loss ", fixed_text(result.loss, 4), "  right ",
                           fixed_text(100 * result.accuracy(), 2), " %: ", result.right(), " of ",
                           result.pictures.size()));
  presentation.value("loss", result.loss);
  presentation.value("accuracy", result.accuracy());
  presentation.value("right", result.right());
  presentation.value("pictures", result.pictures.size());
  Table wrong{{{"picture"}, {"is"}, {"taken for"}, {"probability", "{:.2f}"}}, {}};
  for (size_t i = 0; i < result.pictures.size(); ++i) {
    const Judged& p = result.pictures[i];
    if (p.label != p.predicted) wrong.rows.push_back({numbers[i], p.label, p.predicted, p.probability});
  }
  if (!wrong.rows.empty()) presentation.table("wrong", wrong);
  presentation.finish();
}

void predict(const PredictSettings& s) {
  const Trained trained = open_model(s);
  std::vector<int64_t> numbers;
  for (const std::string& text : s.numbers) numbers.push_back(picture_number(text, trained.pictures->size()));
  if (numbers.empty()) {
    numbers = test_numbers(trained);
    numbers.resize(std::min<size_t>(numbers.size(), 10));
  }
  const Judgement result = grade(trained.classifier, Chosen(*trained.pictures, numbers));
  Presentation presentation(s.json, {});
  Table table{{{"picture"}, {"is"}, {"predicted"}, {"probability", "{:.4f}"}}, {}};
  for (size_t i = 0; i < numbers.size(); ++i) {
    const Judged& p = result.pictures[i];
    table.rows.push_back({numbers[i], p.label, p.predicted, p.probability});
  }
  presentation.table("pictures", table);
  presentation.finish();
}

}  // namespace heed::apps

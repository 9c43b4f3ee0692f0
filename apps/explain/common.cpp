#include "apps/explain/common.h"

#include <heed/core/ops.h>

#include "apps/common/text.h"

namespace heed::apps {

Presentation present(const ExplainSettings& settings) {
  const Device device = apply(settings);
  HEED_CHECK(device == kCpu, DeviceError, "--device ", settings.device,
             ": explain computes in f64, which only the CPU does");
  return Presentation(settings.json, settings.no_figures ? "" : settings.out);
}

std::vector<std::string> split_words(const std::string& sentence) {
  constexpr size_t kMaxWords = 32;
  std::vector<std::string> words;
  const std::string space = " \t\n";
  for (size_t at = sentence.find_first_not_of(space); at != std::string::npos;
       at = sentence.find_first_not_of(space, at)) {
    const size_t end = std::min(sentence.find_first_of(space, at), sentence.size());
    words.push_back(sentence.substr(at, end - at));
    at = end;
  }
  HEED_CHECK(!words.empty() && words.size() <= kMaxWords, DataError, "the sentence '", printable(sentence),
             "' has ", words.size(), " words; expected 1 to ", kMaxWords);
  return words;
}

std::vector<std::string> numbers_as_text(int64_t count) {
  std::vector<std::string> texts;
  for (int64_t i = 0; i < count; ++i) texts.push_back(std::to_string(i));
  return texts;
}

Tensor normal_numbers(const Shape& shape, Generator& generator) {
  return randn(shape, {.dtype = DType::f64}, generator);
}

double largest_difference(const Tensor& a, const Tensor& b) {
  const NoGrad no_grad;
  return max(abs(a.detach() - b.detach())).item<double>();
}

double largest_difference(const Tensor& a, double b) {
  const NoGrad no_grad;
  return max(abs(a.detach() - b)).item<double>();
}

void Shapes::add(const std::string& what, const Shape& shape, const Shape& expected) {
  HEED_CHECK(shape == expected, ShapeError, what, " has shape ", shape, "; expected ", expected);
  table_.rows.push_back({what, concat(shape), concat(expected), "✓"});
}

Heatmap attention_map(const std::string& title, const Tensor& weights, const std::vector<std::string>& words,
                      int decimals) {
  Heatmap map;
  map.title = title;
  map.values = to_matrix(weights);
  map.row_labels = map.column_labels = words;
  map.range = std::pair(0.0, 1.0);
  map.decimals = decimals;
  map.zeros_are_hidden = true;
  return map;
}

}  // namespace heed::apps

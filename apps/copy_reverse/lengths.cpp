// Trained models at each of several lengths of the source, beside each other.
#include <fmt/format.h>

#include <heed/core/io/atomic_file.h>

#include "apps/common/figures/presentation.h"
#include "apps/common/options/option_values.h"
#include "apps/common/progress.h"
#include "apps/copy_reverse/commands.h"

namespace heed::apps {
namespace {

constexpr IntegerRange kLength{1, 1 << 16};

std::string name_of(const std::filesystem::path& model) {
  const std::filesystem::path last = model.filename();
  return (last.empty() ? model.parent_path().filename() : last).string();
}

}  // namespace

std::vector<int64_t> parse_lengths(const std::string& text) {
  std::vector<int64_t> lengths;
  for (const std::string& part : parse_list(text)) {
    const std::optional<int64_t> length = parse_integer(part);
    HEED_CHECK(length && contains(kLength, *length), ConfigError, "'", part, "' is no length: expected ",
               describe(kLength));
    lengths.push_back(*length);
  }
  HEED_CHECK(!lengths.empty(), ConfigError, "there are no lengths");
  return lengths;
}

void compare_lengths(const LengthsSettings& s) {
  HEED_CHECK(!s.models.empty(), ConfigError, "name the folders of trained models");
  const std::vector<int64_t> lengths = parse_lengths(s.lengths);
  const Device device = apply(s);
  Presentation presentation(s.json, s.out);
  Table table{{{"Model"}}, {}};
  for (const int64_t length : lengths) table.columns.push_back({std::to_string(length), "{:.1f}"});
  LinePlot plot{"Whole sequences right", "Symbols in the source", "%", {}};
  std::string csv = "model,length,pairs,token_accuracy,sequence_accuracy\n";
  Progress progress("evaluating", std::ssize(s.models) * std::ssize(lengths) * s.pairs, "pairs");
  for (const std::string& folder : s.models) {
    Settings settings = load_settings(folder);
    const auto model = load_model(settings, folder, device);
    Line line{name_of(folder), {}, {}};
    table.rows.push_back({line.name});
    settings.valid_pairs = s.pairs;
    for (const int64_t length : lengths) {
      settings.min_length = settings.max_length = length;
      const auto pairs = settings.validation_data();
      HEED_CHECK(pairs, ConfigError, folder, " was trained on a file: its pairs have no given length");
      settings.check_lengths(*pairs);
      const Evaluation e =
          evaluate(*model, *pairs,
                   {.marks = settings.marks(), .on_batch = [&](int64_t count) { progress.advance(count); }});
      line.x.push_back(static_cast<double>(length));
      line.y.push_back(100 * e.sequence_accuracy);
      table.rows.back().push_back(line.y.back());
      csv +=
          fmt::format("{},{},{},{},{}\n", line.name, length, e.pairs, e.token_accuracy, e.sequence_accuracy);
    }
    plot.lines.push_back(std::move(line));
  }
  progress.finish();
  presentation.table("models", table);
  std::filesystem::create_directories(s.out);
  write_whole_file(s.out / "lengths.csv", csv);
  presentation.figure(plot, "lengths");
  presentation.finish();
}

}  // namespace heed::apps

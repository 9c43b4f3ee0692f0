#include "apps/embed/searcher.h"

#include <cstdio>

#include "apps/common/program.h"
#include "apps/common/progress.h"
#include "apps/common/text.h"

namespace heed::apps {
namespace {

std::filesystem::path folder_of(const SearchSettings& s) {
  HEED_CHECK(!s.words.empty(), ConfigError, "there is no folder: embed search FOLDER \"question\"");
  HEED_CHECK(std::filesystem::is_directory(s.words[0]), DataError, s.words[0], " is no folder");
  return s.words[0];
}

}  // namespace

Json to_json(const Answer& a) {
  return {{"score", a.score},
          {"file", a.file},
          {"line", a.best.line},
          {"first_line", a.place.first_line},
          {"last_line", a.place.last_line},
          {"text", a.best.text}};
}

Searcher::Searcher(const SearchSettings& settings)
    : settings_(settings),
      folder_(folder_of(settings)),
      file_(settings.index.empty() ? folder_ / ".heed-search.safetensors" : settings.index),
      encoder_(open_encoder(settings)) {}

void Searcher::bring_up_to_date() {
  index_ = load_index(file_);
  std::unique_ptr<Progress> progress;
  int64_t shown = 0;
  const UpdateReport report = update(
      index_, folder_, settings_.all ? std::vector<std::string>() : settings_.extensions,
      [this](const std::vector<std::string>& texts) { return encode(texts); },
      [&](int64_t done, int64_t all) {
        throw_if_stopped();
        if (!progress) progress = std::make_unique<Progress>("indexing", all, "paragraphs");
        progress->advance(done - shown);
        shown = done;
      });
  progress.reset();
  if (report.added + report.changed + report.removed == 0) return;
  save_index(index_, file_);
  std::fprintf(stderr,
               "%s: %lld paragraphs in %zu files (%lld new, %lld changed, %lld gone, %lld no texts)\n",
               printable(file_.string()).c_str(), static_cast<long long>(index_.size()), index_.files.size(),
               static_cast<long long>(report.added), static_cast<long long>(report.changed),
               static_cast<long long>(report.removed), static_cast<long long>(report.passed_over));
}

std::vector<Answer> Searcher::find(const Tensor& query, int64_t top) const {
  std::vector<Answer> answers;
  for (const Hit& hit : nearest(index_, query, top)) {
    const Place& place = index_.places[static_cast<size_t>(hit.place)];
    const std::string& path = index_.files[static_cast<size_t>(place.file)].path;
    answers.push_back({hit.score, path, place,
                       best_line(folder_ / path, place, query,
                                 [this](const std::vector<std::string>& texts) { return encode(texts); })});
  }
  return answers;
}

}  // namespace heed::apps

// Search in a folder's texts by what they mean.
#include <chrono>
#include <cstdio>

#include <heed/core/base/text.h>

#include "apps/common/console.h"
#include "apps/common/json_lines.h"
#include "apps/common/lines.h"
#include "apps/common/program.h"
#include "apps/common/progress.h"
#include "apps/common/text.h"
#include "apps/embed/commands.h"
#include "apps/embed/index.h"

namespace heed::apps {
namespace {

class Searcher {
 public:
  Searcher(const SearchSettings& settings, std::filesystem::path folder)
      : settings_(settings),
        folder_(std::move(folder)),
        file_(settings.index.empty() ? folder_ / ".heed-search.safetensors" : settings.index),
        encoder_(open_encoder(settings)) {}

  void bring_up_to_date() {
    index_ = load_index(file_);
    std::unique_ptr<Progress> progress;
    int64_t shown = 0;
    const UpdateReport report =
        update(index_, folder_, settings_.all ? std::vector<std::string>() : settings_.extensions, encode_,
               [&](int64_t done, int64_t all) {
                 throw_if_stopped();
                 if (!progress) progress = std::make_unique<Progress>("indexing", all, "paragraphs");
                 progress->advance(done - shown);
                 shown = done;
               });
    progress.reset();
    if (report.added + report.changed + report.removed == 0) return;
    save_index(index_, file_);
    std::fprintf(
        stderr, "%s: %lld paragraphs in %zu files (%lld new, %lld changed, %lld gone, %lld no texts)\n",
        printable(file_.string()).c_str(), static_cast<long long>(index_.size()), index_.files.size(),
        static_cast<long long>(report.added), static_cast<long long>(report.changed),
        static_cast<long long>(report.removed), static_cast<long long>(report.passed_over));
  }

  void answer(const std::string& question) const {
    const auto start = std::chrono::steady_clock::now();
    const Tensor query = encode_({question});
    const std::vector<Hit> hits = nearest(index_, query, settings_.top);
    const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - start;
    Json found = Json::array();
    for (const Hit& hit : hits) {
      const Place& place = index_.places[static_cast<size_t>(hit.place)];
      const std::string& path = index_.files[static_cast<size_t>(place.file)].path;
      const BestLine best = best_line(folder_ / path, place, query, encode_);
      if (settings_.json)
        found.push_back({{"score", hit.score},
                         {"file", path},
                         {"line", best.line},
                         {"first_line", place.first_line},
                         {"last_line", place.last_line},
                         {"text", best.text}});
      else
        write_out(concat(fixed_text(hit.score, 3), "  ", printable(path), ":",
                         best.line > 0 ? best.line : place.first_line, "  ", shorten(trim(best.text), 100),
                         "\n"));
    }
    if (settings_.json)
      JsonLines().write({{"question", question}, {"milliseconds", spent.count()}, {"found", found}});
    else if (hits.empty())
      write_out("nothing found: the folder has no texts\n");
  }

 private:
  const SearchSettings& settings_;
  std::filesystem::path folder_, file_;
  nn::SentenceEncoder encoder_;
  Encode encode_ = [this](const std::vector<std::string>& texts) { return encoder_.encode(texts); };
  SearchIndex index_;
};

}  // namespace

void search(const SearchSettings& s) {
  HEED_CHECK(!s.words.empty(), ConfigError, "search needs a folder: embed search FOLDER \"question\"");
  HEED_CHECK(std::filesystem::is_directory(s.words[0]), DataError, s.words[0], " is no folder");
  Searcher searcher(s, s.words[0]);
  searcher.bring_up_to_date();
  for (size_t i = 1; i < s.words.size(); ++i) searcher.answer(s.words[i]);
  if (s.words.size() > 1) return;
  for_each_input_line("? ", [&](const std::string& question) { searcher.answer(question); });
}

}  // namespace heed::apps

// Search in a folder's texts by what they mean.
#include <chrono>

#include <heed/core/base/text.h>

#include "apps/common/console.h"
#include "apps/common/json_lines.h"
#include "apps/common/lines.h"
#include "apps/common/text.h"
#include "apps/embed/searcher.h"

namespace heed::apps {
namespace {

void answer(const SearchSettings& s, const Searcher& searcher, const std::string& question) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<Answer> answers = searcher.find(searcher.encode({question}), s.top);
  const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - start;
  Json found = Json::array();
  for (const Answer& a : answers) {
    if (s.json)
      found.push_back(to_json(a));
    else
      write_out(concat(fixed_text(a.score, 3), "  ", printable(a.file), ":",
                       a.best.line > 0 ? a.best.line : a.place.first_line, "  ",
                       shorten(trim(a.best.text), 100), "\n"));
  }
  if (s.json)
    JsonLines().write({{"question", question}, {"milliseconds", spent.count()}, {"found", found}});
  else if (answers.empty())
    write_out("nothing found: the folder has no texts\n");
}

}  // namespace

void search(const SearchSettings& s) {
  Searcher searcher(s);
  searcher.bring_up_to_date();
  for (size_t i = 1; i < s.words.size(); ++i) answer(s, searcher, s.words[i]);
  if (s.words.size() > 1) return;
  for_each_input_line("? ", [&](const std::string& question) { answer(s, searcher, question); });
}

}  // namespace heed::apps

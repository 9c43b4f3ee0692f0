// The command po: what a gettext catalogue has no translations for is filled in, and marked as to be looked
// at.
#include <cstdio>
#include <filesystem>
#include <map>

#include <heed/core/io/atomic_file.h>
#include <heed/core/io/file.h>
#include <heed/data/text/gettext.h>

#include "apps/common/json_lines.h"
#include "apps/common/program.h"
#include "apps/common/progress.h"
#include "apps/common/text.h"
#include "apps/translate/commands.h"
#include "apps/translate/placeholders.h"

namespace heed::apps {
namespace {

namespace fs = std::filesystem;

/// A message as the model gets it: its lines, without the white space around them.
struct Message {
  size_t number;                    // in the catalogue
  std::vector<std::string> around;  // what stands before each line, and behind the last
  std::vector<std::string> lines;
};

Message cut(size_t number, const std::string& text) {
  Message message{number, {""}, {}};
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    const size_t first = std::min(line.find_first_not_of(" \t\r"), line.size());
    const size_t last = line.find_last_not_of(" \t\r");
    message.around.back() += line.substr(0, first);
    if (first < line.size()) {
      message.lines.push_back(line.substr(first, last + 1 - first));
      message.around.push_back(line.substr(last + 1));
    }
    if (end < text.size()) message.around.back() += '\n';
    at = end + 1;
  }
  return message;
}

struct Counts {
  int64_t filled = 0, translated = 0, plural = 0, cut_short = 0, placeholders = 0;
};

class Filler {
 public:
  Filler(const PoSettings& settings, const data::PoFile& po, const nn::TextModel& model)
      : settings_(settings), po_(po), model_(model) {}

  std::map<size_t, std::string> run() {
    std::vector<Message> messages;
    std::vector<std::string> lines;
    for (size_t i = 0; i < po_.messages().size(); ++i) {
      const data::GettextMessage& m = po_.messages()[i];
      if (m.is_header() || m.id.empty()) continue;
      if (m.is_translated()) {
        ++counts.translated;
      } else if (m.plural_id) {
        ++counts.plural;
      } else {
        messages.push_back(cut(i, m.id));
        lines.insert(lines.end(), messages.back().lines.begin(), messages.back().lines.end());
      }
    }
    Progress progress("translating", std::ssize(lines), "texts");
    nn::TextOptions options = settings_.options();
    options.on_batch = [&](int64_t texts) { progress.advance(texts); };
    const auto outputs = model_.run(lines, options);
    std::map<size_t, std::string> translations;
    size_t next = 0;
    for (const Message& message : messages) {
      add(message, std::span(outputs).subspan(next, message.lines.size()), translations);
      next += message.lines.size();
    }
    return translations;
  }

  Counts counts;

 private:
  void add(const Message& message, std::span<const std::vector<nn::TextOutput>> outputs,
           std::map<size_t, std::string>& translations) {
    std::string text = message.around.front();
    bool whole = !outputs.empty(), same = true;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const nn::TextOutput& best = outputs[i].front();
      whole = whole && best.finished && !best.text.empty() && best.text.find('\n') == std::string::npos;
      same = same && placeholders(best.text) == placeholders(message.lines[i]);
      text += best.text + message.around[i + 1];
    }
    if (!whole) {
      ++counts.cut_short;
    } else if (!same) {
      ++counts.placeholders;
    } else {
      ++counts.filled;
      translations[message.number] = std::move(text);
    }
  }

  const PoSettings& settings_;
  const data::PoFile& po_;
  const nn::TextModel& model_;
};

void report(const PoSettings& s, const fs::path& out, const Counts& c) {
  if (s.json)
    return JsonLines().write({{"file", out.string()},
                              {"filled", c.filled},
                              {"translated", c.translated},
                              {"plural", c.plural},
                              {"placeholders", c.placeholders},
                              {"cut_short", c.cut_short}});
  std::printf("%s: %s filled in and marked fuzzy; %s had a translation\n", printable(out.string()).c_str(),
              grouped(c.filled).c_str(), grouped(c.translated).c_str());
  for (const auto& [count, why] : {std::pair(c.plural, "with plural forms"),
                                   std::pair(c.placeholders, "whose output lost or moved a placeholder"),
                                   std::pair(c.cut_short, "without a whole output")})
    if (count > 0) std::printf("left alone: %s %s\n", grouped(count).c_str(), why);
}

}  // namespace

void fill_catalogue(const PoSettings& s) {
  HEED_CHECK(s.files.size() == 1, ConfigError, "po takes one catalogue, got ", s.files.size());
  const fs::path file = s.files.front();
  HEED_CHECK(s.out.empty() == s.in_place, ConfigError,
             "give --out for a new file, or --in-place to replace the catalogue");
  std::error_code ignored;
  HEED_CHECK(s.in_place || !fs::equivalent(s.out, file, ignored), ConfigError,
             "--out is the catalogue itself; --in-place replaces it");
  constexpr uint64_t kMostBytes = uint64_t{1} << 30;
  std::string text;
  try {
    text = read_whole_file(file.string(), kMostBytes);
  } catch (const IoError& error) {
    throw DataError(error.what());
  }
  // A link is followed: its target is what is replaced.
  const fs::path out = s.in_place ? fs::canonical(file) : s.out;
  const data::PoFile po = data::PoFile::parse(std::move(text), file.string());
  const nn::TextModel model = nn::load_text_model(s.model.string(), apply(s));
  Filler filler(s, po, model);
  const std::map<size_t, std::string> translations = filler.run();
  write_whole_file(out.string(), po.filled(translations));
  report(s, out, filler.counts);
}

}  // namespace heed::apps

// The command po: what a gettext catalogue has no translations for is filled in, and marked as to be looked
// at.
#include <cstdio>
#include <filesystem>
#include <map>
#include <span>
#include <utility>

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

/// A text as the model gets it: its lines, without the white space around them.
struct CutText {
  std::vector<std::string> around;  // what stands before each line, and behind the last
  std::vector<std::string> lines;
};

CutText cut(const std::string& text) {
  CutText message{{""}, {}};
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

  using Translations = std::map<size_t, std::vector<std::string>>;

  Translations run() {
    std::vector<std::pair<size_t, std::vector<CutText>>> messages;  // by number: a text, or two for a plural
    std::vector<std::string> lines;
    for (size_t i = 0; i < po_.messages().size(); ++i) {
      if (!takes(po_.messages()[i])) continue;
      std::vector<CutText>& texts = messages.emplace_back(i, 0).second;
      texts.push_back(cut(po_.messages()[i].id));
      if (po_.messages()[i].plural_id) texts.push_back(cut(*po_.messages()[i].plural_id));
      for (const CutText& text : texts) lines.insert(lines.end(), text.lines.begin(), text.lines.end());
    }
    Progress progress("translating", std::ssize(lines), "texts");
    nn::TextOptions options = settings_.options();
    options.on_batch = [&](int64_t texts) { progress.advance(texts); };
    const auto outputs = model_.run(lines, options);
    std::span<const std::vector<nn::TextOutput>> rest = outputs;
    Translations translations;
    for (const auto& [number, texts] : messages) add(number, texts, rest, translations);
    return translations;
  }

  Counts counts;

 private:
  /// Whether a message is one to be filled in; counts it if not.
  bool takes(const data::GettextMessage& m) {
    if (m.is_header() || m.id.empty()) return false;
    if (m.is_translated()) {
      ++counts.translated;
      return false;
    }
    if (!m.plural_id || (!m.plural_id->empty() && m.translations.size() == po_.plural_forms())) return true;
    ++counts.plural;
    return false;
  }

  struct Output {
    std::string text;
    bool whole = true, same = true;  // it ends; its placeholders are those of the text
  };

  /// Takes a text's outputs off `rest`.
  static Output join(const CutText& text, std::span<const std::vector<nn::TextOutput>>& rest) {
    Output output{text.around.front(), !text.lines.empty()};
    for (size_t i = 0; i < text.lines.size(); ++i) {
      const nn::TextOutput& best = rest[i].front();
      output.whole &= best.finished && !best.text.empty() && best.text.find('\n') == std::string::npos;
      output.same &= placeholders(best.text) == placeholders(text.lines[i]);
      output.text += best.text + text.around[i + 1];
    }
    rest = rest.subspan(text.lines.size());
    return output;
  }

  // The first of several forms is that of one (Germanic, Romance, Slavic languages), the others and a single
  // one are those of many.
  void add(size_t number, const std::vector<CutText>& texts,
           std::span<const std::vector<nn::TextOutput>>& rest, Translations& translations) {
    std::vector<Output> outputs;
    for (const CutText& text : texts) outputs.push_back(join(text, rest));
    const size_t count = po_.messages()[number].translations.size();
    std::vector<std::string> forms;
    for (size_t form = 0; form < count; ++form) {
      const bool of_one = texts.size() == 1 || (form == 0 && count > 1);
      const Output& output = outputs[of_one ? 0 : 1];
      if (!output.whole || !output.same) {
        ++(output.whole ? counts.placeholders : counts.cut_short);
        return;
      }
      forms.push_back(output.text);
    }
    ++counts.filled;
    translations.emplace(number, std::move(forms));
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
  for (const auto& [count, why] :
       {std::pair(c.plural, "whose plural forms are not those that the header names"),
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
  constexpr uint64_t kMaxBytes = uint64_t{1} << 30;
  std::string text;
  try {
    text = read_whole_file(file.string(), kMaxBytes);
  } catch (const IoError& error) {
    throw DataError(error.what());
  }
  // A link is followed: its target is what is replaced.
  const fs::path out = s.in_place ? fs::canonical(file) : s.out;
  const data::PoFile po = data::PoFile::parse(std::move(text), file.string());
  const nn::TextModel model = load_model(s);
  Filler filler(s, po, model);
  write_whole_file(out.string(), po.filled(filler.run()));
  report(s, out, filler.counts);
}

}  // namespace heed::apps

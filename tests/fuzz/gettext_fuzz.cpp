// Any bytes as a catalogue: a typed error, or messages; what is filled in is read back, and all else stays.
#include <map>
#include <string>
#include <string_view>

#include <heed/core/base/check.h>
#include <heed/data/text/gettext.h>
#include <heed/data/text/unicode.h>

#include "fuzz.h"

using heed::fuzz::require;

namespace {

void read_mo(std::string_view bytes) {
  try {
    const auto messages = heed::data::parse_mo(bytes, "input");
    size_t total = 0;
    for (const auto& m : messages) {
      total += m.id.size();
      for (const std::string& text : m.translations) total += text.size();
    }
    require(total <= bytes.size());
    const heed::data::TextPairs pairs = heed::data::to_pairs(messages);
    require(pairs.sources.size() == pairs.targets.size());
  } catch (const heed::DataError&) {
  }
}

void read_po(std::string_view text) {
  constexpr const char* kFill = "line \"one\"\n\\two\t";
  try {
    const auto po = heed::data::PoFile::parse(std::string(text), "input");
    require(po.filled({}) == text);
    (void)po.plural_forms();
    std::map<size_t, std::vector<std::string>> translations;
    for (size_t i = 0; i < po.messages().size(); ++i)
      if (!po.messages()[i].is_translated() && !po.messages()[i].is_header())
        translations[i].assign(po.messages()[i].translations.size(), kFill);
    const auto again = heed::data::PoFile::parse(po.filled(translations), "again");
    require(again.messages().size() == po.messages().size());
    for (size_t i = 0; i < po.messages().size(); ++i) {
      const auto &before = po.messages()[i], &after = again.messages()[i];
      const bool filled = translations.contains(i);
      require(after.id == before.id && after.context == before.context &&
              after.plural_id == before.plural_id);
      require(after.fuzzy == (before.fuzzy || filled));
      require(after.translations == (filled ? translations.at(i) : before.translations));
    }
    for (const std::string& source : heed::data::to_pairs(po.messages()).sources)
      require(!heed::data::invalid_utf8(source));
  } catch (const heed::DataError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  read_mo(text);
  read_po(text);
  return 0;
}

// GNU gettext's catalogues: messages of a program and their translations, as text (.po) and compiled (.mo).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <heed/data/text/text_pairs.h>

namespace heed::data {

struct GettextMessage {
  std::optional<std::string> context = {};
  std::string id = {};
  std::optional<std::string> plural_id = {};
  std::vector<std::string> translations = {};  // one, or of each plural form; empty texts where there is none
  bool fuzzy = false;                          // somebody should look at it

  /// The entry with an empty id describes the catalogue.
  bool is_header() const { return id.empty() && !context; }
  bool is_translated() const;
};

/// The messages of a .mo file, of either byte order; `file` stands in messages. DataError for what is none:
/// offsets outside the file, texts that are not terminated or not UTF-8, or more of them than the file has
/// bytes.
std::vector<GettextMessage> parse_mo(std::string_view bytes, std::string_view file);

/// A .po file that is taken apart and put together again with translations filled in: all other bytes stay.
class PoFile {
 public:
  /// DataError with the line where it is not UTF-8 or breaks gettext's syntax, and for a header that names
  /// another character set. Entries that are obsolete ("#~") are no messages.
  static PoFile parse(std::string text, std::string_view file);

  const std::vector<GettextMessage>& messages() const { return messages_; }

  /// Forms of a plural in the catalogue's language, as its header tells (nplurals); 0 where it does not.
  size_t plural_forms() const;

  /// The file's text with translations[i] as those of message i, which is marked fuzzy: one, or for each
  /// msgstr[…] one. ConfigError for a message that has a translation, and for another number of them.
  std::string filled(const std::map<size_t, std::vector<std::string>>& translations) const;

 private:
  friend class PoParser;
  /// Places in the text.
  struct Place {
    size_t flags = 0;  // behind "#,", where there is such a line
    bool has_flags = false;
    size_t first_keyword = 0;                          // where its first line that is no comment begins
    std::vector<std::pair<size_t, size_t>> strings{};  // begin and end of the quoted parts of each msgstr
  };

  std::string text_;
  std::string line_end_ = "\n";
  std::vector<GettextMessage> messages_;
  std::vector<Place> places_;
};

/// Messages and translations as pairs, without the header and what is fuzzy or not translated: the singular
/// with the first form, the plural with the last. Of texts with as many lines each line is a pair; else line
/// ends become spaces.
TextPairs to_pairs(const std::vector<GettextMessage>& messages);

/// The pairs of a catalogue, whose name ends in .mo or .po. DataError.
TextPairs read_gettext_pairs(const std::string& path, const TextFileOptions& options = {});
/// Whether a name ends so.
bool is_gettext_name(std::string_view path);

}  // namespace heed::data

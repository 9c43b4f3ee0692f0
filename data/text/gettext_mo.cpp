// Compiled catalogues, and pairs from either kind.
#include <algorithm>
#include <utility>

#include <heed/core/base/check.h>
#include <heed/core/base/text.h>
#include <heed/core/io/file.h>
#include <heed/data/text/gettext.h>
#include <heed/data/text/unicode.h>

#include "detail/gettext_header.h"

namespace heed::data {
namespace {

constexpr size_t kWord = 4, kHeaderBytes = 7 * kWord;

/// Reads numbers and texts of a .mo file; each place is checked.
class MoReader {
 public:
  MoReader(std::string_view bytes, std::string_view file) : bytes_(bytes), file_(file) {
    constexpr uint32_t kMagic = 0x950412de, kSwapped = 0xde120495;
    HEED_CHECK(bytes.size() >= kHeaderBytes, DataError, file, ": ", bytes.size(),
               " bytes are no compiled catalogue");
    const uint32_t magic = word(0);
    HEED_CHECK(magic == kMagic || magic == kSwapped, DataError, file,
               ": this is no compiled catalogue: it begins otherwise");
    big_endian_ = magic == kSwapped;
    const uint32_t revision = word(kWord) >> 16;
    HEED_CHECK(revision <= 1, DataError, file, ": a catalogue of revision ", revision, "; 0 and 1 are known");
  }

  uint32_t word(size_t at) const {
    HEED_CHECK(at + kWord <= bytes_.size(), DataError, file_, ": a number at byte ", at,
               " lies outside the file of ", bytes_.size(), " bytes");
    uint32_t value = 0;
    for (size_t i = 0; i < kWord; ++i) {
      const size_t shift = 8 * (big_endian_ ? kWord - 1 - i : i);
      value |= static_cast<uint32_t>(static_cast<unsigned char>(bytes_[at + i])) << shift;
    }
    return value;
  }

  /// The text that entry i of the table at `table` leads to; it may hold NULs.
  std::string_view text(size_t table, size_t i) {
    const size_t entry = table + 2 * kWord * i, length = word(entry), at = word(entry + kWord);
    HEED_CHECK(at + length < bytes_.size() && bytes_[at + length] == '\0', DataError, file_, ": text ", i + 1,
               ", ", length, " bytes from ", at, ", does not end within the file of ", bytes_.size(),
               " bytes");
    total_ += length;
    HEED_CHECK(total_ <= bytes_.size(), DataError, file_, ": its texts overlap");
    const std::string_view text = bytes_.substr(at, length);
    const std::optional<size_t> invalid = invalid_utf8(text);
    HEED_CHECK(!invalid, DataError, file_, ": text ", i + 1, " is not UTF-8: byte ",
               at + invalid.value_or(0));
    return text;
  }

 private:
  std::string_view bytes_, file_;
  bool big_endian_ = false;
  size_t total_ = 0;
};

void add_lines(TextPairs& pairs, std::string_view source, std::string_view target) {
  std::string from(trim(source)), to(trim(target));
  if (from.empty() || to.empty()) return;
  const std::vector<std::string_view> sources = split(from, '\n'), targets = split(to, '\n');
  if (sources.size() != targets.size()) {
    std::replace(from.begin(), from.end(), '\n', ' ');
    std::replace(to.begin(), to.end(), '\n', ' ');
    return pairs.add(std::move(from), std::move(to));
  }
  for (size_t i = 0; i < sources.size(); ++i)
    if (!trim(sources[i]).empty() && !trim(targets[i]).empty())
      pairs.add(std::string(trim(sources[i])), std::string(trim(targets[i])));
}

}  // namespace

bool GettextMessage::is_translated() const {
  return std::any_of(translations.begin(), translations.end(),
                     [](const std::string& text) { return !text.empty(); });
}

std::vector<GettextMessage> parse_mo(std::string_view bytes, std::string_view file) {
  constexpr char kContextEnd = '\4';
  MoReader reader(bytes, file);
  const size_t count = reader.word(2 * kWord), ids = reader.word(3 * kWord), texts = reader.word(4 * kWord);
  HEED_CHECK(count <= bytes.size() / (2 * kWord), DataError, file, ": ", count, " messages do not fit into ",
             bytes.size(), " bytes");
  std::vector<GettextMessage> messages;
  for (size_t i = 0; i < count; ++i) {
    GettextMessage message;
    std::string_view id = reader.text(ids, i);
    if (const size_t end = id.find(kContextEnd); end != std::string_view::npos) {
      message.context = id.substr(0, end);
      id.remove_prefix(end + 1);
    }
    const size_t plural = id.find('\0');
    message.id = id.substr(0, plural);
    if (plural != std::string_view::npos) message.plural_id = id.substr(plural + 1);
    const std::vector<std::string_view> translations = split(reader.text(texts, i), '\0');
    message.translations.assign(translations.begin(), translations.end());
    if (message.is_header()) detail::check_character_set(message.translations.front(), file);
    messages.push_back(std::move(message));
  }
  return messages;
}

TextPairs to_pairs(const std::vector<GettextMessage>& messages) {
  TextPairs pairs;
  for (const GettextMessage& m : messages) {
    if (m.is_header() || m.fuzzy || m.translations.empty()) continue;
    add_lines(pairs, m.id, m.translations.front());
    if (m.plural_id && m.translations.size() > 1) add_lines(pairs, *m.plural_id, m.translations.back());
  }
  return pairs;
}

bool is_gettext_name(std::string_view path) { return path.ends_with(".mo") || path.ends_with(".po"); }

TextPairs read_gettext_pairs(const std::string& path, const TextFileOptions& options) {
  std::string content;
  try {
    content = read_whole_file(path, static_cast<uint64_t>(options.max_file_bytes));
  } catch (const IoError& error) {
    throw DataError(error.what());
  }
  return path.ends_with(".mo") ? to_pairs(parse_mo(content, path))
                               : to_pairs(PoFile::parse(std::move(content), path).messages());
}

}  // namespace heed::data

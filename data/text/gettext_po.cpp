#include <algorithm>
#include <cctype>
#include <utility>

#include <heed/core/base/check.h>
#include <heed/data/text/gettext.h>
#include <heed/data/text/unicode.h>

#include "detail/gettext_header.h"

namespace heed::data {
namespace {

constexpr std::string_view kBlanks = " \t\r\f\v";

std::string_view without_blanks(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

/// A text in quotes, with what a C string writes by a backslash.
std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) switch (c) {
      case '\n':
        result += "\\n";
        break;
      case '\t':
        result += "\\t";
        break;
      case '\r':
        result += "\\r";
        break;
      case '"':
      case '\\':
        result += '\\';
        [[fallthrough]];
      default:
        result += c;
    }
  return result + '"';
}

/// The same over several lines where the text has several: gettext begins them with an empty one.
std::string quoted_lines(std::string_view text, const std::string& line_end) {
  const size_t first = text.find('\n');
  if (first == std::string_view::npos || first + 1 == text.size()) return quoted(text);
  std::string result = "\"\"";
  while (!text.empty()) {
    const size_t size = std::min(text.find('\n'), text.size() - 1) + 1;
    result += line_end + quoted(text.substr(0, size));
    text.remove_prefix(size);
  }
  return result;
}

int digit_of(char c, int base) {
  const int value = std::isdigit(static_cast<unsigned char>(c))    ? c - '0'
                    : std::isxdigit(static_cast<unsigned char>(c)) ? std::tolower(c) - 'a' + 10
                                                                   : 99;
  return value < base ? value : -1;
}

/// Takes what follows a backslash off `rest`; false for an escape that is none.
bool take_escape(std::string_view& rest, std::string& text) {
  constexpr std::string_view kNames = "ntrabfv\\\"", kValues = "\n\t\r\a\b\f\v\\\"";
  if (rest.empty()) return false;
  if (const size_t known = kNames.find(rest.front()); known != std::string_view::npos) {
    text += kValues[known];
    rest.remove_prefix(1);
    return true;
  }
  const bool hexadecimal = rest.front() == 'x';
  if (hexadecimal) rest.remove_prefix(1);
  const int base = hexadecimal ? 16 : 8;
  int value = 0, digits = 0;
  for (; digits < (hexadecimal ? 2 : 3) && !rest.empty() && digit_of(rest.front(), base) >= 0; ++digits) {
    value = value * base + digit_of(rest.front(), base);
    rest.remove_prefix(1);
  }
  if (digits == 0 || value == 0 || value > 255) return false;
  text += static_cast<char>(value);
  return true;
}

}  // namespace

namespace detail {

void check_character_set(std::string_view header, std::string_view file) {
  constexpr std::string_view kName = "charset=";
  const size_t at = header.find(kName);
  if (at == std::string_view::npos) return;
  header.remove_prefix(at + kName.size());
  std::string set(header.substr(0, header.find_first_of(" \t\r\n;")));
  std::transform(set.begin(), set.end(), set.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  HEED_CHECK(set == "utf-8" || set == "utf8" || set == "us-ascii" || set == "ascii" || set == "charset",
             DataError, file, ": its texts are in '", set.substr(0, 40), "'; convert it to UTF-8");
}

}  // namespace detail

/// Goes through the lines of a file.
class PoParser {
 public:
  PoParser(PoFile& po, std::string_view file) : po_(po), text_(po.text_), file_(file) {}

  void run() {
    size_t at = text_.starts_with("\xef\xbb\xbf") ? 3 : 0;
    for (; at < text_.size(); ++number_) {
      const size_t end = std::min(text_.find('\n', at), text_.size());
      std::string_view line = text_.substr(at, end - at);
      check(line);
      if (number_ == 1 && line.ends_with('\r')) po_.line_end_ = "\r\n";
      line_at_ = at;
      take(without_blanks(line));
      at = end + 1;
    }
    finish();
  }

 private:
  enum class Field { none, context, id, plural_id, string };

  template <class... Parts>
  void require(bool condition, const Parts&... parts) const {
    HEED_CHECK(condition, DataError, file_, ":", number_, ": ", parts...);
  }

  void check(std::string_view line) const {
    const std::optional<size_t> invalid = invalid_utf8(line);
    HEED_CHECK(!invalid, DataError, file_, ":", number_, ":", invalid.value_or(0) + 1,
               ": this byte is not UTF-8");
    require(line.find('\0') == std::string_view::npos, "a NUL is no text");
  }

  void take(std::string_view line) {
    if (line.empty()) return;
    if (line.starts_with('#')) return take_comment(line);
    if (line.starts_with('"')) {
      require(field_ != Field::none, "a text that belongs to no keyword");
      return take_text(line);
    }
    const std::string_view keyword = line.substr(0, line.find_first_of(" \t\""));
    std::string_view rest = without_blanks(line.substr(keyword.size()));
    begin_field(keyword);
    require(rest.starts_with('"'), "expected a text in quotes after ", keyword.substr(0, 40));
    take_text(rest);
  }

  void take_comment(std::string_view line) {
    if (started_ && field_ == Field::string) finish();
    require(!started_, "a comment within a message");
    if (line.starts_with("#~")) {  // an obsolete message: flags above it were its own
      message_ = {};
      place_ = {};
    }
    if (!line.starts_with("#,")) return;
    place_.has_flags = true;
    place_.flags = static_cast<size_t>(line.data() - text_.data()) + 2;
    for (std::string_view rest = line.substr(2); !rest.empty();) {
      const std::string_view flag = rest.substr(0, rest.find(','));
      message_.fuzzy |= without_blanks(flag) == "fuzzy";
      rest.remove_prefix(std::min(flag.size() + 1, rest.size()));
    }
  }

  void begin_field(std::string_view keyword) {
    const bool begins = keyword == "msgctxt" || keyword == "msgid";
    if (begins && field_ == Field::string) finish();
    if (!started_) place_.first_keyword = line_at_;
    started_ = true;
    if (keyword == "msgctxt") {
      require(field_ == Field::none, "msgctxt stands before msgid");
      message_.context.emplace();
      field_ = Field::context;
    } else if (keyword == "msgid") {
      require(field_ == Field::none || field_ == Field::context, "a second msgid");
      field_ = Field::id;
    } else if (keyword == "msgid_plural") {
      require(field_ == Field::id, "msgid_plural stands after msgid");
      message_.plural_id.emplace();
      field_ = Field::plural_id;
    } else {
      begin_string(keyword);
    }
  }

  void begin_string(std::string_view keyword) {
    const std::string expected = concat("msgstr[", message_.translations.size(), "]");
    require(message_.plural_id ? keyword == expected : keyword == "msgstr", "'", keyword.substr(0, 40),
            "' cannot stand here");
    require(field_ == (message_.plural_id ? Field::plural_id : Field::id) ||
                (message_.plural_id && field_ == Field::string),
            "msgstr stands after msgid, once");
    message_.translations.emplace_back();
    field_ = Field::string;
    place_.strings.emplace_back(0, 0);
  }

  std::string& target() {
    switch (field_) {
      case Field::context:
        return *message_.context;
      case Field::id:
        return message_.id;
      case Field::plural_id:
        return *message_.plural_id;
      default:
        return message_.translations.back();
    }
  }

  // A text in quotes to the end of the line.
  void take_text(std::string_view text) {
    std::string_view rest = text.substr(1);
    std::string& to = target();
    while (!rest.empty() && rest.front() != '"') {
      if (rest.front() != '\\') {
        to += rest.front();
        rest.remove_prefix(1);
        continue;
      }
      rest.remove_prefix(1);
      require(take_escape(rest, to), "a backslash before something that it is not known for");
    }
    require(rest == "\"",
            rest.empty() ? "the closing quote is missing" : "something follows the closing quote");
    if (field_ != Field::string) return;
    const auto begin = static_cast<size_t>(text.data() - text_.data());
    auto& [first, end] = place_.strings.back();
    if (first == 0) first = begin;
    end = begin + text.size();
  }

  void finish() {
    if (!started_) return;
    require(field_ == Field::string, "a message without msgstr ends here");
    std::string all =
        concat(message_.id, '\n', message_.context.value_or(""), '\n', message_.plural_id.value_or(""));
    for (const std::string& text : message_.translations) all += '\n' + text;
    require(!invalid_utf8(all), "a text whose escapes make no UTF-8 ends here");
    if (message_.is_header()) detail::check_character_set(message_.translations.front(), file_);
    po_.messages_.push_back(std::move(message_));
    po_.places_.push_back(std::move(place_));
    message_ = {};
    place_ = {};
    field_ = Field::none;
    started_ = false;
  }

  PoFile& po_;
  std::string_view text_, file_;
  size_t number_ = 1, line_at_ = 0;
  Field field_ = Field::none;
  bool started_ = false;  // a keyword of the message has come
  GettextMessage message_;
  PoFile::Place place_;
};

PoFile PoFile::parse(std::string text, std::string_view file) {
  HEED_CHECK(!text.starts_with("\xff\xfe") && !text.starts_with("\xfe\xff"), DataError, file,
             ":1:1: this is UTF-16; save the file as UTF-8");
  PoFile po;
  po.text_ = std::move(text);
  PoParser(po, file).run();
  return po;
}

size_t PoFile::plural_forms() const {
  constexpr std::string_view kName = "nplurals=";
  for (const GettextMessage& m : messages_) {
    if (!m.is_header()) continue;
    const std::string& header = m.translations.front();
    const size_t at = header.find(kName);
    if (at == std::string::npos) return 0;
    const size_t digit = at + kName.size(), end = header.find_first_not_of("0123456789", digit);
    constexpr size_t kDigits = 2;  // no language has more than six forms
    if (std::min(end, header.size()) - digit > kDigits) return 0;
    size_t count = 0;
    for (size_t i = digit; i < std::min(end, header.size()); ++i)
      count = 10 * count + static_cast<size_t>(header[i] - '0');
    return count;
  }
  return 0;
}

std::string PoFile::filled(const std::map<size_t, std::vector<std::string>>& translations) const {
  std::string result;
  size_t done = 0;
  const auto copy_to = [&](size_t end) {
    result.append(text_, done, end - done);
    done = end;
  };
  for (const auto& [i, texts] : translations) {
    HEED_CHECK(i < messages_.size() && !messages_[i].is_translated(), ConfigError, "message ", i,
               " is none that can be filled");
    const Place& place = places_[i];
    HEED_CHECK(texts.size() == place.strings.size(), ConfigError, "message ", i, " has ",
               place.strings.size(), " translations, got ", texts.size());
    if (!messages_[i].fuzzy) {
      copy_to(place.has_flags ? place.flags : place.first_keyword);
      result += place.has_flags ? " fuzzy," : "#, fuzzy" + line_end_;
    }
    for (size_t form = 0; form < texts.size(); ++form) {
      copy_to(place.strings[form].first);
      result += quoted_lines(texts[form], line_end_);
      done = place.strings[form].second;
    }
  }
  copy_to(text_.size());
  return result;
}

}  // namespace heed::data

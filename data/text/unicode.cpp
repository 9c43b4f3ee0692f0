#include <algorithm>
#include <iterator>
#include <optional>
#include <utf8proc.h>

#include <heed/core/base/check.h>
#include <heed/data/text/unicode.h>

namespace heed::data {
namespace {

/// Bytes of a character by its first one, 0 if none begins so.
size_t character_length(unsigned char first) {
  return first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
}

/// Whether a character that begins with `pending` may go on with `byte`.
bool continues(std::string_view pending, unsigned char byte) {
  unsigned char least = 0x80, most = 0xbf;
  if (pending.size() == 1) switch (static_cast<unsigned char>(pending[0])) {
      case 0xe0:
        least = 0xa0;
        break;
      case 0xed:
        most = 0x9f;
        break;
      case 0xf0:
        least = 0x90;
        break;
      case 0xf4:
        most = 0x8f;
        break;
      default:
        break;
    }
  return byte >= least && byte <= most;
}

void decompose(int32_t code_point, int options, std::vector<int32_t>& points) {
  utf8proc_int32_t parts[32];  // no character has more than 18
  int last_class = 0;
  const utf8proc_ssize_t count = utf8proc_decompose_char(
      code_point, parts, std::ssize(parts), static_cast<utf8proc_option_t>(options), &last_class);
  HEED_CHECK(count >= 0 && count <= std::ssize(parts), DataError,
             "cannot normalise the text: ", utf8proc_errmsg(count));
  points.insert(points.end(), parts, parts + count);
}

int combining_class(int32_t code_point) {
  return code_point < 0x300 ? 0 : utf8proc_get_property(code_point)->combining_class;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

}  // namespace

void detail::append_decomposed(int32_t code_point, std::vector<int32_t>& points) {
  decompose(code_point, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, points);
}

// The library's own ordering takes quadratic time for a letter with many marks.
void detail::order_marks(std::vector<int32_t>& points, size_t begin) {
  for (size_t i = begin; i < points.size(); ++i) {
    const size_t first = i;
    while (i < points.size() && combining_class(points[i]) > 0) ++i;
    if (i - first > 1)
      std::stable_sort(points.begin() + static_cast<std::ptrdiff_t>(first),
                       points.begin() + static_cast<std::ptrdiff_t>(i),
                       [](int32_t a, int32_t b) { return combining_class(a) < combining_class(b); });
  }
}

void detail::append_utf8(int32_t code_point, std::string& text) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t length = utf8proc_encode_char(code_point, bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

std::string detail::normal_form(std::string_view text, NormalForm form, bool lowercase) {
  if (!lowercase && is_ascii(text)) return std::string(text);
  const int options = UTF8PROC_STABLE | (form.compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                      (form.compatibility ? UTF8PROC_COMPAT : 0);
  std::vector<int32_t> points;
  points.reserve(text.size());
  for_each_code_point(text, [&](int32_t c, std::string_view) {
    decompose(lowercase ? utf8proc_tolower(c) : c, options, points);
  });
  order_marks(points);
  if (form.compose) {
    const utf8proc_ssize_t count =
        utf8proc_normalize_utf32(points.data(), std::ssize(points), static_cast<utf8proc_option_t>(options));
    HEED_CHECK(count >= 0, DataError, "cannot normalise the text: ", utf8proc_errmsg(count));
    points.resize(static_cast<size_t>(count));
  }
  std::string normal;
  normal.reserve(text.size());
  for (const int32_t c : points) append_utf8(c, normal);
  return normal;
}

const char* name(Normalization form) {
  switch (form) {
    case Normalization::none:
      return "none";
    case Normalization::nfc:
      return "nfc";
    case Normalization::nfkc:
      break;
  }
  return "nfkc";
}

Normalization parse_normalization(std::string_view text) {
  for (const Normalization form : {Normalization::none, Normalization::nfc, Normalization::nfkc})
    if (text == name(form)) return form;
  throw ConfigError(concat("unknown normal form '", text, "'; expected none, nfc or nfkc"));
}

std::string normalize(std::string_view text, Normalization form, bool lowercase) {
  if (const std::optional<size_t> at = invalid_utf8(text))
    throw DataError(
        concat("the text is not UTF-8: byte ", *at, " of ", text.size(), " is part of no character"));
  if (form != Normalization::none)
    return detail::normal_form(text, {.compatibility = form == Normalization::nfkc, .compose = true},
                               lowercase);
  if (!lowercase) return std::string(text);
  std::string small;
  for_each_code_point(text,
                      [&](int32_t c, std::string_view) { detail::append_utf8(utf8proc_tolower(c), small); });
  return small;
}

std::string well_formed(std::string_view bytes) {
  std::string text;
  CharacterAssembler assembler;
  assembler.push(bytes, text);
  assembler.finish(text);
  return text;
}

void CharacterAssembler::push(std::string_view bytes, std::string& text) {
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (pending_.empty() && byte < 0x80) {
      text += c;
      continue;
    }
    if (!pending_.empty() && !continues(pending_, byte)) finish(text);
    pending_ += c;
    const size_t length = character_length(static_cast<unsigned char>(pending_[0]));
    if (length == 0)
      finish(text);
    else if (pending_.size() == length) {
      text += pending_;
      pending_.clear();
    }
  }
}

void CharacterAssembler::finish(std::string& text) {
  if (!pending_.empty()) text += "\xef\xbf\xbd";
  pending_.clear();
}

int64_t count_code_points(std::string_view text) {
  int64_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return count;
}

CharacterClass character_class(int32_t code_point) {
  if (code_point >= '\t' && code_point <= '\r') return CharacterClass::space;
  const utf8proc_category_t category = utf8proc_category(code_point);
  if (category >= UTF8PROC_CATEGORY_ZS && category <= UTF8PROC_CATEGORY_ZP) return CharacterClass::space;
  // Letters, marks and numbers stand together in the library's list.
  if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NO) return CharacterClass::word;
  return CharacterClass::other;
}

}  // namespace heed::data

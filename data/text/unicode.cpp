#include <cstdlib>
#include <memory>
#include <new>
#include <optional>
#include <utf8proc.h>

#include <heed/core/base/check.h>
#include <heed/data/text/unicode.h>

namespace heed::data {
namespace {

const utf8proc_uint8_t* bytes_of(std::string_view text) {
  return reinterpret_cast<const utf8proc_uint8_t*>(text.data());
}

utf8proc_int32_t lower(utf8proc_int32_t code_point, void*) { return utf8proc_tolower(code_point); }

}  // namespace

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
  if (form == Normalization::none && !lowercase) return std::string(text);
  int options = 0;
  if (form != Normalization::none) options |= UTF8PROC_STABLE | UTF8PROC_COMPOSE;
  if (form == Normalization::nfkc) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t length =
      utf8proc_map_custom(bytes_of(text), static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                          static_cast<utf8proc_option_t>(options), lowercase ? lower : nullptr, nullptr);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  if (length == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
  HEED_CHECK(length >= 0, DataError, "cannot normalise the text: ", utf8proc_errmsg(length));
  return {reinterpret_cast<const char*>(mapped), static_cast<size_t>(length)};
}

std::string well_formed(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const size_t length = first_code_point(bytes).length;
    out += length > 0 ? bytes.substr(0, length) : "\xef\xbf\xbd";
    bytes.remove_prefix(length > 0 ? length : 1);
  }
  return out;
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

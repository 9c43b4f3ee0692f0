#include "../detail/bert_text.h"

#include <utf8proc.h>
#include <vector>

#include <heed/data/text/unicode.h>

#include "../detail/code_points.h"

namespace heed::data::detail {
namespace {

// BERT's tokenizers know Unicode 8: punctuation, accents and format characters of these ranges are newer.
constexpr CodePointRange kNewer[] = {
    {0x61d, 0x61d},     {0x7fd, 0x7fd},     {0x890, 0x8e2},     {0x9fd, 0x9fe},     {0xa76, 0xa76},
    {0xafa, 0xaff},     {0xb55, 0xb55},     {0xc04, 0xc3c},     {0xc77, 0xc77},     {0xc84, 0xc84},
    {0xd00, 0xd00},     {0xd3b, 0xd3c},     {0xd81, 0xd81},     {0xeba, 0xeba},     {0xece, 0xece},
    {0x180f, 0x1886},   {0x1abf, 0x1ace},   {0x1b7d, 0x1b7e},   {0x1df6, 0x1dfb},   {0x2e43, 0x2e5d},
    {0xa82c, 0xa82c},   {0xa8c5, 0xa8c5},   {0xa8ff, 0xa8ff},   {0xa9bd, 0xa9bd},   {0x10d24, 0x10f89},
    {0x11070, 0x11074}, {0x110c2, 0x110cd}, {0x111c9, 0x111c9}, {0x111cf, 0x111cf}, {0x1123e, 0x11241},
    {0x1133b, 0x1133b}, {0x11438, 0x1145e}, {0x11660, 0x1166c}, {0x116b9, 0x116b9}, {0x1182f, 0x11fff},
    {0x12ff1, 0x13455}, {0x16e97, 0x16f4f}, {0x16fe2, 0x16fe4}, {0x1cf00, 0x1cf46}, {0x1e000, 0x1e4ef},
    {0x1e944, 0x1e95f}};

bool is_newer(int32_t c) { return c >= kNewer[0].first && in_ranges(c, kNewer); }

/// Control, format, private and surrogate characters, which clean texts lack.
bool is_removed(int32_t c) {
  if (c == 0xfffd) return true;
  const utf8proc_category_t category = utf8proc_category(c);
  return category >= UTF8PROC_CATEGORY_CC && category <= UTF8PROC_CATEGORY_CO && !is_newer(c);
}

bool is_cjk(int32_t c) {
  // One of BERT's ranges begins at 0x2b920 for 0x2b820, which is kept.
  constexpr CodePointRange kCjk[] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},
                                     {0x20000, 0x2a6df}, {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf},
                                     {0x2f800, 0x2fa1f}};
  return c >= 0x3400 && in_ranges(c, kCjk);
}

class Writer {
 public:
  Writer(const BertOptions& options, size_t bytes) : options_(options) { text_.reserve(bytes + bytes / 4); }

  void ascii(char c) {
    if (options_.clean) {
      if (c == '\t' || c == '\n' || c == '\r') c = ' ';
      if (c < ' ' || c == 0x7f) return;
    }
    if (options_.lowercase && c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
    text_ += c;
  }

  /// Gives false for a mark that stays and whose place among others is not known here.
  bool other(int32_t c) {
    if (options_.clean) {
      if (is_removed(c)) return true;
      if (group_of(c) == CharacterGroup::space) c = ' ';
    }
    const bool apart = options_.spaces_cjk && is_cjk(c);
    if (apart) text_ += ' ';
    if (!options_.strip_accents || is_newer(c)) {
      letter(c);
    } else {
      parts_.clear();
      append_decomposed(c, parts_);
      for (const int32_t part : parts_) {
        if (is_accent(part)) continue;
        if (utf8proc_get_property(part)->combining_class > 0) return false;
        letter(part);
      }
    }
    if (apart) text_ += ' ';
    return true;
  }

  std::string take() { return std::move(text_); }

 private:
  void letter(int32_t c) {
    if (options_.lowercase)
      append_lowercase(c, text_);
    else
      append_utf8(c, text_);
  }

  BertOptions options_;
  std::string text_;
  std::vector<int32_t> parts_;
};

/// A text whose marks must be put in order before some of them go.
std::string ordered(std::string_view text, const BertOptions& options) {
  std::vector<int32_t> points;
  const std::string decent = bert_text(text, {options.clean, options.spaces_cjk, false, false});
  for_each_code_point(decent, [&](int32_t c, std::string_view) {
    if (is_newer(c))
      points.push_back(c);
    else
      append_decomposed(c, points);
  });
  order_marks(points);
  std::erase_if(points, is_accent);
  std::string result;
  for (const int32_t c : points) {
    if (options.lowercase)
      append_lowercase(c, result);
    else
      append_utf8(c, result);
  }
  return result;
}

}  // namespace

std::string bert_text(std::string_view text, const BertOptions& options) {
  Writer writer(options, text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    at += c.bytes;
    if (c.bytes == 1)
      writer.ascii(static_cast<char>(c.value));
    else if (!writer.other(c.value))
      return ordered(text, options);
  }
  return writer.take();
}

bool is_bert_punctuation(int32_t c) {
  if (c < 0x80) return c > ' ' && c < 0x7f && group_of(c) == CharacterGroup::other;
  if (c == 0x166d || c == 0x111c9) return true;  // in Unicode 8
  const utf8proc_category_t category = utf8proc_category(c);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO && !is_newer(c);
}

void append_lowercase(int32_t c, std::string& text) {
  if (c == 0x130)
    text += "i\u0307";
  else
    append_utf8(utf8proc_tolower(c), text);
}

bool is_accent(int32_t c) {
  if (c < 0x300) return false;
  return c == 0x1734 ||
         (utf8proc_category(c) == UTF8PROC_CATEGORY_MN && !is_newer(c));  // 0x1734: in Unicode 8
}

}  // namespace heed::data::detail

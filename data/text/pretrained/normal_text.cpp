#include "../detail/normal_text.h"

#include "../detail/code_points.h"

namespace heed::data::detail {
namespace {

// What decompositions and orders Unicode has given since version 9 lie in these ranges, and no others do.
constexpr CodePointRange kNewer[] = {
    {0x7fd, 0x7fd},     {0x898, 0x8d3},     {0x9fe, 0x9fe},     {0xc3c, 0xc3c},     {0xd3b, 0xd3c},
    {0xeba, 0xeba},     {0x1715, 0x1715},   {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},   {0x32ff, 0x32ff},
    {0xa7f2, 0xa7f4},   {0xa82c, 0xa82c},   {0xab69, 0xab69},   {0x10781, 0x107ba}, {0x10d24, 0x10f85},
    {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x1145e, 0x1145e}, {0x11839, 0x11a99}, {0x11d42, 0x11f42},
    {0x16ff0, 0x16ff1}, {0x1e030, 0x1e4ef}, {0x1f16c, 0x1f16c}, {0x1fbf0, 0x1fbf9}};

bool is_newer(int32_t c) { return c >= kNewer[0].first && in_ranges(c, kNewer); }

}  // namespace

std::string normal_text(std::string_view text, NormalForm form) {
  std::string result;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    if (is_newer(c.value)) {
      result += normal_form(text.substr(begin, at - begin), form);
      result += text.substr(at, c.bytes);
      begin = at + c.bytes;
    }
    at += c.bytes;
  }
  return begin == 0 ? normal_form(text, form) : result + normal_form(text.substr(begin), form);
}

}  // namespace heed::data::detail

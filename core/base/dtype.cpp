#include <array>
#include <ostream>
#include <utility>

#include <heed/core/base/dtype.h>

namespace heed {
namespace {
constexpr std::array<std::pair<const char*, DType>, 6> kNames{{{"f32", DType::f32},
                                                               {"bf16", DType::bf16},
                                                               {"f64", DType::f64},
                                                               {"i64", DType::i64},
                                                               {"i32", DType::i32},
                                                               {"bool", DType::boolean}}};
}  // namespace

const char* name(DType dtype) {
  for (const auto& entry : kNames)
    if (entry.second == dtype) return entry.first;
  return "?";
}

void append_text(std::string& out, DType dtype) { out += name(dtype); }
std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name(dtype); }

DType parse_dtype(std::string_view text) {
  for (const auto& entry : kNames)
    if (text == entry.first) return entry.second;
  throw ConfigError(concat("unknown dtype '", text, "'; expected f32, bf16, f64, i64, i32 or bool"));
}

}  // namespace heed

#include <algorithm>
#include <charconv>

#include <heed/core/io/detail/json_scanner.h>
#include <heed/core/io/safetensors.h>

namespace heed {

std::string detail::listed(const char* what, const std::vector<std::string>& items) {
  constexpr size_t kMax = 20;
  if (items.empty()) return "";
  std::string text = concat("\n  ", what, " (", items.size(), "): ");
  for (size_t i = 0; i < std::min(items.size(), kMax); ++i) text += (i ? ", " : "") + items[i];
  if (items.size() > kMax) text += concat(" and ", items.size() - kMax, " more");
  return text;
}

namespace {

/// heed's name of a type that is read as it is, else the file's.
std::string type_text(const TensorEntry& entry) {
  const bool own =
      entry.readable() && entry.stored_name() == std::string_view(detail::safetensors_dtype(entry.dtype));
  return own ? name(entry.dtype) : entry.stored_name();
}

bool convertible(DType a, DType b) { return a == b || (is_floating(a) && is_floating(b)); }

}  // namespace

void match_tensors(const SafetensorsHeader& header, std::span<const TensorSpec> expected,
                   std::string_view file) {
  std::vector<std::string> missing, unexpected, mismatched, names;
  for (const TensorSpec& spec : expected) {
    names.push_back(spec.name);
    const TensorEntry* entry = header.find(spec.name);
    if (!entry) {
      missing.push_back(detail::quoted(spec.name));
    } else if (entry->shape != spec.shape || !entry->readable() || !convertible(entry->dtype, spec.dtype)) {
      mismatched.push_back(concat(detail::quoted(spec.name), " is ", type_text(*entry),
                                  detail::shape_text(entry->shape), " in the file and ", spec.dtype,
                                  detail::shape_text(spec.shape), " here"));
    }
  }
  std::sort(names.begin(), names.end());
  for (const TensorEntry& entry : header.tensors)
    if (!std::binary_search(names.begin(), names.end(), entry.name))
      unexpected.push_back(detail::quoted(entry.name));
  HEED_CHECK(missing.empty() && unexpected.empty() && mismatched.empty(), CheckpointError,
             "safetensors file '", file, "' does not fit; nothing was loaded",
             detail::listed("missing", missing), detail::listed("unexpected", unexpected),
             detail::listed("mismatched", mismatched));
}

int64_t read_format_version(const SafetensorsHeader& header, const std::string& key, int64_t oldest,
                            int64_t newest, std::string_view file) {
  const auto found = header.metadata.find(key);
  HEED_CHECK(found != header.metadata.end(), CheckpointError, "safetensors file '", file, "' has no '", key,
             "' in its metadata; it was not written for this purpose");
  const std::string& text = found->second;
  int64_t version = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
  HEED_CHECK(error == std::errc() && end == text.data() + text.size(), CheckpointError, "safetensors file '",
             file, "': '", key, "' is ", detail::quoted(text), ", not a version number");
  HEED_CHECK(version <= newest, CheckpointError, "safetensors file '", file, "': '", key, "' is version ",
             version, ", newer than ", newest, ", the newest that this build reads; use a newer heed");
  HEED_CHECK(version >= oldest, CheckpointError, "safetensors file '", file, "': '", key, "' is version ",
             version, ", older than ", oldest, ", the oldest that this build reads");
  return version;
}

}  // namespace heed

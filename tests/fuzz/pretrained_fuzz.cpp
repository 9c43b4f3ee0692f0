// Any bytes as config.json of each family and as an index of files: a typed error, or settings that a model
// can have, and names of files beside the index.
#include <string>

#include <heed/nn/pretrained/detail/families.h>

#include "fuzz.h"

using heed::fuzz::require;
namespace detail = heed::nn::detail;

namespace {

template <class Read, class Write>
void settings(const heed::detail::Json& json, Read read, Write write) {
  try {
    const auto config = read(detail::Settings(json, "input"));
    require(config.heads > 0 && config.d_model > 0);
    const detail::Json again = write(config);  // may have no setting for something
    const heed::detail::Json parsed = detail::parse_json_object(again.dump(), "again");
    require(write(read(detail::Settings(parsed, "again"))) == again);
  } catch (const heed::ConfigError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const heed::detail::Json json = detail::parse_json_object(text, "input");
    settings(json, detail::read_bert, detail::write_bert);
    settings(json, detail::read_roberta, detail::write_bert);
    settings(json, detail::read_gpt2, detail::write_gpt2);
    settings(
        json, [](const detail::Settings& s) { return detail::read_llama(s); }, detail::write_llama);
    settings(json, detail::read_marian, detail::write_marian);
  } catch (const heed::CheckpointError&) {
  }
  try {
    for (const auto& file : detail::parse_index(text, "input"))
      require(!file.second.empty() && file.first.find('/') == std::string::npos && file.first[0] != '.');
  } catch (const heed::CheckpointError&) {
  }
  return 0;
}

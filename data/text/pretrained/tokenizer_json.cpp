#include "../detail/tokenizer_json.h"

#include <heed/core/io/file.h>

namespace heed::data {
namespace {

constexpr size_t kMaxParts = 16;  // of a normalizer or a pre-tokenizer

TokenizerOptions describe(const std::vector<detail::Normalizer>& normalizers) {
  TokenizerOptions options = {.kind = TokenizerKind::pretrained, .normalization = Normalization::none};
  for (const detail::Normalizer& n : normalizers) {
    using Kind = detail::Normalizer::Kind;
    options.lowercase |= n.kind == Kind::lowercase || (n.kind == Kind::bert && n.bert.lowercase);
    if (n.kind == Kind::form && n.form.compose)
      options.normalization = n.form.compatibility ? Normalization::nfkc : Normalization::nfc;
  }
  return options;
}

}  // namespace

std::shared_ptr<const PretrainedTokenizer> parse_tokenizer_json(std::string_view content,
                                                                std::string_view file_name) {
  const std::string file(file_name);
  const heed::detail::Json json = heed::detail::parse_json(content, file, {"tokenizer", "file"});
  detail::JsonFields fields(json, file);
  auto parts = std::make_unique<PretrainedTokenizer::Parts>();
  parts->json = content;
  parts->normalizers = detail::read_normalizers(fields.find("normalizer"), file);
  detail::PreTokenizer words = detail::read_pre_tokenizer(fields.find("pre_tokenizer"), file);
  parts->splitters = std::move(words.splitters);
  HEED_CHECK(parts->normalizers.size() <= kMaxParts && parts->splitters.size() <= kMaxParts, ConfigError,
             file, ": a normalizer or pre_tokenizer of more than ", kMaxParts, " parts is not supported");
  detail::read_model(fields.at("model"), file, words.byte_level, *parts);
  parts->decoder = detail::read_decoder(fields.find("decoder"), file);
  parts->marked = detail::read_post_processor(fields.find("post_processor"), file);
  detail::read_added_tokens(fields.find("added_tokens"), file, *parts);
  fields.finish({"version", "truncation", "padding"});
  for (const auto* list : {&parts->marked.single, &parts->marked.pair})
    for (const detail::Template::Part& part : *list)
      HEED_CHECK(part.id < std::ssize(parts->marks), CheckpointError, file,
                 ": the post_processor adds the id ", part.id, "; the vocabulary ends at ",
                 std::ssize(parts->marks) - 1);
  parts->options = describe(parts->normalizers);
  return std::make_shared<PretrainedTokenizer>(std::move(parts));
}

}  // namespace heed::data

// The objects of a tokenizer.json as parts of a tokenizer. Each may be null, or a list of its kind
// ("Sequence"). CheckpointError, ConfigError.
#pragma once

#include <string>
#include <vector>

#include "json_fields.h"
#include "pretrained_parts.h"

namespace heed::data::detail {

std::vector<Normalizer> read_normalizers(const Json* json, const std::string& file);

struct PreTokenizer {
  std::vector<Splitter> splitters;
  bool byte_level = false;  // words are bytes, as GPT-2's pieces are
};
PreTokenizer read_pre_tokenizer(const Json* json, const std::string& file);

Template read_post_processor(const Json* json, const std::string& file);

PieceDecoder read_decoder(const Json* json, const std::string& file);

/// Fills in vocabulary and model.
void read_model(const Json& json, const std::string& file, bool byte_level,
                PretrainedTokenizer::Parts& parts);

/// Fills in what follows from the list of added tokens, the normalizers and the vocabulary.
void read_added_tokens(const Json* json, const std::string& file, PretrainedTokenizer::Parts& parts);

/// Ids at most.
inline constexpr int64_t kMaxTokens = int64_t{1} << 24;

}  // namespace heed::data::detail

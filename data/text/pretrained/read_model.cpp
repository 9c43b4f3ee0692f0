// The vocabulary of a tokenizer.json, its merges and its added tokens.
#include <algorithm>

#include "../detail/tokenizer_json.h"

namespace heed::data::detail {
namespace {

constexpr int64_t kLongestWord = 1000;  // characters of a word that WordPiece looks up

Vocabulary read_vocabulary(JsonFields& fields) {
  const JsonObject* const object = fields.at("vocab").as<JsonObject>();
  if (!object) fields.malformed("has no object as 'vocab'");
  std::vector<int64_t> ids;
  ids.reserve(object->keys.size());
  int64_t most = -1;
  for (size_t i = 0; i < object->keys.size(); ++i) {
    const std::optional<int64_t> id = whole_number(object->values[i], kMaxTokens - 1);
    if (!id)
      fields.malformed("gives the piece ", heed::detail::quoted(object->keys[i]), " no number from 0 to ",
                       kMaxTokens - 1);
    ids.push_back(*id);
    most = std::max(most, *id);
  }
  // Memory follows the file's size, not the numbers in it.
  if (most > 2 * std::ssize(ids) + 1000)
    fields.malformed("has ", ids.size(), " pieces and the id ", most, " among them");
  std::vector<std::string> pieces(static_cast<size_t>(most + 1));
  std::vector<bool> taken(pieces.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<size_t>(ids[i]);
    if (taken[id]) fields.malformed("gives the id ", id, " to two pieces");
    taken[id] = true;
    pieces[id] = object->keys[i];
  }
  return Vocabulary(std::move(pieces), fields.place());
}

/// "a b", or ["a", "b"].
std::pair<std::string_view, std::string_view> halves(const Json& json, const JsonFields& fields) {
  if (const auto* const text = json.as<std::string>()) {
    const size_t space = text->find(' ');
    if (space != std::string::npos && text->find(' ', space + 1) == std::string::npos) {
      const std::string_view view = *text;
      return {view.substr(0, space), view.substr(space + 1)};
    }
  } else if (const auto* const list = json.as<std::vector<Json>>(); list && list->size() == 2) {
    const auto* const a = (*list)[0].as<std::string>();
    const auto* const b = (*list)[1].as<std::string>();
    if (a && b) return {*a, *b};
  }
  fields.malformed("has a merge that is no pair of pieces");
}

std::vector<Merge> read_merges(JsonFields& fields, const Vocabulary& vocabulary) {
  std::vector<Merge> merges;
  const auto find = [&](std::string_view piece) {
    const std::optional<int32_t> id = vocabulary.find(piece);
    if (!id)
      fields.malformed("merges into or from ", heed::detail::quoted(piece), ", which its vocabulary lacks");
    return *id;
  };
  std::string merged;
  for (const Json& json : fields.list("merges")) {
    const auto [left, right] = halves(json, fields);
    merged.assign(left).append(right);
    merges.push_back({find(left), find(right), find(merged)});
  }
  return merges;
}

void read_word_piece(JsonFields& fields, bool byte_level, PretrainedTokenizer::Parts& parts) {
  if (byte_level) fields.unsupported("WordPiece after 'ByteLevel'");
  WordPieceOptions options;
  const std::string unknown = fields.text("unk_token");
  options.continuation = fields.text("continuing_subword_prefix");
  options.most_characters = fields.whole("max_input_chars_per_word", kLongestWord);
  parts.vocabulary = read_vocabulary(fields);
  const std::optional<int32_t> id = parts.vocabulary.find(unknown);
  if (!id) fields.malformed("lacks its unk_token ", heed::detail::quoted(unknown));
  options.unknown = *id;
  parts.model = make_word_piece(parts.vocabulary, options, fields.place());
}

void read_byte_pairs(JsonFields& fields, bool byte_level, PretrainedTokenizer::Parts& parts) {
  if (!byte_level) fields.unsupported("BPE without the pre-tokenizer 'ByteLevel'");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) fields.only_empty(key);
  for (const char* key : {"byte_fallback", "fuse_unk"}) fields.only(key, false);
  if (const Json* const dropout = fields.find("dropout"); dropout && whole_number(*dropout, 0) != 0)
    fields.unsupported("'dropout'");
  BytePairOptions options;
  options.whole_words = fields.flag("ignore_merges", false);
  parts.vocabulary = read_vocabulary(fields);
  options.merges = read_merges(fields, parts.vocabulary);
  const std::string unknown = fields.maybe_text("unk_token").value_or("");
  if (!unknown.empty()) {
    const std::optional<int32_t> id = parts.vocabulary.find(unknown);
    if (!id) fields.malformed("lacks its unk_token ", heed::detail::quoted(unknown));
    options.unknown = *id;
  }
  parts.model = make_byte_pairs(parts.vocabulary, options, fields.place());
}

AddedToken read_added_token(const Json& json, const std::string& place) {
  JsonFields fields(json, place);
  AddedToken token;
  token.id = static_cast<int32_t>(fields.whole("id", kMaxTokens - 1));
  token.content = fields.text("content");
  token.special = fields.flag("special");
  token.single_word = fields.flag("single_word");
  token.lstrip = fields.flag("lstrip");
  token.rstrip = fields.flag("rstrip");
  token.normalized = fields.flag("normalized");
  fields.finish();
  if (token.content.size() > kLongestAddedToken)
    fields.malformed("has ", token.content.size(), " bytes; at most ", kLongestAddedToken);
  return token;
}

}  // namespace

void read_model(const Json& json, const std::string& file, bool byte_level,
                PretrainedTokenizer::Parts& parts) {
  JsonFields fields(json, file + ": the model");
  // Old files have no type.
  const std::string type = fields.maybe_text("type").value_or(fields.find("merges") ? "BPE" : "WordPiece");
  if (type == "WordPiece")
    read_word_piece(fields, byte_level, parts);
  else if (type == "BPE")
    read_byte_pairs(fields, byte_level, parts);
  else
    fields.unsupported("the type ", heed::detail::quoted(type));
  fields.finish();
}

void read_added_tokens(const Json* json, const std::string& file, PretrainedTokenizer::Parts& parts) {
  std::vector<AddedToken> in_text, in_normal_form;
  std::vector<int32_t> special;
  int64_t size = parts.vocabulary.size();
  if (json) {
    const auto* const list = json->as<std::vector<Json>>();
    HEED_CHECK(list, CheckpointError, file, ": 'added_tokens' is no list");
    for (const Json& item : *list) {
      AddedToken token = read_added_token(item, file + ": an added token");
      const std::optional<int32_t> known = parts.vocabulary.find(token.content);
      const bool in_model = token.id < parts.vocabulary.size() && !parts.vocabulary.piece(token.id).empty();
      HEED_CHECK(known ? *known == token.id : !in_model, CheckpointError, file, ": the added token ",
                 heed::detail::quoted(token.content), " has the id ", token.id,
                 ", which is not what the model's vocabulary says");
      if (!known)
        HEED_CHECK(parts.added.emplace(token.id, token.content).second, CheckpointError, file, ": the id ",
                   token.id, " is given to two added tokens");
      size = std::max<int64_t>(size, token.id + 1);
      if (token.special) special.push_back(token.id);
      if (token.normalized) {
        token.content = parts.normalize(token.content);
        in_normal_form.push_back(std::move(token));
      } else {
        in_text.push_back(std::move(token));
      }
    }
    HEED_CHECK(size <= 2 * (parts.vocabulary.size() + std::ssize(*list)) + 1000, CheckpointError, file,
               ": the added tokens have ids up to ", size - 1);
  }
  parts.in_text = AddedTokens(std::move(in_text));
  parts.in_normal_form = AddedTokens(std::move(in_normal_form));
  parts.marks.resize(static_cast<size_t>(size));
  for (const int32_t id : special) parts.marks[static_cast<size_t>(id)] = true;
}

}  // namespace heed::data::detail

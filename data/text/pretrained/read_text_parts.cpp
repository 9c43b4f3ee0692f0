// Normalizers, pre-tokenizers, post-processors and decoders.
#include <functional>

#include "../detail/tokenizer_json.h"

namespace heed::data::detail {
namespace {

using Part = Template::Part;

/// Calls read(fields, type) for an object, or for each of a "Sequence", whose parts are under `list`.
void for_each_part(const Json* json, const std::string& place, std::string_view list,
                   const std::function<void(JsonFields&, const std::string&)>& read) {
  if (!json) return;
  JsonFields fields(*json, place);
  const std::string type = fields.text("type");
  if (type == "Sequence") {
    for (const Json& part : fields.list(list)) for_each_part(&part, place, list, read);
    fields.finish();
    return;
  }
  read(fields, type);
}

int64_t token_id(const Json& json, const JsonFields& fields) {
  const std::optional<int64_t> id = whole_number(json, kMaxTokens - 1);
  if (!id) fields.malformed("has a mark without a number");
  return *id;
}

/// ["[SEP]", 102]
int64_t marked_token(JsonFields& fields, std::string_view key) {
  const std::vector<Json>& pair = fields.list(key);
  if (pair.size() != 2 || !pair[0].as<std::string>())
    fields.malformed("has no text and number as '", key, "'");
  return token_id(pair[1], fields);
}

std::vector<Part> read_template(JsonFields& fields, std::string_view key, JsonFields& marks, bool pair) {
  constexpr size_t kMaxItems = 64;
  std::vector<Part> parts;
  int texts = 0;
  if (fields.list(key).size() > kMaxItems)
    fields.unsupported("a template '", key, "' of more than ", kMaxItems, " parts");
  for (const Json& item : fields.list(key)) {
    JsonFields outer(item, fields.place());
    const bool text = outer.find("Sequence") != nullptr;
    JsonFields inner(outer.at(text ? "Sequence" : "SpecialToken"), fields.place());
    const std::string id = inner.text("id");
    const int64_t segment = inner.whole("type_id", 255);
    inner.finish();
    outer.finish();
    if (text) {
      if (id != "A" && id != "B")
        fields.malformed("has the sequence ", heed::detail::quoted(id), "; expected A or B");
      parts.push_back({id == "A" ? Part::Kind::a : Part::Kind::b, 0, segment});
      texts += id == "A" ? 1 : 16;
      continue;
    }
    JsonFields mark(marks.at(id), fields.place());
    if (mark.list("ids").size() > kMaxItems) fields.unsupported("a mark of more than ", kMaxItems, " ids");
    for (const Json& number : mark.list("ids"))
      parts.push_back({Part::Kind::mark, token_id(number, fields), segment});
    mark.finish({"id", "tokens"});
  }
  if (texts != (pair ? 17 : 1)) fields.unsupported("a template '", key, "' without each text once");
  return parts;
}

Part mark(int64_t id, int64_t segment = 0) { return {Part::Kind::mark, id, segment}; }

}  // namespace

std::vector<Normalizer> read_normalizers(const Json* json, const std::string& file) {
  using Kind = Normalizer::Kind;
  std::vector<Normalizer> normalizers;
  for_each_part(json, file + ": the normalizer", "normalizers",
                [&](JsonFields& fields, const std::string& type) {
                  if (type == "BertNormalizer") {
                    BertOptions bert;
                    bert.clean = fields.flag("clean_text");
                    bert.spaces_cjk = fields.flag("handle_chinese_chars");
                    bert.lowercase = fields.flag("lowercase");
                    bert.strip_accents = fields.flag("strip_accents", bert.lowercase);
                    normalizers.push_back({Kind::bert, bert});
                  } else if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
                    normalizers.push_back(
                        {Kind::form, {}, {.compatibility = type[2] == 'K', .compose = type.back() == 'C'}});
                  } else if (type == "Lowercase") {
                    normalizers.push_back({Kind::lowercase});
                  } else {
                    fields.unsupported("the type ", heed::detail::quoted(type));
                  }
                  fields.finish({"type"});
                });
  return normalizers;
}

PreTokenizer read_pre_tokenizer(const Json* json, const std::string& file) {
  using Kind = Splitter::Kind;
  PreTokenizer result;
  const auto read = [&](JsonFields& fields, const std::string& type) {
    if (result.byte_level) fields.unsupported("a part after 'ByteLevel'");
    if (type == "BertPreTokenizer") {
      result.splitters.push_back({Kind::bert});
    } else if (type == "ByteLevel") {
      if (fields.flag("add_prefix_space")) result.splitters.push_back({Kind::space_in_front});
      if (fields.flag("use_regex", true)) result.splitters.push_back({Kind::pattern, kGpt2Pattern});
      result.byte_level = true;
    } else if (type == "Digits") {
      result.splitters.push_back({fields.flag("individual_digits") ? Kind::digit : Kind::digits});
    } else if (type == "Split") {
      JsonFields pattern(fields.at("pattern"), fields.place());
      const std::string expression = pattern.text("Regex");
      pattern.finish();
      const std::optional<SplitPattern> known = find_pattern(expression);
      if (!known)
        fields.unsupported("the pattern ", heed::detail::quoted(expression), " (known are ", kKnownPatterns,
                           ")");
      // What the pattern matches is all of a text, so it may also be what is kept.
      const std::string behavior = fields.text("behavior");
      const bool inverted = fields.flag("invert", false);
      if (!(behavior == "Isolated" && !inverted) && !(behavior == "Removed" && inverted))
        fields.unsupported("the behavior ", heed::detail::quoted(behavior), inverted ? " inverted" : "");
      result.splitters.push_back({Kind::pattern, *known});
    } else {
      fields.unsupported("the type ", heed::detail::quoted(type));
    }
    fields.finish({"type", "trim_offsets"});
  };
  for_each_part(json, file + ": the pre_tokenizer", "pretokenizers", read);
  return result;
}

Template read_post_processor(const Json* json, const std::string& file) {
  Template result;
  bool marked = false;
  const auto read = [&](JsonFields& fields, const std::string& type) {
    constexpr Part::Kind a = Part::Kind::a, b = Part::Kind::b;
    if (type == "ByteLevel") return fields.finish({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    if (marked) fields.unsupported("a second part that adds marks");
    marked = true;
    if (type == "TemplateProcessing") {
      JsonFields marks(fields.at("special_tokens"), fields.place());
      result = {read_template(fields, "single", marks, false), read_template(fields, "pair", marks, true)};
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      const bool bert = type == "BertProcessing";
      const int64_t cls = marked_token(fields, "cls"), sep = marked_token(fields, "sep"),
                    second = bert ? 1 : 0;
      result = {{mark(cls), {a}, mark(sep)}, {mark(cls), {a}, mark(sep)}};
      if (!bert) result.pair.push_back(mark(sep));
      result.pair.insert(result.pair.end(), {{b, 0, second}, mark(sep, second)});
    } else {
      fields.unsupported("the type ", heed::detail::quoted(type));
    }
    fields.finish({"type", "add_prefix_space", "trim_offsets"});
  };
  for_each_part(json, file + ": the post_processor", "processors", read);
  return result;
}

PieceDecoder read_decoder(const Json* json, const std::string& file) {
  PieceDecoder decoder;
  if (!json) return decoder;
  JsonFields fields(*json, file + ": the decoder");
  const std::string type = fields.text("type");
  if (type == "ByteLevel") {
    decoder.kind = PieceDecoder::Kind::byte_level;
    fields.finish({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  } else if (type == "WordPiece") {
    decoder = {PieceDecoder::Kind::word_piece, fields.text("prefix"), fields.flag("cleanup")};
    fields.finish({"type"});
  } else {
    fields.unsupported("the type ", heed::detail::quoted(type));
  }
  return decoder;
}

}  // namespace heed::data::detail

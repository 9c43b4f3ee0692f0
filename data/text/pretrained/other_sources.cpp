// Vocabularies that are no tokenizer.json become one.
#include <algorithm>
#include <filesystem>

#include <heed/core/base/check.h>
#include <heed/core/base/text.h>
#include <heed/core/io/detail/json.h>
#include <heed/core/io/file.h>
#include <heed/data/text/pretrained_tokenizer.h>

#include "../detail/json_fields.h"

namespace heed::data {
namespace {

using heed::detail::json_string;

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 28;

/// The parts of a tokenizer.json, as JSON.
struct Sources {
  std::string normalizer = "null", pre_tokenizer = "null", post_processor = "null", decoder = "null", model;
  std::vector<std::string> added;

  std::shared_ptr<const PretrainedTokenizer> parse(std::string_view file) const {
    std::string list;
    for (const std::string& token : added) list += (list.empty() ? "" : ",\n") + token;
    return parse_tokenizer_json(
        concat("{\"version\": \"1.0\", \"truncation\": null, \"padding\": null,\n\"added_tokens\": [", list,
               "],\n\"normalizer\": ", normalizer, ",\n\"pre_tokenizer\": ", pre_tokenizer,
               ",\n\"post_processor\": ", post_processor, ",\n\"decoder\": ", decoder,
               ",\n\"model\": ", model, "}\n"),
        file);
  }
};

std::string added_token(std::string_view content, int64_t id, bool special) {
  return concat(
      "{\"id\": ", id, ", \"content\": ", json_string(content),
      ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": ",
      special ? "true" : "false", "}");
}

/// {"a": 0, …}, in which a piece that comes again is an error of the file.
std::string vocabulary(const std::vector<std::string>& pieces) {
  std::string json = "{";
  for (size_t id = 0; id < pieces.size(); ++id)
    json += concat(id ? ",\n" : "", json_string(pieces[id]), ": ", id);
  return json + "}";
}

constexpr const char* kByteLevelParts = R"("add_prefix_space": false, "trim_offsets": true, "use_regex": )";

std::string byte_level(bool pattern) {
  return concat(R"({"type": "ByteLevel", )", kByteLevelParts, pattern ? "true" : "false", "}");
}

std::string split_modern(std::string_view digits) {
  const std::string pattern = concat(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)", digits,
                                     R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
  return concat(R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": )",
                json_string(pattern), R"(}, "behavior": "Isolated", "invert": false}, )", byte_level(false),
                "]}");
}

std::string word_piece_model(const std::vector<std::string>& pieces, std::string_view unknown) {
  return concat(R"({"type": "WordPiece", "unk_token": )", json_string(unknown),
                R"(, "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": )",
                vocabulary(pieces), "}");
}

std::string byte_pair_model(std::string_view vocab, std::string_view merges, bool ignore_merges) {
  return concat(R"({"type": "BPE", "ignore_merges": )", ignore_merges ? "true" : "false",
                ", \"vocab\": ", vocab, ",\n\"merges\": ", merges, "}");
}

/// A template of one or two texts between marks, of which `bos` and `eos` may be missing.
std::string marks_template(const std::vector<std::string>& pieces, std::optional<int64_t> bos,
                           std::optional<int64_t> eos, bool bert) {
  const auto mark = [&](std::optional<int64_t> id, int segment) {
    return id ? concat(R"({"SpecialToken": {"id": )", json_string(pieces[static_cast<size_t>(*id)]),
                       ", \"type_id\": ", segment, "}}")
              : std::string();
  };
  const auto join = [](std::initializer_list<std::string> parts) {
    std::string list;
    for (const std::string& part : parts)
      if (!part.empty()) list += (list.empty() ? "" : ", ") + part;
    return "[" + list + "]";
  };
  const auto text = [](const char* name, int segment) {
    return concat(R"({"Sequence": {"id": ")", name, "\", \"type_id\": ", segment, "}}");
  };
  std::string special;
  for (const std::optional<int64_t>& id : {bos, bos == eos ? std::nullopt : eos})
    if (id) {
      const std::string piece = json_string(pieces[static_cast<size_t>(*id)]);
      special += concat(special.empty() ? "" : ", ", piece, ": {\"id\": ", piece, ", \"ids\": [", *id,
                        "], \"tokens\": [", piece, "]}");
    }
  return concat(
      R"({"type": "TemplateProcessing", "single": )", join({mark(bos, 0), text("A", 0), mark(eos, 0)}),
      ", \"pair\": ",
      join({mark(bos, 0), text("A", 0), mark(eos, 0), bert ? "" : mark(bos, 1), text("B", 1), mark(eos, 1)}),
      ", \"special_tokens\": {", special, "}}");
}

std::shared_ptr<const PretrainedTokenizer> bert(const std::vector<std::string>& pieces,
                                                std::string_view unknown, std::optional<int64_t> cls,
                                                std::optional<int64_t> sep, std::vector<std::string> added,
                                                bool lowercase, std::string_view file) {
  Sources s;
  s.normalizer = concat(
      R"({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, )",
      "\"lowercase\": ", lowercase ? "true" : "false", "}");
  s.pre_tokenizer = R"({"type": "BertPreTokenizer"})";
  s.post_processor = marks_template(pieces, cls, sep, true);
  s.decoder = R"({"type": "WordPiece", "prefix": "##", "cleanup": true})";
  s.model = word_piece_model(pieces, unknown);
  s.added = std::move(added);
  return s.parse(file);
}

std::vector<std::string> lines_of(std::string_view content) {
  std::vector<std::string> lines;
  for (std::string_view line : split(content, '\n')) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line);
  }
  if (lines.back().empty()) lines.pop_back();  // behind the last newline
  return lines;
}

// Types of tokens in GGUF.
constexpr int64_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4;

int64_t type_of(const GgufVocabulary& v, size_t id) {
  return v.token_types.empty() ? kNormal : v.token_types[id];
}

std::vector<std::string> gguf_added_tokens(const GgufVocabulary& v) {
  std::vector<std::string> added;
  for (size_t id = 0; id < v.tokens.size(); ++id) {
    const int64_t type = type_of(v, id);
    if (type == kControl || type == kUserDefined || (type == kUnknown && v.model == "bert"))
      added.push_back(added_token(v.tokens[id], static_cast<int64_t>(id), type != kUserDefined));
  }
  return added;
}

std::shared_ptr<const PretrainedTokenizer> gguf_word_piece(const GgufVocabulary& v, std::string_view file) {
  constexpr std::string_view kBegins = "\u2581";  // what pieces that begin a word are marked with there
  std::vector<std::string> pieces = v.tokens;
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (pieces[id].starts_with(kBegins))
      pieces[id].erase(0, kBegins.size());
    else if (type_of(v, id) == kNormal)
      pieces[id].insert(0, "##");
  }
  HEED_CHECK(v.unknown, CheckpointError, file, ": the vocabulary names no unknown token");
  return bert(pieces, pieces[static_cast<size_t>(*v.unknown)], v.bos, v.eos, gguf_added_tokens(v), true,
              file);
}

std::shared_ptr<const PretrainedTokenizer> gguf_byte_pairs(const GgufVocabulary& v, std::string_view file) {
  Sources s;
  bool ignore_merges = false;
  if (v.pre == "gpt-2") {
    s.pre_tokenizer = byte_level(true);
  } else if (v.pre == "smollm") {
    s.pre_tokenizer =
        concat(R"({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true}, )",
               byte_level(true), "]}");
  } else if (v.pre == "llama-bpe") {
    s.pre_tokenizer = split_modern(R"(\p{N}{1,3})");
    ignore_merges = true;
  } else if (v.pre == "qwen2") {
    s.normalizer = R"({"type": "NFC"})";
    s.pre_tokenizer = split_modern(R"(\p{N})");
  } else {
    throw ConfigError(concat(file, ": the pre-tokenizer ", heed::detail::quoted(v.pre),
                             " is not supported; expected gpt-2, smollm, llama-bpe or qwen2"));
  }
  std::string merges = "[";
  for (const std::string& merge : v.merges)
    merges += concat(merges.size() > 1 ? ",\n" : "", json_string(merge));
  s.model = byte_pair_model(vocabulary(v.tokens), merges + "]", ignore_merges);
  s.post_processor =
      marks_template(v.tokens, v.add_bos ? v.bos : std::nullopt, v.add_eos ? v.eos : std::nullopt, false);
  s.decoder = byte_level(true);
  s.added = gguf_added_tokens(v);
  return s.parse(file);
}

}  // namespace

std::shared_ptr<const PretrainedTokenizer> parse_vocab_txt(std::string_view content, std::string_view file,
                                                           bool lowercase) {
  const std::vector<std::string> pieces = lines_of(content);
  std::vector<std::string> added;
  const auto find = [&](const char* piece) -> std::optional<int64_t> {
    const auto found = std::find(pieces.begin(), pieces.end(), piece);
    if (found == pieces.end()) return std::nullopt;
    added.push_back(added_token(piece, found - pieces.begin(), true));
    return found - pieces.begin();
  };
  HEED_CHECK(find("[UNK]"), CheckpointError, file, ": the vocabulary lacks [UNK]");
  const std::optional<int64_t> cls = find("[CLS]"), sep = find("[SEP]");
  find("[PAD]");
  find("[MASK]");
  return bert(pieces, "[UNK]", cls, sep, std::move(added), lowercase, file);
}

std::shared_ptr<const PretrainedTokenizer> parse_vocab_and_merges(std::string_view vocab_json,
                                                                  std::string_view merges_txt,
                                                                  std::string_view file) {
  std::string merges = "[";
  const std::vector<std::string> lines = lines_of(merges_txt);
  for (size_t i = 0; i < lines.size(); ++i)
    if (!lines[i].empty() && !(i == 0 && lines[i].starts_with("#version")))
      merges += concat(merges.size() > 1 ? ",\n" : "", json_string(lines[i]));
  Sources s;
  s.pre_tokenizer = byte_level(true);
  s.decoder = byte_level(true);
  s.model = byte_pair_model(vocab_json, merges + "]", false);
  constexpr std::string_view kEnd = "<|endoftext|>";
  const heed::detail::Json vocab = heed::detail::parse_json(vocab_json, file, {"vocabulary", "file"});
  const heed::detail::Json* const end = vocab.find(kEnd);
  if (const std::optional<int64_t> id = end ? detail::whole_number(*end, INT32_MAX) : std::nullopt)
    s.added.push_back(added_token(kEnd, *id, true));
  return s.parse(file);
}

std::shared_ptr<const PretrainedTokenizer> make_tokenizer(const GgufVocabulary& v, std::string_view file) {
  const auto check_id = [&](std::optional<int64_t> id, const char* what) {
    HEED_CHECK(!id || (*id >= 0 && *id < std::ssize(v.tokens)), CheckpointError, file, ": the id of ", what,
               " is ", *id, "; the vocabulary has ", v.tokens.size(), " tokens");
  };
  check_id(v.bos, "the begin");
  check_id(v.eos, "the end");
  check_id(v.unknown, "the unknown token");
  HEED_CHECK(v.token_types.empty() || v.token_types.size() == v.tokens.size(), CheckpointError, file, ": ",
             v.tokens.size(), " tokens and ", v.token_types.size(), " types of them");
  if (v.model == "bert") return gguf_word_piece(v, file);
  HEED_CHECK(v.model == "gpt2", ConfigError, file, ": the tokenizer model ", heed::detail::quoted(v.model),
             " is not supported; expected gpt2 or bert");
  return gguf_byte_pairs(v, file);
}

std::shared_ptr<const PretrainedTokenizer> load_pretrained_tokenizer(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    const std::string content = read_whole_file(path, kMaxFileBytes);
    const bool json = content.substr(0, content.find_first_not_of(" \t\r\n") + 1).ends_with('{');
    return json ? parse_tokenizer_json(content, path) : parse_vocab_txt(content, path);
  }
  const auto in_folder = [&](const char* name) { return (fs::path(path) / name).string(); };
  const auto has = [&](const char* name) { return fs::exists(in_folder(name), error); };
  if (has("tokenizer.json")) return load_pretrained_tokenizer(in_folder("tokenizer.json"));
  if (has("vocab.json") && has("merges.txt"))
    return parse_vocab_and_merges(read_whole_file(in_folder("vocab.json"), kMaxFileBytes),
                                  read_whole_file(in_folder("merges.txt"), kMaxFileBytes), path);
  HEED_CHECK(has("vocab.txt"), IoError, "'", path,
             "' has neither tokenizer.json, nor vocab.json and merges.txt, nor vocab.txt");
  return load_pretrained_tokenizer(in_folder("vocab.txt"));
}

}  // namespace heed::data

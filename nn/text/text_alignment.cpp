#include <algorithm>
#include <optional>

#include <heed/core/attention.h>
#include <heed/core/autograd/autograd.h>
#include <heed/core/ops.h>
#include <heed/nn/text/text_alignment.h>

namespace heed::nn {
namespace {

constexpr std::string_view kSubWordSpace = "\xe2\x96\x81";  // how sentencepiece writes a space: U+2581

/// The byte that a piece such as "<0x41>" stands for.
std::optional<int> byte_of(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece.back() != '>') return std::nullopt;
  int value = 0;
  for (const char c : piece.substr(3, 2)) {
    const auto digit = std::string_view("0123456789abcdef0123456789ABCDEF").find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    value = 16 * value + static_cast<int>(digit % 16);
  }
  return value;
}

struct PieceShape {
  bool begins_with_space = false;
  bool space_alone = false;
  bool continues = false;  // a character that the token before it began
};

PieceShape shape_of(std::string_view piece) {
  if (const std::optional<int> byte = byte_of(piece))
    return {*byte == ' ', *byte == ' ', (*byte & 0xc0) == 0x80};
  const std::string_view space = piece.starts_with(kSubWordSpace) ? kSubWordSpace : " ";
  return {piece.starts_with(space), piece == space, false};
}

bool has_words(data::TokenizerKind kind) {
  return kind == data::TokenizerKind::words || kind == data::TokenizerKind::unigram ||
         kind == data::TokenizerKind::bpe;
}

std::vector<int64_t> framed(const data::TokenIds& symbols) {
  std::vector<int64_t> ids{data::kStart};
  ids.insert(ids.end(), symbols.begin(), symbols.end());
  ids.push_back(data::kEnd);
  return ids;
}

struct Pair {
  size_t number;  // of the text
  TextWords source, output;
};

/// Of words: [output words, source words].
using WordWeights = std::vector<float>;

/// Adds one layer's attention [heads, queries, keys] to the weights of the words. Query i answers token i;
/// the first and the last key are marks.
void add_attention(const Tensor& attention, const Pair& pair, WordWeights& weights) {
  const std::vector<float> values = attention.to(kCpu).to(DType::f32).to_vector<float>();
  const auto queries = static_cast<size_t>(attention.size(1)), keys = static_cast<size_t>(attention.size(2));
  for (size_t head = 0; head < static_cast<size_t>(attention.size(0)); ++head)
    for (size_t q = 0; q < pair.output.word_of.size(); ++q) {
      const float* const row = values.data() + (head * queries + q) * keys + 1;
      float* const to =
          weights.data() + static_cast<size_t>(pair.output.word_of[q]) * pair.source.texts.size();
      for (size_t k = 0; k < pair.source.word_of.size(); ++k) to[pair.source.word_of[k]] += row[k];
    }
}

/// Makes each row add up to 1; one that looked at marks alone looks everywhere alike.
void normalize_rows(const Pair& pair, WordWeights& weights) {
  const size_t width = pair.source.texts.size();
  for (size_t i = 0; i < pair.output.texts.size(); ++i) {
    const std::span<float> row(weights.data() + i * width, width);
    float sum = 0;
    for (const float w : row) sum += w;
    for (float& w : row) w = sum > 0 ? w / sum : 1.0f / static_cast<float>(row.size());
  }
}

/// One model's weights of each pair.
std::vector<WordWeights> word_weights(const Transformer& model, const std::vector<Pair>& pairs,
                                      const Tokens& source, const Tokens& target) {
  std::vector<WordWeights> all;
  for (const Pair& pair : pairs) all.emplace_back(pair.output.texts.size() * pair.source.texts.size(), 0.0f);
  AttentionRecord record;
  model.decode(target, model.encode(source), source.segments);
  for (const std::string& name : record.names()) {
    if (name.find("multihead_attn") == std::string::npos) continue;
    for (size_t i = 0; i < pairs.size(); ++i)
      add_attention(record.weights(name, static_cast<int64_t>(i)), pairs[i], all[i]);
  }
  for (size_t i = 0; i < pairs.size(); ++i) normalize_rows(pairs[i], all[i]);
  return all;
}

}  // namespace

TextWords words_of(const data::Tokenizer& tokenizer, std::span<const int64_t> tokens) {
  std::vector<PieceShape> shapes;
  for (const int64_t id : tokens) shapes.push_back(shape_of(tokenizer.piece(id)));
  const data::TokenizerKind kind = tokenizer.options().kind;
  const bool symbols = kind == data::TokenizerKind::symbols;
  const bool at_spaces =
      !symbols && (has_words(kind) || std::any_of(shapes.begin(), shapes.end(),
                                                  [](const PieceShape& s) { return s.begins_with_space; }));
  TextWords result;
  size_t begin = 0;
  bool blank = false;  // the word so far is white space
  const auto finish = [&](size_t end) {
    std::string text = tokenizer.decode(tokens.subspan(begin, end - begin));
    text.erase(0, std::min(text.find_first_not_of(' '), text.size()));
    result.texts.push_back(std::move(text));
    begin = end;
  };
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool begins = at_spaces ? shapes[i].begins_with_space && !blank : symbols || !shapes[i].continues;
    if (i > 0 && begins) finish(i);
    blank = shapes[i].space_alone && (i == begin || blank);
    result.word_of.push_back(std::ssize(result.texts));
  }
  if (!tokens.empty()) finish(tokens.size());
  return result;
}

int64_t TextAlignment::source_of(int64_t output_word) const {
  const auto row = weights.begin() + output_word * std::ssize(source);
  return std::max_element(row, row + std::ssize(source)) - row;
}

std::vector<TextAlignment> align(const TextModel& model, const std::vector<std::string>& texts,
                                 const std::vector<std::vector<int64_t>>& outputs) {
  HEED_CHECK(texts.size() == outputs.size(), ShapeError, "align: ", outputs.size(), " outputs of ",
             texts.size(), " texts");
  std::vector<TextAlignment> results(texts.size());
  std::vector<Pair> pairs;
  std::vector<std::vector<int64_t>> sources, targets;
  for (size_t i = 0; i < texts.size(); ++i) {
    const data::TokenIds symbols = model.source().encode(texts[i]);
    HEED_CHECK(std::ssize(symbols) <= model.max_input(), DataError, "text ", i + 1, ": ", symbols.size(),
               " tokens; at most ", model.max_input(), " are taken");
    Pair pair{i, words_of(model.source(), symbols), words_of(model.target(), outputs[i])};
    results[i].source = pair.source.texts;
    results[i].output = pair.output.texts;
    if (symbols.empty() || outputs[i].empty()) continue;
    results[i].weights.assign(results[i].source.size() * results[i].output.size(), 0.0f);
    pairs.push_back(std::move(pair));
    sources.push_back(framed(symbols));
    targets.push_back({data::kStart});
    targets.back().insert(targets.back().end(), outputs[i].begin(), outputs[i].end() - 1);
  }
  if (pairs.empty()) return results;

  const Device device = model.model().tgt_embedding.weight.device();
  const NoGrad no_grad;
  const Tokens source = Tokens::packed(sources, device), target = Tokens::packed(targets, device);
  const auto count = static_cast<float>(model.models().size());
  for (const auto& one : model.models()) {
    const std::vector<WordWeights> weights = word_weights(*one, pairs, source, target);
    for (size_t i = 0; i < pairs.size(); ++i)
      for (size_t k = 0; k < weights[i].size(); ++k)
        results[pairs[i].number].weights[k] += weights[i][k] / count;
  }
  return results;
}

}  // namespace heed::nn

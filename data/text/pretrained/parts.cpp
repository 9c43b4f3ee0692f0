#include <heed/core/base/check.h>

#include "../detail/code_points.h"
#include "../detail/pretrained_parts.h"
#include "../detail/replace_all.h"

namespace heed::data {
namespace detail {

std::string Normalizer::operator()(std::string_view text) const {
  switch (kind) {
    case Kind::bert:
      return bert_text(text, bert);
    case Kind::form:
      return normal_text(text, form);
    case Kind::lowercase:
      break;
  }
  std::string small;
  for_each_code_point(text, [&](int32_t c, std::string_view) { append_lowercase(c, small); });
  return small;
}

std::string PieceDecoder::operator()(const std::string& piece, bool first) const {
  if (kind == Kind::byte_level) return piece_bytes(piece);
  if (kind == Kind::spaced) return first ? piece : ' ' + piece;
  std::string text = piece;
  if (!first) {
    if (text.starts_with(continuation))
      text.erase(0, continuation.size());
    else
      text.insert(0, 1, ' ');
  }
  if (cleanup) {
    constexpr std::pair<const char*, const char*> kReplaced[] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& entry : kReplaced) replace_all(text, entry.first, entry.second);
  }
  return text;
}

std::unique_ptr<EncodeScratch> ScratchPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      std::unique_ptr<EncodeScratch> scratch = std::move(free_.back());
      free_.pop_back();
      return scratch;
    }
  }
  return std::make_unique<EncodeScratch>();
}

void ScratchPool::give_back(std::unique_ptr<EncodeScratch> scratch) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(scratch));
}

}  // namespace detail

std::string PretrainedTokenizer::Parts::normalize(std::string_view text) const {
  std::string result(text);
  for (const detail::Normalizer& normalizer : normalizers) result = normalizer(result);
  return result;
}

void PretrainedTokenizer::Parts::encode(std::string_view text, bool special_tokens, TokenIds& ids) const {
  if (const std::optional<size_t> at = invalid_utf8(text))
    throw DataError(
        concat("the text is not UTF-8: byte ", *at, " of ", text.size(), " is part of no character"));
  HEED_CHECK(text.size() <= INT32_MAX, DataError, "a text of ", text.size(), " bytes; at most ", INT32_MAX);
  std::unique_ptr<detail::EncodeScratch> scratch = pool.take();
  scratch->segments.clear();
  in_text.split(text, special_tokens, scratch->segments);
  for (const detail::Segment& segment : scratch->segments) {
    if (segment.token >= 0)
      ids.push_back(segment.token);
    else
      encode_segment(segment.text, special_tokens, *scratch, ids);
  }
  pool.give_back(std::move(scratch));
}

void PretrainedTokenizer::Parts::encode_segment(std::string_view text, bool special_tokens,
                                                detail::EncodeScratch& scratch, TokenIds& ids) const {
  if (!normalizers.empty()) {
    scratch.normal = normalize(text);
    text = scratch.normal;
  }
  if (in_normal_form.empty()) return encode_words(text, scratch, ids);
  scratch.inner.clear();
  in_normal_form.split(text, special_tokens, scratch.inner);
  for (const detail::Segment& segment : scratch.inner) {
    if (segment.token >= 0)
      ids.push_back(segment.token);
    else
      encode_words(segment.text, scratch, ids);
  }
}

void PretrainedTokenizer::Parts::encode_words(std::string_view text, detail::EncodeScratch& scratch,
                                              TokenIds& ids) const {
  if (text.empty()) return;
  auto& words = scratch.words;
  words.assign(1, text);
  for (const detail::Splitter& splitter : splitters) {
    scratch.cut.clear();
    if (splitter.kind == detail::Splitter::Kind::space_in_front) {
      scratch.spaced.clear();
      scratch.spaced.reserve(words.size());  // which the pieces look into
      for (const std::string_view word : words)
        scratch.cut.push_back(word[0] == ' ' ? word : scratch.spaced.emplace_back(" ").append(word));
    } else {
      for (const std::string_view word : words) detail::split(splitter, word, scratch.cut);
    }
    words.swap(scratch.cut);
  }
  for (const std::string_view word : words) {
    if (const auto known = scratch.cache.find(word)) {
      ids.insert(ids.end(), known->begin(), known->end());
      continue;
    }
    model->encode(word, scratch.word);
    ids.insert(ids.end(), scratch.word.ids.begin(), scratch.word.ids.end());
    scratch.cache.insert(word, scratch.word.ids);
  }
}

}  // namespace heed::data

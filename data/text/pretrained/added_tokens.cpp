#include "../detail/added_tokens.h"

#include <algorithm>

#include "../detail/code_points.h"

namespace heed::data::detail {
namespace {

/// Where the character before `at` begins.
size_t previous(std::string_view text, size_t at) {
  do --at;
  while ((text[at] & 0xc0) == 0x80);
  return at;
}

bool is_space(std::string_view text, size_t at) {
  return group_of(code_point_at(text, at).value) == CharacterGroup::space;
}

bool is_within_word(std::string_view text, size_t begin, size_t end) {
  const bool before = begin > 0 && is_word_character(code_point_at(text, previous(text, begin)).value);
  return before || (end < text.size() && is_word_character(code_point_at(text, end).value));
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::erase_if(tokens_, [](const AddedToken& token) { return token.content.empty(); });
  const auto less = [](const AddedToken& a, const AddedToken& b) { return a.content < b.content; };
  std::stable_sort(tokens_.begin(), tokens_.end(), less);
  const auto equal = [](const AddedToken& a, const AddedToken& b) { return a.content == b.content; };
  tokens_.erase(std::unique(tokens_.begin(), tokens_.end(), equal), tokens_.end());
  for (const AddedToken& token : tokens_) begins_[static_cast<unsigned char>(token.content[0])] = true;
}

const AddedToken* AddedTokens::longest(std::string_view text) const {
  const AddedToken* best = nullptr;
  auto first = tokens_.begin(), last = tokens_.end();  // those that begin as the text does
  for (size_t length = 0; first != last; ++length) {
    if (first->content.size() == length) best = &*first++;
    if (length == text.size()) break;
    const auto at = [length](const AddedToken& t) { return static_cast<unsigned char>(t.content[length]); };
    const auto byte = static_cast<unsigned char>(text[length]);
    first = std::partition_point(first, last, [&](const AddedToken& t) { return at(t) < byte; });
    last = std::partition_point(first, last, [&](const AddedToken& t) { return at(t) == byte; });
  }
  return best;
}

void AddedTokens::split(std::string_view text, bool special, std::vector<Segment>& segments) const {
  size_t done = 0;        // of the text
  size_t spaces_end = 0;  // of the white space that was taken last, which later tokens may begin in
  for (size_t at = 0; !tokens_.empty() && at < text.size();) {
    const AddedToken* const token =
        begins_[static_cast<unsigned char>(text[at])] ? longest(text.substr(at)) : nullptr;
    if (!token) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + token->content.size();
    at = end;
    if (token->special && !special) continue;
    if (token->single_word && is_within_word(text, begin, end)) continue;
    if (token->lstrip)
      while (begin > done && is_space(text, previous(text, begin))) begin = previous(text, begin);
    if (token->rstrip) {
      end = std::max(end, spaces_end);
      while (end < text.size() && is_space(text, end)) end += code_point_at(text, end).bytes;
      spaces_end = end;
    }
    if (done < begin) segments.push_back({text.substr(done, begin - done)});
    segments.push_back({text.substr(begin, end - begin), token->id});
    done = end;
  }
  if (done < text.size()) segments.push_back({text.substr(done)});
}

}  // namespace heed::data::detail

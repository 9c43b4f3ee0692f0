#include <algorithm>

#include <heed/core/base/check.h>

#include "../detail/pretrained_parts.h"

namespace heed::data {
namespace {

using Part = detail::Template::Part;

/// Drops ids until so many are left.
void cut(TokenIds& ids, int64_t length, Truncation truncation) {
  if (std::ssize(ids) <= length) return;
  if (truncation == Truncation::beginning)
    ids.erase(ids.begin(), ids.end() - length);
  else
    ids.resize(static_cast<size_t>(length));
}

/// Ids that are left for the texts.
int64_t room(const std::vector<Part>& parts, const EncodeOptions& options) {
  const int64_t marks = options.add_marks
                            ? std::count_if(parts.begin(), parts.end(),
                                            [](const Part& p) { return p.kind == Part::Kind::mark; })
                            : 0;
  HEED_CHECK(options.max_length >= marks, ConfigError, "max_length is ", options.max_length,
             "; the marks alone are ", marks);
  return options.max_length - marks;
}

PairEncoding assemble(const std::vector<Part>& parts, bool add_marks, const TokenIds& a, const TokenIds& b) {
  PairEncoding result;
  for (const Part& part : parts) {
    const size_t before = result.ids.size();
    if (part.kind == Part::Kind::mark) {
      if (add_marks) result.ids.push_back(part.id);
    } else {
      const TokenIds& text = part.kind == Part::Kind::a ? a : b;
      result.ids.insert(result.ids.end(), text.begin(), text.end());
    }
    result.segments.insert(result.segments.end(), result.ids.size() - before, part.segment);
  }
  return result;
}

}  // namespace

PretrainedTokenizer::PretrainedTokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
PretrainedTokenizer::~PretrainedTokenizer() = default;

TokenIds PretrainedTokenizer::encode(std::string_view text) const {
  TokenIds ids;
  parts_->encode(text, true, ids);
  return ids;
}

TokenIds PretrainedTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  TokenIds ids;
  parts_->encode(text, options.special_tokens, ids);
  const std::vector<Part>& parts = parts_->marked.single;
  if (options.max_length != 0) cut(ids, room(parts, options), options.truncation);
  return options.add_marks ? assemble(parts, true, ids, {}).ids : ids;
}

PairEncoding PretrainedTokenizer::encode_pair(std::string_view a, std::string_view b,
                                              const EncodeOptions& options) const {
  TokenIds first, second;
  parts_->encode(a, options.special_tokens, first);
  parts_->encode(b, options.special_tokens, second);
  const std::vector<Part>& parts = parts_->marked.pair;
  if (options.max_length != 0) {
    const int64_t most = room(parts, options);
    const int64_t shorter = std::min(std::ssize(first), std::ssize(second));
    // The longer one down to the shorter, then both; the longer one, or the second, keeps one more of an odd
    // number.
    const bool even = shorter > most - shorter;
    const int64_t longer_length = even ? most - most / 2 : std::max(shorter, most - shorter);
    const int64_t shorter_length = even ? most / 2 : shorter;
    const bool first_longer = first.size() > second.size();
    cut(first, first_longer ? longer_length : shorter_length, options.truncation);
    cut(second, first_longer ? shorter_length : longer_length, options.truncation);
  }
  return assemble(parts, options.add_marks, first, second);
}

bool PretrainedTokenizer::is_mark(int64_t id) const {
  HEED_CHECK(id >= 0 && id < vocab(), IndexError, "id ", id, " is not in 0 to ", vocab() - 1);
  return parts_->marks[static_cast<size_t>(id)];
}

std::string PretrainedTokenizer::bytes(int64_t id, bool first) const {
  const std::string text = piece(id);
  return text.empty() ? text : parts_->decoder(text, first);
}

std::string PretrainedTokenizer::piece(int64_t id) const {
  HEED_CHECK(id >= 0 && id < vocab(), IndexError, "id ", id, " is not in 0 to ", vocab() - 1);
  const auto added = parts_->added.find(id);
  if (added != parts_->added.end()) return added->second;
  return id < parts_->vocabulary.size() ? parts_->vocabulary.piece(id) : std::string();
}

int64_t PretrainedTokenizer::vocab() const { return std::ssize(parts_->marks); }

std::optional<int64_t> PretrainedTokenizer::find(std::string_view piece) const {
  for (const auto& entry : parts_->added)
    if (entry.second == piece) return entry.first;
  const std::optional<int32_t> id = parts_->vocabulary.find(piece);
  return id ? std::optional<int64_t>(*id) : std::nullopt;
}

const TokenizerOptions& PretrainedTokenizer::options() const { return parts_->options; }
std::string PretrainedTokenizer::serialize() const { return parts_->json; }

}  // namespace heed::data

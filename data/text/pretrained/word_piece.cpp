// Greedy longest match first.
#include <algorithm>
#include <bit>
#include <string>

#include <heed/data/text/unicode.h>

#include "../detail/word_model.h"

namespace heed::data::detail {
namespace {

/// Hash of a text that grows byte by byte (FNV-1a).
struct GrowingHash {
  uint64_t value;
  explicit GrowingHash(bool within) : value(within ? 0x9e3779b97f4a7c15u : 0xcbf29ce484222325u) {}
  void add(char c) { value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3u; }
};

/// Pieces that begin a word, and those within one without what marks them.
class PieceTable {
 public:
  explicit PieceTable(size_t pieces) : slots_(std::bit_ceil(pieces * 2 + 2)) {}

  /// `place` names the piece in errors.
  void insert(std::string_view text, bool within, int32_t id, const std::string& place) {
    GrowingHash hash(within);
    for (const char c : text) hash.add(c);
    size_t at = slot(hash.value);
    for (size_t probes = 1; slots_[at].id >= 0; ++probes) {
      check_collisions(probes, place);
      at = (at + 1) & (slots_.size() - 1);
    }
    slots_[at] = {hash.value, text, id, within};
    longest_ = std::max(longest_, text.size());
  }

  /// The longest piece that `text` begins with: its id and, in `length`, its bytes; -1 if there is none.
  int32_t longest(std::string_view text, bool within, size_t& length) const {
    int32_t best = -1;
    GrowingHash hash(within);
    const size_t most = std::min(text.size(), longest_);
    for (size_t end = 1; end <= most; ++end) {
      hash.add(text[end - 1]);
      for (size_t at = slot(hash.value); slots_[at].id >= 0; at = (at + 1) & (slots_.size() - 1)) {
        const Slot& s = slots_[at];
        if (s.hash != hash.value || s.within != within || s.text != text.substr(0, end)) continue;
        best = s.id;
        length = end;
        break;
      }
    }
    return best;
  }

 private:
  struct Slot {
    uint64_t hash = 0;
    std::string_view text;
    int32_t id = -1;
    bool within = false;
  };
  size_t slot(uint64_t hash) const { return static_cast<size_t>(hash ^ hash >> 29) & (slots_.size() - 1); }

  std::vector<Slot> slots_;
  size_t longest_ = 0;
};

class WordPiece final : public WordModel {
 public:
  WordPiece(const Vocabulary& vocabulary, const WordPieceOptions& options, const std::string& place)
      : options_(options), pieces_(static_cast<size_t>(vocabulary.size()) * 2) {
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
      const std::string_view piece = vocabulary.piece(id);
      if (piece.empty()) continue;
      pieces_.insert(piece, false, id, place);
      if (piece.size() > options_.continuation.size() && piece.starts_with(options_.continuation))
        pieces_.insert(piece.substr(options_.continuation.size()), true, id, place);
    }
  }

  void encode(std::string_view word, WordScratch& scratch) const override {
    scratch.ids.clear();
    bool known = count_code_points(word) <= options_.most_characters;
    for (size_t at = 0; known && at < word.size();) {
      size_t length = 0;
      const int32_t id = pieces_.longest(word.substr(at), at > 0, length);
      known = id >= 0;
      scratch.ids.push_back(id);
      at += length;
    }
    if (!known) scratch.ids.assign(1, options_.unknown);
  }

 private:
  WordPieceOptions options_;
  PieceTable pieces_;
};

}  // namespace

std::unique_ptr<WordModel> make_word_piece(const Vocabulary& vocabulary, const WordPieceOptions& options,
                                           const std::string& place) {
  return std::make_unique<WordPiece>(vocabulary, options, place);
}

}  // namespace heed::data::detail

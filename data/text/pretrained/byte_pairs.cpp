// Merges by rank, from a heap over a linked list: n log n for a word of n bytes.
#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <utility>

#include <heed/data/text/unicode.h>

#include "../detail/code_points.h"
#include "../detail/word_model.h"

namespace heed::data::detail {
namespace {

/// The character that GPT-2 writes for each byte: itself if one can see it, else one from U+0100 on.
std::array<int32_t, 256> byte_characters() {
  std::array<int32_t, 256> characters{};
  int32_t next = 0x100;
  for (int32_t byte = 0; byte < 256; ++byte) {
    const bool seen = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
    characters[static_cast<size_t>(byte)] = seen ? byte : next++;
  }
  return characters;
}

const std::array<int32_t, 256> kByteCharacters = byte_characters();

/// Its inverse: -1 for a character that stands for no byte.
int32_t byte_of(int32_t character) {
  static const std::vector<int32_t> kBytes = [] {
    std::vector<int32_t> bytes(0x180, -1);
    for (size_t byte = 0; byte < 256; ++byte)
      bytes[static_cast<size_t>(kByteCharacters[byte])] = static_cast<int32_t>(byte);
    return bytes;
  }();
  return character < std::ssize(kBytes) ? kBytes[static_cast<size_t>(character)] : -1;
}

/// From two ids to their merge.
class MergeTable {
 public:
  struct Found {
    uint32_t rank;
    int32_t merged;
  };

  /// `place` names the merges in errors.
  MergeTable(const std::vector<Merge>& merges, const std::string& place)
      : slots_(std::bit_ceil(merges.size() * 2 + 2)) {
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      const uint64_t key = key_of(merges[rank].left, merges[rank].right);
      size_t at = slot(key);
      for (size_t probes = 1; slots_[at].key != kNone && slots_[at].key != key; ++probes) {
        check_collisions(probes, place);
        at = (at + 1) & (slots_.size() - 1);
      }
      slots_[at] = {key, {static_cast<uint32_t>(rank), merges[rank].merged}};  // the last of equal ones
    }
  }

  const Found* find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t at = slot(key); slots_[at].key != kNone; at = (at + 1) & (slots_.size() - 1))
      if (slots_[at].key == key) return &slots_[at].found;
    return nullptr;
  }

 private:
  static constexpr uint64_t kNone = ~uint64_t{0};
  struct Slot {
    uint64_t key = kNone;
    Found found = {};
  };
  static uint64_t key_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t slot(uint64_t key) const {
    key = (key ^ key >> 31) * 0x9e3779b97f4a7c15u;
    return static_cast<size_t>(key ^ key >> 32) & (slots_.size() - 1);
  }

  std::vector<Slot> slots_;
};

class BytePairs final : public WordModel {
 public:
  BytePairs(const Vocabulary& vocabulary, const BytePairOptions& options, const std::string& place)
      : vocabulary_(vocabulary), merges_(options.merges, place), whole_words_(options.whole_words) {
    for (size_t byte = 0; byte < 256; ++byte) {
      std::string piece;
      append_utf8(kByteCharacters[byte], piece);
      bytes_[byte] = vocabulary.find(piece).value_or(options.unknown);
    }
  }

  void encode(std::string_view word, WordScratch& scratch) const override {
    scratch.ids.clear();
    if (whole_words_)
      if (const std::optional<int32_t> id = vocabulary_.find(bytes_piece(word))) {
        scratch.ids.push_back(*id);
        return;
      }
    link(word, scratch);
    merge(scratch);
    for (const WordScratch::Symbol& s : scratch.symbols)
      if (s.id >= 0) scratch.ids.push_back(s.id);
  }

 private:
  void link(std::string_view word, WordScratch& scratch) const {
    scratch.symbols.clear();
    scratch.heap.clear();
    for (const char c : word) {
      const int32_t id = bytes_[static_cast<unsigned char>(c)];
      if (id < 0) continue;
      const auto at = static_cast<int32_t>(scratch.symbols.size());
      if (at > 0) scratch.symbols.back().after = at;
      scratch.symbols.push_back({id, at - 1, -1});
    }
    for (size_t at = 0; at + 1 < scratch.symbols.size(); ++at) propose(scratch, at);
    std::make_heap(scratch.heap.begin(), scratch.heap.end(), later);
  }

  void merge(WordScratch& scratch) const {
    auto& [symbols, heap, ids] = scratch;
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end(), later);
      const WordScratch::Candidate best = heap.back();
      heap.pop_back();
      WordScratch::Symbol& left = symbols[best.at];
      if (left.id < 0 || left.after < 0) continue;
      const auto right_at = static_cast<size_t>(left.after);
      const MergeTable::Found* const now = merges_.find(left.id, symbols[right_at].id);
      if (!now || now->merged != best.merged) continue;  // one of the two has changed since
      left.id = best.merged;
      left.after = std::exchange(symbols[right_at].after, -1);
      symbols[right_at].id = -1;
      if (left.after >= 0) symbols[static_cast<size_t>(left.after)].before = static_cast<int32_t>(best.at);
      push(scratch, best.at);
      if (left.before >= 0) push(scratch, static_cast<size_t>(left.before));
    }
  }

  void push(WordScratch& scratch, size_t at) const {
    if (propose(scratch, at)) std::push_heap(scratch.heap.begin(), scratch.heap.end(), later);
  }

  /// Puts the merge of a symbol with the next one, if there is one, at the end of the heap's memory.
  bool propose(WordScratch& scratch, size_t at) const {
    const WordScratch::Symbol& left = scratch.symbols[at];
    if (left.after < 0) return false;
    const MergeTable::Found* const found =
        merges_.find(left.id, scratch.symbols[static_cast<size_t>(left.after)].id);
    if (found) scratch.heap.push_back({found->rank, static_cast<uint32_t>(at), found->merged});
    return found != nullptr;
  }

  static bool later(const WordScratch::Candidate& a, const WordScratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  }

  const Vocabulary& vocabulary_;
  MergeTable merges_;
  bool whole_words_;
  std::array<int32_t, 256> bytes_;
};

}  // namespace

std::unique_ptr<WordModel> make_byte_pairs(const Vocabulary& vocabulary, const BytePairOptions& options,
                                           const std::string& place) {
  return std::make_unique<BytePairs>(vocabulary, options, place);
}

std::string piece_bytes(std::string_view piece) {
  std::string bytes;
  for (size_t at = 0; at < piece.size();) {
    const CodePoint c = code_point_at(piece, at);
    at += c.bytes;
    const int32_t byte = byte_of(c.value);
    if (byte < 0) return std::string(piece);
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

std::string bytes_piece(std::string_view bytes) {
  std::string piece;
  for (const char c : bytes) append_utf8(kByteCharacters[static_cast<unsigned char>(c)], piece);
  return piece;
}

}  // namespace heed::data::detail

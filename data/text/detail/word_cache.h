// The ids of words met before.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heed::data::detail {

/// Grows with the short words that it holds until it is full, and then begins anew. For one thread.
class WordCache {
 public:
  static constexpr size_t kLongestWord = 48;

  WordCache() : slots_(kMin) {}

  std::optional<std::span<const int32_t>> find(std::string_view word) const {
    const Slot& slot = slots_[place(word, hash(word))];
    if (slot.count == 0) return std::nullopt;
    return std::span(ids_).subspan(slot.ids, slot.count);
  }

  void insert(std::string_view word, std::span<const int32_t> ids) {
    if (word.size() > kLongestWord || ids.empty()) return;
    if (used_ == slots_.size() / 2) make_room();
    const uint64_t h = hash(word);
    Slot& slot = slots_[place(word, h)];
    if (slot.count > 0) return;
    slot = {h, static_cast<uint32_t>(text_.size()), static_cast<uint32_t>(ids_.size()),
            static_cast<uint16_t>(word.size()), static_cast<uint16_t>(ids.size())};
    text_ += word;
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    ++used_;
  }

 private:
  static constexpr size_t kMin = size_t{1} << 8, kMax = size_t{1} << 15;  // slots
  struct Slot {
    uint64_t hash = 0;
    uint32_t text = 0, ids = 0;      // where they begin
    uint16_t length = 0, count = 0;  // a count of 0: empty
  };

  static uint64_t hash(std::string_view word) {
    uint64_t value = word.size();
    for (; !word.empty(); word.remove_prefix(word.size() < 8 ? word.size() : 8)) {
      uint64_t bytes = 0;
      std::memcpy(&bytes, word.data(), word.size() < 8 ? word.size() : 8);
      value = (value ^ bytes) * 0x9e3779b97f4a7c15u;
      value ^= value >> 32;
    }
    return value;
  }

  /// The slot that has the word, or the empty one where it belongs.
  size_t place(std::string_view word, uint64_t h) const {
    size_t at = static_cast<size_t>(h) & (slots_.size() - 1);
    while (slots_[at].count > 0 && (slots_[at].hash != h || word != std::string_view(text_).substr(
                                                                        slots_[at].text, slots_[at].length)))
      at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  void make_room() {
    std::vector<Slot> old(slots_.size() < kMax ? slots_.size() * 2 : kMax);
    old.swap(slots_);
    if (old.size() < slots_.size()) {
      for (const Slot& slot : old)
        if (slot.count > 0)
          slots_[place(std::string_view(text_).substr(slot.text, slot.length), slot.hash)] = slot;
      return;
    }
    text_.clear();
    ids_.clear();
    used_ = 0;
  }

  std::vector<Slot> slots_;
  std::string text_;
  std::vector<int32_t> ids_;
  size_t used_ = 0;
};

}  // namespace heed::data::detail

// The pieces of a vocabulary by id, and their ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace heed::data::detail {

/// CheckpointError that begins with `place` where more entries of a hash table stand in one another's way
/// than chance would have: a file that is made so would take hours to read.
void check_collisions(size_t entries, const std::string& place);

/// Ids from 0 on, some of which may have no piece; "" is none.
class Vocabulary {
 public:
  Vocabulary() = default;
  /// Of equal pieces the first is found; `place` names them in errors. See check_collisions().
  Vocabulary(std::vector<std::string> pieces, const std::string& place);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  int32_t size() const { return static_cast<int32_t>(pieces_.size()); }
  const std::string& piece(int64_t id) const { return pieces_[static_cast<size_t>(id)]; }
  std::optional<int32_t> find(std::string_view piece) const;

 private:
  std::vector<std::string> pieces_;
  std::unordered_map<std::string_view, int32_t> ids_;  // of pieces_, which stays as it is
};

}  // namespace heed::data::detail

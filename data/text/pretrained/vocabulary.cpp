#include "../detail/vocabulary.h"

#include <utility>

#include <heed/core/base/check.h>

namespace heed::data::detail {

void check_collisions(size_t entries, const std::string& place) {
  constexpr size_t kMax = 1000;  // of a million entries chance puts some 50 there
  HEED_CHECK(entries <= kMax, CheckpointError, place, " has pieces that are made to collide in a hash table");
}

Vocabulary::Vocabulary(std::vector<std::string> pieces, const std::string& place)
    : pieces_(std::move(pieces)) {
  ids_.reserve(pieces_.size());
  for (size_t id = 0; id < pieces_.size(); ++id) {
    if (pieces_[id].empty()) continue;
    ids_.emplace(pieces_[id], static_cast<int32_t>(id));
    check_collisions(ids_.bucket_size(ids_.bucket(pieces_[id])), place);
  }
}

std::optional<int32_t> Vocabulary::find(std::string_view piece) const {
  const auto found = ids_.find(piece);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace heed::data::detail

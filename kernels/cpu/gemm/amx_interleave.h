// What a core does while tiles are multiplied: work in units so small that its queue has room for the tiles
// too, evenly over the turns of blocks.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <heed/kernels/cpu/gemm/amx.h>

namespace heed::cpu {

/// Work in units, in order.
struct UnitStream {
  void (*run)(UnitStream& self, int64_t count) = nullptr;  // the next `count` units
  int64_t done = 0, due = 0;

  int64_t behind() const { return due - done; }
};

/// Streams whose due units are done beside products, one stream after the other.
template <size_t Streams>
class BesideTiles {
 public:
  explicit BesideTiles(std::array<UnitStream*, Streams> streams) : streams_(streams) {}

  /// Shares them out over as many turns of blocks that follow.
  void share_out(int64_t turns) {
    units_ = behind();
    turns_ = turns;
    owed_ = 0;
  }

  void attach(AmxBlock& block) {
    block.beside = units_ > 0 ? turn : nullptr;
    block.context = this;
  }

  /// What no turn did.
  void finish() { run(behind()); }

 private:
  static void turn(void* context) {
    BesideTiles& self = *static_cast<BesideTiles*>(context);
    int64_t count = 0;
    for (self.owed_ += self.units_; self.owed_ >= self.turns_; self.owed_ -= self.turns_) ++count;
    self.run(count);
  }

  int64_t behind() const {
    int64_t units = 0;
    for (const UnitStream* stream : streams_) units += stream->behind();
    return units;
  }

  void run(int64_t count) {
    for (size_t i = 0; i < Streams && count > 0; ++i) {
      UnitStream& stream = *streams_[i];
      const int64_t units = std::min(count, stream.behind());
      if (units == 0) continue;
      stream.done += units;
      stream.run(stream, units);
      count -= units;
    }
  }

  std::array<UnitStream*, Streams> streams_;
  int64_t units_ = 0, turns_ = 1, owed_ = 0;
};

}  // namespace heed::cpu

// What the race checker knows of every byte of shared and global memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include <heed/kernels/simt/host/emulator.h>
#include <heed/kernels/simt/race/cells.h>

namespace heed::emulator {

enum class Space : uint8_t { shared, variable, global };

struct Region {
  unsigned char* start;
  size_t bytes;
  bool device_only;
  Cells cells;
  Traffic traffic = {};
};

/// Finds the cells of an address.
class Shadow {
 public:
  static constexpr size_t kGuard = 4096;  // an access this close to an allocation is taken to be meant for it

  Shadow();
  Region& add_region(unsigned char* start, size_t bytes, bool device_only);
  void remove_region(unsigned char* start) {
    last_ = nullptr;
    regions_.erase(start);
  }
  /// The allocation at or near `address`; null if there is none.
  Region* region_near(const unsigned char* address);

  void clear_pieces();
  void add_piece(size_t offset, size_t bytes);
  bool is_piece(size_t offset) const { return piece_[offset] != 0; }
  Cells& shared() { return shared_; }

  /// Remembers where the program that holds the kernel keeps its variables and constants.
  void set_program(const void* kernel);
  bool is_variable(const void* address) const { return inside(writable_, address); }
  bool is_constant(const void* address) const { return inside(readable_, address); }
  Cell& variable(const void* address) { return variables_[address]; }

 private:
  using Ranges = std::vector<std::pair<const char*, const char*>>;
  static bool inside(const Ranges& ranges, const void* address);

  std::map<const unsigned char*, Region> regions_;
  Region* last_ = nullptr;  // that an address was in
  Cells shared_;
  std::vector<uint8_t> piece_;
  std::vector<std::pair<size_t, size_t>> pieces_;
  std::unordered_map<const void*, Cell> variables_;
  const void* program_ = nullptr;
  Ranges writable_, readable_;
};

}  // namespace heed::emulator

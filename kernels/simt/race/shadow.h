// What the race checker knows of every byte of shared and global memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include <heed/kernels/simt/host/emulator.h>
#include <heed/kernels/simt/race/clocks.h>

namespace heed::emulator {

/// Who accessed a byte, when, and from which line (a Site's number).
struct Access {
  Moment moment;
  uint32_t site;
  bool atomic;
};

/// All zero is a byte of which nothing is known.
struct Cell {
  static constexpr int kReaders = 3;
  static constexpr int kStreams = 2;
  uint32_t launch, block;  // of the accesses below
  // Operations in StreamOrder; 0: none. Of those that read since, the last one in each of so many streams.
  uint32_t last_write, last_reads[kStreams];
  bool written;  // at some time, by anyone
  bool has_writer, copy_in_flight;
  uint8_t readers;
  Access writer;
  Access reader[kReaders];
};

enum class Space : uint8_t { shared, variable, global };

struct Region {
  unsigned char* start;
  size_t bytes;
  bool device_only;
  std::unique_ptr<Cell[], decltype(&std::free)> cells;
  Traffic traffic = {};
};

/// Finds the cells of an address.
class Shadow {
 public:
  static constexpr size_t kGuard = 4096;  // an access this close to an allocation is taken to be meant for it

  Shadow();
  Region& add_region(unsigned char* start, size_t bytes, bool device_only);
  void remove_region(unsigned char* start) { regions_.erase(start); }
  /// The allocation at or near `address`; null if there is none.
  Region* region_near(const unsigned char* address);

  void clear_pieces();
  void add_piece(size_t offset, size_t bytes);
  bool is_piece(size_t offset) const { return piece_[offset] != 0; }
  Cell& shared(size_t offset) { return shared_[offset]; }

  /// Remembers where the program that holds the kernel keeps its variables and constants.
  void set_program(const void* kernel);
  bool is_variable(const void* address) const { return inside(writable_, address); }
  bool is_constant(const void* address) const { return inside(readable_, address); }
  Cell& variable(const void* address) { return variables_[address]; }

 private:
  using Ranges = std::vector<std::pair<const char*, const char*>>;
  static bool inside(const Ranges& ranges, const void* address);

  std::map<const unsigned char*, Region> regions_;
  std::unique_ptr<Cell[], decltype(&std::free)> shared_;
  std::vector<uint8_t> piece_;
  std::vector<std::pair<size_t, size_t>> pieces_;
  std::unordered_map<const void*, Cell> variables_;
  const void* program_ = nullptr;
  Ranges writable_, readable_;
};

}  // namespace heed::emulator

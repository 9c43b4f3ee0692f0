// What the race checker knows of the bytes of a range of memory.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

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

/// The cells of a range. Bytes that were always accessed together share one: sixteen begin with one cell,
/// which is divided as accesses take less, until a write takes all sixteen.
class Cells {
 public:
  explicit Cells(size_t bytes)
      : groups_((bytes + kGroup - 1) / kGroup),
        cells_(zeroed<Cell>(groups_ * kGroup)),
        divisions_(zeroed<uint8_t>(groups_)) {}

  /// Calls each(cell, its first byte) for all cells of bytes [first, first + count). `write`: whether that
  /// leaves them alike.
  template <class F>
  void visit(size_t first, size_t count, bool write, F each) {
    for (size_t i = first, end = first + count; i < end;) {
      const size_t group = i / kGroup, stop = std::min(end, (group + 1) * kGroup);
      const bool whole = stop - i == kGroup;
      divide(group, static_cast<unsigned>(std::countr_zero(i | stop | kGroup)));
      for (const size_t width = kGroup >> divisions_[group]; i < stop; i += width) each(at(i), i);
      if (write && whole) divisions_[group] = 0;
    }
  }

 private:
  static constexpr unsigned kLogGroup = 4;
  static constexpr size_t kGroup = size_t{1} << kLogGroup;

  template <class T>
  using Zeroed = std::unique_ptr<T[], decltype(&std::free)>;

  // Untouched pages of a large zeroed block cost nothing.
  template <class T>
  static Zeroed<T> zeroed(size_t count) {
    return {static_cast<T*>(std::calloc(count, sizeof(T))), &std::free};
  }

  // The first bytes of all groups, then the second ones, ….
  Cell& at(size_t byte) { return cells_[byte % kGroup * groups_ + byte / kGroup]; }

  // Into cells of 2^log_width bytes at most.
  void divide(size_t group, unsigned log_width) {
    for (uint8_t& divisions = divisions_[group]; kLogGroup - divisions > log_width;) {
      const size_t half = kGroup >> ++divisions;
      for (size_t i = group * kGroup; i < (group + 1) * kGroup; i += 2 * half) at(i + half) = at(i);
    }
  }

  size_t groups_;
  Zeroed<Cell> cells_;
  Zeroed<uint8_t> divisions_;  // of each group: into 2^n cells
};

}  // namespace heed::emulator

// Random numbers of one sample.
#pragma once

#include <cmath>
#include <cstdint>

#include <heed/core/base/philox.h>

namespace heed::data {

/// Numbers that follow from a seed, an epoch and a sample's number, whatever was drawn for other samples: so
/// a loader that is resumed, or shuffles, gives a sample what it gave before.
class SampleDraw {
 public:
  SampleDraw(uint64_t seed, int64_t epoch, int64_t sample)
      : key_(seed ^ kKey), epoch_(static_cast<uint32_t>(epoch)), sample_(static_cast<uint64_t>(sample)) {}

  uint64_t next() {
    if (used_ == 2) {
      const Philox4 random =
          philox(block_++, static_cast<uint32_t>(sample_), static_cast<uint32_t>(sample_ >> 32), epoch_,
                 static_cast<uint32_t>(key_), static_cast<uint32_t>(key_ >> 32));
      words_[0] = uint64_t{random.word[1]} << 32 | random.word[0];
      words_[1] = uint64_t{random.word[3]} << 32 | random.word[2];
      used_ = 0;
    }
    return words_[used_++];
  }
  /// In [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  /// In [0, n), n > 0.
  int64_t below(int64_t n) {
    return static_cast<int64_t>((static_cast<unsigned __int128>(next()) * static_cast<uint64_t>(n)) >> 64);
  }
  /// By Knuth's products of uniform numbers: for means up to some hundreds.
  int64_t poisson(double mean) {
    const double end = std::exp(-mean);
    int64_t count = 0;
    for (double product = uniform(); product > end; product *= uniform()) ++count;
    return count;
  }

 private:
  static constexpr uint64_t kKey = 0x73616d706c654b65;  // other numbers than the loader's of the same seed

  uint64_t key_;
  uint32_t epoch_;
  uint64_t sample_;
  uint32_t block_ = 0;
  uint64_t words_[2] = {};
  int used_ = 2;
};

}  // namespace heed::data

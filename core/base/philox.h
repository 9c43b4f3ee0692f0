// Philox4x32-10, the counter-based generator behind every random number of heed: the same bits on every
// device, in any order. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <cmath>
#include <cstdint>

#include <heed/core/base/host_device.h>

namespace heed {

struct Philox4 {
  uint32_t word[4];
};

/// Ten rounds of Philox4x32 over counter (c0 lowest) with key (k0, k1).
HEED_HOST_DEVICE inline Philox4 philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t k0,
                                       uint32_t k1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(0xD2511F53u) * c0;
    const uint64_t p1 = static_cast<uint64_t>(0xCD9E8D57u) * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

/// The position of one random operation in the stream of a Generator.
struct PhiloxState {
  uint64_t seed;
  const uint64_t* base;  // added to offset when not null; device memory, moved at the end of a captured step
  uint64_t offset;

  HEED_HOST_DEVICE uint64_t position() const { return offset + (base ? *base : 0); }
};

/// Dropout decides on 16 random bits: keep iff u16 >= threshold. A rate of 0 means no dropout.
struct Dropout {
  uint32_t threshold;  // round(p * 65536); 0 keeps everything and draws nothing
  float scale;         // 1 / (1 - threshold / 65536), what kept elements are multiplied by
  PhiloxState rng;

  HEED_HOST_DEVICE bool active() const { return threshold != 0; }
};

/// The dropout of rate p in [0, 1). The rate is rounded to a multiple of 1/65536.
inline Dropout make_dropout(double p, PhiloxState rng) {
  auto threshold = static_cast<uint32_t>(std::lround(p * 65536.0));
  if (threshold > 65535u) threshold = 65535u;
  return {threshold, static_cast<float>(1.0 / (1.0 - threshold / 65536.0)), rng};
}

/// Random bits for eight neighbouring elements: decision j (0..7) uses bits(j).
struct DropoutBits {
  Philox4 random;

  /// Of decision j in [0, 8). Words are chosen, not indexed: a GPU has no registers with a variable number.
  HEED_HOST_DEVICE uint32_t bits(int j) const {
    const uint32_t low = j & 2 ? random.word[1] : random.word[0],
                   high = j & 2 ? random.word[3] : random.word[2];
    return ((j & 4 ? high : low) >> ((j & 1) * 16)) & 0xffffu;
  }
};

/// The bits of elements 8 * group .. 8 * group + 7 of a tensor (row-major element number / 8).
HEED_HOST_DEVICE inline DropoutBits dropout_bits(const PhiloxState& rng, int64_t group) {
  const uint64_t position = rng.position();
  return {philox(static_cast<uint32_t>(group), static_cast<uint32_t>(static_cast<uint64_t>(group) >> 32),
                 static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
                 static_cast<uint32_t>(rng.seed), static_cast<uint32_t>(rng.seed >> 32))};
}

/// The bits of attention weights of keys 8 * key_group .. + 7 for one query, in the sequence's own positions;
/// `plane` is sequence * heads + head. The upper half of the offset is folded into the key.
HEED_HOST_DEVICE inline DropoutBits attention_dropout_bits(const PhiloxState& rng, uint32_t key_group,
                                                           uint32_t query, uint32_t plane) {
  const uint64_t position = rng.position();
  return {philox(key_group, query, plane, static_cast<uint32_t>(position), static_cast<uint32_t>(rng.seed),
                 static_cast<uint32_t>(rng.seed >> 32) ^ static_cast<uint32_t>(position >> 32))};
}

}  // namespace heed

// The vectors of kernels/cpu/simd/box_muller-inl.h against kernels/box_muller.h, to the bit.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "box_muller_test.cpp"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include <heed/kernels/box_muller.h>
#include <heed/kernels/cpu/simd/simd.h>
// The -inl header follows simd.h, which includes this file once per instruction set.
#include <heed/kernels/cpu/simd/box_muller-inl.h>

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

/// Of kChains vectors of words, each in the lower half of 64 bits; returns how many words that is.
int64_t box_muller_lanes(const uint64_t* radius, const uint64_t* angle, double* cosine, double* sine) {
  const Doubles d;
  const WordLanes du;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  RandomWords radius_words, angle_words;
  for (int i = 0; i < kChains; ++i) {
    radius_words.v[i] = hn::LoadU(du, radius + i * lanes);
    angle_words.v[i] = hn::LoadU(du, angle + i * lanes);
  }
  Numbers c, s;
  box_muller(radius_words, angle_words, c, s);
  for (int i = 0; i < kChains; ++i) {
    hn::StoreU(c.v[i], d, cosine + i * lanes);
    hn::StoreU(s.v[i], d, sine + i * lanes);
  }
  return kChains * lanes;
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {
namespace {

HWY_EXPORT(box_muller_lanes);

bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

/// Where something changes: the ends, the eighths of a turn, and the radii on either side of sqrt(2) 2^e.
std::vector<uint32_t> words() {
  std::vector<uint32_t> all;
  for (uint64_t eighth = 0; eighth < 8; ++eighth)
    for (uint32_t i = 0; i < 3; ++i)
      all.insert(all.end(),
                 {static_cast<uint32_t>(eighth << 29) + i, static_cast<uint32_t>(eighth << 29) - i});
  for (int bit = 0; bit < 32; ++bit) {
    const uint32_t root = 0xb504f333u >> bit;
    all.insert(all.end(), {1u << bit, (1u << bit) - 1, root, root + 1, root - 1});
  }
  for (uint64_t word = 0; word < uint64_t{1} << 32; word += 9999991)
    all.push_back(static_cast<uint32_t>(word));
  return all;
}

TEST(BoxMuller, VectorsHaveTheBitsOfTheDefinition) {
  constexpr int64_t kMax = 64;
  const std::vector<uint32_t> all = words();
  const size_t n = all.size();
  // What stands in the upper half of a lane does not count.
  constexpr uint64_t kNoise[] = {0, 0xffffffff00000000u, 0x8123456700000000u};
  for (size_t shift = 0; shift < n; shift += 7) {
    for (size_t begin = 0; begin < n;) {
      uint64_t radius[kMax], angle[kMax];
      double cosine[kMax], sine[kMax];
      for (size_t i = 0; i < kMax; ++i) {
        radius[i] = all[(begin + i) % n] | kNoise[i % 3];
        angle[i] = all[(begin + i + shift) % n] | kNoise[(i + 1) % 3];
      }
      const int64_t made = HEED_SIMD(box_muller_lanes)(radius, angle, cosine, sine);
      for (int64_t i = 0; i < made; ++i) {
        const auto z = kernels::box_muller(static_cast<uint32_t>(radius[i]), static_cast<uint32_t>(angle[i]));
        ASSERT_TRUE(same_bits(cosine[i], z.cosine) && same_bits(sine[i], z.sine))
            << std::hex << radius[i] << " " << angle[i];
      }
      begin += static_cast<size_t>(made);
    }
  }
}

}  // namespace
}  // namespace heed::cpu
#endif

// SHA-256 (FIPS 180-4), by which weight and checkpoint files recognise damage.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace heed {

/// The hash of a stream of bytes: update() any number of times, then finish() once.
class Sha256 {
 public:
  using Digest = std::array<uint8_t, 32>;

  void update(const void* data, size_t bytes);

  /// The digest of everything so far. The object must not be used afterwards.
  Digest finish();

 private:
  std::array<uint32_t, 8> state_{0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au,
                                 0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u};
  std::array<uint8_t, 64> block_;
  uint64_t bytes_ = 0;
};

Sha256::Digest sha256(const void* data, size_t bytes);

/// 64 lower-case hexadecimal digits.
std::string to_hex(const Sha256::Digest& digest);

namespace detail {
using Sha256Blocks = void (*)(uint32_t* state, const uint8_t* data, size_t blocks);

void sha256_blocks_portable(uint32_t* state, const uint8_t* data, size_t blocks);
/// The version for the processor's own SHA instructions, null where it has none.
Sha256Blocks sha256_blocks_hardware();
}  // namespace detail

}  // namespace heed

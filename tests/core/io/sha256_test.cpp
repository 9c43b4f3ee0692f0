#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/io/sha256.h>

namespace heed {
namespace {

std::string hex_of(const std::string& text) { return to_hex(sha256(text.data(), text.size())); }

// The examples of FIPS 180-4 and its predecessors.
TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(hex_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex_of(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesGiveTheSameDigestAsTheWhole) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 37);
  for (size_t length = 0; length <= text.size(); ++length) {
    for (const size_t first : {size_t{0}, length / 3, length / 2, length}) {
      Sha256 pieces;
      pieces.update(text.data(), first);
      pieces.update(text.data() + first, length - first);
      ASSERT_EQ(pieces.finish(), sha256(text.data(), length)) << length << " cut at " << first;
    }
  }
}

TEST(Sha256, HardwareAndPortableAgree) {
  const detail::Sha256Blocks hardware = detail::sha256_blocks_hardware();
  if (!hardware) GTEST_SKIP() << "this processor has no SHA instructions";
  std::vector<uint8_t> data(64 * 33);
  uint32_t word = 1;
  for (uint8_t& byte : data) byte = static_cast<uint8_t>((word = word * 1664525u + 1013904223u) >> 24);
  uint32_t portable_state[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  uint32_t hardware_state[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  detail::sha256_blocks_portable(portable_state, data.data(), 33);
  hardware(hardware_state, data.data(), 33);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(portable_state[i], hardware_state[i]);
}

}  // namespace
}  // namespace heed

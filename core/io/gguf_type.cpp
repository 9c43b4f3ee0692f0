#include <bit>
#include <cstring>

#include <heed/core/base/dtype.h>
#include <heed/core/io/detail/gguf_type.h>
#include <heed/core/io/detail/stored_type.h>

namespace heed::detail {
namespace {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
float half(const std::byte* from) { return from_half(load<uint16_t>(from)); }
int low(std::byte b) { return std::to_integer<int>(b) & 15; }
int high(std::byte b) { return std::to_integer<int>(b) >> 4; }
int bits(std::byte b, int from, int count) { return std::to_integer<int>(b) >> from & ((1 << count) - 1); }

void read_f32(const std::byte* b, float* y) { *y = load<float>(b); }
void read_f64(const std::byte* b, float* y) { *y = static_cast<float>(load<double>(b)); }
void read_f16(const std::byte* b, float* y) { *y = half(b); }
void read_bf16(const std::byte* b, float* y) {
  *y = std::bit_cast<float>(static_cast<uint32_t>(load<uint16_t>(b)) << 16);
}

// Each block of 32: a scale d, then d * (a number from -8 to 7).
void read_q4_0(const std::byte* b, float* y) {
  const float d = half(b);
  for (int i = 0; i < 16; ++i) {
    y[i] = d * static_cast<float>(low(b[2 + i]) - 8);
    y[i + 16] = d * static_cast<float>(high(b[2 + i]) - 8);
  }
}

// A scale and the least value.
void read_q4_1(const std::byte* b, float* y) {
  const float d = half(b), least = half(b + 2);
  for (int i = 0; i < 16; ++i) {
    y[i] = d * static_cast<float>(low(b[4 + i])) + least;
    y[i + 16] = d * static_cast<float>(high(b[4 + i])) + least;
  }
}

void read_q8_0(const std::byte* b, float* y) {
  const float d = half(b);
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(std::to_integer<int8_t>(b[2 + i]));
}

// 256 values in eight groups, whose scales and least values are themselves 6-bit multiples of two halves. The
// first four of either stand in the low six bits of a byte; the others have their low four bits in bytes 8 to
// 11, and their high two above those of the first four.
void read_q4_k(const std::byte* b, float* y) {
  const float d = half(b), d_least = half(b + 2);
  const std::byte *const s = b + 4, *const q = b + 16;
  for (int group = 0; group < 8; ++group) {
    const int i = group & 3;
    const int scale = group < 4 ? bits(s[i], 0, 6) : low(s[8 + i]) | bits(s[i], 6, 2) << 4;
    const int least = group < 4 ? bits(s[4 + i], 0, 6) : high(s[8 + i]) | bits(s[4 + i], 6, 2) << 4;
    const float factor = d * static_cast<float>(scale), offset = d_least * static_cast<float>(least);
    const std::byte* const from = q + group / 2 * 32;  // of a pair of groups, one in the low bits
    for (int k = 0; k < 32; ++k) {
      const int value = group % 2 ? high(from[k]) : low(from[k]);
      y[group * 32 + k] = factor * static_cast<float>(value) - offset;
    }
  }
}

// 256 values of 6 bits, in two halves: four low bits each in 64 bytes, two high bits each in 32; a scale of 8
// bits for each 16 values.
void read_q6_k(const std::byte* b, float* y) {
  const float d = half(b + 208);
  for (int part = 0; part < 2; ++part) {
    const std::byte *const ql = b + part * 64, *const qh = b + 128 + part * 32;
    const std::byte* const scales = b + 192 + part * 8;
    for (int row = 0; row < 4; ++row)
      for (int k = 0; k < 32; ++k) {
        const std::byte packed = ql[row % 2 * 32 + k];
        const int value = ((row < 2 ? low(packed) : high(packed)) | bits(qh[k], 2 * row, 2) << 4) - 32;
        const float scale = d * static_cast<float>(std::to_integer<int8_t>(scales[row * 2 + k / 16]));
        y[part * 128 + row * 32 + k] = scale * static_cast<float>(value);
      }
  }
}

constexpr GgufType kTypes[] = {
    {0, "F32", 1, 4, read_f32},        {1, "F16", 1, 2, read_f16},        {2, "Q4_0", 32, 18, read_q4_0},
    {3, "Q4_1", 32, 20, read_q4_1},    {6, "Q5_0", 32, 22, nullptr},      {7, "Q5_1", 32, 24, nullptr},
    {8, "Q8_0", 32, 34, read_q8_0},    {9, "Q8_1", 32, 36, nullptr},      {10, "Q2_K", 256, 84, nullptr},
    {11, "Q3_K", 256, 110, nullptr},   {12, "Q4_K", 256, 144, read_q4_k}, {13, "Q5_K", 256, 176, nullptr},
    {14, "Q6_K", 256, 210, read_q6_k}, {15, "Q8_K", 256, 292, nullptr},   {16, "IQ2_XXS", 256, 66, nullptr},
    {17, "IQ2_XS", 256, 74, nullptr},  {18, "IQ3_XXS", 256, 98, nullptr}, {19, "IQ1_S", 256, 50, nullptr},
    {20, "IQ4_NL", 32, 18, nullptr},   {21, "IQ3_S", 256, 110, nullptr},  {22, "IQ2_S", 256, 82, nullptr},
    {23, "IQ4_XS", 256, 136, nullptr}, {24, "I8", 1, 1, nullptr},         {25, "I16", 1, 2, nullptr},
    {26, "I32", 1, 4, nullptr},        {27, "I64", 1, 8, nullptr},        {28, "F64", 1, 8, read_f64},
    {29, "IQ1_M", 256, 56, nullptr},   {30, "BF16", 1, 2, read_bf16}};

}  // namespace

const GgufType* find_gguf_type(uint32_t id) {
  for (const GgufType& type : kTypes)
    if (type.id == id) return &type;
  return nullptr;
}

}  // namespace heed::detail

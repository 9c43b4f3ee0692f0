#include <array>
#include <bit>
#include <cstring>

#include <heed/core/io/detail/stored_type.h>

namespace heed::detail {
namespace {

constexpr std::array<StoredType, 20> kTypes{
    {{"F64", 64, DType::f64},       {"F32", 32, DType::f32},       {"BF16", 16, DType::bf16},
     {"F16", 16, DType::f32, true}, {"I64", 64, DType::i64},       {"I32", 32, DType::i32},
     {"I16", 16, DType::i32, true}, {"I8", 8, DType::i32, true},   {"U64", 64, DType::i64, true},
     {"U32", 32, DType::i64, true}, {"U16", 16, DType::i32, true}, {"U8", 8, DType::i32, true},
     {"BOOL", 8, DType::boolean},   {"F8_E5M2", 8, std::nullopt},  {"F8_E4M3", 8, std::nullopt},
     {"F8_E8M0", 8, std::nullopt},  {"F6_E2M3", 6, std::nullopt},  {"F6_E3M2", 6, std::nullopt},
     {"F4", 4, std::nullopt},       {"C64", 64, std::nullopt}}};

template <class From, class To, class Convert>
size_t widen_as(const std::byte* from, size_t count, std::byte* to, Convert convert) {
  for (size_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + i * sizeof value, sizeof value);
    const To wide = convert(value);
    std::memcpy(to + i * sizeof wide, &wide, sizeof wide);
  }
  return count;
}

template <class From, class To>
size_t widen_integers(const std::byte* from, size_t count, std::byte* to) {
  return widen_as<From, To>(from, count, to, [](From value) { return static_cast<To>(value); });
}

size_t widen_u64(const std::byte* from, size_t count, std::byte* to) {
  for (size_t i = 0; i < count; ++i)
    if (static_cast<uint8_t>(from[i * 8 + 7]) >= 0x80) return i;
  std::memcpy(to, from, count * 8);
  return count;
}

}  // namespace

const StoredType* find_stored_type(std::string_view name) {
  for (const StoredType& type : kTypes)
    if (name == type.name) return &type;
  return nullptr;
}

const StoredType& stored_type(DType dtype) {
  for (const StoredType& type : kTypes)
    if (type.read_as == dtype && !type.widened) return type;
  throw InternalError("stored_type: corrupt dtype");
}

float from_half(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, magnitude = bits & 0x7fff;
  constexpr uint32_t kInfinity = 0x7c00, kSmallestNormal = 0x400, kBiases = (127 - 15) << 10;
  if (magnitude >= kInfinity) return std::bit_cast<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  if (magnitude >= kSmallestNormal) return std::bit_cast<float>(sign | (magnitude + kBiases) << 13);
  const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
  return sign ? -subnormal : subnormal;
}

size_t widen(const StoredType& type, const std::byte* from, size_t count, std::byte* to) {
  const std::string_view name = type.name;
  if (name == "F16") return widen_as<uint16_t, float>(from, count, to, from_half);
  if (name == "I16") return widen_integers<int16_t, int32_t>(from, count, to);
  if (name == "I8") return widen_integers<int8_t, int32_t>(from, count, to);
  if (name == "U16") return widen_integers<uint16_t, int32_t>(from, count, to);
  if (name == "U8") return widen_integers<uint8_t, int32_t>(from, count, to);
  if (name == "U32") return widen_integers<uint32_t, int64_t>(from, count, to);
  if (name == "U64") return widen_u64(from, count, to);
  throw InternalError(concat("widen: ", name, " is read as it is"));
}

}  // namespace heed::detail

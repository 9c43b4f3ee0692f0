#include <array>
#include <cmath>
#include <limits>

#include <heed/kernels/cpu/gemm/amx.h>
#include <heed/kernels/cpu/simd/isa.h>

#if HEED_HAVE_AMX && defined(__x86_64__)
#include <immintrin.h>
#define HEED_AMX [[gnu::target("amx-tile,amx-bf16")]]
#endif

namespace heed::cpu {
namespace {

/// Which parts of A and B are multiplied with each other, such that few tiles are loaded twice.
struct PartPair {
  int a, b;
};
constexpr std::array<PartPair, 1> kWhole{{{0, 0}}};
constexpr std::array<PartPair, 2> kRowParts{{{1, 0}, {0, 0}}};
constexpr std::array<PartPair, 2> kColParts{{{0, 1}, {0, 0}}};
constexpr std::array<PartPair, kAmxPartPairs> kAllParts{{{2, 0}, {1, 0}, {1, 1}, {0, 1}, {0, 2}, {0, 0}}};

template <int AParts, int BParts>
constexpr auto& pairs_of() {
  if constexpr (AParts == kAmxParts)
    return kAllParts;
  else if constexpr (AParts > 1)
    return kRowParts;
  else if constexpr (BParts > 1)
    return kColParts;
  else
    return kWhole;
}

// ---- Plain

using Sums = std::array<std::array<float, kAmxLines>, kAmxLines>;

float flushed(float x) {
  return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}
float value(bfloat16 x) { return flushed(static_cast<float>(x)); }

/// TDPBF16PS: even and odd values of K are added up apart.
void multiply_tiles(const bfloat16* a, int64_t a_row, const bfloat16* b, int64_t b_row, Sums& sums) {
  for (int64_t i = 0; i < kAmxLines; ++i) {
    for (int64_t j = 0; j < kAmxLines; ++j) {
      float even = 0, odd = 0;
      for (int64_t p = 0; p < kAmxDepth; p += 2) {
        const bfloat16* const pair = b + p / 2 * b_row + 2 * j;
        even = flushed(std::fma(value(a[i * a_row + p]), value(pair[0]), even));
        odd = flushed(std::fma(value(a[i * a_row + p + 1]), value(pair[1]), odd));
      }
      float& sum = sums[size_t(i)][size_t(j)];
      sum = flushed(flushed(sum) + flushed(even + odd));
    }
  }
}

template <int AParts, int BParts>
void plain_block(const AmxBlock& x) {
  for (int64_t r = 0; r < x.row_tiles; ++r) {
    for (int64_t s = 0; s < x.col_tiles; ++s) {
      Sums sums{};
      if (x.added) {
        for (int64_t i = 0; i < kAmxLines; ++i)
          for (int64_t j = 0; j < kAmxLines; ++j)
            sums[size_t(i)][size_t(j)] = x.added[(r * kAmxLines + i) * x.added_stride + s * kAmxLines + j];
      }
      for (int64_t q = 0; q < x.steps; ++q) {
        const bfloat16* const a = x.a + r * x.a_tile + q * x.a_step;
        const bfloat16* const b = x.b + s * x.b_tile + q * x.b_step;
        for (const PartPair pair : pairs_of<AParts, BParts>())
          multiply_tiles(a + pair.a * kAmxTileElements, x.a_row, b + pair.b * kAmxTileElements, x.b_row,
                         sums);
      }
      for (int64_t i = 0; i < kAmxLines; ++i)
        for (int64_t j = 0; j < kAmxLines; ++j)
          x.c[(r * kAmxLines + i) * x.ldc + s * kAmxLines + j] = sums[size_t(i)][size_t(j)];
    }
  }
}

// ---- AMX

#ifdef HEED_AMX

/// What LDTILECFG reads.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0;
  std::array<uint8_t, 14> reserved{};
  std::array<uint16_t, 16> row_bytes{};
  std::array<uint8_t, 16> rows{};

  TileConfig() {
    for (size_t i = 0; i < 8; ++i) row_bytes[i] = 64, rows[i] = kAmxLines;
  }
};

HEED_AMX void load_config() {
  static const TileConfig config;
  _tile_loadconfig(&config);
}

HEED_AMX void release() { _tile_release(); }

// Tile 2 r + s has the sums of rows r and columns s; 4 and 5 have A's rows, 6 and 7 B's columns.

/// Where tiles are: bytes between rows, and between tiles of rows or columns.
struct TileStrides {
  int64_t row, tile;
};

template <bool Two>
HEED_AMX [[gnu::always_inline]] inline void load_rows(const bfloat16* part, TileStrides at) {
  _tile_loadd(4, part, at.row);
  if (Two) _tile_loadd(5, reinterpret_cast<const char*>(part) + at.tile, at.row);
}

template <bool Two>
HEED_AMX [[gnu::always_inline]] inline void load_columns(const bfloat16* part, TileStrides at) {
  _tile_loadd(6, part, at.row);
  if (Two) _tile_loadd(7, reinterpret_cast<const char*>(part) + at.tile, at.row);
}

/// A step of K, from pair I of parts on.
template <int AParts, int BParts, bool TwoRows, bool TwoCols, class Interleaved, size_t I = 0>
HEED_AMX [[gnu::always_inline]] inline void multiply_step(const bfloat16* a, TileStrides a_at,
                                                          const bfloat16* b, TileStrides b_at,
                                                          Interleaved interleaved) {
  constexpr auto& pairs = pairs_of<AParts, BParts>();
  if constexpr (I < pairs.size()) {
    constexpr PartPair pair = pairs[I], before = I == 0 ? PartPair{-1, -1} : pairs[I - (I > 0)];
    if constexpr (pair.a != before.a) load_rows<TwoRows>(a + pair.a * kAmxTileElements, a_at);
    if constexpr (pair.b != before.b) load_columns<TwoCols>(b + pair.b * kAmxTileElements, b_at);
    _tile_dpbf16ps(0, 4, 6);
    if (TwoCols) _tile_dpbf16ps(1, 4, 7);
    if (TwoRows) _tile_dpbf16ps(2, 5, 6);
    if (TwoRows && TwoCols) _tile_dpbf16ps(3, 5, 7);
    interleaved();
    multiply_step<AParts, BParts, TwoRows, TwoCols, Interleaved, I + 1>(a, a_at, b, b_at, interleaved);
  }
}

template <int AParts, int BParts, bool TwoRows, bool TwoCols, class Interleaved>
HEED_AMX [[gnu::always_inline]] inline void multiply_steps(const AmxBlock& x, Interleaved interleaved) {
  constexpr int64_t kValue = sizeof(bfloat16);
  const TileStrides a_at{x.a_row * kValue, x.a_tile * kValue}, b_at{x.b_row * kValue, x.b_tile * kValue};
  const int64_t a_step = x.a_step, b_step = x.b_step;
  const bfloat16 *a = x.a, *b = x.b;
  for (int64_t q = x.steps; q > 0; --q, a += a_step, b += b_step)
    multiply_step<AParts, BParts, TwoRows, TwoCols>(a, a_at, b, b_at, interleaved);
}

template <int AParts, int BParts, bool TwoRows, bool TwoCols>
HEED_AMX void tile_block(const AmxBlock& x) {
  constexpr int64_t kFloat = sizeof(float);
  // The tile instructions do not tell the compiler what they read.
  asm volatile("" ::: "memory");
  if (x.added) {
    const int64_t row = x.added_stride * kFloat;
    const float* const second = x.added + kAmxLines * x.added_stride;
    _tile_loadd(0, x.added, row);
    if (TwoCols) _tile_loadd(1, x.added + kAmxLines, row);
    if (TwoRows) _tile_loadd(2, second, row);
    if (TwoRows && TwoCols) _tile_loadd(3, second + kAmxLines, row);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  if (x.interleaved)
    multiply_steps<AParts, BParts, TwoRows, TwoCols>(x, x.interleaved);
  else
    multiply_steps<AParts, BParts, TwoRows, TwoCols>(x, [] {});
  const int64_t row = x.ldc * kFloat;
  float* const second = x.c + kAmxLines * x.ldc;
  _tile_stored(0, x.c, row);
  if (TwoCols) _tile_stored(1, x.c + kAmxLines, row);
  if (TwoRows) _tile_stored(2, second, row);
  if (TwoRows && TwoCols) _tile_stored(3, second + kAmxLines, row);
  asm volatile("" ::: "memory");
}

template <int AParts, int BParts>
void tile_block(const AmxBlock& x) {
  if (x.row_tiles == 2) {
    return x.col_tiles == 2 ? tile_block<AParts, BParts, true, true>(x)
                            : tile_block<AParts, BParts, true, false>(x);
  }
  return x.col_tiles == 2 ? tile_block<AParts, BParts, false, true>(x)
                          : tile_block<AParts, BParts, false, false>(x);
}

#endif

}  // namespace

AmxTiles::AmxTiles() {
#ifdef HEED_AMX
  if (has_amx()) load_config();
#endif
}

AmxTiles::~AmxTiles() {
#ifdef HEED_AMX
  if (has_amx()) release();
#endif
}

void amx_block(const AmxBlock& block) {
#ifdef HEED_AMX
  if (has_amx()) {
    if (block.a_parts == kAmxParts) return tile_block<kAmxParts, kAmxParts>(block);
    if (block.a_parts > 1) return tile_block<kAmxFewParts, 1>(block);
    return block.b_parts > 1 ? tile_block<1, kAmxFewParts>(block) : tile_block<1, 1>(block);
  }
#endif
  plain_amx_block(block);
}

void plain_amx_block(const AmxBlock& block) {
  if (block.a_parts == kAmxParts) return plain_block<kAmxParts, kAmxParts>(block);
  if (block.a_parts > 1) return plain_block<kAmxFewParts, 1>(block);
  return block.b_parts > 1 ? plain_block<1, kAmxFewParts>(block) : plain_block<1, 1>(block);
}

}  // namespace heed::cpu

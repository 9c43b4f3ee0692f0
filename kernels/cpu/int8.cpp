#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "heed/kernels/cpu/int8.cpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include <heed/core/base/int_math.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/cpu/simd/byte_dot.h>
#include <heed/kernels/cpu/simd/simd.h>
#include <heed/kernels/cpu/tasks/grain.h>
#include <heed/kernels/cpu/tasks/workspace.h>
#include <heed/kernels/int8.h>

#ifndef HEED_KERNELS_CPU_INT8_ONCE_
#define HEED_KERNELS_CPU_INT8_ONCE_
namespace heed::cpu {

using kernels::Int8Matrix;
using kernels::kInt8Block;
constexpr int64_t kPanel = Int8Matrix::kPanel, kGroupBytes = Int8Matrix::kPanel * Int8Matrix::kGroup;
constexpr int64_t kScaleBytes = kPanel * int64_t{sizeof(float)};
constexpr int64_t kMaxTileRows = 4, kMaxTilePanels = 4;

/// Rows of x as 8-bit integers: for each group of four columns a word of four bytes, or where the processor
/// has no dot product of those two words of two int16, of its even columns and of its odd ones.
struct Int8Activations {
  int32_t* words;    // [rows, words_per_row]
  float* scales;     // [rows, blocks]
  int32_t* offsets;  // [rows, blocks], -128 times a block's sum: weights are 128 too large
  int64_t words_per_row, blocks;
};

/// Rows of x and panels of the weight; sums go to out [Rows, Panels, kPanel].
struct Int8Tile {
  const Int8Activations& x;
  int64_t row;
  const std::byte* panel;
  int64_t panel_bytes, groups;
  float* out;
};

}  // namespace heed::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace heed::cpu::HWY_NAMESPACE {

using Ints = hn::ScalableTag<int32_t>;
using Floats = hn::ScalableTag<float>;

/// Whether there is a dot product of bytes, which Highway 1.0.3 does not know.
constexpr bool kHasByteDot = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2;
constexpr int64_t kLanes = hn::MaxLanes(Ints());
constexpr int64_t kPanelVectors = kPanel / kLanes;
// As many sums as the registers hold.
constexpr int64_t kTileRows = kLanes == 16 ? 4 : 2, kTilePanels = kLanes >= 4 ? kLanes / 4 : 1;
static_assert(kTileRows <= kMaxTileRows && kTilePanels <= kMaxTilePanels && kLanes <= kPanel);

/// Of each two int16 the sum of their products.
template <class V>
HWY_INLINE V pair_products(V a, V b) {
  if constexpr (HWY_TARGET == HWY_AVX3) {
    asm("vpmaddwd %1, %0, %0" : "+v"(a.raw) : "v"(b.raw));
    return a;
  } else if constexpr (HWY_TARGET == HWY_AVX2) {
    asm("vpmaddwd %1, %0, %0" : "+x"(a.raw) : "x"(b.raw));
    return a;
  } else if constexpr (HWY_TARGET == HWY_SSE4) {
    asm("pmaddwd %1, %0" : "+x"(a.raw) : "x"(b.raw));
    return a;
  } else {
    const auto low =
        hn::Mul(hn::ShiftRight<16>(hn::ShiftLeft<16>(a)), hn::ShiftRight<16>(hn::ShiftLeft<16>(b)));
    return hn::Add(low, hn::Mul(hn::ShiftRight<16>(a), hn::ShiftRight<16>(b)));
  }
}

/// sum + the products of each lane's four bytes of w, unsigned, with a group of x.
template <bool Dot, class V>
HWY_INLINE V add_group(V w, const int32_t* x, V sum) {
  const Ints d;
  if constexpr (Dot && HWY_TARGET == HWY_AVX3) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(w.raw), "v"(hn::Set(d, *x).raw));
    return sum;
  } else if constexpr (Dot && HWY_TARGET == HWY_AVX2) {
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum.raw) : "x"(w.raw), "x"(hn::Set(d, *x).raw));
    return sum;
  } else {
    const auto even = hn::And(w, hn::Set(d, 0x00ff00ff));
    const auto odd = hn::And(hn::ShiftRight<8>(w), hn::Set(d, 0x00ff00ff));
    sum = hn::Add(sum, pair_products(even, hn::Set(d, x[0])));
    return hn::Add(sum, pair_products(odd, hn::Set(d, x[1])));
  }
}

/// Folds instead of loops, as in micro_block: vector I is that of row I / Vectors of x.
template <bool Dot, int64_t Rows, int64_t Panels, size_t... I>
HWY_INLINE void int8_tile(const Int8Tile& t, std::index_sequence<I...>) {
  constexpr int64_t kVectors = Panels * kPanelVectors, kWords = Dot ? 1 : 2;
  constexpr int64_t kBlockGroups = kInt8Block / Int8Matrix::kGroup;
  const Ints d;
  const Floats f;
  const auto row = [](size_t i) { return static_cast<int64_t>(i) / kVectors; };
  const auto panel = [&](size_t i) {
    return t.panel + static_cast<int64_t>(i) % kVectors / kPanelVectors * t.panel_bytes;
  };
  const auto place = [](size_t i) { return static_cast<int64_t>(i) % kPanelVectors * kLanes; };
  Vec<Floats> total[Rows * kVectors];
  ((total[I] = hn::Zero(f)), ...);
  const int32_t* const x = t.x.words + t.row * t.x.words_per_row;
  for (int64_t block = 0; block < t.x.blocks; ++block) {
    const int64_t at = t.row * t.x.blocks + block, first = block * kBlockGroups;
    const int64_t last = HWY_MIN(first + kBlockGroups, t.groups);
    Vec<Ints> sum[Rows * kVectors];
    ((sum[I] = hn::Set(d, t.x.offsets[at + row(I) * t.x.blocks])), ...);
    for (int64_t g = first; g < last; ++g) {
      const int64_t from = kScaleBytes + g * kGroupBytes;
      const auto weights = [&](size_t i) {
        return hn::LoadU(d,
                         reinterpret_cast<const int32_t*>(panel(i) + from + place(i) * Int8Matrix::kGroup));
      };
      ((sum[I] = add_group<Dot>(weights(I), x + row(I) * t.x.words_per_row + g * kWords, sum[I])), ...);
    }
    ((total[I] =
          hn::MulAdd(hn::ConvertTo(f, sum[I]), hn::Set(f, t.x.scales[at + row(I) * t.x.blocks]), total[I])),
     ...);
  }
  const auto put = [&](size_t i) {
    const auto scale = hn::LoadU(f, reinterpret_cast<const float*>(panel(i)) + place(i));
    hn::StoreU(hn::Mul(total[i], scale), f, t.out + static_cast<int64_t>(i) * kLanes);
  };
  (put(I), ...);
}

template <bool Dot, int64_t Rows, int64_t Panels>
HWY_INLINE void run_tile(const Int8Tile& t) {
  int8_tile<Dot, Rows, Panels>(t, std::make_index_sequence<Rows * Panels * kPanelVectors>());
}

/// All rows with the panels from `panel` on, `Panels` of them.
template <bool Dot, int64_t Panels>
HWY_INLINE void int8_panels(const kernels::Int8Linear& args, const Int8Activations& x, int64_t panel) {
  const Int8Matrix& w = args.matrix;
  // Columns of y that the panels have.
  const int64_t begin = HWY_MAX(panel * kPanel - args.first, 0),
                end = HWY_MIN((panel + Panels) * kPanel - args.first, args.out);
  float out[kMaxTileRows * kMaxTilePanels * kPanel];
  for (int64_t row = 0; row < args.rows;) {
    const int64_t count = row + kTileRows <= args.rows ? kTileRows : 1;
    const Int8Tile tile{x, row, w.data + panel * w.panel_bytes(), w.panel_bytes(), w.groups(), out};
    if (count > 1)
      run_tile<Dot, kTileRows, Panels>(tile);
    else
      run_tile<Dot, 1, Panels>(tile);
    for (int64_t i = 0; i < count; ++i) {
      const float* const from = out + i * Panels * kPanel + args.first - panel * kPanel;
      float* const to = args.y + (row + i) * args.out;
      for (int64_t j = begin; j < end; ++j) to[j] = args.bias ? from[j] + args.bias[j] : from[j];
    }
    row += count;
  }
}

template <bool Dot>
HWY_INLINE void int8_product(const kernels::Int8Linear& args, const Int8Activations& x, int64_t panel,
                             int64_t last) {
  for (; panel + kTilePanels <= last; panel += kTilePanels) int8_panels<Dot, kTilePanels>(args, x, panel);
  for (; panel < last; ++panel) int8_panels<Dot, 1>(args, x, panel);
}

void product_of_words(const kernels::Int8Linear& args, const Int8Activations& x, int64_t panel,
                      int64_t last) {
  int8_product<kHasByteDot>(args, x, panel, last);
}
void product_of_pairs(const kernels::Int8Linear& args, const Int8Activations& x, int64_t panel,
                      int64_t last) {
  int8_product<false>(args, x, panel, last);
}

/// n elements * inverse, rounded, as bytes, and zeros up to a whole vector; zeros also where inverse is 0,
/// since elements may be NaN then. Returns their sum.
HWY_INLINE int32_t quantize(const float* x, int64_t n, float inverse, int8_t* bytes) {
  if (inverse == 0) {
    std::memset(bytes, 0, static_cast<size_t>((n + kLanes - 1) / kLanes * kLanes));
    return 0;
  }
  const Ints d;
  const Floats f;
  auto sum = hn::Zero(d);
  for (int64_t i = 0; i < n; i += kLanes) {
    const auto v = i + kLanes <= n ? hn::LoadU(f, x + i) : load_n(f, x + i, n - i);
    const auto q = hn::NearestInt(hn::Mul(v, hn::Set(f, inverse)));
    sum = hn::Add(sum, q);
    hn::StoreU(hn::DemoteTo(hn::Rebind<int8_t, Ints>(), q), hn::Rebind<int8_t, Ints>(), bytes + i);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

/// The largest magnitude / 127; NaN if an element is NaN or infinite.
HWY_INLINE float scale_of(const float* x, int64_t n) {
  const Floats f;
  auto most = hn::Zero(f), nothing = hn::Zero(f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const auto v = i + kLanes <= n ? hn::LoadU(f, x + i) : load_n(f, x + i, n - i);
    most = hn::Max(most, hn::Abs(v));
    nothing = hn::MulAdd(v, hn::Zero(f), nothing);
  }
  return reduce_max(f, most) / 127 + reduce_sum(f, nothing);
}

/// 1 / scale, or 0 where that is no number: then all are 0, or none counts.
HWY_INLINE float inverse_of(float scale) {
  const float inverse = 1 / scale;
  return inverse > 0 && inverse <= std::numeric_limits<float>::max() ? inverse : 0;
}

void quantize_row(const float* x, int64_t cols, const Int8Activations& to, int64_t row, bool words,
                  int8_t* bytes) {
  for (int64_t block = 0; block < to.blocks; ++block) {
    const int64_t first = block * kInt8Block, n = HWY_MIN(kInt8Block, cols - first);
    const float scale = scale_of(x + first, n);
    to.scales[row * to.blocks + block] = scale;
    to.offsets[row * to.blocks + block] = -128 * quantize(x + first, n, inverse_of(scale), bytes + first);
  }
  int32_t* const out = to.words + row * to.words_per_row;
  const int64_t groups = (cols + Int8Matrix::kGroup - 1) / Int8Matrix::kGroup;
  if (words) {
    std::memcpy(out, bytes, static_cast<size_t>(groups) * sizeof(int32_t));
    return;
  }
  const auto pair = [](int8_t low, int8_t high) {
    return static_cast<int32_t>(static_cast<uint32_t>(static_cast<uint16_t>(int16_t{low})) |
                                static_cast<uint32_t>(static_cast<uint16_t>(int16_t{high})) << 16);
  };
  for (int64_t g = 0; g < groups; ++g) {
    const int8_t* const b = bytes + g * Int8Matrix::kGroup;
    out[2 * g] = pair(b[0], b[2]);
    out[2 * g + 1] = pair(b[1], b[3]);
  }
}

/// A row of a matrix into its panel.
void pack_row(const float* values, const Int8Matrix& m, int64_t row, std::byte* panel, int8_t* bytes) {
  const float scale = scale_of(values, m.cols);
  quantize(values, m.cols, inverse_of(scale), bytes);
  std::memcpy(panel + row * int64_t{sizeof(float)}, &scale, sizeof scale);
  for (int64_t g = 0; g < m.groups(); ++g) {
    uint32_t word;
    std::memcpy(&word, bytes + g * Int8Matrix::kGroup, sizeof word);
    word ^= 0x80808080;  // adds 128 to each
    std::memcpy(panel + kScaleBytes + g * kGroupBytes + row * Int8Matrix::kGroup, &word, sizeof word);
  }
}

}  // namespace heed::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heed::cpu {
namespace {

HWY_EXPORT(product_of_words);
HWY_EXPORT(product_of_pairs);
HWY_EXPORT(quantize_row);
HWY_EXPORT(pack_row);

constexpr int64_t kMaxLanes = 64;        // bytes written past a row's end
constexpr int64_t kTaskBytes = 1 << 16;  // of weights
constexpr int64_t kTaskRows = 256;       // of x: their integers stay in the cache

int64_t padded(int64_t cols) { return round_up(cols, kInt8Block) + kMaxLanes; }

}  // namespace

void int8_pack(const kernels::Int8Pack& args) {
  const Int8Matrix& m = args.matrix;
  const auto pack = HEED_SIMD(pack_row);
  const int64_t per_task = rows_per_task(m.panels(), m.cols * kPanel);
  parallel_for(m.panels(), per_task, [&](int64_t begin, int64_t end) {
    Workspace<int8_t> bytes(padded(m.cols));
    std::fill_n(bytes.data(), padded(m.cols), int8_t{0});
    for (int64_t p = begin; p < end; ++p) {
      std::byte* const panel = args.data + p * m.panel_bytes();
      const int64_t rows = std::min(kPanel, m.rows - p * kPanel);
      for (int64_t i = 0; i < rows; ++i)
        pack(args.values + (p * kPanel + i) * m.cols, m, i, panel, bytes.data());
      for (int64_t i = rows; i < kPanel; ++i) {
        std::memset(panel + i * int64_t{sizeof(float)}, 0, sizeof(float));
        for (int64_t g = 0; g < m.groups(); ++g)
          std::memset(panel + kScaleBytes + g * kGroupBytes + i * Int8Matrix::kGroup, 0x80,
                      Int8Matrix::kGroup);
      }
    }
  });
}

void int8_rows(const kernels::Int8Rows& args) {
  const Int8Matrix& m = args.matrix;
  parallel_for(args.count, rows_per_task(args.count, m.cols), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = args.ids[i] % kPanel;
      const std::byte* const panel = m.data + args.ids[i] / kPanel * m.panel_bytes();
      float scale;
      std::memcpy(&scale, panel + row * int64_t{sizeof(float)}, sizeof scale);
      const std::byte* const from = panel + kScaleBytes + row * Int8Matrix::kGroup;
      for (int64_t c = 0; c < m.cols; ++c) {
        const std::byte q = from[c / Int8Matrix::kGroup * kGroupBytes + c % Int8Matrix::kGroup];
        args.y[i * m.cols + c] = scale * static_cast<float>(std::to_integer<int>(q) - 128);
      }
    }
  });
}

void int8_linear(const kernels::Int8Linear& args) {
  const Int8Matrix& m = args.matrix;
  if (args.rows == 0 || args.out == 0) return;
  const bool words = has_byte_dot();
  const auto product = words ? HEED_SIMD(product_of_words) : HEED_SIMD(product_of_pairs);
  const auto quantize = HEED_SIMD(quantize_row);
  const int64_t blocks = ceil_divide(m.cols, kInt8Block), at_once = std::min(args.rows, kTaskRows),
                words_per_row = m.groups() * (words ? 1 : 2);
  Workspace<int32_t> integers(at_once * words_per_row), offsets(at_once * blocks);
  Workspace<float> scales(at_once * blocks);
  const Int8Activations x{integers.data(), scales.data(), offsets.data(), words_per_row, blocks};
  const int64_t first = args.first / kPanel, last = ceil_divide(args.first + args.out, kPanel);
  for (int64_t row = 0; row < args.rows; row += at_once) {
    kernels::Int8Linear part = args;
    part.rows = std::min(at_once, args.rows - row);
    part.x += row * m.cols;
    part.y += row * args.out;
    parallel_for(part.rows, rows_per_task(part.rows, m.cols), [&](int64_t begin, int64_t end) {
      Workspace<int8_t> bytes(padded(m.cols));
      std::fill_n(bytes.data(), padded(m.cols), int8_t{0});
      for (int64_t i = begin; i < end; ++i) quantize(part.x + i * m.cols, m.cols, x, i, words, bytes.data());
    });
    const int64_t per_task =
        std::max<int64_t>(kTaskBytes / (kMaxTilePanels * m.panel_bytes()), 1) * kMaxTilePanels;
    parallel_for(last - first, per_task,
                 [&](int64_t begin, int64_t end) { product(part, x, first + begin, first + end); });
  }
}

}  // namespace heed::cpu
#endif

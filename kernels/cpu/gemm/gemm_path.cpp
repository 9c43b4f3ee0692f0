#include <algorithm>
#include <atomic>
#include <type_traits>

#include <heed/kernels/cpu/gemm/gemm_block.h>
#include <heed/kernels/cpu/gemm/gemm_onednn.h>
#include <heed/kernels/cpu/gemm/gemm_path.h>
#include <heed/kernels/cpu/simd/isa.h>

namespace heed::cpu {
namespace {

constexpr int64_t kMaxCopyRows = 256;  // packing takes a fiftieth of a product of more
constexpr int64_t kMaxDotRows = 8;  // of A: to pack B, read once or twice, would take longer than the product
constexpr int64_t kMaxStripRows = 3 * kMC, kMinStripCols = 12 * kStripCols;
constexpr int64_t kMinReplicatedRows = 512;

std::atomic<GemmBackend> chosen_backend{GemmBackend::automatic};

/// Whether a product is large enough for AMX. A float is three bf16, which takes time to pack.
template <class T>
bool amx_pays(const BlockedGemm<T>& product) {
  constexpr bool kIsFloat = std::is_same_v<T, float>;
  constexpr int64_t kMinRows = kIsFloat ? 48 : 8, kMinDepth = kIsFloat ? 24 : 1;
  return product.m >= kMinRows && product.k >= kMinDepth;
}

/// Whether a copy of B stays with its memory. Of bf16 it would be twice as large, and oneDNN may multiply it.
template <class T>
bool keeps_packed_copy(const BlockedGemm<T>& product) {
  return std::is_same_v<T, accumulator_t<T>> && product.b_copies && product.m <= kMaxCopyRows &&
         gemm_backend(product) != GemmBackend::amx;
}

}  // namespace

void set_gemm_backend(GemmBackend backend) { chosen_backend = backend; }

bool amx_enabled() {
  const GemmBackend backend = chosen_backend.load(std::memory_order_relaxed);
  return backend == GemmBackend::amx || (backend == GemmBackend::automatic && has_amx());
}

template <class T>
GemmBackend gemm_backend(const BlockedGemm<T>& product) {
  if constexpr (std::is_same_v<T, double>) return GemmBackend::simd;
  GemmBackend backend = chosen_backend.load(std::memory_order_relaxed);
  if (backend == GemmBackend::automatic) {
    if (has_amx() && amx_pays(product)) return GemmBackend::amx;
    const bool lacks_dot = std::is_same_v<T, bfloat16> && isa() >= Isa::avx512 && !has_bf16_dot();
    backend = lacks_dot ? GemmBackend::onednn : GemmBackend::simd;
  }
  if (backend == GemmBackend::onednn && !onednn_supports<T>(product.output.alpha)) return GemmBackend::simd;
  return backend;
}

template <class T>
bool reads_in_place(const BlockedGemm<T>& product) {
  if constexpr (!std::is_same_v<T, accumulator_t<T>>) return false;
  const auto& [m, n, k, a, b, output, b_copies] = product;
  constexpr int64_t kFar = kConflictStride / int64_t{sizeof(T)};
  return b.column_stride == 1 && n % gemm_functions<T>().geometry.nr == 0 &&
         std::min(m, k) * n <= kSmallWeight && b.row_stride < kFar &&
         std::max(a.row_stride, a.column_stride) < kFar && gemm_backend(product) != GemmBackend::onednn;
}

template <class T>
bool replicates_b(const BlockedGemm<T>& product) {
  return product.a.column_stride == 1 && product.m >= kMinReplicatedRows &&
         product.n * product.k <= kSmallWeight;
}

template <class T>
GemmPath gemm_path(const BlockedGemm<T>& product) {
  const auto& [m, n, k, a, b, output, b_copies] = product;
  if (keeps_packed_copy(product)) return GemmPath::packed_copy;
  if (m <= kMaxDotRows && a.column_stride == 1 && b.row_stride == 1) return GemmPath::dot;
  const GemmBackend backend = gemm_backend(product);
  if (backend == GemmBackend::amx) return GemmPath::amx;
  if (backend == GemmBackend::onednn) return GemmPath::onednn;
  if (reads_in_place(product)) return GemmPath::in_place;
  if (m <= kMaxStripRows && n >= kMinStripCols) return GemmPath::column_strips;
  if (k > n && n * gemm_functions<T>().geometry.k_groups(k) > kMaxPieceElements) return GemmPath::k_blocks;
  return GemmPath::packed;
}

#define HEED_INSTANTIATE(T)                                    \
  template GemmBackend gemm_backend<T>(const BlockedGemm<T>&); \
  template bool reads_in_place<T>(const BlockedGemm<T>&);      \
  template bool replicates_b<T>(const BlockedGemm<T>&);        \
  template GemmPath gemm_path<T>(const BlockedGemm<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(double)
HEED_INSTANTIATE(bfloat16)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu

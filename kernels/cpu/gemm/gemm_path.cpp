#include <atomic>
#include <type_traits>

#include <heed/kernels/cpu/gemm/gemm_backend.h>
#include <heed/kernels/cpu/gemm/gemm_onednn.h>
#include <heed/kernels/cpu/simd/isa.h>

namespace heed::cpu {
namespace {

std::atomic<GemmBackend> chosen_backend{GemmBackend::automatic};

/// Whether a product is large enough for tiles. A float is three bf16, which takes time to pack.
template <class T>
bool pays_by_tiles(const BlockedGemm<T>& product) {
  constexpr bool kIsFloat = std::is_same_v<T, float>;
  constexpr int64_t kLeastRows = kIsFloat ? 48 : 8, kLeastDepth = kIsFloat ? 24 : 1;
  return product.m >= kLeastRows && product.k >= kLeastDepth;
}

}  // namespace

void set_gemm_backend(GemmBackend backend) { chosen_backend = backend; }

bool multiplies_by_tiles() {
  const GemmBackend backend = chosen_backend.load(std::memory_order_relaxed);
  return backend == GemmBackend::amx || (backend == GemmBackend::automatic && has_amx());
}

template <class T>
GemmBackend gemm_backend(const BlockedGemm<T>& product) {
  if constexpr (std::is_same_v<T, double>) return GemmBackend::own;
  GemmBackend backend = chosen_backend.load(std::memory_order_relaxed);
  if (backend == GemmBackend::automatic) {
    if (has_amx() && pays_by_tiles(product)) return GemmBackend::amx;
    const bool lacks_dot = std::is_same_v<T, bfloat16> && isa() >= Isa::avx512 && !has_bf16_dot();
    backend = lacks_dot ? GemmBackend::onednn : GemmBackend::own;
  }
  if (backend == GemmBackend::onednn && !onednn_supports<T>(product.output.alpha)) return GemmBackend::own;
  return backend;
}

template GemmBackend gemm_backend<float>(const BlockedGemm<float>&);
template GemmBackend gemm_backend<double>(const BlockedGemm<double>&);
template GemmBackend gemm_backend<bfloat16>(const BlockedGemm<bfloat16>&);

}  // namespace heed::cpu

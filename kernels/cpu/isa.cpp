#include <algorithm>
#include <cstdlib>
#include <string_view>

#include <hwy/highway.h>

#include <heed/core/base/check.h>
#include <heed/kernels/cpu/isa.h>

namespace heed::cpu {
namespace {

Isa allowed() {
  const char* text = std::getenv("HEED_ISA");
  if (text == nullptr || *text == '\0') return Isa::avx512;
  for (Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512}) {
    if (std::string_view(text) == name(isa)) return isa;
  }
  throw ConfigError(concat("HEED_ISA is '", text, "'; expected baseline, avx2 or avx512"));
}

Isa apply() {
#if HWY_ARCH_X86
  constexpr int64_t kAvx512 = HWY_AVX3 | HWY_AVX3_DL;
  constexpr Isa kBuilt = HWY_TARGETS & kAvx512    ? Isa::avx512
                         : HWY_TARGETS & HWY_AVX2 ? Isa::avx2
                                                  : Isa::baseline;
  const Isa limit = std::min(allowed(), kBuilt);
  if (limit < Isa::avx512) hwy::DisableTargets(kAvx512 | (limit < Isa::avx2 ? HWY_AVX2 : 0));
  const int64_t targets = hwy::SupportedTargets();
  hwy::GetChosenTarget().Update(targets);  // SupportedTargets() has set it to all the machine has
  HEED_CHECK(targets & (HWY_SSE4 | HWY_AVX2 | kAvx512), DeviceError,
             "heed needs an x86-64-v2 processor (SSE4.2), which this one is not");
  return targets & kAvx512 ? Isa::avx512 : targets & HWY_AVX2 ? Isa::avx2 : Isa::baseline;
#else
  static_cast<void>(allowed());
  return Isa::baseline;
#endif
}

}  // namespace

const char* name(Isa isa) {
  switch (isa) {
    case Isa::baseline:
      return "baseline";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
  }
  return "unknown";
}

Isa isa() {
  static const Isa applied = apply();
  return applied;
}

}  // namespace heed::cpu

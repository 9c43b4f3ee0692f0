#include <algorithm>
#include <cstdlib>
#include <string_view>

#include <hwy/highway.h>

#include <heed/core/base/check.h>
#include <heed/kernels/cpu/isa.h>

#if HWY_ARCH_X86
#include <cpuid.h>
#endif

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

/// A bit of the processor's feature leaf 7.
bool has_feature([[maybe_unused]] unsigned part, [[maybe_unused]] int word, [[maybe_unused]] int bit) {
#if HWY_ARCH_X86
  unsigned words[4] = {};
  return __get_cpuid_count(7, part, &words[0], &words[1], &words[2], &words[3]) != 0 &&
         words[word] >> bit & 1;
#else
  return false;
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

bool has_bf16_dot() {
  static const bool has = isa() == Isa::avx512 && has_feature(1, 0, 5);
  return has;
}

bool has_bf16_tiles() {
  static const bool has = isa() == Isa::avx512 && has_feature(0, 3, 22);
  return has;
}

}  // namespace heed::cpu

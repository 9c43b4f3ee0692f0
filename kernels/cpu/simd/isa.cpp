#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string_view>

#include <hwy/highway.h>

#include <heed/core/base/check.h>
#include <heed/kernels/cpu/simd/byte_dot.h>
#include <heed/kernels/cpu/simd/isa.h>

#if HWY_ARCH_X86
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace heed::cpu {
namespace {

std::atomic<bool> byte_dot_allowed{true};

Isa allowed() {
  const char* text = std::getenv("HEED_ISA");
  if (text == nullptr || *text == '\0') return Isa::amx;
  for (Isa isa : {Isa::baseline, Isa::avx2, Isa::avx512, Isa::amx}) {
    if (std::string_view(text) == name(isa)) return isa;
  }
  throw ConfigError(concat("HEED_ISA is '", text, "'; expected baseline, avx2, avx512 or amx"));
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

/// Whether the processor multiplies tiles of bf16 and the system lets this process keep such tiles.
bool may_use_amx() {
#if HEED_HAVE_AMX && HWY_ARCH_X86 && defined(__linux__)
  constexpr long kRequest = 0x1023, kTileData = 18;                 // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  const bool has = has_feature(0, 3, 22) && has_feature(0, 3, 24);  // AMX_BF16, AMX_TILE
  return has && syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
#else
  return false;
#endif
}

#if HWY_ARCH_X86
constexpr int64_t kAvx512 = HWY_AVX3 | HWY_AVX3_DL;

constexpr Isa best_of(int64_t targets, Isa of_avx512) {
  return targets & kAvx512 ? of_avx512 : targets & HWY_AVX2 ? Isa::avx2 : Isa::baseline;
}
// What the kernels are compiled for, at least and at most: those of one machine for its set, without a
// choice.
#ifndef HEED_LEAST_ISA
#define HEED_LEAST_ISA baseline
#endif
constexpr Isa kLeast = std::max(Isa::HEED_LEAST_ISA, best_of(HWY_STATIC_TARGET, Isa::avx512));
constexpr Isa kMost = best_of(HWY_TARGETS, Isa::amx);
#endif

Isa apply() {
#if HWY_ARCH_X86
  const Isa limit = std::min(allowed(), kMost);
  HEED_CHECK(limit >= kLeast, ConfigError, "HEED_ISA is '", name(limit), "'; this build has nothing below ",
             name(kLeast));
  if (limit < Isa::avx512) hwy::DisableTargets(kAvx512 | (limit < Isa::avx2 ? HWY_AVX2 : 0));
  const int64_t targets = hwy::SupportedTargets();
  hwy::GetChosenTarget().Update(targets);  // SupportedTargets() has set it to all the machine has
  HEED_CHECK(targets & (HWY_SSE4 | HWY_AVX2 | kAvx512), DeviceError,
             "heed needs an x86-64-v2 processor (SSE4.2), which this one is not");
  HEED_CHECK(best_of(targets, Isa::avx512) >= kLeast, DeviceError,
             "this build of heed is for processors with ", name(kLeast), ", which this one lacks");
  return best_of(targets, limit == Isa::amx && may_use_amx() ? Isa::amx : Isa::avx512);
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
    case Isa::amx:
      return "amx";
  }
  return "unknown";
}

Isa isa() {
  static const Isa applied = apply();
  return applied;
}

bool has_bf16_dot() {
  static const bool has = isa() >= Isa::avx512 && has_feature(1, 0, 5);
  return has;
}

bool has_byte_dot() {
  static const bool has =
      (isa() >= Isa::avx512 && has_feature(0, 2, 11)) || (isa() == Isa::avx2 && has_feature(1, 0, 4));
  return has && byte_dot_allowed.load(std::memory_order_relaxed);
}

void allow_byte_dot(bool allowed) { byte_dot_allowed = allowed; }

}  // namespace heed::cpu

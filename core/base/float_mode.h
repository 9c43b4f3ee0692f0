// How the calling thread computes with floating-point numbers. Private to heed: not installed.
#pragma once

#include <cstdint>

namespace heed::detail {

/// Rounding, subnormal numbers and traps, as the processor keeps them for the thread, without the flags that
/// arithmetic leaves beside them. 0, and nothing can be set, where heed does not know the processor.
#if defined(__SSE__)
constexpr uint32_t kFlags = 0x3f;
constexpr uint32_t kZeroResults = 1u << 15;  // results that would be subnormal are 0
constexpr uint32_t kZeroOperands = 1u << 6;  // operands that are subnormal count as 0
inline uint32_t float_mode() { return __builtin_ia32_stmxcsr() & ~kFlags; }
inline void set_float_mode(uint32_t mode) {
  __builtin_ia32_ldmxcsr(mode | (__builtin_ia32_stmxcsr() & kFlags));
}
#else
constexpr uint32_t kZeroResults = 0, kZeroOperands = 0;
inline uint32_t float_mode() { return 0; }
inline void set_float_mode(uint32_t) {}
#endif

/// While it lives, the calling thread takes subnormal results for 0, and operands too if `operands`: the
/// slowest processors need over a hundred cycles for each.
class NoSubnormals {
 public:
  explicit NoSubnormals(bool operands) : before_(float_mode()) {
    const uint32_t mode = before_ | kZeroResults | (operands ? kZeroOperands : 0);
    changed_ = mode != before_;
    if (changed_) set_float_mode(mode);
  }
  ~NoSubnormals() {
    if (changed_) set_float_mode(before_);
  }
  NoSubnormals(const NoSubnormals&) = delete;
  NoSubnormals& operator=(const NoSubnormals&) = delete;

 private:
  uint32_t before_;
  bool changed_;
};

}  // namespace heed::detail

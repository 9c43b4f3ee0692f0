// What a thread does between two looks at what it spins on. Private to core/base: not installed.
#pragma once

namespace heed {

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace heed

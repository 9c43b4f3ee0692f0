// Declares kernels for every kind of device. Each kernel is named once, in the header of its arguments:
// `git grep HEED_KERNEL 'kernels/*.h'` is the list.
#pragma once

/// What is declared in the namespace of each kind of device.
#define HEED_ON_DEVICES(...) \
  namespace heed::cpu {      \
  __VA_ARGS__;               \
  }                          \
  namespace heed::cuda {     \
  __VA_ARGS__;               \
  }                          \
  static_assert(true)  // takes the semicolon

/// The kernel `void name(const kernels::Args<T>&)`.
#define HEED_KERNEL(name, Args) HEED_ON_DEVICES(template <class T> void name(const kernels::Args<T>& args))
/// The same for arguments of two types, and of none.
#define HEED_KERNEL_2(name, Args) \
  HEED_ON_DEVICES(template <class T, class U> void name(const kernels::Args<T, U>& args))
#define HEED_KERNEL_0(name, Args) HEED_ON_DEVICES(void name(const kernels::Args& args))

// One pool of threads for the whole process, behind parallel_for.
#pragma once

#include <cstdint>

#include <heed/core/base/function_ref.h>

namespace heed {

/// Threads that parallel_for uses, the calling one included. At start: HEED_NUM_THREADS if set, else the
/// number of cores the process may run on, or that its CPU quota is worth if that is less.
int thread_count();

/// Sets it, 1 to 1024; ConfigError otherwise. Not while a parallel_for runs. Results never depend on it.
void set_thread_count(int threads);

namespace detail {
using RangeFunction = FunctionRef<void(int64_t begin, int64_t end)>;
void parallel_for(int64_t count, int64_t grain, RangeFunction f);
}  // namespace detail

/// Calls f(begin, end) for the ranges [0, grain), [grain, 2 grain), … that cut [0, count), each exactly once,
/// on the pool and the calling thread, and returns when all are done. The cut depends on count and grain
/// alone, never on the number of threads. A thread begins with the same share of the ranges in each call.
/// Inside another parallel_for it runs on the calling thread. The first exception thrown by f is rethrown
/// here, once, after the running ranges have ended. Any thread may call it; calls from different threads at
/// the same time are served one after another. All threads compute in the caller's floating-point mode.
template <class F>
void parallel_for(int64_t count, int64_t grain, F&& f) {
  detail::parallel_for(count, grain, detail::RangeFunction(f));
}

}  // namespace heed

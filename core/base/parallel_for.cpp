#include <algorithm>

#include <heed/core/base/check.h>
#include <heed/core/base/parallel_for.h>

namespace heed {

int thread_count() { return 1; }

void set_thread_count(int threads) {
  HEED_CHECK(threads >= 1 && threads <= 1024, ConfigError, "set_thread_count: ", threads,
             " is not in 1 to 1024");
}

namespace detail {

void parallel_for(int64_t count, int64_t grain, RangeFunction function, void* context) {
  for (int64_t begin = 0; begin < count; begin += grain)
    function(context, begin, std::min(begin + grain, count));
}

}  // namespace detail
}  // namespace heed

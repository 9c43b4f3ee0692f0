// Several lists of tasks as one job of parallel_for: threads wait for each other once.
#pragma once

#include <cstdint>

#include <heed/core/base/threads/parallel_for.h>

namespace heed::cpu {

template <class F>
struct TaskList {
  int64_t count;
  const F& run;  // called with the number of each task, 0 … count - 1
};
template <class F>
TaskList(int64_t, const F&) -> TaskList<F>;

/// Runs all lists. The first half of the job is the first half of each list, so that two threads share each
/// as they would share it alone.
template <class... F>
void parallel_for_lists(const TaskList<F>&... lists) {
  const int64_t all = (... + lists.count), first = (... + (lists.count / 2));
  parallel_for(all, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const bool second = t >= first;
      int64_t left = second ? t - first : t;  // until the task's own list, then below 0
      const auto run_if_own = [&](const auto& list) {
        if (left < 0) return;
        const int64_t half = list.count / 2, count = second ? list.count - half : half;
        if (left < count) list.run(second ? half + left : left);
        left -= count;
      };
      (run_if_own(lists), ...);
    }
  });
}

}  // namespace heed::cpu

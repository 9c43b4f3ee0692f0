#include <algorithm>
#include <limits>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/cpu/tasks/grain.h>
#include <heed/kernels/cpu/tasks/workspace.h>
#include <heed/kernels/pool.h>

namespace heed::cpu {
namespace {

using kernels::PoolSizes;

/// The window's elements along an axis that lie within `size`, at one position: number `first` up to `last`.
struct Reach {
  int64_t start, first, last;

  Reach(const kernels::Window& w, int axis, int64_t position, int64_t size)
      : start(position * w.stride[axis] - w.padding[axis]), first(0), last(w.kernel[axis]) {
    const int64_t step = w.dilation[axis];
    if (start < 0) first = std::min((-start + step - 1) / step, last);
    last = std::clamp((size - start + step - 1) / step, first, last);
  }
};

/// f(place in the plane) for each element of the image under the window at (i, j).
template <class F>
void for_window(const PoolSizes& s, const Reach& rows, const Reach& cols, const F& f) {
  for (int64_t k = rows.first; k < rows.last; ++k) {
    const int64_t row = (rows.start + k * s.window.dilation[0]) * s.width + cols.start;
    for (int64_t l = cols.first; l < cols.last; ++l) f(row + l * s.window.dilation[1]);
  }
}

template <class F>
void for_positions(const PoolSizes& s, const F& f) {
  const int64_t out_height = s.out_height(), out_width = s.out_width();
  for (int64_t i = 0; i < out_height; ++i) {
    const Reach rows(s.window, 0, i, s.height);
    for (int64_t j = 0; j < out_width; ++j) f(i * out_width + j, rows, Reach(s.window, 1, j, s.width));
  }
}

template <class F>
void for_planes(const PoolSizes& s, const F& f) {
  parallel_for(s.planes, rows_per_task(s.planes, s.height * s.width), [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) f(plane);
  });
}

template <class T>
void largest(const kernels::PoolForward<T>& args, int64_t plane) {
  using A = accumulator_t<T>;
  const PoolSizes& s = args.sizes;
  const T* const x = args.x + plane * s.height * s.width;
  for_positions(s, [&](int64_t at, const Reach& rows, const Reach& cols) {
    A best = -std::numeric_limits<A>::infinity();
    int64_t place = -1;
    for_window(s, rows, cols, [&](int64_t from) {
      const A v = static_cast<A>(x[from]);
      if (place < 0 || v > best || (v != v && best == best)) best = v, place = from;
    });
    args.y[plane * s.pixels() + at] = static_cast<T>(best);
    if (args.index != nullptr) args.index[plane * s.pixels() + at] = static_cast<int32_t>(place);
  });
}

template <class T>
void mean(const kernels::PoolForward<T>& args, int64_t plane) {
  using A = accumulator_t<T>;
  const PoolSizes& s = args.sizes;
  const A scale = A(1) / static_cast<A>(s.window.kernel[0] * s.window.kernel[1]);
  const T* const x = args.x + plane * s.height * s.width;
  for_positions(s, [&](int64_t at, const Reach& rows, const Reach& cols) {
    A sum = 0;
    for_window(s, rows, cols, [&](int64_t from) { sum += static_cast<A>(x[from]); });
    args.y[plane * s.pixels() + at] = static_cast<T>(sum * scale);
  });
}

}  // namespace

template <class T>
void pool_forward(const kernels::PoolForward<T>& args) {
  for_planes(args.sizes, [&](int64_t plane) {
    args.sizes.kind == PoolKind::max ? largest(args, plane) : mean(args, plane);
  });
}

template <class T>
void pool_backward(const kernels::PoolBackward<T>& args) {
  using A = accumulator_t<T>;
  const PoolSizes& s = args.sizes;
  const int64_t size = s.height * s.width;
  const A scale = A(1) / static_cast<A>(s.window.kernel[0] * s.window.kernel[1]);
  for_planes(s, [&](int64_t plane) {
    T* const gx = args.gx + plane * size;
    const T* const gy = args.gy + plane * s.pixels();
    const Workspace<A> sums(size);  // windows overlap: rounded once
    A* const out = sums.data();
    for (int64_t i = 0; i < size; ++i) out[i] = args.accumulate ? static_cast<A>(gx[i]) : A(0);
    if (s.kind == PoolKind::max) {
      const int32_t* const index = args.index + plane * s.pixels();
      for (int64_t at = 0; at < s.pixels(); ++at)
        if (index[at] >= 0) out[index[at]] += static_cast<A>(gy[at]);
    } else {
      for_positions(s, [&](int64_t at, const Reach& rows, const Reach& cols) {
        const A g = static_cast<A>(gy[at]) * scale;
        for_window(s, rows, cols, [&](int64_t to) { out[to] += g; });
      });
    }
    for (int64_t i = 0; i < size; ++i) gx[i] = static_cast<T>(out[i]);
  });
}

#define HEED_INSTANTIATE(T)                                      \
  template void pool_forward<T>(const kernels::PoolForward<T>&); \
  template void pool_backward<T>(const kernels::PoolBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(double)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu

#include <algorithm>

#include <heed/kernels/cpu/elementwise/elementwise-inl.h>
#include <heed/kernels/cpu/simd/strided-inl.h>
#include <heed/kernels/embedding.h>
#include <heed/kernels/indexing.h>

namespace heed::cpu {
namespace {

constexpr int64_t kTaskColumns = 64;  // columns whose rows one task adds up

template <bool kGaps, class T>
void gather_all(const kernels::Gather<T>& args) {
  const auto element = [](const T* x, int64_t index, int64_t stride) {
    return kGaps && index == kNoToken ? T(0) : x[index * stride];
  };
  parallel_walk(args.space, kTaskElements, [&](const Run<3>& run) {
    T* y = args.y + run.at[0];
    const int64_t* index = args.index + run.at[1];
    const T* x = args.x + run.at[2];
    if (run.step[0] == 1 && run.step[1] == 1 && run.step[2] == 0 && args.stride_x == 1) {  // along a row
      for (int64_t i = 0; i < run.n; ++i) y[i] = element(x, index[i], 1);
    } else {
      for (int64_t i = 0; i < run.n; ++i)
        y[i * run.step[0]] = element(x + i * run.step[2], index[i * run.step[1]], args.stride_x);
    }
  });
}

/// put(to, value) for each element of the source.
template <class T, class Put>
void scatter_all(const kernels::Scatter<T>& args, Put put) {
  using A = math_t<T>;
  const bool gaps = args.use == kernels::IndexUse::index_select;
  parallel_walk(args.lines, lines_per_task(args.n), [&](const Run<3>& run) {
    for (int64_t line = 0; line < run.n; ++line) {
      A* y = args.y + run.at[0] + line * run.step[0];
      const int64_t* index = args.index + run.at[1] + line * run.step[1];
      const T* source = args.source + run.at[2] + line * run.step[2];
      if (!gaps && args.stride_index == 1 && args.stride_y == 1 && args.stride_source == 1) {  // along a row
        for (int64_t i = 0; i < args.n; ++i) put(y[index[i]], static_cast<A>(source[i]));
        continue;
      }
      for (int64_t i = 0; i < args.n; ++i) {
        const int64_t target = index[i * args.stride_index];
        if (gaps && target == kNoToken) continue;
        put(y[target * args.stride_y], static_cast<A>(source[i * args.stride_source]));
      }
    }
  });
}

/// The same by f(a, b) of unsigned integers, which wrap, or of floating numbers.
template <class T, class F>
void scatter_arithmetic(const kernels::Scatter<T>& args, F f) {
  scatter_all(args, [f](auto& to, auto value) {
    if constexpr (std::is_integral_v<T>)
      to = wrapping(to, value, f);
    else
      to = f(to, value);
  });
}

}  // namespace

template <class T>
void gather(const kernels::Gather<T>& args) {
  if (args.use == kernels::IndexUse::index_select)
    gather_all<true>(args);
  else
    gather_all<false>(args);
}

template <class T>
void scatter(const kernels::Scatter<T>& args) {
  using A = math_t<T>;
  switch (args.op) {
    case ScatterOp::replace:
      return scatter_all(args, [](A& to, A value) { to = value; });
    case ScatterOp::add:
      return scatter_arithmetic(args, [](auto a, auto b) { return a + b; });
    case ScatterOp::multiply:
      return scatter_arithmetic(args, [](auto a, auto b) { return a * b; });
    case ScatterOp::max:
      return scatter_all(args, [](A& to, A value) { to = value > to || value != value ? value : to; });
    case ScatterOp::min:
      return scatter_all(args, [](A& to, A value) { to = value < to || value != value ? value : to; });
  }
}

template <class T>
void index_select(const kernels::IndexSelect<T>& args) {
  parallel_for(args.count, lines_per_task(args.width), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* y = args.y + i * args.width;
      if (args.index[i] == kNoToken)
        std::fill_n(y, args.width, T(0));
      else
        std::copy_n(args.x + args.index[i] * args.width, args.width, y);
    }
  });
}

template <class T>
void index_select_backward(const kernels::IndexSelectBackward<T>& args) {
  using A = math_t<T>;
  // A task owns some columns and goes through all rows: the order of additions is that of the index.
  parallel_for(args.width, kTaskColumns, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < args.count; ++i) {
      if (args.index[i] == kNoToken) continue;
      A* gx = args.gx + args.index[i] * args.width;
      const T* gy = args.gy + i * args.width;
      for (int64_t c = begin; c < end; ++c) gx[c] += static_cast<A>(gy[c]);
    }
  });
}

template <class T>
void triangle(const kernels::Triangle<T>& args) {
  parallel_for(args.matrices * args.rows, lines_per_task(args.cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const T* x = args.x + r * args.cols;
      T* y = args.y + r * args.cols;
      // The first column on the diagonal's right (lower) or on it (upper); far diagonals keep all or nothing.
      const int64_t diagonal = std::clamp<int64_t>(args.diagonal, -args.rows - 1, args.cols);
      const int64_t cut = std::clamp<int64_t>(r % args.rows + diagonal + args.lower, 0, args.cols);
      for (int64_t c = 0; c < cut; ++c) y[c] = args.lower ? x[c] : T(0);
      for (int64_t c = cut; c < args.cols; ++c) y[c] = args.lower ? T(0) : x[c];
    }
  });
}

void compact(const kernels::Compact& args) {
  parallel_for(args.count, kTaskElements, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      if (args.mask[i]) args.y[args.place[i] - 1] = i;
  });
}

template <class T>
void one_hot(const kernels::OneHot<T>& args) {
  parallel_for(args.count, lines_per_task(args.classes), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* y = args.y + i * args.classes;
      std::fill_n(y, args.classes, T(0));
      y[args.ids[i]] = T(1);
    }
  });
}

#define HEED_INSTANTIATE(T)                                      \
  template void gather<T>(const kernels::Gather<T>&);            \
  template void index_select<T>(const kernels::IndexSelect<T>&); \
  template void triangle<T>(const kernels::Triangle<T>&);        \
  template void one_hot<T>(const kernels::OneHot<T>&);
#define HEED_INSTANTIATE_NUMBER(T)                      \
  HEED_INSTANTIATE(T)                                   \
  template void scatter<T>(const kernels::Scatter<T>&); \
  template void index_select_backward<T>(const kernels::IndexSelectBackward<T>&);
HEED_INSTANTIATE_NUMBER(float)
HEED_INSTANTIATE_NUMBER(bfloat16)
HEED_INSTANTIATE_NUMBER(double)
HEED_INSTANTIATE_NUMBER(int64_t)
HEED_INSTANTIATE_NUMBER(int32_t)
HEED_INSTANTIATE(bool)
#undef HEED_INSTANTIATE_NUMBER
#undef HEED_INSTANTIATE

}  // namespace heed::cpu

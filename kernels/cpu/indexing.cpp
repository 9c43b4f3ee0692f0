#include <algorithm>

#include <heed/kernels/cpu/simd/strided-inl.h>
#include <heed/kernels/embedding.h>
#include <heed/kernels/indexing.h>

namespace heed::cpu {
namespace {

constexpr int64_t kTaskColumns = 64;  // columns whose rows one task adds up

}  // namespace

template <class T>
void gather(const kernels::Gather<T>& args) {
  parallel_walk(args.space, kTaskElements, [&](const Run<3>& run) {
    T* y = args.y + run.at[0];
    const int64_t* index = args.index + run.at[1];
    const T* x = args.x + run.at[2];
    if (run.step[0] == 1 && run.step[1] == 1 && run.step[2] == 0 && args.stride_x == 1) {  // along a row
      for (int64_t i = 0; i < run.n; ++i) y[i] = x[index[i]];
    } else {
      for (int64_t i = 0; i < run.n; ++i)
        y[i * run.step[0]] = x[i * run.step[2] + index[i * run.step[1]] * args.stride_x];
    }
  });
}

template <class T>
void scatter_add(const kernels::ScatterAdd<T>& args) {
  using A = math_t<T>;
  parallel_walk(args.lines, lines_per_task(args.n), [&](const Run<3>& run) {
    for (int64_t line = 0; line < run.n; ++line) {
      A* y = args.y + run.at[0] + line * run.step[0];
      const int64_t* index = args.index + run.at[1] + line * run.step[1];
      const T* source = args.source + run.at[2] + line * run.step[2];
      if (args.stride_index == 1 && args.stride_y == 1 && args.stride_source == 1) {  // along a row
        for (int64_t i = 0; i < args.n; ++i) y[index[i]] += static_cast<A>(source[i]);
        continue;
      }
      for (int64_t i = 0; i < args.n; ++i)
        y[index[i * args.stride_index] * args.stride_y] += static_cast<A>(source[i * args.stride_source]);
    }
  });
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
#define HEED_INSTANTIATE_NUMBER(T)                             \
  HEED_INSTANTIATE(T)                                          \
  template void scatter_add<T>(const kernels::ScatterAdd<T>&); \
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

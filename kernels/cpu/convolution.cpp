// Convolution as matrix products with the image under the window's taps, which are made for a few positions
// at a time and stay in the cache. The gradient of x is such a convolution too: of gy, with the taps of each
// phase of the stride.
#include <algorithm>

#include <heed/core/base/int_math.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/convolution.h>
#include <heed/kernels/cpu/convolution_patches.h>
#include <heed/kernels/cpu/gemm/gemm_block.h>
#include <heed/kernels/cpu/tasks/grain.h>

namespace heed::cpu {
namespace {

constexpr int64_t kColumnElements = 160 << 10;  // that stay in a second-level cache
constexpr int64_t kMaxPositions = 512;          // of a task
constexpr int64_t kTasks = 8;                   // at least, where the shape allows
constexpr int64_t kImageTasks = 4;              // the same where a task takes several images
constexpr int64_t kPlaneOutputs = 2;            // of a single plane, which are summed without a product
constexpr int64_t kDotOutputs = 8;              // for which patches are not worth packing
constexpr int64_t kWeightColumns = 192;         // of a weight's gradient a task

/// Where the sums of position (i, j) of an image go: out[n * image + o * plane + i * row_stride + j *
/// col_stride] (+)= bias[o] + the sum.
template <class T>
struct PatchTarget {
  T* out;
  int64_t image, plane, row_stride, col_stride;
  const T* bias;  // of the first output, or null
  bool accumulate;
};

/// c [rows, cols] = a [rows, k] by packed columns (+ c if `added`), by as many rows as stay in the cache.
template <class A>
void multiply(MatrixView<A> a, const A* columns, A* c, int64_t ldc, int64_t rows, int64_t cols, int64_t k,
              bool added) {
  const GemmFunctions<A>& functions = gemm_functions<A>();
  const EvenSplit blocks(rows, functions.geometry.mr, kMC);
  for (int64_t i = 0; i < blocks.parts; ++i) {
    const int64_t row = blocks.begin(i), height = blocks.size(i);
    A* const first = c + row * ldc;
    const Workspace<A> buffer(copies_a(a.at(row, 0), height, k, 1) ? functions.geometry.a_buffer(height, k)
                                                                   : 0);
    functions.block({.a = a.at(row, 0),
                     .a_rows = rows - row,
                     .b = columns,
                     .b_stride = 0,
                     .c = first,
                     .ldc = ldc,
                     .rows = height,
                     .cols = cols,
                     .k = k,
                     .added = {added ? first : nullptr, ldc},
                     .a_buffer = buffer.data()});
  }
}

/// to[i * stride] (+)= from[i]
template <class A, class T>
void store_run(const A* from, int64_t count, T* to, int64_t stride, bool accumulate) {
  for (int64_t i = 0; i < count; ++i, to += stride)
    *to = static_cast<T>(accumulate ? static_cast<A>(*to) + from[i] : from[i]);
}

/// One group's part of some images, or of a slice of one.
template <class T>
struct PatchTask {
  const T* in;  // its planes of the first image
  int64_t in_image;
  const accumulator_t<T>* weight;  // [outputs, planes * taps]
  PatchTarget<T> target;
  int64_t planes, outputs;
  int64_t images, begin, end;  // positions, which count on from image to image
};

/// c [outputs, positions] = the weight by the patches (+ c)
template <class T, class A = accumulator_t<T>>
void multiply_patches(const PatchTask<T>& task, Patches<T>& patches, A* c, int64_t ldc, int64_t depth,
                      bool added) {
  const int64_t nr = gemm_functions<A>().geometry.nr, count = task.end - task.begin;
  Workspace<A> columns(round_up(count, nr) * depth + kColumnSlack);
  for (int64_t j = 0; j < count; j += nr)
    patches.fill(task.begin + j, task.begin + std::min(j + nr, count), columns.data() + j * depth,
                 count - j > nr / 2 ? nr : nr / 2);
  multiply<A>({task.weight, depth, 1}, columns.data(), c, ldc, task.outputs, count, depth, added);
}

/// The sums of all outputs at its positions.
template <class T>
void correlate(const PatchGrid& grid, const PatchTask<T>& task) {
  using A = accumulator_t<T>;
  const PatchTarget<T>& target = task.target;
  const int64_t outputs = task.outputs;
  const int64_t depth = task.planes * grid.taps(), count = task.end - task.begin;
  Patches<T> patches(grid, task.planes, task.images, task.begin, task.end);
  patches.read(task.in, task.in_image);
  const bool rows_touch = target.col_stride == 1 && target.row_stride == grid.cols;
  const bool direct = std::is_same_v<T, A> && rows_touch && task.images == 1;
  Workspace<A> buffer(direct ? 0 : outputs * count);
  A* c = buffer.data();
  if constexpr (std::is_same_v<T, A>) {
    if (direct) c = target.out + task.begin;
  }
  const int64_t ldc = direct ? target.plane : count;
  if (target.bias != nullptr)
    for (int64_t o = 0; o < outputs; ++o) std::fill_n(c + o * ldc, count, static_cast<A>(target.bias[o]));
  const bool added = target.bias != nullptr || (direct && target.accumulate);
  if (task.planes == 1 && outputs <= kPlaneOutputs) {
    for (int64_t o = 0; o < outputs; ++o)
      patches.sum(task.begin, task.end, task.weight + o * depth, c + o * ldc, added);
  } else {
    multiply_patches(task, patches, c, ldc, depth, added);
  }
  if (direct) return;
  for (int64_t o = 0; o < outputs; ++o)
    for (int64_t p = task.begin; p < task.end;) {
      const int64_t n = p / grid.positions(), at = p % grid.positions(), i = at / grid.cols,
                    j = at % grid.cols;
      const int64_t touching = rows_touch ? grid.positions() - at : grid.cols - j;
      const int64_t run = std::min(touching, task.end - p);
      T* const to =
          target.out + n * target.image + o * target.plane + i * target.row_stride + j * target.col_stride;
      store_run(c + o * ldc + p - task.begin, run, to, target.col_stride, target.accumulate);
      p += run;
    }
}

/// The same for all positions, groups and images. weight [groups, outputs, planes * taps], outputs and planes
/// of a group; `target` is that of the first group of the first image. Small images are taken several at a
/// time, so that their positions fill whole vectors.
template <class T>
void correlate_all(const PatchGrid& grid, int64_t batch, int64_t groups, const T* in, int64_t planes,
                   const accumulator_t<T>* weight, int64_t outputs, const PatchTarget<T>& target) {
  using A = accumulator_t<T>;
  const int64_t nr = gemm_functions<A>().geometry.nr, depth = planes * grid.taps(),
                positions = grid.positions();
  if (positions == 0 || batch * groups * outputs == 0) return;
  int64_t most = std::clamp(kColumnElements / std::max<int64_t>(depth, 1), 4 * nr, kMaxPositions);
  while (batch * groups * ceil_divide(positions, most) < kTasks && most > nr) most /= 2;
  int64_t images = std::clamp<int64_t>(most / positions, 1, batch);
  while (groups * ceil_divide(batch, images) < kImageTasks && images > 1) images /= 2;
  const EvenSplit chunks(batch, 1, images), slices(positions, nr, most);
  const int64_t parts = images > 1 ? 1 : slices.parts, plane = grid.height * grid.width;
  parallel_for(chunks.parts * groups * parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t slice = i % parts, group = i / parts % groups, chunk = i / parts / groups;
      const int64_t first = chunks.begin(chunk), count = chunks.size(chunk);
      PatchTarget<T> own = target;
      own.out += first * own.image + group * outputs * own.plane;
      if (own.bias != nullptr) own.bias += group * outputs;
      correlate(grid, PatchTask<T>{.in = in + (first * groups + group) * planes * plane,
                                   .in_image = groups * planes * plane,
                                   .weight = weight + group * outputs * depth,
                                   .target = own,
                                   .planes = planes,
                                   .outputs = outputs,
                                   .images = count,
                                   .begin = images > 1 ? 0 : slices.begin(slice),
                                   .end = images > 1 ? count * positions : slices.begin(slice + 1)});
    }
  });
}

/// Positions of the output and taps of the input, as the forward has them.
PatchGrid forward_grid(const kernels::ConvolutionSizes& s) {
  PatchGrid grid{s.height, s.width, s.out_height(), s.out_width(), {s.window.stride[0], s.window.stride[1]},
                 {},       {}};
  for (int64_t k = 0; k < s.window.kernel[0]; ++k)
    for (int64_t l = 0; l < s.window.kernel[1]; ++l) {
      grid.tap_row.push_back(k * s.window.dilation[0] - s.window.padding[0]);
      grid.tap_col.push_back(l * s.window.dilation[1] - s.window.padding[1]);
    }
  return grid;
}

/// A matrix [rows, cols], or a copy of it in the type of computation.
template <class T>
class Widened {
 public:
  using A = accumulator_t<T>;

  Widened(const T* x, int64_t rows, int64_t cols, int64_t stride)
      : stride_(std::is_same_v<T, A> ? stride : cols), copy_(std::is_same_v<T, A> ? 0 : rows * cols) {
    if constexpr (std::is_same_v<T, A>) {
      data_ = x;
    } else {
      for (int64_t i = 0; i < rows; ++i) std::copy_n(x + i * stride, cols, copy_.data() + i * cols);
      data_ = copy_.data();
    }
  }

  const A* data() const { return data_; }
  int64_t stride() const { return stride_; }

 private:
  int64_t stride_;
  Workspace<A> copy_;
  const A* data_;
};

/// The pixels of x with row % stride[0] == row and column % stride[1] == col: those that the same taps reach.
struct Phase {
  int64_t row, col;
  PatchGrid grid;             // positions are these pixels, planes those of gy
  std::vector<int64_t> taps;  // which of the window's

  Phase(const kernels::ConvolutionSizes& s, int64_t row, int64_t col)
      : row(row),
        col(col),
        grid{s.out_height(),
             s.out_width(),
             ceil_divide(s.height - row, s.window.stride[0]),
             ceil_divide(s.width - col, s.window.stride[1]),
             {1, 1},
             {},
             {}} {
    const kernels::Window& w = s.window;
    for (int64_t k = 0; k < w.kernel[0]; ++k)
      for (int64_t l = 0; l < w.kernel[1]; ++l) {
        const int64_t i = row + w.padding[0] - k * w.dilation[0], j = col + w.padding[1] - l * w.dilation[1];
        if (i % w.stride[0] != 0 || j % w.stride[1] != 0) continue;
        taps.push_back(k * w.kernel[1] + l);
        grid.tap_row.push_back(i / w.stride[0]);
        grid.tap_col.push_back(j / w.stride[1]);
      }
  }
};

/// The weight with inputs and outputs exchanged, and a phase's taps alone: [groups, inputs, outputs * taps].
/// Some inputs a task, whose part of each output's row is read as a whole.
template <class T>
void exchange(const kernels::ConvolutionSizes& s, const std::vector<int64_t>& taps, const T* weight,
              accumulator_t<T>* out) {
  constexpr int64_t kInputs = 16;
  const int64_t inputs = s.group_channels(), outputs = s.group_outputs(),
                blocks = ceil_divide(inputs, kInputs);
  const size_t count = taps.size();
  const int64_t row = outputs * static_cast<int64_t>(count);
  parallel_for(s.groups * blocks, rows_per_task(s.groups * blocks, row * kInputs),
               [&](int64_t begin, int64_t end) {
                 for (int64_t task = begin; task < end; ++task) {
                   const int64_t group = task / blocks, first = task % blocks * kInputs,
                                 last = std::min(first + kInputs, inputs);
                   accumulator_t<T>* const rows = out + group * inputs * row;
                   for (int64_t o = 0; o < outputs; ++o)
                     for (int64_t c = first; c < last; ++c) {
                       const T* const from = weight + ((group * outputs + o) * inputs + c) * s.taps();
                       accumulator_t<T>* const to = rows + c * row + o * static_cast<int64_t>(count);
                       if (static_cast<int64_t>(count) == s.taps())  // all of them, in order
                         std::copy_n(from, count, to);
                       else
                         for (size_t t = 0; t < count; ++t)
                           to[t] = static_cast<accumulator_t<T>>(from[taps[t]]);
                     }
                 }
               });
}

template <class T>
void clear_phase(const kernels::ConvolutionBackward<T>& args, const Phase& phase) {
  const kernels::ConvolutionSizes& s = args.sizes;
  for (int64_t plane = 0; plane < s.batch * s.channels; ++plane)
    for (int64_t i = phase.row; i < s.height; i += s.window.stride[0])
      for (int64_t j = phase.col; j < s.width; j += s.window.stride[1])
        args.gx[(plane * s.height + i) * s.width + j] = T(0.0f);
}

template <class T>
void backward_input(const kernels::ConvolutionBackward<T>& args) {
  const kernels::ConvolutionSizes& s = args.sizes;
  for (int64_t row = 0; row < std::min(s.window.stride[0], s.height); ++row)
    for (int64_t col = 0; col < std::min(s.window.stride[1], s.width); ++col) {
      const Phase phase(s, row, col);
      if (phase.taps.empty() || s.outputs == 0 || s.pixels() == 0) {
        if (!args.accumulate_x) clear_phase(args, phase);
        continue;
      }
      Workspace<accumulator_t<T>> weight(s.channels * s.group_outputs() * phase.grid.taps());
      exchange(s, phase.taps, args.weight, weight.data());
      correlate_all(phase.grid, s.batch, s.groups, args.gy, s.group_outputs(), weight.data(),
                    s.group_channels(),
                    PatchTarget<T>{.out = args.gx + row * s.width + col,
                                   .image = s.channels * s.height * s.width,
                                   .plane = s.height * s.width,
                                   .row_stride = s.window.stride[0] * s.width,
                                   .col_stride = s.window.stride[1],
                                   .bias = nullptr,
                                   .accumulate = args.accumulate_x});
    }
}

/// The gradient of the weight: for each image gy by the patches, some channels of these a task. Where these
/// tasks are few the images are divided too, and each part but the first has a sum of its own.
template <class T>
class WeightGradient {
 public:
  using A = accumulator_t<T>;

  explicit WeightGradient(const kernels::ConvolutionBackward<T>& args)
      : args_(args),
        s_(args.sizes),
        grid_(forward_grid(args.sizes)),
        blocks_(s_.group_channels(), 1, std::max<int64_t>(kWeightColumns / s_.taps(), 1)),
        slices_(s_.pixels(), gemm_functions<A>().geometry.nr, kMaxPositions),
        parts_(std::clamp<int64_t>(kTasks / (s_.groups * blocks_.parts), 1, std::min(s_.batch, kTasks))),
        sums_((parts_ - 1) * elements()) {}

  void run() {
    parallel_for(parts_ * s_.groups * blocks_.parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task)
        sum(task % parts_, task / parts_ / blocks_.parts, task / parts_ % blocks_.parts);
    });
    parallel_for(elements(), elements_per_task(elements()), [&](int64_t begin, int64_t end) {
      for (int64_t part = 1; part < parts_; ++part)
        for (int64_t i = begin; i < end; ++i) args_.gweight[i] += sums_.data()[(part - 1) * elements() + i];
    });
  }

 private:
  int64_t elements() const { return s_.outputs * s_.depth(); }

  void sum(int64_t part, int64_t group, int64_t block) {
    const int64_t first = blocks_.begin(block), channels = blocks_.size(block), outputs = s_.group_outputs();
    const int64_t rows = channels * s_.taps(), pixels = s_.pixels();
    A* const target = (part == 0 ? args_.gweight : sums_.data() + (part - 1) * elements()) +
                      group * outputs * s_.depth() + first * s_.taps();
    bool added = part == 0 && args_.accumulate_weight;
    const GemmFunctions<A>& functions = gemm_functions<A>();
    Workspace<A> patch_rows(rows * std::min(pixels, kMaxPositions + functions.geometry.nr) + kColumnSlack);
    Workspace<A> columns(functions.geometry.packed_size(rows, kMaxPositions + functions.geometry.nr));
    for (int64_t n = part * s_.batch / parts_; n < (part + 1) * s_.batch / parts_; ++n)
      for (int64_t slice = 0; slice < slices_.parts; ++slice) {
        const int64_t begin = slices_.begin(slice), count = slices_.size(slice);
        Patches<T> patches(grid_, channels, 1, begin, begin + count);
        patches.read(args_.x + (n * s_.channels + group * s_.group_channels() + first) * s_.height * s_.width,
                     0);
        patches.fill(begin, begin + count, patch_rows.data(), count);
        const Widened<T> gy(args_.gy + (n * s_.outputs + group * outputs) * pixels + begin, outputs, count,
                            pixels);
        if (outputs <= kDotOutputs) {
          functions.dots({.a = gy.data(),
                          .b = patch_rows.data(),
                          .c = target,
                          .lda = gy.stride(),
                          .ldb = count,
                          .ldc = s_.depth(),
                          .rows = outputs,
                          .columns = rows,
                          .k = count,
                          .alpha = A(1),
                          .added = {added ? target : nullptr, s_.depth()}});
        } else {
          functions.pack_b({patch_rows.data(), 1, count}, count, rows, columns.data());
          multiply<A>({gy.data(), gy.stride(), 1}, columns.data(), target, s_.depth(), outputs, rows, count,
                      added);
        }
        added = true;
      }
  }

  const kernels::ConvolutionBackward<T>& args_;
  const kernels::ConvolutionSizes& s_;
  const PatchGrid grid_;
  const EvenSplit blocks_, slices_;
  const int64_t parts_;
  Workspace<A> sums_;
};

}  // namespace

template <class T>
void convolution_forward(const kernels::ConvolutionForward<T>& args) {
  const kernels::ConvolutionSizes& s = args.sizes;
  const Widened<T> weight(args.weight, s.outputs, s.depth(), s.depth());
  correlate_all(forward_grid(s), s.batch, s.groups, args.x, s.group_channels(), weight.data(),
                s.group_outputs(),
                PatchTarget<T>{.out = args.y,
                               .image = s.outputs * s.pixels(),
                               .plane = s.pixels(),
                               .row_stride = s.out_width(),
                               .col_stride = 1,
                               .bias = args.bias,
                               .accumulate = false});
}

template <class T>
void convolution_backward(const kernels::ConvolutionBackward<T>& args) {
  const kernels::ConvolutionSizes& s = args.sizes;
  if (args.gx != nullptr) backward_input(args);
  if (args.gweight == nullptr) return;
  if (s.batch * s.pixels() == 0) {
    if (!args.accumulate_weight) std::fill_n(args.gweight, s.outputs * s.depth(), accumulator_t<T>(0));
  } else {
    WeightGradient<T>(args).run();
  }
}

#define HEED_INSTANTIATE(T)                                                    \
  template void convolution_forward<T>(const kernels::ConvolutionForward<T>&); \
  template void convolution_backward<T>(const kernels::ConvolutionBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(double)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu

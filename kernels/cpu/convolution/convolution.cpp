// Convolution as matrix products with the image under the window's taps, which are made for a few positions
// at a time and stay in the cache. The gradient of x is such a convolution too: of gy, with the taps of each
// phase of the stride.
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include <heed/core/base/int_math.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/convolution.h>
#include <heed/kernels/cpu/convolution/convolution_cut.h>
#include <heed/kernels/cpu/convolution/convolution_patches.h>
#include <heed/kernels/cpu/convolution/convolution_phases.h>
#include <heed/kernels/cpu/convolution/convolution_product.h>
#include <heed/kernels/cpu/convolution/convolution_weight.h>
#include <heed/kernels/cpu/convolution/convolution_winograd.h>
#include <heed/kernels/cpu/tasks/grain.h>

namespace heed::cpu {
namespace {

/// Where the sums of position (i, j) of an image go: out[n * image + o * plane + i * row_stride + j *
/// col_stride] (+)= bias[o] + the sum.
template <class T>
struct PatchTarget {
  T* out;
  int64_t image, plane, row_stride, col_stride;
  const T* bias;  // of the first output, or null
  bool accumulate;
};

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

/// c [outputs, positions] = the weight by the patches (+ c): of some planes at a time, whose columns stay in
/// the cache.
template <class T>
void multiply_patches(const PatchGrid& grid, const PatchTask<T>& task, accumulator_t<T>* c, int64_t ldc,
                      bool added) {
  using A = accumulator_t<T>;
  const int64_t nr = gemm_functions<A>().geometry.nr, taps = grid.taps(), count = task.end - task.begin;
  const EvenSplit pieces(task.planes, 1, kColumnElements / (count * taps));
  Workspace<A> columns(round_up(count, nr) * ceil_divide(task.planes, pieces.parts) * taps + kColumnSlack);
  for (int64_t i = 0; i < pieces.parts; ++i) {
    const int64_t first = pieces.begin(i), planes = pieces.size(i), depth = planes * taps;
    Patches<T> patches(grid, planes, task.images, task.begin, task.end);
    patches.read(task.in + first * grid.height * grid.width, task.in_image);
    for (int64_t j = 0; j < count; j += nr)
      patches.fill(task.begin + j, task.begin + std::min(j + nr, count), columns.data() + j * depth,
                   count - j > nr / 2 ? nr : nr / 2);
    multiply_columns<A>({task.weight + first * taps, task.planes * taps, 1}, columns.data(), c, ldc,
                        task.outputs, count, depth, added || i > 0);
  }
}

/// The same for few outputs, without columns.
template <class T>
void sum_patches(const PatchGrid& grid, const PatchTask<T>& task, accumulator_t<T>* c, int64_t ldc,
                 bool added) {
  Patches<T> patches(grid, task.planes, task.images, task.begin, task.end);
  patches.read(task.in, task.in_image);
  patches.sum(task.begin, task.end, task.weight, task.outputs, c, ldc, added);
}

/// The sums of all outputs at its positions.
template <class T>
void correlate(const PatchGrid& grid, const PatchTask<T>& task) {
  using A = accumulator_t<T>;
  const PatchTarget<T>& target = task.target;
  const int64_t outputs = task.outputs, count = task.end - task.begin;
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
  if (outputs <= kDirectOutputs)
    sum_patches(grid, task, c, ldc, added);
  else
    multiply_patches(grid, task, c, ldc, added);
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

/// The sums at all positions of all images. weight [groups, outputs, planes * taps], outputs and planes of a
/// group; `target` is that of the first group of the first image.
template <class T>
void correlate_all(const PatchGrid& grid, int64_t batch, int64_t groups, const T* in, int64_t planes,
                   const accumulator_t<T>* weight, int64_t outputs, const PatchTarget<T>& target) {
  const int64_t depth = planes * grid.taps(), positions = grid.positions(), plane = grid.height * grid.width;
  if (positions == 0 || batch * groups * outputs == 0) return;
  const Cut by = cut(positions, batch, groups, outputs, gemm_functions<accumulator_t<T>>().geometry);
  parallel_for(by.tasks(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Cut::Task task = by[i];
      const int64_t output = task.group * outputs + task.output;
      PatchTarget<T> own = target;
      own.out += task.image * own.image + output * own.plane;
      if (own.bias != nullptr) own.bias += output;
      correlate(grid, PatchTask<T>{.in = in + (task.image * groups + task.group) * planes * plane,
                                   .in_image = groups * planes * plane,
                                   .weight = weight + output * depth,
                                   .target = own,
                                   .planes = planes,
                                   .outputs = task.outputs,
                                   .images = task.images,
                                   .begin = task.begin,
                                   .end = task.end});
    }
  });
}

/// Of a window's taps those of a phase: all, in order, or some.
template <class T>
void copy_taps(const T* from, const std::vector<int64_t>& taps, bool all, accumulator_t<T>* to) {
  constexpr size_t kUsual = 9;  // 3 x 3: a copy of a constant size is a few instructions
  if (!all) {
    for (size_t t = 0; t < taps.size(); ++t) to[t] = static_cast<accumulator_t<T>>(from[taps[t]]);
  } else if (std::is_same_v<T, accumulator_t<T>> && taps.size() == kUsual) {
    std::memcpy(to, from, kUsual * sizeof *to);
  } else {
    std::copy_n(from, taps.size(), to);
  }
}

/// The weight with inputs and outputs exchanged, and a phase's taps alone: [groups, inputs, outputs * taps].
/// Some inputs a task, whose part of each output's row is read as a whole.
template <class T>
void exchange(const kernels::ConvolutionSizes& s, const std::vector<int64_t>& taps, const T* weight,
              accumulator_t<T>* out) {
  constexpr int64_t kInputs = 16;
  const int64_t inputs = s.group_channels(), outputs = s.group_outputs(),
                blocks = ceil_divide(inputs, kInputs);
  const int64_t count = static_cast<int64_t>(taps.size()), row = outputs * count;
  parallel_for(s.groups * blocks, rows_per_task(s.groups * blocks, row * kInputs),
               [&](int64_t begin, int64_t end) {
                 for (int64_t task = begin; task < end; ++task) {
                   const int64_t group = task / blocks, first = task % blocks * kInputs,
                                 last = std::min(first + kInputs, inputs);
                   accumulator_t<T>* const rows = out + group * inputs * row;
                   for (int64_t o = 0; o < outputs; ++o)
                     for (int64_t c = first; c < last; ++c) {
                       const T* const from = weight + ((group * outputs + o) * inputs + c) * s.taps();
                       accumulator_t<T>* const to = rows + c * row + o * count;
                       copy_taps(from, taps, count == s.taps(), to);
                     }
                 }
               });
}

template <class T>
void clear(T* x, int64_t count) {
  parallel_for(count, elements_per_task(count),
               [=](int64_t begin, int64_t end) { std::fill(x + begin, x + end, T(0.0f)); });
}

template <class T>
void backward_input(const kernels::ConvolutionBackward<T>& args) {
  const kernels::ConvolutionSizes& s = args.sizes;
  std::vector<Phase> phases;
  for (int64_t row = 0; row < std::min(s.window.stride[0], s.height); ++row)
    for (int64_t col = 0; col < std::min(s.window.stride[1], s.width); ++col)
      phases.emplace_back(s, row, col);
  const bool no_sums = s.outputs == 0 || s.pixels() == 0;
  const auto has_none = [&](const Phase& phase) { return no_sums || phase.taps.empty(); };
  const int64_t image = s.channels * s.height * s.width;
  const bool all_have = s.batch > 0 && std::none_of(phases.begin(), phases.end(), has_none);
  if (all_have && JointPhases<T>::serves(s, phases)) return JointPhases<T>(args, phases).run();
  if (!args.accumulate_x && !all_have) clear(args.gx, s.batch * image);
  for (const Phase& phase : phases) {
    if (has_none(phase)) continue;
    Workspace<accumulator_t<T>> weight(s.channels * s.group_outputs() * phase.grid.taps());
    exchange(s, phase.taps, args.weight, weight.data());
    correlate_all(phase.grid, s.batch, s.groups, args.gy, s.group_outputs(), weight.data(),
                  s.group_channels(),
                  PatchTarget<T>{.out = args.gx + phase.row * s.width + phase.col,
                                 .image = image,
                                 .plane = s.height * s.width,
                                 .row_stride = s.window.stride[0] * s.width,
                                 .col_stride = s.window.stride[1],
                                 .bias = nullptr,
                                 .accumulate = args.accumulate_x});
  }
}

}  // namespace

template <class T>
void convolution_forward(const kernels::ConvolutionForward<T>& args) {
  const kernels::ConvolutionSizes& s = args.sizes;
  if (uses_winograd(s)) return winograd_forward(args);
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
  const bool winograd = uses_winograd(s);
  if (args.gx != nullptr) winograd ? winograd_input_gradient(args) : backward_input(args);
  if (args.gweight == nullptr) return;
  if (winograd) return winograd_weight_gradient(args);
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

// A task takes some tiles and some outputs. For some channels at a time it transforms the image (V) and
// multiplies each of the 16 elements of all tiles by that of the weight (U), as a product [tiles, channels]
// by [channels, outputs] to which that of the next channels is added (M); then it transforms M to sums. All
// three stay in a second-level cache. Vectors are of channels, so that tiles may lie anywhere in an image.
#include <algorithm>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/cpu/convolution/convolution_product.h>
#include <heed/kernels/cpu/convolution/convolution_winograd.h>
#include <heed/kernels/cpu/convolution/convolution_winograd_tiles.h>

namespace heed::cpu {
namespace {

constexpr int64_t kMinChannels = 16, kMinTiles = 16;  // for which it pays

constexpr int64_t kTiles = 128, kMinTaskTiles = 32;  // of a task
constexpr int64_t kChannels = 64;                    // at a time
constexpr int64_t kOutputs = 128, kMinOutputs = 64;  // of a task

/// The windows of outputs and channels, `output` and `channel` elements from one to the next, perhaps turned
/// by half a turn.
template <class A>
struct WinogradWeight {
  const A* data;
  int64_t output, channel;
  bool turned;

  WinogradWeight at(int64_t first, int64_t first_output, int64_t first_channel) const {
    return {data + first + first_output * output + first_channel * channel, output, channel, turned};
  }

  /// U: panels of the outputs, a row for each channel.
  void transform(int64_t outputs, const Elements<A>& out) const {
    const int64_t channels = out.rows;
    const int64_t joined = channel == kTaps ? channels : 1;  // windows that lie side by side
    for_each_panel<A>(outputs, [&](int64_t first, int64_t count, int64_t width) {
      const Workspace<A> taps(channels * kTaps * width);
      for (int64_t c = 0; c < channels; c += joined)
        gemm_functions<A>().pack_b({data + first * output + c * channel, 1, output}, joined * kTaps, count,
                                   taps.data() + c * kTaps * width);
      const int64_t last = (kTaps - 1) * width;
      transform_squares<A>(WinogradTransform::weight,
                           {taps.data() + (turned ? last : 0), kTaps * width, turned ? -width : width},
                           out.panel_squares(first, width), channels, width);
    });
  }
};

/// The sums of all outputs of all groups at all positions.
template <class T>
struct WinogradProblem {
  WinogradGrid grid;
  int64_t batch, groups, channels, outputs;  // of a group
  const T* in;                               // [batch, groups, channels, height, width]
  WinogradWeight<accumulator_t<T>> weight;   // of the first group
  const T* bias;                             // [groups, outputs] or null
  T* out;                                    // [batch, groups, outputs, rows, cols]
  bool accumulate;

  int64_t plane() const { return grid.height * grid.width; }
  int64_t positions() const { return grid.rows * grid.cols; }
};

/// How many tiles and outputs a task takes.
struct TaskSizes {
  int64_t tiles = kTiles, outputs = kOutputs;

  template <class T>
  explicit TaskSizes(const WinogradProblem<T>& problem) {
    const auto tasks = [&] {
      return WinogradCut(problem.grid, problem.batch, tiles).count() * problem.groups *
             ceil_divide(problem.outputs, outputs);
    };
    if (tasks() < kTasks) outputs = kMinOutputs;
    while (tasks() < kTasks && tiles > kMinTaskTiles) tiles /= 2;
  }
};

template <class T>
class WinogradSums {
 public:
  using A = accumulator_t<T>;

  explicit WinogradSums(const WinogradProblem<T>& problem) : WinogradSums(problem, TaskSizes(problem)) {}

  void run() const {
    if (shares_weight()) {
      parallel_for(p_.groups * parts_.parts * blocks_.parts, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          transform_weight(i / blocks_.parts / parts_.parts, i / blocks_.parts % parts_.parts,
                           i % blocks_.parts, weight_.data() + i * block_size_);
      });
    }
    const int64_t pieces = cut_.count();
    parallel_for(p_.groups * parts_.parts * pieces, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        make_sums(i / pieces / parts_.parts, i / pieces % parts_.parts, cut_[i % pieces]);
    });
  }

 private:
  WinogradSums(const WinogradProblem<T>& problem, const TaskSizes& task)
      : p_(problem),
        cut_(problem.grid, problem.batch, task.tiles),
        parts_(problem.outputs, gemm_functions<A>().geometry.nr, task.outputs),
        blocks_(problem.channels, gemm_functions<A>().geometry.nr / 2, kChannels),
        block_size_(Elements<A>::size(std::min(kChannels, problem.channels),
                                      padded_columns<A>(std::min(task.outputs, problem.outputs)))),
        weight_(shares_weight() ? problem.groups * parts_.parts * blocks_.parts * block_size_ : 0) {}

  /// Whether U is made once for all tasks, and not by each for itself.
  bool shares_weight() const { return cut_.count() > 1; }

  /// U of a block of channels.
  Elements<A> weight(int64_t part, int64_t block, A* data) const {
    return {data, blocks_.size(block), padded_columns<A>(parts_.size(part))};
  }
  A* shared_weight(int64_t group, int64_t part, int64_t block) const {
    return weight_.data() + ((group * parts_.parts + part) * blocks_.parts + block) * block_size_;
  }
  void transform_weight(int64_t group, int64_t part, int64_t block, A* out) const {
    const int64_t first = group * p_.outputs * p_.channels * kTaps;
    p_.weight.at(first, parts_.begin(part), blocks_.begin(block))
        .transform(parts_.size(part), weight(part, block, out));
  }

  void make_sums(int64_t group, int64_t part, const WinogradTiles& tiles) const {
    const int64_t count = tiles.count.squares(), outputs = padded_columns<A>(parts_.size(part)),
                  image_size = p_.groups * p_.channels * p_.plane();
    const Workspace<A> sums_room(Elements<A>::size(count, outputs)),
        image_room(Elements<A>::size(count, padded_columns<A>(std::min(kChannels, p_.channels)))),
        weight_room(shares_weight() ? 0 : block_size_);
    const Elements<A> sums{sums_room.data(), count, outputs};
    const PixelWindow window = tiles.input(p_.grid);
    for (int64_t block = 0; block < blocks_.parts; ++block) {
      const int64_t channel = group * p_.channels + blocks_.begin(block), depth = blocks_.size(block);
      const Elements<A> image{image_room.data(), count, padded_columns<A>(depth)};
      transform_planes(WinogradTransform::image, window, tiles.count,
                       p_.in + tiles.image * image_size + channel * p_.plane(), image_size, depth,
                       /*panels=*/false, image);
      if (!shares_weight()) transform_weight(group, part, block, weight_room.data());
      const Elements<A> by =
          weight(part, block, shares_weight() ? shared_weight(group, part, block) : weight_room.data());
      for (int64_t e = 0; e < kElements; ++e)
        multiply_columns<A>({image[e], image.columns, 1}, by[e], sums[e], outputs, count, outputs, depth,
                            block > 0);
    }
    write(group, part, tiles, sums);
  }

  void write(int64_t group, int64_t part, const WinogradTiles& tiles, const Elements<A>& sums) const {
    const int64_t first_output = group * p_.outputs + parts_.begin(part), outputs = parts_.size(part),
                  image_size = p_.groups * p_.outputs * p_.positions();
    const Workspace<A> bias(p_.bias != nullptr ? sums.columns : 0);
    if (p_.bias != nullptr)
      std::fill(std::copy_n(p_.bias + first_output, outputs, bias.data()), bias.data() + sums.columns, A(0));
    const PixelWindow window = tiles.output(p_.grid);
    const Workspace<A> pixels(window.size(panel_width<A>(outputs)));
    T* const out = p_.out + tiles.image * image_size + first_output * p_.positions();
    for_each_panel<A>(outputs, [&](int64_t first, int64_t columns, int64_t width) {
      transform_to_pixels<A>(sums.template row_squares<const A>(first),
                             p_.bias != nullptr ? bias.data() + first : nullptr,
                             window.squares(pixels.data()), tiles.count, width);
      window.write(pixels.data(), width, columns, out + first * p_.positions(), image_size, p_.accumulate);
    });
  }

  const WinogradProblem<T>& p_;
  const WinogradCut cut_;
  const EvenSplit parts_, blocks_;  // of a group's outputs and channels
  const int64_t block_size_;        // of U
  const Workspace<A> weight_;       // U of each group, part and block, where it is shared
};

}  // namespace

bool uses_winograd(const kernels::ConvolutionSizes& s) {
  for (int axis = 0; axis < 2; ++axis)
    if (s.window.kernel[axis] != 3 || s.window.stride[axis] != 1 || s.window.dilation[axis] != 1)
      return false;
  if (std::min(s.group_channels(), s.group_outputs()) < kMinChannels) return false;
  const int64_t tiles = output_tiles(s).tiles(), products = kElements * tiles, direct = kTaps * s.pixels();
  return s.batch * tiles >= kMinTiles && 3 * products <= 2 * direct;
}

template <class T>
void winograd_forward(const kernels::ConvolutionForward<T>& args) {
  const kernels::ConvolutionSizes& s = args.sizes;
  const Widened<T> weight(args.weight, s.outputs, s.depth(), s.depth());
  const WinogradProblem<T> problem{.grid = output_tiles(s),
                                   .batch = s.batch,
                                   .groups = s.groups,
                                   .channels = s.group_channels(),
                                   .outputs = s.group_outputs(),
                                   .in = args.x,
                                   .weight = {weight.data(), s.depth(), kTaps, false},
                                   .bias = args.bias,
                                   .out = args.y,
                                   .accumulate = false};
  WinogradSums<T>(problem).run();
}

template <class T>
void winograd_input_gradient(const kernels::ConvolutionBackward<T>& args) {
  const kernels::ConvolutionSizes& s = args.sizes;
  const Widened<T> weight(args.weight, s.outputs, s.depth(), s.depth());
  const WinogradProblem<T> problem{.grid = input_tiles(s),
                                   .batch = s.batch,
                                   .groups = s.groups,
                                   .channels = s.group_outputs(),
                                   .outputs = s.group_channels(),
                                   .in = args.gy,
                                   .weight = {weight.data(), kTaps, s.depth(), true},
                                   .bias = nullptr,
                                   .out = args.gx,
                                   .accumulate = args.accumulate_x};
  WinogradSums<T>(problem).run();
}

#define HEED_INSTANTIATE(T)                                                 \
  template void winograd_forward<T>(const kernels::ConvolutionForward<T>&); \
  template void winograd_input_gradient<T>(const kernels::ConvolutionBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
HEED_INSTANTIATE(double)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu

// The gradient of a convolution's weight by Winograd's transforms: for each of the 16 elements of a tile,
// that of the image (V, transposed) by that of gy, added up over all tiles.
#include <algorithm>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/cpu/convolution/convolution_product.h>
#include <heed/kernels/cpu/convolution/convolution_winograd.h>
#include <heed/kernels/cpu/convolution/convolution_winograd_tiles.h>

namespace heed::cpu {
namespace {

constexpr int64_t kTiles = 64;                     // at a time
constexpr int64_t kChannels = 64, kOutputs = 128;  // of a task

/// A task takes some channels, some outputs and a part of the tiles. Where there are several parts, each but
/// the first has a sum of its own, and these are added in order.
template <class T>
class WinogradWeightGradient {
 public:
  using A = accumulator_t<T>;

  explicit WinogradWeightGradient(const kernels::ConvolutionBackward<T>& args)
      : args_(args),
        s_(args.sizes),
        grid_(output_tiles(args.sizes)),
        cut_(grid_, s_.batch, kTiles),
        channels_(s_.group_channels(), gemm_functions<A>().geometry.nr / 2, kChannels),
        outputs_(s_.group_outputs(), gemm_functions<A>().geometry.nr, kOutputs),
        parts_(std::clamp<int64_t>(kTasks / blocks(), 1, cut_.count())),
        sums_((parts_ - 1) * elements()) {}

  void run() const {
    parallel_for(parts_ * blocks(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) add_tiles(i / blocks(), block(i % blocks()));
    });
    add_parts(sums_.data(), parts_ - 1, elements(), args_.gweight);
  }

 private:
  /// Some outputs and channels of a group.
  struct Block {
    int64_t group, output, outputs, channel, channels;  // the first of each, how many
  };

  int64_t blocks() const { return s_.groups * channels_.parts * outputs_.parts; }
  Block block(int64_t i) const {
    const int64_t o = i % outputs_.parts, c = i / outputs_.parts % channels_.parts;
    return {i / outputs_.parts / channels_.parts, outputs_.begin(o), outputs_.size(o), channels_.begin(c),
            channels_.size(c)};
  }
  int64_t elements() const { return s_.outputs * s_.depth(); }

  void add_tiles(int64_t part, const Block& block) const {
    const int64_t channels = padded_columns<A>(block.channels), outputs = padded_columns<A>(block.outputs);
    const Workspace<A> sums_room(Elements<A>::size(block.channels, outputs)),
        image_room(Elements<A>::size(kTiles, channels)), gy_room(Elements<A>::size(kTiles, outputs));
    const Elements<A> sums{sums_room.data(), block.channels, outputs};
    const int64_t begin = part * cut_.count() / parts_, end = (part + 1) * cut_.count() / parts_;
    for (int64_t i = begin; i < end; ++i) {
      const WinogradTiles tiles = cut_[i];
      const int64_t count = tiles.count.squares();
      const Elements<A> image{image_room.data(), count, channels}, gy{gy_room.data(), count, outputs};
      transform_image(tiles, block, image);
      transform_output_gradient(tiles, block, gy);
      for (int64_t e = 0; e < kElements; ++e)
        multiply_columns<A>({image[e], 1, channels}, gy[e], sums[e], outputs, block.channels, outputs, count,
                            i > begin, /*in_place=*/true);
    }
    A* const target = (part == 0 ? args_.gweight : sums_.data() + (part - 1) * elements()) +
                      (block.group * s_.group_outputs() + block.output) * s_.depth() + block.channel * kTaps;
    write(sums, block.outputs, target, part == 0 && args_.accumulate_weight);
  }

  void transform_image(const WinogradTiles& tiles, const Block& block, const Elements<A>& out) const {
    const int64_t plane = s_.height * s_.width,
                  first = tiles.image * s_.channels + block.group * s_.group_channels() + block.channel;
    transform_planes(WinogradTransform::image, tiles.input(grid_), tiles.count, args_.x + first * plane,
                     s_.channels * plane, block.channels, /*panels=*/false, out);
  }
  void transform_output_gradient(const WinogradTiles& tiles, const Block& block,
                                 const Elements<A>& out) const {
    const int64_t first = tiles.image * s_.outputs + block.group * s_.group_outputs() + block.output;
    transform_planes(WinogradTransform::output_gradient, tiles.output(grid_), tiles.count,
                     args_.gy + first * s_.pixels(), s_.outputs * s_.pixels(), block.outputs, /*panels=*/true,
                     out);
  }

  void write(const Elements<A>& sums, int64_t outputs, A* target, bool accumulate) const {
    const int64_t taps = sums.rows * kTaps;  // of all channels
    const Workspace<A> panel(taps * panel_width<A>(outputs));
    for_each_panel<A>(outputs, [&](int64_t first, int64_t count, int64_t width) {
      transform_squares<A>(WinogradTransform::weight_gradient, sums.template row_squares<const A>(first),
                           {panel.data(), kTaps * width, width}, sums.rows, width);
      store_transposed(panel.data(), width, taps, count, target + first * s_.depth(), s_.depth(), accumulate);
    });
  }

  const kernels::ConvolutionBackward<T>& args_;
  const kernels::ConvolutionSizes& s_;
  const WinogradGrid grid_;
  const WinogradCut cut_;
  const EvenSplit channels_, outputs_;  // of a group
  const int64_t parts_;                 // of the tiles
  const Workspace<A> sums_;
};

}  // namespace

template <class T>
void winograd_weight_gradient(const kernels::ConvolutionBackward<T>& args) {
  WinogradWeightGradient<T>(args).run();
}

template void winograd_weight_gradient<float>(const kernels::ConvolutionBackward<float>&);
template void winograd_weight_gradient<bfloat16>(const kernels::ConvolutionBackward<bfloat16>&);
template void winograd_weight_gradient<double>(const kernels::ConvolutionBackward<double>&);

}  // namespace heed::cpu

// The gradient of a convolution's weight. Not installed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <heed/core/base/int_math.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/convolution.h>
#include <heed/kernels/cpu/convolution/convolution_patches.h>
#include <heed/kernels/cpu/convolution/convolution_product.h>

namespace heed::cpu {

constexpr int64_t kDotOutputs = 8;       // for which dot products are faster
constexpr int64_t kWeightColumns = 192;  // of a task

/// to [columns, rows] (+)= the transpose of from [rows, columns].
template <class A>
void add_transposed(const A* from, int64_t rows, int64_t columns, A* to, int64_t stride, bool added) {
  const GemmFunctions<A>& functions = gemm_functions<A>();
  const int64_t nr = functions.geometry.nr;
  const Workspace<A> panel(nr * columns);
  for (int64_t row = 0; row < rows; row += nr) {
    const int64_t count = std::min(nr, rows - row), width = count > nr / 2 ? nr : nr / 2;
    functions.pack_b({from + row * columns, 1, columns}, columns, count, panel.data());
    for (int64_t c = 0; c < columns; ++c) {
      const A* const line = panel.data() + c * width;
      A* const out = to + c * stride + row;
      if (added)
        for (int64_t i = 0; i < count; ++i) out[i] += line[i];
      else
        std::copy_n(line, count, out);
    }
  }
}

/// The gradient of the weight, transposed: the patches by gy, some channels of these a task, one slice of the
/// positions after the other. Small images are taken several at a time. Where these tasks are few the images
/// are divided too, and each part but the first has a sum of its own. Packing gy is less work than packing
/// the patches, and is done once for all tasks.
template <class T>
class WeightGradient {
 public:
  using A = accumulator_t<T>;

  explicit WeightGradient(const kernels::ConvolutionBackward<T>& args)
      : args_(args),
        s_(args.sizes),
        grid_(forward_grid(args.sizes)),
        by_dots_(s_.group_outputs() <= kDotOutputs),
        blocks_(s_.group_channels(), 1, std::max<int64_t>(kWeightColumns / s_.taps(), 1)),
        parts_(std::clamp<int64_t>(kTasks / (s_.groups * blocks_.parts), 1, std::min(s_.batch, kTasks))),
        packed_image_(functions().geometry.packed_size(s_.group_outputs(), s_.pixels())),
        packed_(packs_first() ? s_.groups * s_.batch * packed_image_ : 0),
        sums_((parts_ - 1) * elements()) {
    const int64_t together =
        by_dots_ ? 1 : std::clamp<int64_t>(kMaxPositions / s_.pixels(), 1, s_.batch / parts_);
    const EvenSplit positions(s_.pixels(), functions().geometry.nr, kMaxPositions);
    for (int64_t part = 0; part < parts_; ++part) {
      const int64_t last = (part + 1) * s_.batch / parts_;
      for (int64_t image = part * s_.batch / parts_; image < last; image += together)
        for (int64_t i = 0; i < positions.parts; ++i)
          slices_.push_back(
              {part, image, std::min(together, last - image), positions.begin(i), positions.size(i)});
    }
  }

  void run() {
    if (packs_first()) pack_all();
    parallel_for(parts_ * s_.groups * blocks_.parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task)
        sum(task % parts_, task / parts_ / blocks_.parts, task / parts_ % blocks_.parts);
    });
    add_parts(sums_.data(), parts_ - 1, elements(), args_.gweight);
  }

 private:
  /// Some positions of some images, one after the other, of which there are several only if all positions are
  /// taken.
  struct Slice {
    int64_t part, image, images, begin, count;  // count: of each image

    int64_t positions() const { return images * count; }
  };

  static const GemmFunctions<A>& functions() { return gemm_functions<A>(); }
  int64_t elements() const { return s_.outputs * s_.depth(); }
  bool packs_first() const { return !by_dots_ && blocks_.parts > 1; }
  const T* gy(int64_t group, const Slice& slice) const {
    return args_.gy + (slice.image * s_.outputs + group * s_.group_outputs()) * s_.pixels() + slice.begin;
  }
  A* packed(int64_t group, const Slice& slice) const {
    return packed_.data() + (group * s_.batch + slice.image) * packed_image_ +
           functions().geometry.packed_size(s_.group_outputs(), 1) * slice.begin;
  }

  /// Panels of gy transposed: a row for each position, a column for each output.
  void pack(int64_t group, const Slice& slice, A* out) const {
    const int64_t outputs = s_.group_outputs(), pixels = s_.pixels(), nr = functions().geometry.nr;
    for (int64_t n = 0; n < slice.images; ++n) {
      const Widened<T> image(gy(group, slice) + n * s_.outputs * pixels, outputs, slice.count, pixels);
      for (int64_t o = 0; o < outputs; o += nr) {
        const int64_t count = std::min(nr, outputs - o), width = count > nr / 2 ? nr : nr / 2;
        functions().pack_b({image.data() + o * image.stride(), 1, image.stride()}, slice.count, count,
                           out + o * slice.positions() + n * slice.count * width);
      }
    }
  }

  void pack_all() const {
    const int64_t count = static_cast<int64_t>(slices_.size());
    parallel_for(count * s_.groups, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const Slice& slice = slices_[static_cast<size_t>(i % count)];
        pack(i / count, slice, packed(i / count, slice));
      }
    });
  }

  void sum(int64_t part, int64_t group, int64_t block) {
    const int64_t first = blocks_.begin(block), channels = blocks_.size(block), outputs = s_.group_outputs();
    const int64_t rows = channels * s_.taps(), image = s_.height * s_.width,
                  lanes = functions().geometry.nr / 2;
    A* const target = (part == 0 ? args_.gweight : sums_.data() + (part - 1) * elements()) +
                      group * outputs * s_.depth() + first * s_.taps();
    const bool accumulate = part == 0 && args_.accumulate_weight;
    const int64_t most = std::min(s_.batch * s_.pixels(), kMaxPositions);
    const Workspace<A> patch_rows(rows * round_up(most, lanes) + kColumnSlack);
    const Workspace<A> transposed(by_dots_ ? 0 : rows * outputs);
    const Workspace<A> own(by_dots_ || packs_first() ? 0 : functions().geometry.packed_size(outputs, most));
    bool added = by_dots_ && accumulate;
    for (const Slice& slice : slices_) {
      if (slice.part != part) continue;
      const int64_t positions = slice.positions(), end = slice.begin + positions,
                    stride = round_up(positions, lanes);
      Patches<T> patches(grid_, channels, slice.images, slice.begin, end);
      patches.read(args_.x + (slice.image * s_.channels + group * s_.group_channels() + first) * image,
                   s_.channels * image);
      patches.fill(slice.begin, end, patch_rows.data(), stride);
      if (by_dots_) {
        multiply_dots(gy(group, slice), patch_rows.data(), stride, target, rows, positions, added);
      } else {
        if (!packs_first()) pack(group, slice, own.data());
        multiply_columns<A>({patch_rows.data(), stride, 1}, packs_first() ? packed(group, slice) : own.data(),
                            transposed.data(), outputs, rows, outputs, positions, added);
      }
      added = true;
    }
    if (!by_dots_) add_transposed(transposed.data(), rows, outputs, target, s_.depth(), accumulate);
  }

  /// c [outputs, rows] (+)= gy by the transposed patches, row by row.
  void multiply_dots(const T* gy, const A* patch_rows, int64_t stride, A* c, int64_t rows, int64_t positions,
                     bool added) const {
    const Widened<T> wide(gy, s_.group_outputs(), positions, s_.pixels());
    functions().dots({.a = wide.data(),
                      .b = patch_rows,
                      .c = c,
                      .lda = wide.stride(),
                      .ldb = stride,
                      .ldc = s_.depth(),
                      .rows = s_.group_outputs(),
                      .columns = rows,
                      .k = positions,
                      .alpha = A(1),
                      .added = {added ? c : nullptr, s_.depth()}});
  }

  const kernels::ConvolutionBackward<T>& args_;
  const kernels::ConvolutionSizes& s_;
  const PatchGrid grid_;
  const bool by_dots_;
  const EvenSplit blocks_;
  const int64_t parts_;         // of the images
  const int64_t packed_image_;  // elements of an image of gy
  const Workspace<A> packed_, sums_;
  std::vector<Slice> slices_;
};

}  // namespace heed::cpu

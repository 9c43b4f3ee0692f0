// The parts of an image that a convolution's product multiplies by. Not installed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <heed/core/base/dtype.h>
#include <heed/core/base/int_math.h>
#include <heed/kernels/convolution.h>
#include <heed/kernels/cpu/convolution/convolution_columns.h>
#include <heed/kernels/cpu/tasks/workspace.h>

namespace heed::cpu {

/// Where a sum reads: position (i, j) and tap t read element (i * step[0] + tap_row[t], j * step[1] +
/// tap_col[t]) of each plane, which is 0 beyond it.
struct PatchGrid {
  int64_t height, width;  // of a plane
  int64_t rows, cols;     // positions
  int64_t step[2];
  std::vector<int64_t> tap_row, tap_col;

  int64_t taps() const { return static_cast<int64_t>(tap_row.size()); }
  int64_t positions() const { return rows * cols; }
};

/// Positions of the output and taps of the input, as the forward has them.
inline PatchGrid forward_grid(const kernels::ConvolutionSizes& s) {
  PatchGrid grid{s.height, s.width, s.out_height(), s.out_width(), {s.window.stride[0], s.window.stride[1]},
                 {},       {}};
  for (int64_t k = 0; k < s.window.kernel[0]; ++k)
    for (int64_t l = 0; l < s.window.kernel[1]; ++l) {
      grid.tap_row.push_back(k * s.window.dilation[0] - s.window.padding[0]);
      grid.tap_col.push_back(l * s.window.dilation[1] - s.window.padding[1]);
    }
  return grid;
}

/// What the positions [begin, end) of an image, or all of several images, read of some planes, zeros around
/// them included, in the type of computation. Elements with the same remainder by the step lie side by side,
/// a part of the plane for each remainder that taps have: so do the elements that positions side by side
/// read. Positions of several images follow each other, and so do the images of a plane; zeros between two
/// rows, parts, images or planes serve both.
template <class T>
class Patches {
 public:
  using A = accumulator_t<T>;

  Patches(const PatchGrid& grid, int64_t planes, int64_t images, int64_t begin, int64_t end)
      : grid_(grid),
        planes_(planes),
        images_(images),
        first_row_(images > 1 ? 0 : begin / grid.cols),
        rows_(grid.tap_row, first_row_, images > 1 ? grid.rows : (end - 1) / grid.cols + 1, grid.step[0],
              grid.height),
        cols_(grid.tap_col, 0, grid.cols, grid.step[1], grid.width),
        part_(rows_.size() * cols_.size()),
        image_(std::ssize(rows_.parts()) * std::ssize(cols_.parts()) * part_),
        room_(images * planes * image_ + beyond()) {
    for (int64_t t = 0; t < grid.taps(); ++t) {
      const size_t i = static_cast<size_t>(t);
      taps_.push_back(
          (rows_.part_of(grid.tap_row[i]) * std::ssize(cols_.parts()) + cols_.part_of(grid.tap_col[i])) *
              part_ +
          rows_.place_of(grid.tap_row[i]) * cols_.size() + cols_.place_of(grid.tap_col[i]));
    }
  }

  /// The planes of an image lie side by side, images `image_stride` apart.
  void read(const T* first, int64_t image_stride) {
    A* out = room_.data();
    for (int64_t c = 0; c < planes_; ++c, first += grid_.height * grid_.width)
      for (int64_t n = 0; n < images_; ++n)
        for (const auto& rows : rows_.parts())
          for (const auto& cols : cols_.parts()) {
            pad_plane<T>({.from = first + n * image_stride + rows.first * grid_.width + cols.first,
                          .from_row = grid_.step[0] * grid_.width,
                          .step = grid_.step[1],
                          .next = grid_.height * grid_.width,
                          .rows = rows.count,
                          .cols = cols.count,
                          .out = out,
                          .above = rows.before,
                          .below = rows.after,
                          .left = cols.before,
                          .right = cols.after});
            out += part_;
          }
    std::fill_n(out, beyond(), A(0));
  }

  /// The positions [begin, end) under every tap: a row for each plane and tap, `width` apart, with
  /// kColumnSlack elements of room behind the last.
  void fill(int64_t begin, int64_t end, A* out, int64_t width) {
    find_runs(begin, end);
    fill_taps(0, grid_.taps(), out, width);
  }

  /// The same with a row for each tap and plane.
  void fill_by_tap(int64_t begin, int64_t end, A* out, int64_t width) {
    find_runs(begin, end);
    for (int64_t t = 0; t < grid_.taps(); ++t) fill_taps(t, 1, out + t * planes_ * width, width);
  }

  /// What the positions [begin, end) under every tap are multiplied to by few outputs' weights [outputs,
  /// planes
  /// * taps]: out (+)= the sums, outputs `out_stride` apart.
  void sum(int64_t begin, int64_t end, const A* weight, int64_t outputs, A* out, int64_t out_stride,
           bool added) {
    find_runs(begin, end);
    sum_columns<A>({.image = room_.data(),
                    .plane = images_ * image_,
                    .channels = planes_,
                    .tap = taps_.data(),
                    .taps = grid_.taps(),
                    .weight = weight,
                    .outputs = outputs,
                    .runs = runs_.data(),
                    .run_count = static_cast<int64_t>(runs_.size()),
                    .out = out,
                    .out_stride = out_stride,
                    .added = added});
  }

 private:
  /// What is read along one axis: [begin, end), of which [0, extent) is there.
  class Axis {
   public:
    /// Every step-th element from a remainder on: zeros, elements from `first` on, and zeros.
    struct Part {
      int64_t remainder, before, first, count, after;
    };

    Axis(const std::vector<int64_t>& taps, int64_t first_position, int64_t last_position, int64_t step,
         int64_t extent)
        : least_(*std::min_element(taps.begin(), taps.end())), step_(step) {
      const int64_t most = *std::max_element(taps.begin(), taps.end()),
                    begin = first_position * step + least_;
      places_ = ceil_divide((last_position - 1) * step + most + 1 - begin, step);
      for (const int64_t tap : taps)
        if (part_of(tap) == std::ssize(parts_)) add_part((tap - least_) % step, begin, extent);
      if (step != 1 || parts_[0].count == 0) return;
      shared_ = std::min(parts_[0].before, parts_[0].after);
      parts_[0].after -= shared_;
    }

    const std::vector<Part>& parts() const { return parts_; }
    /// Places of a part, without what it shares with the next.
    int64_t size() const { return places_ - shared_; }
    int64_t shared() const { return shared_; }
    int64_t part_of(int64_t tap) const {
      return std::ranges::find(parts_, (tap - least_) % step_, &Part::remainder) - parts_.begin();
    }
    int64_t place_of(int64_t tap) const { return (tap - least_) / step_; }

   private:
    void add_part(int64_t remainder, int64_t begin, int64_t extent) {
      begin += remainder;
      const int64_t before = std::min(begin < 0 ? ceil_divide(-begin, step_) : 0, places_);
      const int64_t first = begin + before * step_;
      const int64_t count =
          first < extent ? std::min(ceil_divide(extent - first, step_), places_ - before) : 0;
      parts_.push_back({remainder, before, first, count, places_ - before - count});
    }

    const int64_t least_, step_;
    int64_t places_ = 0, shared_ = 0;
    std::vector<Part> parts_;
  };

  int64_t beyond() const { return rows_.shared() * cols_.size() + cols_.shared() + 2 * kColumnSlack; }

  void fill_taps(int64_t first, int64_t count, A* out, int64_t width) const {
    fill_columns<A>({.image = room_.data(),
                     .plane = images_ * image_,
                     .channels = planes_,
                     .tap = taps_.data() + first,
                     .taps = count,
                     .runs = runs_.data(),
                     .run_count = static_cast<int64_t>(runs_.size()),
                     .out = out,
                     .width = width});
  }

  void find_runs(int64_t begin, int64_t end) {
    runs_.clear();
    for (int64_t p = begin; p < end;) {
      const int64_t image = p / grid_.positions(), at = p % grid_.positions();
      const int64_t i = at / grid_.cols, j = at % grid_.cols, count = std::min(grid_.cols - j, end - p);
      runs_.push_back({image * image_ + (i - first_row_) * cols_.size() + j, p - begin, count});
      p += count;
    }
  }

  const PatchGrid& grid_;
  const int64_t planes_, images_, first_row_;
  const Axis rows_, cols_;
  const int64_t part_, image_;  // elements of a part, and of a plane of an image
  Workspace<A> room_;           // [planes, images, row parts, column parts, rows, columns]
  std::vector<int64_t> taps_;
  std::vector<PixelRun> runs_;
};

}  // namespace heed::cpu

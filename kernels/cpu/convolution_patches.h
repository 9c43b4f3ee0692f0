// The parts of an image that a convolution's product multiplies by. Not installed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include <heed/core/base/dtype.h>
#include <heed/kernels/cpu/convolution_columns.h>
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

/// What the positions [begin, end) of an image, or all of several images, read of some planes, zeros around
/// them included, in the type of computation. Positions of several images follow each other.
template <class T>
class Patches {
 public:
  using A = accumulator_t<T>;

  Patches(const PatchGrid& grid, int64_t planes, int64_t images, int64_t begin, int64_t end)
      : grid_(grid),
        planes_(planes),
        images_(images),
        first_row_(images > 1 ? 0 : begin / grid.cols),
        top_(first_row_ * grid.step[0] + *std::min_element(grid.tap_row.begin(), grid.tap_row.end())),
        left_(*std::min_element(grid.tap_col.begin(), grid.tap_col.end())),
        height_((images > 1 ? grid.rows - 1 : (end - 1) / grid.cols) * grid.step[0] + 1 - top_ +
                *std::max_element(grid.tap_row.begin(), grid.tap_row.end())),
        width_((grid.cols - 1) * grid.step[1] + 1 - left_ +
               *std::max_element(grid.tap_col.begin(), grid.tap_col.end())),
        room_(images * planes * height_ * width_ + 2 * kColumnSlack) {
    for (int64_t t = 0; t < grid.taps(); ++t) {
      const size_t i = static_cast<size_t>(t);
      taps_.push_back((grid.tap_row[i] - top_ + first_row_ * grid.step[0]) * width_ + grid.tap_col[i] -
                      left_);
    }
  }

  /// The planes of an image lie side by side, images `image_stride` apart.
  void read(const T* first, int64_t image_stride) {
    A* out = room_.data();
    for (int64_t n = 0; n < images_; ++n)
      for (int64_t c = 0; c < planes_; ++c, out += height_ * width_)
        read_plane(first + n * image_stride + c * grid_.height * grid_.width, out);
    std::fill_n(out, 2 * kColumnSlack, A(0));
  }

  /// The positions [begin, end) under every tap: a row for each plane and tap, `width` apart, with
  /// kColumnSlack elements of room behind the last.
  void fill(int64_t begin, int64_t end, A* out, int64_t width) {
    find_runs(begin, end);
    fill_columns<A>({room_.data(), height_ * width_, planes_, taps_.data(), grid_.taps(), runs_.data(),
                     static_cast<int64_t>(runs_.size()), grid_.step[1], out, width});
  }

  /// What the positions [begin, end) of a single plane under every tap are multiplied to: out (+)= the sums.
  void sum(int64_t begin, int64_t end, const A* weight, A* out, bool added) {
    find_runs(begin, end);
    sum_columns<A>({room_.data(), taps_.data(), weight, grid_.taps(), runs_.data(),
                    static_cast<int64_t>(runs_.size()), grid_.step[1], out, added});
  }

 private:
  void find_runs(int64_t begin, int64_t end) {
    runs_.clear();
    for (int64_t p = begin; p < end;) {
      const int64_t image = p / grid_.positions(), at = p % grid_.positions();
      const int64_t i = at / grid_.cols, j = at % grid_.cols, count = std::min(grid_.cols - j, end - p);
      runs_.push_back(
          {(image * planes_ * height_ + (i - first_row_) * grid_.step[0]) * width_ + j * grid_.step[1],
           p - begin, count});
      p += count;
    }
  }

  void read_plane(const T* plane, A* out) const {
    const int64_t first = std::clamp<int64_t>(-left_, 0, width_),
                  last = std::clamp<int64_t>(grid_.width - left_, first, width_);
    for (int64_t r = top_; r < top_ + height_; ++r, out += width_) {
      if (r < 0 || r >= grid_.height) {
        std::fill_n(out, width_, A(0));
        continue;
      }
      const T* const row = plane + r * grid_.width + left_;
      std::fill(out, out + first, A(0));
      for (int64_t j = first; j < last; ++j) out[j] = static_cast<A>(row[j]);
      std::fill(out + last, out + width_, A(0));
    }
  }

  const PatchGrid& grid_;
  const int64_t planes_, images_, first_row_, top_, left_, height_, width_;
  Workspace<A> room_;
  std::vector<int64_t> taps_;
  std::vector<PixelRun> runs_;
};

}  // namespace heed::cpu

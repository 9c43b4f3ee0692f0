// The gradient of x where the window moves by a stride. Pixels of x fall into phases, row and column by the
// remainder of the stride: those of a phase are reached by the same taps. Not installed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <heed/core/base/int_math.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/kernels/convolution.h>
#include <heed/kernels/cpu/convolution/convolution_cut.h>
#include <heed/kernels/cpu/convolution/convolution_patches.h>
#include <heed/kernels/cpu/convolution/convolution_product.h>
#include <heed/kernels/cpu/tasks/grain.h>
#include <heed/kernels/cpu/tasks/workspace.h>

namespace heed::cpu {

/// The pixels of x with row % stride[0] == row and column % stride[1] == col.
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

/// to[2 i] (+)= even[i], to[2 i + 1] (+)= odd[i]
template <class A, class T>
void store_pairs(const A* even, const A* odd, int64_t count, T* to, bool accumulate) {
  if (accumulate) {
    for (int64_t i = 0; i < count; ++i) {
      to[2 * i] = static_cast<T>(static_cast<A>(to[2 * i]) + even[i]);
      to[2 * i + 1] = static_cast<T>(static_cast<A>(to[2 * i + 1]) + odd[i]);
    }
  } else {
    for (int64_t i = 0; i < count; ++i) {
      to[2 * i] = static_cast<T>(even[i]);
      to[2 * i + 1] = static_cast<T>(odd[i]);
    }
  }
}

/// All phases of a stride of at most 2 at once. What they read of gy overlaps (four pixels for all nine taps
/// of a window of 3 x 3), so that its columns are made once, tap by tap, and each phase is multiplied by
/// those of its own taps. Rows of gx then are written as wholes, where phase after phase would write every
/// other pixel.
template <class T>
class JointPhases {
 public:
  using A = accumulator_t<T>;

  static bool serves(const kernels::ConvolutionSizes& s, const std::vector<Phase>& phases) {
    return phases.size() > 1 && s.window.stride[0] <= 2 && s.window.stride[1] <= 2 &&
           s.group_channels() > kDirectOutputs;
  }

  /// Each of the phases has taps.
  JointPhases(const kernels::ConvolutionBackward<T>& args, const std::vector<Phase>& phases)
      : args_(args),
        s_(args.sizes),
        grid_(joint_grid(phases)),
        by_(cut(grid_.positions(), s_.batch, s_.groups, s_.group_channels(), geometry())),
        pieces_(s_.group_outputs(), 1, kColumnElements / (by_.most_positions() * grid_.taps())),
        weight_(s_.outputs * s_.depth()) {
    A* weight = weight_.data();
    for (const Phase& phase : phases) {
      parts_.push_back(part_of(phase, weight));
      weight += s_.groups * s_.group_channels() * s_.group_outputs() * std::ssize(phase.taps);
    }
  }

  void run() {
    exchange();
    parallel_for(by_.tasks(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sum(by_[i]);
    });
  }

 private:
  /// Taps that follow each other among the joint ones and among a phase's own.
  struct TapRun {
    int64_t joint, own, count;  // the first, how many
  };

  struct Part {
    int64_t row, col, rows, cols;  // of the phase
    A* weight;                     // [groups, pieces, channels, taps, outputs of the piece]
    std::vector<int64_t> taps;     // of the window, in the order of the joint ones
    std::vector<TapRun> runs;

    int64_t count() const { return std::ssize(taps); }
  };

  static const GemmGeometry& geometry() { return gemm_functions<A>().geometry; }

  /// Positions of the first phase, which has the most, with the taps of all.
  static PatchGrid joint_grid(const std::vector<Phase>& phases) {
    PatchGrid joint = phases[0].grid;
    for (const Phase& phase : phases)
      for (size_t t = 0; t < phase.taps.size(); ++t) {
        if (place_of(joint, phase.grid, t) < joint.taps()) continue;
        joint.tap_row.push_back(phase.grid.tap_row[t]);
        joint.tap_col.push_back(phase.grid.tap_col[t]);
      }
    return joint;
  }

  /// Which of the joint taps is tap t of a phase; their number if none.
  static int64_t place_of(const PatchGrid& joint, const PatchGrid& phase, size_t t) {
    size_t i = 0;
    while (i < joint.tap_row.size() &&
           (joint.tap_row[i] != phase.tap_row[t] || joint.tap_col[i] != phase.tap_col[t]))
      ++i;
    return static_cast<int64_t>(i);
  }

  Part part_of(const Phase& phase, A* weight) const {
    std::vector<std::pair<int64_t, int64_t>> places;  // among the joint ones, of the window
    for (size_t t = 0; t < phase.taps.size(); ++t)
      places.emplace_back(place_of(grid_, phase.grid, t), phase.taps[t]);
    std::ranges::sort(places);
    Part part{phase.row, phase.col, phase.grid.rows, phase.grid.cols, weight, {}, {}};
    for (const auto& [joint, tap] : places) {
      if (part.runs.empty() || part.runs.back().joint + part.runs.back().count != joint)
        part.runs.push_back({joint, part.count(), 0});
      ++part.runs.back().count;
      part.taps.push_back(tap);
    }
    return part;
  }

  /// A part's weight of a group and a piece of the outputs: a row for each channel.
  A* weight_of(const Part& part, int64_t group, int64_t piece) const {
    return part.weight +
           (group * s_.group_outputs() + pieces_.begin(piece)) * s_.group_channels() * part.count();
  }

  /// Some channels a task, panel after panel of the outputs, as if to multiply by them.
  void exchange() const {
    constexpr int64_t kChannels = 16;
    const int64_t channels = s_.group_channels(), blocks = ceil_divide(channels, kChannels);
    const int64_t tasks = s_.groups * pieces_.parts * blocks;
    parallel_for(tasks, rows_per_task(tasks, pieces_.size(0) * s_.taps() * kChannels),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) {
                     const int64_t first = i % blocks * kChannels;
                     exchange(i / blocks / pieces_.parts, i / blocks % pieces_.parts, first,
                              std::min(first + kChannels, channels));
                   }
                 });
  }

  void exchange(int64_t group, int64_t piece, int64_t first, int64_t last) const {
    const int64_t nr = geometry().nr, planes = pieces_.size(piece), columns = (last - first) * s_.taps();
    const T* const weight =
        args_.weight + (group * s_.group_outputs() + pieces_.begin(piece)) * s_.depth() + first * s_.taps();
    const Workspace<A> panel(nr * columns);
    for (int64_t o = 0; o < planes; o += nr) {
      const int64_t count = std::min(nr, planes - o), width = count > nr / 2 ? nr : nr / 2;
      const Widened<T> rows(weight + o * s_.depth(), count, columns, s_.depth());
      gemm_functions<A>().pack_b({rows.data(), 1, rows.stride()}, columns, count, panel.data());
      for (const Part& part : parts_) {
        A* to = weight_of(part, group, piece) + first * part.count() * planes + o;
        for (int64_t c = 0; c < last - first; ++c)
          for (const int64_t tap : part.taps) {
            std::copy_n(panel.data() + (c * s_.taps() + tap) * width, count, to);
            to += planes;
          }
      }
    }
  }

  /// All phases at a task's positions: of some planes of gy at a time, whose columns stay in the cache.
  void sum(const Cut::Task& task) const {
    const int64_t nr = geometry().nr, count = task.end - task.begin, taps = grid_.taps();
    const int64_t most = ceil_divide(pieces_.count, pieces_.parts), size = task.outputs * count;
    const Workspace<A> sums(std::ssize(parts_) * size);
    const Workspace<A> columns(round_up(count, nr) * most * taps + kColumnSlack);
    for (int64_t piece = 0; piece < pieces_.parts; ++piece) {
      const int64_t planes = pieces_.size(piece),
                    first = task.image * s_.outputs + task.group * s_.group_outputs() + pieces_.begin(piece);
      Patches<T> patches(grid_, planes, task.images, task.begin, task.end);
      patches.read(args_.gy + first * s_.pixels(), s_.outputs * s_.pixels());
      for (int64_t j = 0; j < count; j += nr)
        patches.fill_by_tap(task.begin + j, task.begin + std::min(j + nr, count),
                            columns.data() + j * planes * taps, count - j > nr / 2 ? nr : nr / 2);
      A* c = sums.data();
      for (const Part& part : parts_) {
        multiply(part, weight_of(part, task.group, piece) + task.output * part.count() * planes, planes,
                 columns.data(), task.outputs, count, c, piece > 0);
        c += size;
      }
    }
    store(task, sums.data());
  }

  /// c [rows, count] = a phase's weight by the columns of its taps (+ c).
  void multiply(const Part& part, const A* weight, int64_t planes, const A* columns, int64_t rows,
                int64_t count, A* c, bool added) const {
    const int64_t nr = geometry().nr, stride = part.count() * planes;
    const EvenSplit blocks(rows, geometry().mr, kMC);
    for (int64_t block = 0; block < blocks.parts; ++block)
      for (const TapRun& run : part.runs)
        for (int64_t j = 0; j < count; j += nr) {
          const int64_t row = blocks.begin(block), cols = std::min(nr, count - j);
          const int64_t width = cols > nr / 2 ? nr : nr / 2;
          multiply_columns<A>({weight + row * stride + run.own * planes, stride, 1},
                              columns + (j * grid_.taps() + run.joint * width) * planes, c + row * count + j,
                              count, blocks.size(block), cols, run.count * planes, added || run.own > 0);
        }
  }

  /// Row by row of gx, whose pixels are of one phase or of two in turn. `sums` [phases, outputs, positions].
  void store(const Cut::Task& task, const A* sums) const {
    const int64_t count = task.end - task.begin, size = task.outputs * count;
    for (int64_t o = 0; o < task.outputs; ++o)
      for (int64_t p = task.begin; p < task.end;) {
        const int64_t n = task.image + p / grid_.positions(), at = p % grid_.positions(), i = at / grid_.cols,
                      j = at % grid_.cols, run = std::min(grid_.cols - j, task.end - p);
        T* const plane = args_.gx + (n * s_.channels + task.group * s_.group_channels() + task.output + o) *
                                        s_.height * s_.width;
        for (size_t first = 0; first < parts_.size(); first += static_cast<size_t>(phases_of_row())) {
          const Part& part = parts_[first];
          if (i >= part.rows) continue;
          const A* const from = sums + static_cast<int64_t>(first) * size + o * count + p - task.begin;
          T* const to = plane + (i * s_.window.stride[0] + part.row) * s_.width + j * s_.window.stride[1];
          if (phases_of_row() == 1) {
            store_run(from, run, to, s_.window.stride[1], args_.accumulate_x);
            continue;
          }
          const int64_t pairs = std::min(run, parts_[first + 1].cols - j);
          store_pairs(from, from + size, pairs, to, args_.accumulate_x);
          if (pairs < run) store_run(from + pairs, 1, to + 2 * pairs, 1, args_.accumulate_x);
        }
        p += run;
      }
  }

  int64_t phases_of_row() const { return std::min(s_.window.stride[1], s_.width); }

  const kernels::ConvolutionBackward<T>& args_;
  const kernels::ConvolutionSizes& s_;
  const PatchGrid grid_;
  const Cut by_;
  const EvenSplit pieces_;  // of gy's planes of a group
  const Workspace<A> weight_;
  std::vector<Part> parts_;  // by row and column
};

}  // namespace heed::cpu

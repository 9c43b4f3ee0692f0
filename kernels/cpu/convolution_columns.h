// What a convolution's product multiplies by: the image under each tap of the window (im2col). Not installed.
#pragma once

#include <cstdint>

namespace heed::cpu {

/// Pixels side by side in a row of the image, and their places in a row of columns.
struct PixelRun {
  int64_t from, to, count;
};

/// out[c * taps + t][to + i] = image[c * plane + tap[t] + from + i * step], for each channel, tap and run.
/// Rows of `out` are `width` apart and are written in order, in whole vectors: what is written beyond a run,
/// and read beyond it, is room that the caller has (kColumnSlack elements, `step` times as many of the
/// image).
template <class A>
struct Columns {
  const A* image;
  int64_t plane, channels;
  const int64_t* tap;
  int64_t taps;
  const PixelRun* runs;
  int64_t run_count, step;
  A* out;
  int64_t width;
};

constexpr int64_t kColumnSlack = 32;

/// out[to + i] (+)= the sum over t of weight[t] * image[tap[t] + from + i * step], for each run: what columns
/// of a single plane would be multiplied to. The image has the same room.
template <class A>
struct ColumnSums {
  const A* image;
  const int64_t* tap;
  const A* weight;
  int64_t taps;
  const PixelRun* runs;
  int64_t run_count, step;
  A* out;
  bool added;
};

template <class A>
void sum_columns(const ColumnSums<A>& args);

template <class A>
void fill_columns(const Columns<A>& args);

}  // namespace heed::cpu

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

template <class A>
void fill_columns(const Columns<A>& args);

}  // namespace heed::cpu

// What a convolution's product multiplies by: the image under each tap of the window (im2col). Not installed.
#pragma once

#include <cstdint>

#include <heed/core/base/dtype.h>

namespace heed::cpu {

/// Every step-th element of rows of a plane, with zeros around: `above` rows of zeros, then rows of `left`
/// zeros, `cols` elements and `right` zeros, then `below` rows of zeros. May write up to kColumnSlack
/// elements beyond.
template <class T>
struct PaddedPlane {
  const T* from;  // the first element that is taken
  int64_t from_row, step;
  int64_t next;  // from there to the same of the plane that is read after it, which is fetched
  int64_t rows, cols;
  accumulator_t<T>* out;
  int64_t above, below, left, right;
};

template <class T>
void pad_plane(const PaddedPlane<T>& args);

/// Pixels side by side in a row of the image, and their places in a row of columns.
struct PixelRun {
  int64_t from, to, count;
};

/// out[c * taps + t][to + i] = image[c * plane + tap[t] + from + i], for each channel, tap and run. Rows of
/// `out` are `width` apart and are written in whole vectors: what is written beyond a run, and read beyond
/// it, is room that the caller has (kColumnSlack elements).
template <class A>
struct Columns {
  const A* image;
  int64_t plane, channels;
  const int64_t* tap;
  int64_t taps;
  const PixelRun* runs;
  int64_t run_count;
  A* out;
  int64_t width;
};

constexpr int64_t kColumnSlack = 32;

constexpr int64_t kDirectOutputs = 4;

/// out[o * out_stride + to + i] (+)= the sum over channels c and taps t of weight[(o * channels + c) * taps +
/// t] * image[c * plane + tap[t] + from + i], for each run and output: what columns would be multiplied to,
/// for kDirectOutputs at most, which are not worth columns. The image has the same room.
template <class A>
struct ColumnSums {
  const A* image;
  int64_t plane, channels;
  const int64_t* tap;
  int64_t taps;
  const A* weight;
  int64_t outputs;
  const PixelRun* runs;
  int64_t run_count;
  A* out;
  int64_t out_stride;
  bool added;
};

template <class A>
void sum_columns(const ColumnSums<A>& args);

template <class A>
void fill_columns(const Columns<A>& args);

}  // namespace heed::cpu

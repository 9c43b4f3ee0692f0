// Softmax and cross-entropy against class ids, with label smoothing. Contract for both devices.
#pragma once

#include <cstdint>

#include <heed/core/base/cost.h>
#include <heed/core/base/dtype.h>
#include <heed/core/base/host_device.h>
#include <heed/kernels/declare.h>

namespace heed::kernels {

/// loss = Σ over rows with target != ignore of -((1 - s) log p[target] + s / classes Σ log p), divided by the
/// number of such rows if mean. The gradient is made in the same pass. Rows that are ignored are not read,
/// whatever they hold, and get a zero gradient; if all are, the loss is 0.
/// A target outside [0, classes) that is not ignored is a WrongIndex: loss and row gradient become NaN on
/// CUDA.
template <class T>
struct CrossEntropyForward {
  const T* logits;         // [rows, classes]
  const int64_t* targets;  // [rows]
  int64_t ignore;          // the target that marks a row to leave out; may be any value
  double label_smoothing;  // s in [0, 1)
  bool mean;
  accumulator_t<T>* loss;  // [1]
  int64_t* counted;        // [1], rows that were not ignored
  T* glogits;              // [rows, classes], the gradient of loss; null if not wanted
  int64_t rows, classes;
  // Elements from one row of logits and glogits to the next; 0: classes. What lies between rows has no
  // influence, and may become 0 in glogits.
  int64_t stride = 0;
  // The targets of which counted is the number, where these rows are a part of more; null: their own.
  const int64_t* counted_targets = nullptr;
  int64_t counted_rows = 0;

  HEED_HOST_DEVICE int64_t row_stride() const { return stride == 0 ? classes : stride; }

  Cost cost() const { return bytes_moved<T>((glogits ? 2 : 1) * rows * classes); }
};

template <class T>
struct CrossEntropyBackward {     // gx (+)= gloss * glogits
  const T* glogits;               // [count], from the forward
  const accumulator_t<T>* gloss;  // [1]
  T* gx;  // [count]; may be glogits unless accumulate: CUDA then makes no pass where gloss is 1
  int64_t count;
  bool accumulate;

  Cost cost() const { return bytes_moved<T>((accumulate ? 3 : 2) * count); }
};

}  // namespace heed::kernels

HEED_KERNEL(cross_entropy_forward, CrossEntropyForward);
HEED_KERNEL(cross_entropy_backward, CrossEntropyBackward);

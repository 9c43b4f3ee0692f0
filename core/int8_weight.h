// Weights kept as 8-bit integers, for inference: a quarter of the memory of f32, which is what the speed of
// decoding depends on (W8A8 by rows: Dettmers et al., arXiv 2208.07339, section 2.1).
#pragma once

#include <heed/core/tensor.h>

namespace heed {

/// Gives a parameter the values of `values`, both f32 [rows, cols] on the CPU, as integers from -127 to 127
/// with a scale for each row: its largest magnitude / 127. They take the place of its memory, and it is
/// frozen. To linear() and embedding() it is an f32 weight as before, but not in what is recorded; whatever
/// else asks for its elements throws a StateError. Views that were taken before are not changed. ShapeError,
/// DTypeError and DeviceError for other tensors and more than 65,536 columns, StateError for one that is no
/// parameter (a leaf that requires a gradient) or that an optimizer holds.
void keep_as_int8(const Tensor& parameter, const Tensor& values);

/// Whether its values are kept so.
inline bool is_int8(const Tensor& x) { return x.storage()->int8() != nullptr; }

/// Rows of such a matrix, ids i64 [n] → f32 [n, cols]. StateError for another tensor, IndexError.
[[nodiscard]] Tensor int8_rows(const Tensor& matrix, const Tensor& ids);

}  // namespace heed

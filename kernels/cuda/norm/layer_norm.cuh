// What layer_norm and residual_layer_norm share.
#pragma once

#include <heed/kernels/residual_layer_norm.h>

namespace heed::cuda {

/// residual_layer_norm_forward.
template <class T>
void normalize_rows(const char* what, const kernels::ResidualLayerNormForward<T>& args);

/// residual_layer_norm_backward.
template <class T>
void normalize_rows_backward(const char* what, const kernels::ResidualLayerNormBackward<T>& args);

}  // namespace heed::cuda

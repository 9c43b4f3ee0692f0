#include <heed/kernels/cuda/norm/layer_norm.cuh>
#include <heed/kernels/residual_layer_norm.h>

namespace heed::cuda {

template <class T>
void residual_layer_norm_forward(const kernels::ResidualLayerNormForward<T>& args) {
  normalize_rows("residual_layer_norm_forward", args);
}

template <class T>
void residual_layer_norm_backward(const kernels::ResidualLayerNormBackward<T>& args) {
  normalize_rows_backward("residual_layer_norm_backward", args);
}

#define HEED_INSTANTIATE(T)                                                                  \
  template void residual_layer_norm_forward<T>(const kernels::ResidualLayerNormForward<T>&); \
  template void residual_layer_norm_backward<T>(const kernels::ResidualLayerNormBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
#undef HEED_INSTANTIATE

}  // namespace heed::cuda

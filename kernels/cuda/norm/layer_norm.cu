#include <heed/kernels/cuda/norm/layer_norm.cuh>
#include <heed/kernels/layer_norm.h>

namespace heed::cuda {

template <class T>
void layer_norm_forward(const kernels::LayerNormForward<T>& args) {
  normalize_rows("layer_norm_forward", kernels::ResidualLayerNormForward<T>{.residual = nullptr,
                                                                            .x = args.x,
                                                                            .weight = args.weight,
                                                                            .bias = args.bias,
                                                                            .dropout = {},
                                                                            .sum = nullptr,
                                                                            .y = args.y,
                                                                            .mean = args.mean,
                                                                            .rstd = args.rstd,
                                                                            .rows = args.rows,
                                                                            .cols = args.cols,
                                                                            .eps = args.eps});
}

template <class T>
void layer_norm_backward(const kernels::LayerNormBackward<T>& args) {
  normalize_rows_backward("layer_norm_backward",
                          kernels::ResidualLayerNormBackward<T>{.gy = args.gy,
                                                                .gsum = nullptr,
                                                                .sum = args.x,
                                                                .weight = args.weight,
                                                                .mean = args.mean,
                                                                .rstd = args.rstd,
                                                                .dropout = {},
                                                                .gresidual = nullptr,
                                                                .gx = args.gx,
                                                                .gweight = args.gweight,
                                                                .gbias = args.gbias,
                                                                .accumulate_residual = false,
                                                                .accumulate_x = args.accumulate_x,
                                                                .accumulate_weight = args.accumulate_weight,
                                                                .accumulate_bias = args.accumulate_bias,
                                                                .rows = args.rows,
                                                                .cols = args.cols});
}

#define HEED_INSTANTIATE(T)                                                 \
  template void layer_norm_forward<T>(const kernels::LayerNormForward<T>&); \
  template void layer_norm_backward<T>(const kernels::LayerNormBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
#undef HEED_INSTANTIATE

}  // namespace heed::cuda

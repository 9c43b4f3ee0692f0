// What the operations that choose and put elements by index share. Private to core: not installed.
#pragma once

#include <heed/core/autograd/autograd.h>
#include <heed/core/tensor.h>
#include <heed/kernels/indexing.h>

namespace heed {

/// All of `index` in [0, entries) (of index_select kNoToken too), else IndexError. What is on a device is
/// left to its kernel, and the host hears of it when it next waits for the device.
void check_indices(kernels::IndexUse use, const Tensor& index, int64_t entries);

/// i64 and on x's device.
void check_index_dtype(const Tensor& index, const Tensor& x, const char* operation);

/// The rules of gather and scatter; the axis from 0.
int check_along_axis(const Tensor& x, int64_t axis, const Tensor& index, kernels::IndexUse use,
                     const char* operation);

/// gather() whose errors name another use and operation.
Tensor gather(kernels::IndexUse use, const char* operation, const Tensor& x, int64_t axis,
              const Tensor& index);

/// y[…, index, …] = source, or op= it, where y holds what is computed with: f32 for bf16.
void scatter_into(const Tensor& y, kernels::IndexUse use, ScatterOp op, int axis, const Tensor& index,
                  const Tensor& source);

/// The gradient of reading x[…, index, …]: gy added where it was read.
void scatter_gradient(GradOut& gx, kernels::IndexUse use, int axis, const Tensor& index, const Tensor& gy);

}  // namespace heed

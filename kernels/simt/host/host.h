// What a kernel source sees when a plain C++ compiler reads it: CUDA's own headers for types and conversions,
// and the emulator for everything that runs on the device.
#pragma once

#ifdef __CUDACC__
#error "kernels/simt/host is for host compilers; include <heed/kernels/simt/simt.h>"
#endif

// CUDA's host_defines.h leaves these alone if they exist already.
#define __shared__ static
#define __cluster_dims__(...)
#define __launch_bounds__(...)

#include <string>

#include <cuda_runtime.h>

#include <heed/kernels/simt/host/atomics.h>
#include <heed/kernels/simt/host/builtins.h>
#include <heed/kernels/simt/host/launch.h>
#include <heed/kernels/simt/host/math.h>
#include <heed/kernels/simt/host/memory.h>
#include <heed/kernels/simt/host/ptx.h>

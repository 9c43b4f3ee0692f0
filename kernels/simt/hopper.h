// Hopper's own instructions, for kernels compiled for compute_90a: barriers in shared memory that count
// bytes, copies of boxes by the tensor memory accelerator (TMA), and products of matrices in shared memory by
// four warps (wgmma).
//
// nvcc gets thin wrappers around PTX, any other compiler the emulator with the same functions.
#pragma once

#include <heed/kernels/simt/simt.h>

#ifdef __CUDACC__
#include <heed/kernels/simt/ptx_hopper.h>
#else
#include <heed/kernels/simt/host/ptx_hopper.h>
#endif

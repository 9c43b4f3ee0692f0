// HEED_HOST_DEVICE marks the few functions that run both on the CPU and inside CUDA kernels.
#pragma once

#ifdef __CUDACC__
#define HEED_HOST_DEVICE __host__ __device__
#else
#define HEED_HOST_DEVICE
#endif

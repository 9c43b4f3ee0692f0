// The few calls through which the rest of heed reaches a CUDA device. Defined by
// kernels/cuda/runtime/runtime.cu.
#pragma once

#include <cstddef>
#include <string>

#include <heed/core/base/memory/allocator.h>

struct CUstream_st;  // CUDA's: a cudaStream_t points to one

namespace heed::cuda {

/// Usable devices; 0 where there is none. Never throws.
int device_count();

/// The device's name with its compute capability; an emulated one says so.
std::string device_name(int index);

/// Makes `index` the device on which the kernels called by this thread run; 0 at first. DeviceError if there
/// is no such device.
void set_device(int index);

/// The cudaStream_t in which all of heed's work on device `index` is ordered, and which waits for no other. A
/// kernel or copy of your own in it comes after all that heed has enqueued and before all that it will; it
/// becomes a part of a step that is being captured. Work in another stream, CUDA's default stream too, must
/// wait for an event recorded in this one before it touches heed's memory, and this one for it
/// (cudaStreamWaitEvent). DeviceError if there is no such device; StateError while another thread captures a
/// step there.
CUstream_st* device_stream(int index);

/// Memory of device `index`, reused in the order of its stream. DeviceError if there is no such device.
Allocator& allocator(int index);

/// Copies on the device's stream. copy_to_host returns when the bytes are there; the others may still run.
void copy_to_device(int index, void* device, const void* host, size_t bytes);
void copy_to_host(int index, void* host, const void* device, size_t bytes);
void copy_on_device(int index, void* to, const void* from, size_t bytes);
void fill_bytes(int index, void* device, int value, size_t bytes);

/// Waits for all work on the device; rethrows what went wrong in it. IndexError where a kernel met a wrong
/// index since the last wait, after which the device can be used as before; so does copy_to_host.
void synchronize(int index);

}  // namespace heed::cuda

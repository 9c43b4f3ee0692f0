// nvcc's side of simt.h: launching, shared memory, and one function per PTX instruction. Each has a twin of
// the same signature in host/ptx.h.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <heed/kernels/simt/dependent_launch.h>
#include <heed/kernels/simt/dynamic_shared.h>
#include <heed/kernels/simt/grid.h>

#define HEED_SIMT_DEVICE __device__ __forceinline__

namespace heed::simt {

/// Launches, after raising the kernel's limit of dynamic shared memory where the size needs it; a kernel with
/// Dependent arguments so that it may begin early, where that can be. Returns what the runtime says of the
/// launch itself; what goes wrong later is reported by later calls.
template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), Grid grid, dim3 block, size_t shared_bytes,
                   cudaStream_t stream, Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments), "launch: wrong number of kernel arguments");
  if (const cudaError_t error = allow_dynamic_shared(reinterpret_cast<const void*>(kernel), shared_bytes);
      error != cudaSuccess)
    return error;
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (grid.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {grid.cluster, 1, 1};
  }
  if constexpr (waits_itself<Parameters...>()) {
    bool early = false;
    if (const cudaError_t error = may_begin_early(early, reinterpret_cast<const void*>(kernel), stream);
        error != cudaSuccess)
      return error;
    if (early) {
      attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attributes[count++].val.programmaticStreamSerializationAllowed = 1;
    }
  }
  const cudaLaunchConfig_t config{grid.blocks, block, shared_bytes, stream, attributes, count};
  static_cast<void>(
      cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(std::forward<Arguments>(arguments))...));
  return cudaGetLastError();
}

/// griddepcontrol.wait: until what this kernel was launched after is over and can be seen, where it may begin
/// earlier. Only compute capability 9.0 and later has it, and only there kernels begin earlier.
HEED_SIMT_DEVICE void griddepcontrol_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// griddepcontrol.launch_dependents: once each block has come here, the next kernel may begin early, which
/// waits until all of this one is over.
HEED_SIMT_DEVICE void griddepcontrol_launch_dependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// A T in shared memory, one per type and block. It holds garbage until written.
template <class T>
HEED_SIMT_DEVICE T& shared() {
  __shared__ T value;
  return value;
}

/// The start of dynamic shared memory. A template, since the alignment of an extern array that is merely
/// declared would pad the static shared memory of every kernel in the file.
template <int kAlignment = 128>
HEED_SIMT_DEVICE unsigned char* dynamic_shared() {
  static_assert(kAlignment <= 1024);
  if constexpr (kAlignment <= 128) {
    extern __shared__ __align__(128) unsigned char heed_dynamic_shared_128[];
    return heed_dynamic_shared_128;
  } else {
    extern __shared__ __align__(1024) unsigned char heed_dynamic_shared_1024[];
    return heed_dynamic_shared_1024;
  }
}

/// Cuts dynamic shared memory into typed pieces; SharedLayout computes the size.
template <int kAlignment = 128>
class Arena {
 public:
  template <class T>
  HEED_SIMT_DEVICE T* take(size_t count, size_t alignment = alignof(T)) {
    end_ = (end_ + alignment - 1) / alignment * alignment;
    T* piece = reinterpret_cast<T*>(dynamic_shared<kAlignment>() + end_);
    end_ += count * sizeof(T);
    return piece;
  }

 private:
  size_t end_ = 0;
};

/// The 32-bit address that PTX instructions on shared memory take.
HEED_SIMT_DEVICE uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// The same number, of which the compiler knows nothing: what follows from it is computed where it stands,
/// and takes no registers over the loops around.
HEED_SIMT_DEVICE int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

/// Reads a V (float4, uint4, …) at an address that must be aligned for it, or writes one to global memory.
template <class V, class T>
HEED_SIMT_DEVICE V load_as(const T* address) {
  return *reinterpret_cast<const V*>(address);
}
template <class V, class T>
HEED_SIMT_DEVICE void store_as(T* address, const V& value) {
  // By name, since the compiler cuts up the plain store where it merges it with that of another branch.
  if constexpr (sizeof(V) == 16) {
    uint4 word;
    memcpy(&word, &value, sizeof word);
    asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(__cvta_generic_to_global(address)),
                 "r"(word.x), "r"(word.y), "r"(word.z), "r"(word.w)
                 : "memory");
  } else if constexpr (sizeof(V) == 8) {
    uint2 word;
    memcpy(&word, &value, sizeof word);
    asm volatile("st.global.v2.u32 [%0], {%1,%2};" ::"l"(__cvta_generic_to_global(address)), "r"(word.x),
                 "r"(word.y)
                 : "memory");
  } else {
    *reinterpret_cast<V*>(address) = value;
  }
}

/// ex2.approx.ftz.f32: 2^x within 2 ulp, subnormals flushed to zero.
HEED_SIMT_DEVICE float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// rcp.approx.ftz.f32: 1 / x within 1 ulp, subnormals flushed to zero.
HEED_SIMT_DEVICE float rcp_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// cp.async: copies kBytes (4, 8 or 16, both addresses aligned to it) to shared memory in the background;
/// zeros if not valid, and then `global` is not read.
template <int kBytes>
HEED_SIMT_DEVICE void cp_async(void* shared, const void* global, bool valid = true) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  const int source_bytes = valid ? kBytes : 0;
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global),
                 "r"(source_bytes)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(shared)), "l"(global),
                 "n"(kBytes), "r"(source_bytes)
                 : "memory");
}
/// Ends a group of this thread's copies.
HEED_SIMT_DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most kGroupsInFlight of this thread's groups are still under way.
template <int kGroupsInFlight>
HEED_SIMT_DEVICE void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroupsInFlight) : "memory");
}

/// ldmatrix: 8×8 matrices of 16-bit elements; lane 8 i + r gives the address of row r of matrix i (16 bytes,
/// aligned). Lane l receives of each matrix the elements 2 (l % 4) and + 1 of row l / 4 (of column l / 4,
/// transposed). Of four matrices the address may be given by bits of it to turn over, and then bytes to go
/// on: many that differ in these alone take one register.
HEED_SIMT_DEVICE void ldmatrix_x1(uint32_t (&out)[1], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
               : "=r"(out[0])
               : "r"(shared_address(row))
               : "memory");
}
HEED_SIMT_DEVICE void ldmatrix_x2(uint32_t (&out)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
               : "=r"(out[0]), "=r"(out[1])
               : "r"(shared_address(row))
               : "memory");
}
HEED_SIMT_DEVICE void ldmatrix_x4(uint32_t (&out)[4], const void* row, uint32_t turned = 0,
                                  uint32_t further = 0) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"((shared_address(row) ^ turned) + further)
               : "memory");
}
HEED_SIMT_DEVICE void ldmatrix_x1_trans(uint32_t (&out)[1], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
               : "=r"(out[0])
               : "r"(shared_address(row))
               : "memory");
}
HEED_SIMT_DEVICE void ldmatrix_x2_trans(uint32_t (&out)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(out[0]), "=r"(out[1])
               : "r"(shared_address(row))
               : "memory");
}
HEED_SIMT_DEVICE void ldmatrix_x4_trans(uint32_t (&out)[4], const void* row, uint32_t turned = 0,
                                        uint32_t further = 0) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"((shared_address(row) ^ turned) + further)
               : "memory");
}

/// mma.sync: d[16×8] += a[16×16] b[16×8], f32 accumulators. With g = lane / 4 and t = 2 (lane % 4), lane
/// holds a0: (g, t), a1: (g+8, t), a2: (g, t+8), a3: (g+8, t+8), each with its right neighbour; b0: rows t,
/// t+1 and b1: rows t+8, t+9 of column g; d0, d1: (g, t), (g, t+1); d2, d3: (g+8, t), (g+8, t+1).
HEED_SIMT_DEVICE void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
HEED_SIMT_DEVICE void mma_m16n8k16_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Named barriers 1 to 15 for `threads` threads of the block (a multiple of 32): sync waits, arrive does not.
HEED_SIMT_DEVICE void barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
HEED_SIMT_DEVICE void barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/// To be called in every loop that waits for memory to change.
HEED_SIMT_DEVICE void spin_pause() { __nanosleep(32); }

}  // namespace heed::simt

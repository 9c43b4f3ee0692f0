#include "fake_cublaslt.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <cublasLt.h>
#include <string>
#include <thread>

#include <heed/core/base/bfloat16.h>
#include <heed/kernels/simt/host/emulator.h>
#include <heed/kernels/simt/host/runtime/device_memory.h>
#include <heed/kernels/simt/host/runtime/stream.h>

namespace heed::testing {
namespace {

// What stands behind the library's opaque handles.
struct Operation {
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};
struct Layout {
  cudaDataType type;
  uint64_t rows, cols;
  int64_t ld;
  int32_t batch = 1;
  int64_t stride = 0;
};
// What the caller promises of the addresses of A, B, C and D.
struct Alignments {
  uint32_t a = 256, b = 256, c = 256, d = 256;
};
struct Preference {
  uint32_t reductions = 0;
  Alignments alignments;
};

// A device traps at an address that is not what its kernel was chosen for.
void trap_unless(const void* pointer, uint32_t alignment, const char* what) {
  if (reinterpret_cast<uintptr_t>(pointer) % alignment != 0)
    throw emulator::Error(std::string("misaligned address: ") + what);
}

// How the fake's kernels read a bias, whatever they were chosen for.
constexpr uint32_t kBiasBytes = 16;

template <class To, class From>
To* behind(From handle) {
  return reinterpret_cast<To*>(handle);
}

template <class Value>
cublasStatus_t take(Value& value, const void* buffer, size_t bytes) {
  if (bytes != sizeof value) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(&value, buffer, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

float load(const void* matrix, const Layout& layout, int64_t at) {
  if (layout.type == CUDA_R_32F) return static_cast<const float*>(matrix)[at];
  return static_cast<float>(static_cast<const bfloat16*>(matrix)[at]);
}
void store(void* matrix, const Layout& layout, int64_t at, float value) {
  if (layout.type == CUDA_R_32F)
    static_cast<float*>(matrix)[at] = value;
  else
    static_cast<bfloat16*>(matrix)[at] = bfloat16(value);
}

struct Product {
  Operation operation;
  Layout a, b, c;
  const void *from_a, *from_b;
  void* to;
  float alpha, beta;

  void check_addresses(const Alignments& promised) const {
    trap_unless(from_a, promised.a, "A");
    trap_unless(from_b, promised.b, "B");
    trap_unless(to, promised.c, "C");
    trap_unless(to, promised.d, "D");
    if (operation.epilogue != CUBLASLT_EPILOGUE_BIAS) return;
    trap_unless(operation.bias, kBiasBytes, "the bias");
    trap_unless(operation.bias, promised.d, "the bias, read as D is written");
  }

  // Whether the result stays within one allocation.
  bool fits() const {
    const auto rows = static_cast<int64_t>(c.rows), cols = static_cast<int64_t>(c.cols);
    const int64_t elements = (c.batch - 1) * c.stride + (cols - 1) * c.ld + rows;
    return emulator::placement(to, static_cast<size_t>(elements) * (c.type == CUDA_R_32F ? 4 : 2)).fits;
  }

  void run() const {
    const auto sum_of = [&](int64_t batch, int64_t row, int64_t col) {
      const bool ta = operation.transpose_a == CUBLAS_OP_T, tb = operation.transpose_b == CUBLAS_OP_T;
      float sum = 0;
      for (int64_t k = 0; k < static_cast<int64_t>(ta ? a.rows : a.cols); ++k)
        sum += load(from_a, a, batch * a.stride + (ta ? k + row * a.ld : row + k * a.ld)) *
               load(from_b, b, batch * b.stride + (tb ? col + k * b.ld : k + col * b.ld));
      return alpha * sum;
    };
    for (int64_t batch = 0; batch < c.batch; ++batch)
      for (int64_t col = 0; col < static_cast<int64_t>(c.cols); ++col)
        for (int64_t row = 0; row < static_cast<int64_t>(c.rows); ++row) {
          const int64_t at = batch * c.stride + row + col * c.ld;
          float value = sum_of(batch, row, col);
          if (beta != 0) value += beta * load(to, c, at);
          if (operation.epilogue == CUBLASLT_EPILOGUE_BIAS) value += load(operation.bias, c, row);
          store(to, c, at, value);
        }
  }
};

}  // namespace

FakeCublas& fake_cublas() {
  static FakeCublas fake;
  return fake;
}

}  // namespace heed::testing

using namespace heed::testing;

extern "C" {

const char* cublasLtGetStatusString(cublasStatus_t) { return "the fake refuses this"; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static int one;
  *handle = reinterpret_cast<cublasLtHandle_t>(&one);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* out, cublasComputeType_t compute,
                                        cudaDataType_t) {
  if (compute != CUBLAS_COMPUTE_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *out = behind<cublasLtMatmulDescOpaque_t>(new Operation);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t which, const void* buffer,
                                              size_t bytes) {
  auto& operation = *behind<Operation>(handle);
  switch (which) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return take(operation.transpose_a, buffer, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return take(operation.transpose_b, buffer, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return take(operation.epilogue, buffer, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return take(operation.bias, buffer, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* out, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld) {
  if (rows == 0 || cols == 0 || ld < static_cast<int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  *out = behind<cublasLtMatrixLayoutOpaque_t>(new Layout{type, rows, cols, ld});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                cublasLtMatrixLayoutAttribute_t which, const void* buffer,
                                                size_t bytes) {
  auto& layout = *behind<Layout>(handle);
  if (which == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) return take(layout.batch, buffer, bytes);
  if (which == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) return take(layout.stride, buffer, bytes);
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* out) {
  *out = behind<cublasLtMatmulPreferenceOpaque_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t which,
                                                    const void* buffer, size_t bytes) {
  auto& preference = *behind<Preference>(handle);
  switch (which) {
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return take(preference.reductions, buffer, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return take(preference.alignments.a, buffer, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return take(preference.alignments.b, buffer, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return take(preference.alignments.c, buffer, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return take(preference.alignments.d, buffer, bytes);
    default:
      return CUBLAS_STATUS_SUCCESS;
  }
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t handle) {
  delete behind<Preference>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t preference, int asked,
                                              cublasLtMatmulHeuristicResult_t results[], int* returned) {
  ++fake_cublas().heuristics;
  fake_cublas().reductions = behind<Preference>(preference)->reductions;
  *returned = 0;
  const bool biased = behind<Operation>(operation)->epilogue == CUBLASLT_EPILOGUE_BIAS;
  if (biased ? !fake_cublas().adds_bias : !fake_cublas().multiplies) return fake_cublas().refusal;
  *returned = std::min(asked, 4);
  for (int i = 0; i < *returned; ++i) {
    results[i] = {};
    results[i].algo.data[0] = kFirst + static_cast<uint64_t>(i);
    static_assert(sizeof(Alignments) == 2 * sizeof(uint64_t));
    memcpy(results[i].algo.data + 1, &behind<Preference>(preference)->alignments, sizeof(Alignments));
    results[i].state = i < 3 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t layout_a, const void* b,
                              cublasLtMatrixLayout_t layout_b, const void* beta, const void* c,
                              cublasLtMatrixLayout_t layout_c, void* d, cublasLtMatrixLayout_t layout_d,
                              const cublasLtMatmulAlgo_t* algorithm, void*, size_t, cudaStream_t stream) {
  if (c != d || layout_c != layout_d || algorithm->data[0] < kFirst || algorithm->data[0] > kSlowest)
    return CUBLAS_STATUS_INVALID_VALUE;
  const Product product{*behind<Operation>(operation),
                        *behind<Layout>(layout_a),
                        *behind<Layout>(layout_b),
                        *behind<Layout>(layout_d),
                        a,
                        b,
                        d,
                        *static_cast<const float*>(alpha),
                        *static_cast<const float*>(beta)};
  if (!product.fits()) return CUBLAS_STATUS_INVALID_VALUE;
  const uint64_t id = algorithm->data[0];
  Alignments promised;
  memcpy(static_cast<void*>(&promised), algorithm->data + 1, sizeof promised);
  const cudaError_t error = heed::emulator::enqueue(stream, [product, id, promised] {
    product.check_addresses(promised);
    fake_cublas().used.push_back(id);
    fake_cublas().fused += product.operation.epilogue == CUBLASLT_EPILOGUE_BIAS;
    if (id != kFastest) std::this_thread::sleep_for(std::chrono::milliseconds(id == kSlowest ? 6 : 3));
    product.run();
  });
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"

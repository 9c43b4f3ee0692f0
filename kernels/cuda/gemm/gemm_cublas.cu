// cuBLASLt behind gemm.h. Its matrices are stored column after column: a row-major product C = A B is asked
// for as the column-major Cᵀ = Bᵀ Aᵀ.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <cublasLt.h>
#include <limits>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include <heed/core/base/check.h>
#include <heed/kernels/cuda/device.cuh>
#include <heed/kernels/cuda/gemm/gemm.h>

namespace heed::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;
constexpr int kMaxCandidates = 8;

void check(cublasStatus_t status, const char* what) {
  HEED_CHECK(status == CUBLAS_STATUS_SUCCESS, DeviceError, what,
             ": cuBLASLt: ", cublasLtGetStatusString(status));
}

template <class T>
constexpr cudaDataType_t kDataType = sizeof(T) == 2 ? CUDA_R_16BF : CUDA_R_32F;

// All that decides which algorithm fits; no padding, since keys are compared as bytes.
struct Key {
  int64_t m, n, k, lda, ldb, ldc, batch, stride_a, stride_b, stride_c;
  uint32_t alignment_a, alignment_b, alignment_c, alignment_bias;  // bytes; alignment_bias 0: no bias
  int32_t transpose_a, transpose_b, accumulate, type, type_c, device;

  friend bool operator==(const Key& a, const Key& b) { return memcmp(&a, &b, sizeof a) == 0; }
};
static_assert(sizeof(Key) == 10 * sizeof(int64_t) + 10 * sizeof(int32_t));

bool has_bias(const Key& key) { return key.alignment_bias > 0; }

struct KeyHash {
  size_t operator()(const Key& key) const {
    return std::hash<std::string_view>()({reinterpret_cast<const char*>(&key), sizeof key});
  }
};

struct Plan {
  cublasLtMatmulDesc_t operation;
  cublasLtMatrixLayout_t a, b, c;
  cublasLtMatmulAlgo_t algorithms[kMaxCandidates];  // the first is used
  int candidates;  // those after it are yet to be timed; 0 where none adds the bias
};

// Whether a plan's algorithm is measured. Not by default: the algorithms add in orders of their own, and
// which is the fastest may change from run to run.
bool plans_are_timed() {
  static const bool timed = [] {
    const char* value = std::getenv("HEED_CUDA_PLANS");
    if (value == nullptr || *value == '\0' || std::string_view(value) == "heuristic") return false;
    HEED_CHECK(std::string_view(value) == "timed", ConfigError, "HEED_CUDA_PLANS is '", value,
               "'; expected heuristic or timed");
    return true;
  }();
  return timed;
}

uint32_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  return static_cast<uint32_t>(std::min<uintptr_t>(address & (~address + 1), 256));
}

template <class Value>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const Value& value,
         const char* what) {
  check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value), what);
}

template <class Value>
void set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const Value& value,
         const char* what) {
  check(cublasLtMatrixLayoutSetAttribute(layout, attribute, &value, sizeof value), what);
}

template <class Value>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const Value& value, const char* what) {
  check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value), what);
}

cublasLtMatrixLayout_t make_layout(cudaDataType_t type, int64_t rows, int64_t cols, int64_t ld, int64_t batch,
                                   int64_t stride, const char* what) {
  cublasLtMatrixLayout_t layout;
  check(
      cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), ld),
      what);
  set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(batch), what);
  set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride, what);
  return layout;
}

// Bits must not depend on the order in which blocks finish: of the ways to split the sum over k only those
// that add up partial results in f32 in a second pass are allowed. The best by cuBLASLt's heuristic comes
// first.
void find_algorithms(cublasLtHandle_t handle, Plan& plan, const Key& key, const char* what) {
  cublasLtMatmulPreference_t preference;
  check(cublasLtMatmulPreferenceCreate(&preference), what);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes, what);
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE), what);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.alignment_b, what);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.alignment_a, what);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.alignment_c, what);
  // Nothing else tells how the bias is aligned.
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
      has_bias(key) ? std::min(key.alignment_c, key.alignment_bias) : key.alignment_c, what);
  cublasLtMatmulHeuristicResult_t results[kMaxCandidates];
  int found = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle, plan.operation, plan.a, plan.b, plan.c, plan.c, preference,
                                     plans_are_timed() ? kMaxCandidates : 1, results, &found);
  cublasLtMatmulPreferenceDestroy(preference);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) check(status, what);
  for (int i = 0; i < found; ++i)
    if (results[i].state == CUBLAS_STATUS_SUCCESS) plan.algorithms[plan.candidates++] = results[i].algo;
  HEED_CHECK(plan.candidates > 0 || has_bias(key), DeviceError, what,
             ": cuBLASLt has no algorithm for a product of [", key.m, ", ", key.k, "] and [", key.k, ", ",
             key.n, "]");
}

Plan make_plan(cublasLtHandle_t handle, const Key& key, const void* bias, const char* what) {
  const auto type = static_cast<cudaDataType_t>(key.type), type_c = static_cast<cudaDataType_t>(key.type_c);
  Plan plan{};
  check(cublasLtMatmulDescCreate(&plan.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), what);
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N, what);
  set(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, what);
  if (has_bias(key)) {
    set(plan.operation, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS, what);
    set(plan.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias, what);
  }
  const auto layout = [&](bool transposed, int64_t rows, int64_t cols, int64_t ld, int64_t stride) {
    return make_layout(type, transposed ? cols : rows, transposed ? rows : cols, ld, key.batch, stride, what);
  };
  plan.a = layout(key.transpose_b, key.n, key.k, key.ldb, key.stride_b);
  plan.b = layout(key.transpose_a, key.k, key.m, key.lda, key.stride_a);
  plan.c = make_layout(type_c, key.n, key.m, key.ldc, key.batch, key.stride_c, what);
  find_algorithms(handle, plan, key, what);
  return plan;
}

// The handle and the plans of a device, for as long as the process lives.
class Library {
 public:
  static Library& get() {
    static auto* const library = new Library;
    return *library;
  }

  std::mutex mutex;  // descriptors are changed (the bias) and used by one thread at a time

  cublasLtHandle_t handle(int device, const char* what) {
    cublasLtHandle_t& handle = handles_[device];
    if (handle == nullptr) check(cublasLtCreate(&handle), what);
    return handle;
  }

  Plan& plan(const Key& key, const void* bias, const char* what) {
    const auto found = plans_.find(key);
    if (found == plans_.end())
      return plans_.emplace(key, make_plan(handle(key.device, what), key, bias, what)).first->second;
    if (has_bias(key)) set(found->second.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias, what);
    return found->second;
  }

 private:
  std::unordered_map<int, cublasLtHandle_t> handles_;
  std::unordered_map<Key, Plan, KeyHash> plans_;
};

// How long the device takes.
class Timer {
 public:
  explicit Timer(const char* what) : what_(what) {
    cuda::check(cudaEventCreate(&begin_), what);
    cuda::check(cudaEventCreate(&end_), what);
  }
  ~Timer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  template <class Work>
  float milliseconds(const Work& work) const {
    cuda::check(cudaEventRecord(begin_, current_stream()), what_);
    work();
    cuda::check(cudaEventRecord(end_, current_stream()), what_);
    cuda::check(cudaEventSynchronize(end_), what_);
    float time = 0;
    cuda::check(cudaEventElapsedTime(&time, begin_, end_), what_);
    return time;
  }

 private:
  const char* what_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

// Leaves the algorithm with which `run` is fastest.
template <class Run>
void keep_fastest(Plan& plan, const Run& run, const char* what) {
  constexpr int kRepetitions = 4;  // the first loads the code
  const Timer timer(what);
  float least = std::numeric_limits<float>::infinity();
  int fastest = 0;
  for (int candidate = 0; candidate < plan.candidates; ++candidate) {
    float time = std::numeric_limits<float>::infinity();
    for (int i = 0; i < kRepetitions; ++i)
      time = std::min(time, timer.milliseconds([&] { run(plan.algorithms[candidate]); }));
    if (time < least) least = time, fastest = candidate;
  }
  plan.algorithms[0] = plan.algorithms[fastest];
  plan.candidates = 1;
}

bool is_capturing(const char* what) {
  cudaStreamCaptureStatus status;
  cuda::check(cudaStreamIsCapturing(current_stream(), &status), what);
  return status != cudaStreamCaptureStatusNone;
}

}  // namespace

template <class T, class C>
bool multiply_by_library(const char* what, const FusedGemm<T, C>& args) {
  const kernels::Gemm<T, C>& p = args.product;
  const int device = current_device();
  const Key key{p.m,
                p.n,
                p.k,
                p.lda,
                p.ldb,
                p.ldc,
                p.batch,
                p.stride_a,
                p.stride_b,
                p.stride_c,
                alignment_of(p.a),
                alignment_of(p.b),
                alignment_of(p.c),
                args.bias ? alignment_of(args.bias) : 0,
                p.transpose_a,
                p.transpose_b,
                p.accumulate,
                kDataType<T>,
                kDataType<C>,
                device};
  const float beta = p.accumulate ? 1.0f : 0.0f;
  Library& library = Library::get();
  const std::lock_guard lock(library.mutex);
  Plan& plan = library.plan(key, args.bias, what);
  if (plan.candidates == 0) return false;
  const Scratch workspace(kWorkspaceBytes);
  const auto run = [&](const cublasLtMatmulAlgo_t& algorithm, C* c) {
    check(cublasLtMatmul(library.handle(device, what), plan.operation, &p.alpha, p.b, plan.a, p.a, plan.b,
                         &beta, c, plan.c, c, plan.c, &algorithm, workspace.as<void>(), kWorkspaceBytes,
                         current_stream()),
          what);
  };
  if (plan.candidates > 1 && !is_capturing(what)) {
    const Scratch elsewhere(static_cast<size_t>((p.batch - 1) * p.stride_c + p.m * p.ldc) * sizeof(C));
    keep_fastest(
        plan, [&](const cublasLtMatmulAlgo_t& algorithm) { run(algorithm, elsewhere.as<C>()); }, what);
  }
  run(plan.algorithms[0], p.c);
  return true;
}

template bool multiply_by_library<float, float>(const char*, const FusedGemm<float>&);
template bool multiply_by_library<bfloat16, bfloat16>(const char*, const FusedGemm<bfloat16>&);
template bool multiply_by_library<bfloat16, float>(const char*, const FusedGemm<bfloat16, float>&);

}  // namespace heed::cuda

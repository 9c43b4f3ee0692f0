#include <type_traits>

#include <heed/core/base/check.h>
#include <heed/kernels/cpu/gemm/gemm_onednn.h>

#if HEED_HAVE_ONEDNN
#include <array>
#include <cstring>
#include <memory>
#include <unordered_map>

#include <oneapi/dnnl/dnnl.hpp>

#include <heed/core/base/threads/per_thread.h>
#include <heed/kernels/cpu/simd/isa.h>
#include <heed/kernels/cpu/tasks/workspace.h>

// oneDNN is often built on OpenMP. Where it is, these are there; nothing of ours links to it.
extern "C" {
[[gnu::weak]] int omp_get_max_threads();
[[gnu::weak]] void omp_set_num_threads(int);
}
#endif

namespace heed::cpu {

#if HEED_HAVE_ONEDNN
namespace {

/// Keeps oneDNN on the calling thread: whatever it is built on, a block is one task of our pool.
class OneOpenMpThread {
 public:
  OneOpenMpThread() {
    if (omp_set_num_threads == nullptr || omp_get_max_threads == nullptr) return;
    before_ = omp_get_max_threads();
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~OneOpenMpThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }
  OneOpenMpThread(const OneOpenMpThread&) = delete;
  OneOpenMpThread& operator=(const OneOpenMpThread&) = delete;

 private:
  int before_ = 1;
};

/// Never destroyed: threads may outlive static objects.
dnnl::engine& engine() {
  static dnnl::engine& engine = *[] {
    const Isa limit = isa();
    if (limit == Isa::baseline) dnnl::set_max_cpu_isa(dnnl::cpu_isa::sse41);
    if (limit == Isa::avx2) dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2);
    if (limit == Isa::avx512) dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx512_core_bf16);
    return new dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return engine;
}

/// All that a primitive is made for.
struct Key {
  int64_t m, n, k, a_row, a_column, b_row, b_column, ldc;
  int64_t bf16, accumulate;

  bool operator==(const Key& other) const { return std::memcmp(this, &other, sizeof *this) == 0; }
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    std::array<uint64_t, sizeof(Key) / 8> words;
    std::memcpy(words.data(), &key, sizeof key);
    uint64_t hash = 0;
    for (uint64_t word : words) hash = (hash ^ word) * 0x9E3779B97F4A7C15u, hash ^= hash >> 29;
    return hash;
  }
};

/// A primitive and what it is called with; only the addresses change from call to call.
struct Plan {
  dnnl::matmul primitive;
  dnnl::memory a, b, c, scratch;
  size_t scratch_bytes;

  explicit Plan(const Key& key) {
    using dnnl::memory;
    const auto type = key.bf16 ? memory::data_type::bf16 : memory::data_type::f32;
    const memory::desc a_desc({key.m, key.k}, type, memory::dims{key.a_row, key.a_column});
    const memory::desc b_desc({key.k, key.n}, type, memory::dims{key.b_row, key.b_column});
    const memory::desc c_desc({key.m, key.n}, memory::data_type::f32, memory::dims{key.ldc, 1});
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (key.accumulate) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attributes.set_post_ops(sum);
    }
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc desc(engine(), a_desc, b_desc, c_desc, attributes);
#else
    const dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(a_desc, b_desc, c_desc), attributes, engine());
#endif
    primitive = dnnl::matmul(desc);
    a = memory(a_desc, engine(), nullptr);
    b = memory(b_desc, engine(), nullptr);
    c = memory(c_desc, engine(), nullptr);
    scratch = memory(desc.scratchpad_desc(), engine(), nullptr);
    scratch_bytes = desc.scratchpad_desc().get_size();
  }

  void run(dnnl::stream& stream, const void* a_data, const void* b_data, float* c_data) {
    Workspace<char> bytes(static_cast<int64_t>(scratch_bytes));
    a.set_data_handle(const_cast<void*>(a_data));
    b.set_data_handle(const_cast<void*>(b_data));
    c.set_data_handle(c_data);
    scratch.set_data_handle(bytes.data());
    const dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, a.get()},
                                         {DNNL_ARG_WEIGHTS, b.get()},
                                         {DNNL_ARG_DST, c.get()},
                                         {DNNL_ARG_SCRATCHPAD, scratch.get()}};
    const dnnl_status_t status = dnnl_primitive_execute(primitive.get(), stream.get(), 4, arguments);
    HEED_ASSERT(status == dnnl_success, "gemm: oneDNN failed with status ", static_cast<int>(status));
  }
};

/// What a thread multiplies with.
class Plans {
 public:
  Plan& at(const Key& key) {
    constexpr size_t kMax = 512;
    if (const auto found = plans_.find(key); found != plans_.end()) return *found->second;
    if (plans_.size() >= kMax) plans_.clear();
    return *plans_.emplace(key, std::make_unique<Plan>(key)).first->second;
  }

  dnnl::stream stream{engine()};

 private:
  std::unordered_map<Key, std::unique_ptr<Plan>, KeyHash> plans_;
};
using PlansOfThread = detail::PerThread<Plans>;

/// Whether oneDNN can multiply in this type here; in bf16 it needs AVX-512.
bool supports(bool bf16) {
  const auto probe = [](bool type) {
    try {
      const Plan plan(Key{8, 8, 8, 8, 1, 8, 1, 8, type, 0});
      return true;
    } catch (const dnnl::error&) {
      return false;
    }
  };
  static const bool f32_works = probe(false), bf16_works = probe(true);
  return bf16 ? bf16_works : f32_works;
}

}  // namespace

template <class T>
bool onednn_supports(accumulator_t<T> alpha) {
  if constexpr (std::is_same_v<T, double>) return false;
  // When a thread ends, then objects of oneDNN's that it needs do too.
  return alpha == 1 && !detail::thread_ended() && supports(std::is_same_v<T, bfloat16>) &&
         PlansOfThread::get();
}

template <class T>
void onednn_block(const OnednnBlock<T>& block) {
  if constexpr (!std::is_same_v<T, double>) {
    const OneOpenMpThread guard;
    const Key key{block.m,
                  block.n,
                  block.k,
                  block.a.row_stride,
                  block.a.column_stride,
                  block.b.row_stride,
                  block.b.column_stride,
                  block.ldc,
                  std::is_same_v<T, bfloat16>,
                  block.accumulate};
    Plans& plans = *PlansOfThread::get();
    plans.at(key).run(plans.stream, block.a.data, block.b.data, block.c);
  }
}

#else

template <class T>
bool onednn_supports(accumulator_t<T>) {
  return false;
}

template <class T>
void onednn_block(const OnednnBlock<T>&) {
  HEED_ASSERT(false, "gemm: this build has no oneDNN");
}

#endif

#define HEED_INSTANTIATE(T)                           \
  template bool onednn_supports<T>(accumulator_t<T>); \
  template void onednn_block<T>(const OnednnBlock<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(double)
HEED_INSTANTIATE(bfloat16)
#undef HEED_INSTANTIATE

}  // namespace heed::cpu

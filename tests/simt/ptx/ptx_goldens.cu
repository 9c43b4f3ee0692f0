#include <heed/kernels/simt/simt.h>

#include "ptx_goldens.h"

namespace heed::testing {
namespace {

constexpr int kGroupThreads = 64;  // two warps

__device__ int small(int i, int salt) { return (i * 37 + salt * 11) % 9 - 4; }

__device__ uint16_t encode(int value, bool is_bf16) {
  const float f = static_cast<float>(value);
  if (is_bf16) return static_cast<uint16_t>(__float_as_uint(f) >> 16);  // exact for small integers
  const __half h = __float2half_rn(f);
  uint16_t bits;
  memcpy(&bits, &h, sizeof bits);
  return bits;
}

__device__ uint32_t pair(uint16_t low, uint16_t high) { return low | static_cast<uint32_t>(high) << 16; }

struct alignas(128) Rows {
  uint16_t value[32][8];
};

template <int kCount, bool kTransposed>
__global__ void ldmatrix_case(const uint32_t*, uint32_t* out) {
  auto& rows = simt::shared<Rows>();
  const int lane = threadIdx.x;
  for (int i = 0; i < 8; ++i) rows.value[lane][i] = static_cast<uint16_t>(1000 + lane * 8 + i);
  __syncwarp();
  const void* row = rows.value[lane % (8 * kCount)];
  uint32_t matrix[kCount];
  if constexpr (kCount == 1)
    kTransposed ? simt::ldmatrix_x1_trans(matrix, row) : simt::ldmatrix_x1(matrix, row);
  if constexpr (kCount == 2)
    kTransposed ? simt::ldmatrix_x2_trans(matrix, row) : simt::ldmatrix_x2(matrix, row);
  if constexpr (kCount == 4)
    kTransposed ? simt::ldmatrix_x4_trans(matrix, row) : simt::ldmatrix_x4(matrix, row);
  for (int i = 0; i < kCount; ++i) out[lane * kCount + i] = matrix[i];
}

// Rows whose addresses are given by bits to turn over and by bytes to go on: row r stands for (r ^ 3) + 16.
template <bool kTransposed>
__global__ void ldmatrix_turned_case(const uint32_t*, uint32_t* out) {
  auto& rows = simt::shared<Rows>();
  const int lane = threadIdx.x;
  for (int i = 0; i < 8; ++i) rows.value[lane][i] = static_cast<uint16_t>(1000 + lane * 8 + i);
  __syncwarp();
  const void* row = rows.value[lane % 16];
  uint32_t matrix[4];
  kTransposed ? simt::ldmatrix_x4_trans(matrix, row, 48, 256) : simt::ldmatrix_x4(matrix, row, 48, 256);
  for (int i = 0; i < 4; ++i) out[lane * 4 + i] = matrix[i];
}

__global__ void opaque_case(const uint32_t*, uint32_t* out) {
  const int lane = threadIdx.x;
  out[lane] = static_cast<uint32_t>(simt::opaque(lane * 1000 - 16000));
}

// Arbitrary fragments: which lane holds what is part of what is compared.
template <bool kBf16>
__global__ void mma_case(const uint32_t*, uint32_t* out) {
  const int lane = threadIdx.x;
  uint32_t a[4];
  for (int i = 0; i < 4; ++i)
    a[i] = pair(encode(small(lane * 8 + 2 * i, 1), kBf16), encode(small(lane * 8 + 2 * i + 1, 1), kBf16));
  const uint32_t b0 = pair(encode(small(lane * 4, 2), kBf16), encode(small(lane * 4 + 1, 2), kBf16));
  const uint32_t b1 = pair(encode(small(lane * 4 + 2, 2), kBf16), encode(small(lane * 4 + 3, 2), kBf16));
  float d[4];
  for (int i = 0; i < 4; ++i) d[i] = static_cast<float>(small(lane * 4 + i, 3));
  for (int repeat = 0; repeat < 3; ++repeat)
    kBf16 ? simt::mma_m16n8k16_bf16(d, a, b0, b1) : simt::mma_m16n8k16_f16(d, a, b0, b1);
  for (int i = 0; i < 4; ++i) out[lane * 4 + i] = __float_as_uint(d[i]);
}

struct alignas(16) Pieces {
  uint32_t word[2][32 * 4];
};

template <int kBytes>
__global__ void cp_async_case(const uint32_t* in, uint32_t* out) {
  constexpr int kWords = kBytes / 4;
  auto& pieces = simt::shared<Pieces>();
  const int first = threadIdx.x * kWords;
  simt::cp_async<kBytes>(&pieces.word[0][first], in + first);
  simt::cp_async_commit();
  simt::cp_async<kBytes>(&pieces.word[1][first], in + 128 + first, threadIdx.x % 3 != 0);
  simt::cp_async_commit();
  simt::cp_async_wait<1>();
  for (int i = 0; i < kWords; ++i) out[first + i] = pieces.word[0][first + i];
  simt::cp_async_wait<0>();
  for (int i = 0; i < kWords; ++i) out[32 * kWords + first + i] = pieces.word[1][first + i];
}

__global__ void exp2_case(const uint32_t*, uint32_t* out) {
  const int lane = threadIdx.x;  // 2^-126 is the smallest normal number
  out[lane] = __float_as_uint(simt::exp2_approx(static_cast<float>(lane * 8 - 126)));
  out[32 + lane] = __float_as_uint(simt::exp2_approx(static_cast<float>(-127 - lane)));
  out[64 + lane] = __float_as_uint(simt::exp2_approx(static_cast<float>(128 + lane)));
}

__global__ void rcp_case(const uint32_t*, uint32_t* out) {
  const uint32_t exponent = threadIdx.x * 8 + 2;  // of a power of two
  out[threadIdx.x] = __float_as_uint(simt::rcp_approx(__uint_as_float(exponent << 23)));
}

__global__ void dependent_case(const uint32_t* in, uint32_t* out) {
  simt::griddepcontrol_wait();
  simt::griddepcontrol_launch_dependents();
  out[threadIdx.x] = in[31 - threadIdx.x] + 1;
}

struct Handover {
  uint32_t value[2][32];
};

// The first warp hands over without waiting, the second waits.
__global__ void barrier_case(const uint32_t* in, uint32_t* out) {
  auto& handover = simt::shared<Handover>();
  const int lane = threadIdx.x % 32;
  uint32_t sum = 0;
  for (int i = 0; i < 4; ++i) {
    if (threadIdx.x < 32) {
      if (i >= 2) simt::barrier_sync(3 + i % 2, kGroupThreads);  // the place is free again
      handover.value[i % 2][lane] = in[i * 32 + lane];
      simt::barrier_arrive(1 + i % 2, kGroupThreads);
    } else {
      simt::barrier_sync(1 + i % 2, kGroupThreads);
      sum = sum * 3 + handover.value[i % 2][31 - lane];
      if (i < 2) simt::barrier_arrive(3 + i % 2, kGroupThreads);
    }
  }
  if (threadIdx.x >= 32) out[lane] = sum;
}

struct Signal {
  uint32_t value[32];
  unsigned ready;
};

__global__ void spin_case(const uint32_t* in, uint32_t* out) {
  auto& signal = simt::shared<Signal>();
  const int lane = threadIdx.x % 32;
  if (threadIdx.x == 0) signal.ready = 0;
  __syncthreads();
  if (threadIdx.x < 32) {
    signal.value[lane] = in[lane] + 1;
    __threadfence_block();
    atomicAdd(&signal.ready, 1u);
  } else {
    while (atomicAdd(&signal.ready, 0u) != 32u) simt::spin_pause();
    __threadfence_block();
    out[lane] = signal.value[31 - lane];
  }
}

__global__ void vectors_case(const uint32_t* in, uint32_t* out) {
  const int t = threadIdx.x;
  const uint4 four = simt::load_as<uint4>(in + 4 * t);
  simt::store_as(out + 4 * t, uint4{four.w, four.x, four.z, four.y});
  const uint2 two = simt::load_as<uint2>(in + 128 + 2 * t);
  simt::store_as(out + 128 + 2 * t, uint2{two.y, two.x});
}

// Pieces of an arena are aligned as asked and apart. How far apart is the emulator's own affair.
__global__ void arena_case(const uint32_t* in, uint32_t* out) {
  simt::Arena<1024> arena;
  auto* bytes = arena.take<unsigned char>(33);
  auto* words = arena.take<uint32_t>(32);
  auto* far = arena.take<uint32_t>(16 * 1024, 1024);  // past the 48 KiB that need no permission
  const int t = threadIdx.x;
  bytes[t] = static_cast<unsigned char>(in[t]);
  words[t] = in[32 + t];
  for (int i = t; i < 16 * 1024; i += 32) far[i] = in[64] + static_cast<uint32_t>(i);
  __syncwarp();
  const uint32_t start = simt::shared_address(simt::dynamic_shared<1024>());
  out[t] = bytes[31 - t] + words[31 - t] + far[16 * 1024 - 1 - t];
  if (t == 0) {
    const uint32_t first = simt::shared_address(bytes), second = simt::shared_address(words);
    const uint32_t third = simt::shared_address(far);
    out[32] = start % 1024;
    out[33] = second % alignof(uint32_t);
    out[34] = third % 1024;
    out[35] = first + 33 <= second && second + 32 * sizeof(uint32_t) <= third;
  }
}

__global__ void reduce_case(const uint32_t*, uint32_t* out) {
  const int lane = threadIdx.x;
  out[lane] = __float_as_uint(simt::warp_sum(static_cast<float>(small(lane, 1) + lane)));
  out[32 + lane] = static_cast<uint32_t>(simt::warp_sum(small(lane, 2)));
  out[64 + lane] = __float_as_uint(simt::warp_max(static_cast<float>(small(lane, 4) - 100)));
}

// CUDA's own functions, which nvcc has and the emulator writes anew. Each result is a word of every lane.
constexpr unsigned kAll = 0xffffffffu;

class LaneWords {
 public:
  __device__ explicit LaneWords(uint32_t* out) : to_(out + threadIdx.x) {}
  __device__ void add(uint32_t word) {
    *to_ = word;
    to_ += 32;
  }
  // Any word: no result is the one that becomes ones.
  __device__ void add_bits(uint32_t word) { add(word ^ 0x5a5a5a5au); }
  template <class T>
  __device__ void add_signed(T word) {
    add(static_cast<uint32_t>(word) & 0x7fffffffu);  // a word of ones stands for what was not written
  }

 private:
  uint32_t* to_;
};

__global__ void shuffle_case(const uint32_t* in, uint32_t* out) {
  const int lane = threadIdx.x;
  const uint32_t value = in[lane];
  LaneWords words(out);
  for (int width = 32; width >= 8; width /= 4) {
    words.add(__shfl_sync(kAll, value, lane * 5 + 3, width));
    words.add(__shfl_up_sync(kAll, value, 3, width));
    words.add(__shfl_down_sync(kAll, value, 3, width));
    words.add(__shfl_xor_sync(kAll, value, 13, width));
  }
  const unsigned long long wide = static_cast<unsigned long long>(value) << 32 | static_cast<unsigned>(lane);
  const unsigned long long other = __shfl_xor_sync(kAll, wide, 1);
  words.add(static_cast<uint32_t>(other >> 32) ^ static_cast<uint32_t>(other));
  const unsigned half = lane < 16 ? 0xffffu : 0xffff0000u;
  words.add(__shfl_xor_sync(half, value, 8));
}

__global__ void vote_case(const uint32_t* in, uint32_t* out) {
  const int lane = threadIdx.x, number = small(lane, 5);
  const unsigned bits = in[lane] & 0x7fffffffu;
  LaneWords words(out);
  words.add(__ballot_sync(kAll, number > 0));
  words.add(static_cast<uint32_t>(__any_sync(kAll, number == 4) + 2 * __all_sync(kAll, number < 5) +
                                  4 * __any_sync(kAll, number == 5) + 8 * __all_sync(kAll, number < 4)));
  words.add(__match_any_sync(kAll, number));
  int same = 0, different = 1;
  words.add(__match_all_sync(kAll, lane / 32, &same) & 0x7fffffffu);
  words.add(__match_all_sync(kAll, number, &different));
  words.add(static_cast<uint32_t>(same + 2 * different));
  words.add(__reduce_add_sync(kAll, bits >> 8));
  words.add(__reduce_min_sync(kAll, bits));
  words.add(__reduce_max_sync(kAll, bits));
  words.add(__reduce_and_sync(kAll, bits | 0xffffu));
  words.add(__reduce_or_sync(kAll, bits & 0xffffu));
  words.add(__reduce_xor_sync(kAll, bits));
  words.add_signed(__reduce_add_sync(kAll, number));
  words.add_signed(__reduce_min_sync(kAll, number));
  words.add_signed(__reduce_max_sync(kAll, number));
}

struct Counters {
  unsigned u[8];
  int i[3];
  float f;
  unsigned long long wide;
};

// What is left does not depend on the order of the lanes.
__global__ void atomic_case(const uint32_t* in, uint32_t* out) {
  auto& c = simt::shared<Counters>();
  const int lane = threadIdx.x;
  if (lane < 8) c.u[lane] = lane < 3 ? 7u : lane == 3 ? 0x7fffffffu : 0u;
  if (lane < 3) c.i[lane] = 3;
  if (lane == 0) c.f = 0.5f, c.wide = 1ull << 40;
  __syncwarp();
  const unsigned old = atomicAdd(&c.u[0], 1u);
  atomicInc(&c.u[1], 20u);
  atomicDec(&c.u[2], 20u);
  atomicAnd(&c.u[3], in[lane] | 0xffff0000u);
  atomicOr(&c.u[4], in[lane] & 0xffffu);
  atomicXor(&c.u[5], in[lane] & 0x7fffffffu);
  if (lane == 9) atomicExch(&c.u[6], 77u);
  atomicCAS(&c.u[7], 0u, 5u);
  atomicMin(&c.i[0], small(lane, 1) * 10);
  atomicMax(&c.i[1], small(lane, 1) * 10);
  atomicSub(&c.i[2], lane);
  atomicAdd(&c.f, static_cast<float>(lane));
  atomicAdd(&c.wide, static_cast<unsigned long long>(lane) << 33);
  __syncwarp();
  LaneWords words(out);
  words.add(__reduce_add_sync(kAll, old));
  for (const unsigned value : c.u) words.add(value);
  for (const int value : c.i) words.add_signed(value);
  words.add(__float_as_uint(c.f));
  words.add(static_cast<uint32_t>(c.wide >> 32));
}

__global__ void integer_case(const uint32_t* in, uint32_t* out) {
  const int lane = threadIdx.x;
  const uint32_t a = in[lane], b = in[lane + 32];
  LaneWords words(out);
  words.add_signed(__byte_perm(a, b, 0x6420u + static_cast<unsigned>(lane % 8) * 0x1111u));
  words.add_signed(__funnelshift_l(a, b, static_cast<unsigned>(lane + 3)));
  words.add_signed(__funnelshift_r(a, b, static_cast<unsigned>(lane + 3)));
  words.add_signed(__brev(a));
  words.add_signed(__umulhi(a, b));
  words.add(static_cast<uint32_t>(__popc(a) + 64 * __clz(static_cast<int>(a >> lane)) +
                                  4096 * __ffs(static_cast<int>(a))));
  const float half = static_cast<float>(small(lane, 2)) + 0.5f;
  words.add_signed(__float2int_rn(half));
  words.add_signed(__float2int_rd(half));
  words.add_signed(__float2int_rz(half));
}

// Where operands leave the usual range.
__global__ void integer_edges_case(const uint32_t* in, uint32_t* out) {
  const int lane = threadIdx.x;
  const uint32_t a = in[lane], b = in[lane + 32];
  const auto far = static_cast<unsigned>(lane * 16);  // shifts from 0 to 496
  const int none = lane < 0;
  LaneWords words(out);
  words.add_bits(__byte_perm(a, b, in[lane + 64]));
  words.add_bits(__funnelshift_l(a, b, far));
  words.add_bits(__funnelshift_r(a, b, far));
  words.add_bits(__brev(0x80000000u >> lane));
  words.add_bits(__umulhi(0xffffffffu, 0xffffffffu - static_cast<unsigned>(lane)));
  words.add(static_cast<uint32_t>(__clz(none) + 100 * __ffs(none) + 10000 * __popc(0u - (lane == 1))));
  words.add(static_cast<uint32_t>(__clzll(static_cast<long long>(none)) +
                                  100 * __ffsll(static_cast<long long>(none))));
  words.add(static_cast<uint32_t>(__clzll(1ll << lane) + 100 * __ffsll(1ll << (2 * lane)) +
                                  10000 * __popcll(~0ull >> lane)));
  for (int width = 32; width >= 1; width /= 4) {
    words.add(__shfl_sync(kAll, a, -1 - lane, width));
    words.add(__shfl_up_sync(kAll, a, 33, width));
    words.add(__shfl_down_sync(kAll, a, 31, width));
    words.add(__shfl_xor_sync(kAll, a, 42, width));
  }
  const unsigned half = lane < 16 ? 0xffffu : 0xffff0000u;
  words.add_bits(__ballot_sync(half, lane % 3 == 0));
  words.add_bits(__match_any_sync(half, lane % 5));
  words.add_bits(__reduce_add_sync(half, a));
}

__global__ void atomic_edges_case(const uint32_t*, uint32_t* out) {
  auto& c = simt::shared<Counters>();
  const int lane = threadIdx.x;
  if (lane < 3) c.i[lane] = lane == 1 ? -0x7fffffff - 1 : 0x7fffffff;
  if (lane < 8) c.u[lane] = lane < 4 ? 1000u : 0xffffffffu;
  __syncwarp();
  if (lane == 0) {
    atomicAdd(&c.i[0], 2);
    atomicSub(&c.i[1], 1);
    atomicSub(&c.i[2], -1);
    atomicInc(&c.u[0], 999u);
    atomicInc(&c.u[1], 1000u);
    atomicInc(&c.u[2], 1001u);
    atomicDec(&c.u[3], 999u);
    atomicDec(&c.u[4], 0xffffffffu);
    atomicAdd(&c.u[5], 2u);
    atomicMax(&c.u[6], 1u);
    atomicMin(&c.u[7], 1u);
  }
  __syncwarp();
  LaneWords words(out);
  for (const unsigned value : c.u) words.add_bits(value);
  for (const int value : c.i) words.add_bits(static_cast<uint32_t>(value));
}

// Zeros, subnormals, halves, the ends of int, of bf16 and of half, infinities, NaN.
__device__ float edge(int i) {
  const uint32_t bits[16] = {0x00000000u, 0x00000001u, 0x007fffffu, 0x33000000u, 0x3f000000u, 0x3fc00000u,
                             0x3f808000u, 0x3f818000u, 0x477fefffu, 0x477ff000u, 0x4effffffu, 0x4f000000u,
                             0x7f7f7fffu, 0x7f7fffffu, 0x7f800000u, 0x7fc00000u};
  return __uint_as_float(bits[i % 16] | (i % 32 < 16 ? 0u : 0x80000000u));
}

__device__ uint32_t number_bits(float x) { return x == x ? __float_as_uint(x) : 0x7fffffffu; }

__global__ void float_edges_case(const uint32_t*, uint32_t* out) {
  const int lane = threadIdx.x;
  const float x = edge(lane), whole = static_cast<float>(lane + 2);
  const float lower = -0x1p18f, none = 0.0f * whole;
  LaneWords words(out);
  words.add_bits(static_cast<uint32_t>(__float2int_rn(x)));
  words.add_bits(static_cast<uint32_t>(__float2int_rd(x)));
  words.add_bits(static_cast<uint32_t>(__float2int_rz(x)));
  words.add_bits(number_bits(__saturatef(x)));
  for (int shift = 1; shift < 32; shift += 5) {
    words.add_bits(number_bits(max(x, edge(lane + shift))));
    words.add_bits(number_bits(min(x, edge(lane + shift))));
  }
  words.add_bits(number_bits(__fdividef(whole, lane % 2 ? 0x1.8p126f : -0x1p127f)) & 0x7fffffffu);
  words.add_bits(number_bits(__fdividef(edge(14), whole * 0x1p123f)));
  words.add_bits(number_bits(__powf(-whole, 2.0f)));
  words.add_bits(number_bits(__powf(none, none)));
  words.add_bits(number_bits(__frsqrt_rn(whole)));
  words.add_bits(number_bits(__fsqrt_rn(whole)));
  words.add_bits(number_bits(__frcp_rn(whole)));
  words.add_bits(pair(__bfloat16_as_ushort(__float2bfloat16_rn(x)), __half_as_ushort(__float2half_rn(x))));
  // 279 and 2115 are halfway between two numbers of bf16 and of half: less than a float's bit decides.
  const float tiny = lane % 2 ? 0.25f / lower : -0.25f / lower;
  const __nv_bfloat162 b =
      __hfma2(__floats2bfloat162_rn(9, x), __floats2bfloat162_rn(31, 2), __floats2bfloat162_rn(tiny, 1));
  const __half2 h = __hfma2(__floats2half2_rn(45, x), __floats2half2_rn(47, 2), __floats2half2_rn(tiny, 1));
  words.add_bits(pair(__bfloat16_as_ushort(b.x), __bfloat16_as_ushort(b.y)));
  words.add_bits(pair(__half_as_ushort(h.x), __half_as_ushort(h.y)));
}

using Kernel = void (*)(const uint32_t*, uint32_t*);

template <Kernel kKernel, int kThreads, size_t kSharedBytes = 0>
void launch_case(const uint32_t* in, uint32_t* out) {
  static_cast<void>(simt::launch(kKernel, dim3(1), dim3(kThreads), kSharedBytes, nullptr, in, out));
}

constexpr size_t kArenaBytes =
    simt::SharedLayout().add<unsigned char>(33).add<uint32_t>(32).add<uint32_t>(16 * 1024, 1024).bytes;

}  // namespace

const std::vector<GoldenCase>& golden_cases() {
  static const std::vector<GoldenCase> cases{
      {"ldmatrix_x1", "ldmatrix_x1 shared", 32, launch_case<ldmatrix_case<1, false>, 32>},
      {"ldmatrix_x2", "ldmatrix_x2", 64, launch_case<ldmatrix_case<2, false>, 32>},
      {"ldmatrix_x4", "ldmatrix_x4", 128, launch_case<ldmatrix_case<4, false>, 32>},
      {"ldmatrix_x1_trans", "ldmatrix_x1_trans", 32, launch_case<ldmatrix_case<1, true>, 32>},
      {"ldmatrix_x2_trans", "ldmatrix_x2_trans", 64, launch_case<ldmatrix_case<2, true>, 32>},
      {"ldmatrix_x4_trans", "ldmatrix_x4_trans", 128, launch_case<ldmatrix_case<4, true>, 32>},
      {"ldmatrix_x4_turned", "ldmatrix_x4", 128, launch_case<ldmatrix_turned_case<false>, 32>},
      {"ldmatrix_x4_trans_turned", "ldmatrix_x4_trans", 128, launch_case<ldmatrix_turned_case<true>, 32>},
      {"opaque", "opaque", 32, launch_case<opaque_case, 32>},
      {"mma_m16n8k16_bf16", "mma_m16n8k16_bf16", 128, launch_case<mma_case<true>, 32>},
      {"mma_m16n8k16_f16", "mma_m16n8k16_f16", 128, launch_case<mma_case<false>, 32>},
      {"cp_async_4", "cp_async cp_async_commit cp_async_wait", 64, launch_case<cp_async_case<4>, 32>},
      {"cp_async_8", "cp_async", 128, launch_case<cp_async_case<8>, 32>},
      {"cp_async_16", "cp_async", 256, launch_case<cp_async_case<16>, 32>},
      {"exp2_approx", "exp2_approx", 96, launch_case<exp2_case, 32>},
      {"rcp_approx", "rcp_approx", 32, launch_case<rcp_case, 32>},
      {"barriers", "barrier_sync barrier_arrive", 32, launch_case<barrier_case, kGroupThreads>},
      {"dependent", "griddepcontrol_wait griddepcontrol_launch_dependents", 32,
       launch_case<dependent_case, 32>},
      {"spin", "spin_pause", 32, launch_case<spin_case, kGroupThreads>},
      {"vectors", "load_as store_as", 192, launch_case<vectors_case, 32>},
      {"arena", "Arena dynamic_shared shared_address launch", 36, launch_case<arena_case, 32, kArenaBytes>},
      {"reductions", "", 96, launch_case<reduce_case, 32>},
      {"shuffles", "", 10 * 32, launch_case<shuffle_case, 32>},
      {"votes", "", 15 * 32, launch_case<vote_case, 32>},
      {"atomics", "", 14 * 32, launch_case<atomic_case, 32>},
      {"integers", "", 9 * 32, launch_case<integer_case, 32>},
      {"integer_edges", "", 23 * 32, launch_case<integer_edges_case, 32>},
      {"atomic_edges", "", 11 * 32, launch_case<atomic_edges_case, 32>},
      {"float_edges", "", 28 * 32, launch_case<float_edges_case, 32>},
  };
  return cases;
}

}  // namespace heed::testing

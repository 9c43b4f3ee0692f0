#include <heed/kernels/cuda/elementwise.cuh>
#include <heed/kernels/cuda/gemm/gemm.h>
#include <heed/kernels/recurrent.h>

namespace heed::cuda {
namespace {

using kernels::kKeptGates;
using kernels::RecurrentBackward;
using kernels::RecurrentForward;
using kernels::RecurrentRows;

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

__device__ __forceinline__ int64_t row_at(const RecurrentRows& rows, int64_t rank, int64_t t) {
  return rows.first[rank] + (rows.reverse ? rows.length[rank] - 1 - t : t);
}

// Cells of one step, after its product. The space is [active, width]; operands 1 and 2 are rank and unit.
template <class T>
struct ForwardOp {
  static constexpr int kOperands = 3, kWidth = 1;
  RecurrentForward<T> args;
  int64_t t;
  const float* product;  // [active, G * width]

  template <int>
  __device__ __forceinline__ void run(const int64_t (&at)[3], unsigned) const {
    const int64_t width = args.width, u = at[2], row = row_at(args.rows, at[1], t);
    const int64_t gates = args.kind == CellKind::lstm ? 4 : 3;
    const T* const x = args.gates + row * gates * width + u;
    const float* const p = product + at[1] * gates * width + u;
    const auto hidden = [&](int64_t gate) {
      const float bias = args.bias == nullptr ? 0.0f : static_cast<float>(args.bias[gate * width + u]);
      return p[gate * width] + bias;
    };
    const auto sum = [&](int64_t gate) { return static_cast<float>(x[gate * width]) + hidden(gate); };
    float kept[kKeptGates], h;
    kept[0] = sigmoid(sum(0));
    kept[1] = sigmoid(sum(1));
    if (args.kind == CellKind::lstm) {
      kept[2] = tanhf(sum(2));
      kept[3] = sigmoid(sum(3));
      const float c = kept[1] * static_cast<float>(args.c[at[0]]) + kept[0] * kept[2];
      h = kept[3] * tanhf(c);
      args.c[at[0]] = T(c);
      if (args.cells != nullptr) args.cells[row * width + u] = T(c);
    } else {
      kept[3] = hidden(2);
      kept[2] = tanhf(static_cast<float>(x[2 * width]) + kept[0] * kept[3]);
      h = kept[2] + kept[1] * (static_cast<float>(args.h[at[0]]) - kept[2]);
    }
    args.h[at[0]] = T(h);
    args.y[row * width + u] = T(h);
    if (args.kept == nullptr) return;
#pragma unroll
    for (int64_t i = 0; i < kKeptGates; ++i) args.kept[(row * kKeptGates + i) * width + u] = T(kept[i]);
  }
};

// Cells of one step, before its product. The space is the same.
template <class T>
struct BackwardOp {
  static constexpr int kOperands = 3, kWidth = 1;
  RecurrentBackward<T> args;
  int64_t t;
  T* compact;  // [active, G * width]: the gradient of p

  template <int>
  __device__ __forceinline__ void run(const int64_t (&at)[3], unsigned) const {
    const int64_t width = args.width, rank = at[1], u = at[2], row = row_at(args.rows, rank, t);
    const int64_t gates = args.kind == CellKind::lstm ? 4 : 3;
    const int64_t before = t == 0 ? at[0] : row_at(args.rows, rank, t - 1) * width + u;
    const T* const kept = args.kept + row * kKeptGates * width + u;
    const auto gate = [&](int64_t i) { return static_cast<float>(kept[i * width]); };
    const auto give = [&](int64_t i, float of_input, float of_product) {
      args.ggates[(row * gates + i) * width + u] = T(of_input);
      if (args.gproduct != nullptr) args.gproduct[(row * gates + i) * width + u] = T(of_product);
      compact[(rank * gates + i) * width + u] = T(of_product);
    };
    const auto through_sigmoid = [](float s, float g) { return g * (s * (1.0f - s)); };
    const auto through_tanh = [](float s, float g) { return g * (1.0f - s * s); };
    const T previous = (t == 0 ? args.h0 : args.y)[before];
    args.previous[row * width + u] = previous;
    float gh = args.gh[at[0]];
    if (args.gy != nullptr) gh += static_cast<float>(args.gy[row * width + u]);
    if (args.kind == CellKind::lstm) {
      const float i = gate(0), f = gate(1), g = gate(2), o = gate(3);
      const float s = tanhf(static_cast<float>(args.cells[row * width + u]));
      const float gc = args.gc[at[0]] + through_tanh(s, gh * o);
      const float cell = static_cast<float>((t == 0 ? args.c0 : args.cells)[before]);
      const float gi = through_sigmoid(i, gc * g), gf = through_sigmoid(f, gc * cell);
      const float gg = through_tanh(g, gc * i), go = through_sigmoid(o, gh * s);
      give(0, gi, gi);
      give(1, gf, gf);
      give(2, gg, gg);
      give(3, go, go);
      args.gc[at[0]] = gc * f;
    } else {
      const float r = gate(0), z = gate(1), n = gate(2), p = gate(3);
      const float gn = through_tanh(n, gh - gh * z), gr = through_sigmoid(r, gn * p);
      const float gz = through_sigmoid(z, gh * (static_cast<float>(previous) - n));
      give(0, gr, gr);
      give(1, gz, gz);
      give(2, gn, gn * r);
      args.gh[at[0]] = gh * z;
    }
  }
};

}  // namespace

template <class T>
void recurrent_forward(const RecurrentForward<T>& args) {
  constexpr const char* kWhat = "recurrent_forward";
  const int64_t width = args.width, all = gate_count(args.kind) * width;
  const Scratch scratch(static_cast<size_t>(args.rows.count * all) * sizeof(float));
  for (int64_t t = 0; t < args.rows.steps; ++t) {
    const int64_t active = args.rows.active[t];
    multiply(kWhat, FusedGemm<T, float>{.product = {.a = args.h,
                                                    .b = args.weight,
                                                    .c = scratch.as<float>(),
                                                    .m = active,
                                                    .n = all,
                                                    .k = width,
                                                    .lda = width,
                                                    .ldb = width,
                                                    .ldc = all,
                                                    .transpose_b = true},
                                        .bias = nullptr});
    elementwise(kWhat, ForwardOp<T>{args, t, scratch.as<float>()}, rows_and_columns(active, width));
  }
}

template <class T>
void recurrent_backward(const RecurrentBackward<T>& args) {
  constexpr const char* kWhat = "recurrent_backward";
  const int64_t width = args.width, all = gate_count(args.kind) * width;
  const Scratch scratch(static_cast<size_t>(args.rows.count * all) * sizeof(T));
  for (int64_t t = args.rows.steps; t-- > 0;) {
    const int64_t active = args.rows.active[t];
    elementwise(kWhat, BackwardOp<T>{args, t, scratch.as<T>()}, rows_and_columns(active, width));
    multiply(kWhat, FusedGemm<T, float>{.product = {.a = scratch.as<T>(),
                                                    .b = args.weight,
                                                    .c = args.gh,
                                                    .m = active,
                                                    .n = width,
                                                    .k = all,
                                                    .lda = all,
                                                    .ldb = width,
                                                    .ldc = width,
                                                    .accumulate = args.kind == CellKind::gru},
                                        .bias = nullptr});
  }
}

#define HEED_INSTANTIATE(T)                                       \
  template void recurrent_forward<T>(const RecurrentForward<T>&); \
  template void recurrent_backward<T>(const RecurrentBackward<T>&);
HEED_INSTANTIATE(float)
HEED_INSTANTIATE(bfloat16)
#undef HEED_INSTANTIATE

}  // namespace heed::cuda

// Linear layer with everything that follows it: bias, activation, dropout. Contract for both devices.
#pragma once

#include <cstdint>
#include <span>

#include <heed/core/base/cost.h>
#include <heed/core/base/dtype.h>
#include <heed/core/base/philox.h>
#include <heed/kernels/activation.h>
#include <heed/kernels/declare.h>
#include <heed/kernels/gemm.h>
#include <heed/kernels/packed_copies.h>

namespace heed::kernels {

template <class T>
struct LinearForward {   // y = dropout(f(x Wᵀ + bias))
  const T* x;            // [rows, in]
  const T* weight;       // [out, in]
  PackedCopies* copies;  // of weight's memory: it is read again and again; null: it is soon written to
  const T* bias;         // [out] or null
  Activation activation;
  Dropout dropout;    // element number row * out + column
  T* y;               // [rows, out]
  T* pre_activation;  // [rows, out], x Wᵀ + bias, which the backward of most activations needs; null if not
                      // wanted
  int64_t rows, in, out;

  Cost cost() const {
    return Cost{2.0 * static_cast<double>(rows * in * out), 0} +
           bytes_moved<T>(rows * in + in * out + rows * out * (pre_activation ? 2 : 1));
  }
};

/// Takes the gradient of y back through dropout and the activation, to that of x Wᵀ + bias.
template <class T>
struct LinearActivationBackward {
  const T* gy;     // [rows, out]
  const T* saved;  // [rows, out]: y after relu, pre_activation after others; null if activation is none
  Activation activation;
  Dropout dropout;          // relu takes the mask from y: what was dropped is 0
  T* gpre;                  // [rows, out]; may be gy; null if only the sums are wanted
  accumulator_t<T>* gbias;  // [out], sums of gpre over rows in fixed order; null if not wanted
  bool accumulate_bias;
  int64_t rows, out;

  Cost cost() const { return bytes_moved<T>(rows * out * (1 + (saved ? 1 : 0) + (gpre ? 1 : 0))); }
};

/// Takes the gradient of x Wᵀ + bias to those of bias, W and x, each where it is wanted.
template <class T>
struct LinearBackward {
  const T* g;               // [rows, out]
  accumulator_t<T>* gbias;  // [out], sums over rows in fixed order; null if not wanted
  bool accumulate_bias;
  const T* x;                 // [rows, in], with gweight
  accumulator_t<T>* gweight;  // [out, in]; null if not wanted
  bool accumulate_weight;
  const T* weight;  // [out, in], with gx
  T* gx;            // [rows, in]; null if not wanted
  bool accumulate_x;
  int64_t rows, in, out;

  LinearActivationBackward<T> bias_sums() const {
    return {.gy = g,
            .saved = nullptr,
            .activation = Activation::none,
            .dropout = {},
            .gpre = nullptr,
            .gbias = gbias,
            .accumulate_bias = accumulate_bias,
            .rows = rows,
            .out = out};
  }
  /// gweight (+)= gᵀ x
  Gemm<T, accumulator_t<T>> weight_product() const {
    return product(true, x, gweight, out, rows, accumulate_weight);
  }
  /// gx (+)= g W
  Gemm<T> input_product() const { return product(false, weight, gx, rows, out, accumulate_x); }

  Cost cost() const {
    Cost all = gbias ? bias_sums().cost() : Cost{};
    if (gweight) all = all + weight_product().cost();
    if (gx) all = all + input_product().cost();
    return all;
  }

 private:
  /// c [m, in] (+)= g b, or gᵀ b
  template <class C>
  Gemm<T, C> product(bool transposed, const T* b, C* c, int64_t m, int64_t k, bool accumulate) const {
    return {.a = g,
            .b = b,
            .c = c,
            .m = m,
            .n = in,
            .k = k,
            .lda = out,
            .ldb = in,
            .ldc = in,
            .transpose_a = transposed,
            .accumulate = accumulate};
  }
};

/// gweight (+)= gᵀ x and gbias (+)= the sums of g over rows, as linear_backward has them.
template <class T>
struct WeightProduct {
  const T* g;                 // [rows, out]
  const T* x;                 // [rows, in]
  accumulator_t<T>* gweight;  // [out, in]
  accumulator_t<T>* gbias;    // [out], or null
  bool accumulate_weight, accumulate_bias;
  int64_t rows, in, out;

  Cost cost() const {
    return Cost{2.0 * static_cast<double>(rows * in * out), 0} + bytes_moved<T>(rows * (in + out)) +
           bytes_moved<accumulator_t<T>>((accumulate_weight ? 2 : 1) * in * out);
  }
};

/// Outputs and inputs of a tile that one block sums, and how many tiles keep a GPU busy.
inline constexpr int64_t kWeightTile = 64, kWeightTiles = 132;

/// Many of them by one kernel. Each has one owner for every sum, so their order does not matter to the bits.
template <class T>
struct WeightProducts {
  std::span<const WeightProduct<T>> products;  // in the host's memory, until the call returns

  Cost cost() const {
    Cost all;
    for (const WeightProduct<T>& product : products) all = all + product.cost();
    return all;
  }
};

/// Whether a product has so few results that, alone, it would leave most of a GPU idle.
constexpr bool is_small_weight(int64_t rows, int64_t in, int64_t out) {
  constexpr int64_t kMaxRows = 4096, kMaxElements = int64_t{1} << 19;
  return rows <= kMaxRows && in > 0 && out <= kMaxElements / in;
}

}  // namespace heed::kernels

HEED_KERNEL(linear_forward, LinearForward);
HEED_KERNEL(linear_activation_backward, LinearActivationBackward);
HEED_KERNEL(linear_backward, LinearBackward);
HEED_KERNEL(weight_products, WeightProducts);  // CUDA alone

// Which of the CUDA kernels an attention takes: decided from its arguments alone, before anything is
// launched.
#pragma once

#include <type_traits>

#include <heed/kernels/attention.h>

namespace heed::cuda {

enum class AttentionPath {
  generic,          // everything, capped scores too, a warp a query: attention.cu, attention_backward.cu
  short_sequences,  // bf16, sequences that fit into a block: attention_short.cu
  flash,            // bf16, any length: attention_flash.cu, attention_flash_backward.cu
  hopper            // bf16, widths 64 and 128, devices of compute capability 9.0: hopper/
};

inline constexpr int kShortLength =
    128;  // queries and keys of a sequence that AttentionPath::short_sequences takes

// Of the longest sequence: queries and keys that are worth tiles of 128, and keys from which on it costs less
// to add up the gradients of queries in memory than to make products twice.
inline constexpr int kHopperLength = 96, kHopperSummedKeys = 257;

/// Whether rows of each head can be read 16 bytes at a time, and 32 bits hold how far they are apart; a null
/// view can.
template <class T>
bool has_aligned_rows(const kernels::HeadsView<T>& view) {
  constexpr int64_t kElements = 16 / sizeof(T);
  return reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && view.row_stride % kElements == 0 &&
         view.head_stride % kElements == 0 && view.row_stride == static_cast<int32_t>(view.row_stride);
}

/// For the width and lengths of Args, whose views are all aligned or not.
template <class Args>
AttentionPath attention_path_of(const Args& args, bool aligned) {
  const int64_t w = args.width;
  if (!aligned || args.logit_cap != 0 || !(w == 16 || w == 32 || w == 64 || w == 128))
    return AttentionPath::generic;
  // Tiles of the flash kernels are blocks of a pattern; where queries follow cached keys, blocks lie across
  // them.
  if (args.visibility.blocks.given())
    return is_bottom_right(args.visibility.causal) ? AttentionPath::generic : AttentionPath::flash;
  const bool is_short = args.segments.max_query <= kShortLength && args.segments.max_key <= kShortLength;
  return is_short && w <= 64 ? AttentionPath::short_sequences : AttentionPath::flash;
}

/// Of the current device: 80 for 8.0.
int compute_capability();

/// What the kernels for Hopper take in place of others for bf16: nothing is added to the scores or dropped,
/// each query sees a range of keys, and sequences are not so short that a tile would hold mostly nothing.
template <class Args>
bool is_for_hopper(const Args& args) {
  const auto& b = args.bias;
  const Visibility& v = args.visibility;
  const bool bare = b.bias == nullptr && b.mask == nullptr && b.alibi_slopes == nullptr &&
                    b.relative == nullptr && !args.dropout.active();
  const bool ranges = v.dilation <= 1 && v.global_tokens == 0 && v.causal != Causal::none_bottom_right &&
                      !args.visibility.blocks.given();
  const bool filled = args.width == 128 || (args.width == 64 && args.segments.max_query >= kHopperLength &&
                                            args.segments.max_key >= kHopperLength);
  return bare && ranges && filled && args.query_rows > 0 && args.key_rows > 0 && compute_capability() == 90;
}

/// `path`, or that for Hopper. Gradients of queries are summed in places that follow from the sequences'
/// order.
template <class Args>
AttentionPath on_hopper(AttentionPath path, const Args& args) {
  if (path == AttentionPath::generic || !is_for_hopper(args)) return path;
  if constexpr (requires { args.gq; })
    if (!args.segments.in_order || args.segments.max_key < kHopperSummedKeys) return AttentionPath::flash;
  return AttentionPath::hopper;
}

template <class T>
AttentionPath attention_path(const kernels::AttentionForward<T>& args) {
  if (!std::is_same_v<T, bfloat16>) return AttentionPath::generic;
  return on_hopper(attention_path_of(args, has_aligned_rows(args.q) && has_aligned_rows(args.k) &&
                                               has_aligned_rows(args.v) && has_aligned_rows(args.out)),
                   args);
}

/// Gradients of biases are left to the generic kernels.
template <class T>
AttentionPath attention_path(const kernels::AttentionBackward<T>& args) {
  if (!std::is_same_v<T, bfloat16> || args.gbias != nullptr || args.grelative != nullptr)
    return AttentionPath::generic;
  return on_hopper(attention_path_of(args, has_aligned_rows(args.q) && has_aligned_rows(args.k) &&
                                               has_aligned_rows(args.v) && has_aligned_rows(args.out) &&
                                               has_aligned_rows(args.gout) && has_aligned_rows(args.gq) &&
                                               has_aligned_rows(args.gk) && has_aligned_rows(args.gv)),
                   args);
}

// What the paths but the generic one launch; there are queries and keys' heads to launch for. `what` names
// the operation for messages.
void short_attention_forward(const char* what, const kernels::AttentionForward<bfloat16>& args);
void short_attention_backward(const char* what, const kernels::AttentionBackward<bfloat16>& args);
void flash_attention_forward(const char* what, const kernels::AttentionForward<bfloat16>& args);
void flash_attention_backward(const char* what, const kernels::AttentionBackward<bfloat16>& args);
namespace hopper {
void attention_forward(const char* what, const kernels::AttentionForward<bfloat16>& args);
void attention_backward(const char* what, const kernels::AttentionBackward<bfloat16>& args);
}  // namespace hopper

}  // namespace heed::cuda

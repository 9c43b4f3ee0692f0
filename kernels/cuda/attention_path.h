// Which of the CUDA kernels an attention takes: decided from its arguments alone, before anything is
// launched.
#pragma once

#include <type_traits>

#include <heed/kernels/attention.h>

namespace heed::cuda {

enum class AttentionPath {
  generic,          // everything, a warp a query: attention.cu, attention_backward.cu
  short_sequences,  // bf16, sequences that fit into a block: attention_short.cu
  flash             // bf16, any length: attention_flash.cu, attention_flash_backward.cu
};

inline constexpr int kShortLength =
    128;  // queries and keys of a sequence that AttentionPath::short_sequences takes

/// Whether rows of each head can be read 16 bytes at a time; a null view can.
template <class T>
bool has_aligned_rows(const kernels::HeadsView<T>& view) {
  constexpr int64_t kElements = 16 / sizeof(T);
  return reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && view.row_stride % kElements == 0 &&
         view.head_stride % kElements == 0;
}

/// For the width and lengths of Args, whose views are all aligned or not.
template <class Args>
AttentionPath attention_path_of(const Args& args, bool aligned) {
  const int64_t w = args.width;
  if (!aligned || !(w == 16 || w == 32 || w == 64 || w == 128)) return AttentionPath::generic;
  const bool is_short = args.segments.max_query <= kShortLength && args.segments.max_key <= kShortLength;
  return is_short && w <= 64 ? AttentionPath::short_sequences : AttentionPath::flash;
}

template <class T>
AttentionPath attention_path(const kernels::AttentionForward<T>& args) {
  if (!std::is_same_v<T, bfloat16>) return AttentionPath::generic;
  return attention_path_of(args, has_aligned_rows(args.q) && has_aligned_rows(args.k) &&
                                     has_aligned_rows(args.v) && has_aligned_rows(args.out));
}

/// Gradients of biases are left to the generic kernels.
template <class T>
AttentionPath attention_path(const kernels::AttentionBackward<T>& args) {
  if (!std::is_same_v<T, bfloat16> || args.gbias != nullptr || args.grelative != nullptr)
    return AttentionPath::generic;
  return attention_path_of(args, has_aligned_rows(args.q) && has_aligned_rows(args.k) &&
                                     has_aligned_rows(args.v) && has_aligned_rows(args.out) &&
                                     has_aligned_rows(args.gout) && has_aligned_rows(args.gq) &&
                                     has_aligned_rows(args.gk) && has_aligned_rows(args.gv));
}

// What the paths but the generic one launch; there are queries and keys' heads to launch for. `what` names
// the operation for messages.
void short_attention_forward(const char* what, const kernels::AttentionForward<bfloat16>& args);
void short_attention_backward(const char* what, const kernels::AttentionBackward<bfloat16>& args);
void flash_attention_forward(const char* what, const kernels::AttentionForward<bfloat16>& args);
void flash_attention_backward(const char* what, const kernels::AttentionBackward<bfloat16>& args);

}  // namespace heed::cuda

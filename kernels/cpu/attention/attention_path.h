// The map of attention on the CPU: which loops compute it, and what chooses.
//
// The first row that applies (attention_path() decides for a call, attends_one_query() within `vectors`;
// docs/kernels/cpu_attention.md explains):
//
//   path       when                                                             where
//   amx        f32, bf16; the processor has AMX; width a multiple of 32;        attention_forward_amx-inl.h
//              both lengths from 65 (f32) or 48 (bf16) on; no logit_cap         attention_backward_amx-inl.h
//   vectors    one query, no dropout, no log-sum-exp asked for: decoding        attention_one-inl.h
//   vectors    all others, blocks of 64 queries by 64 keys                      attention_forward-inl.h
//                                                                               attention_backward-inl.h
//
// Blocks that hold what AMX cannot multiply exactly (infinities, NaN) go by vectors within amx, too.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <heed/core/base/segments.h>
#include <heed/kernels/attention.h>
#include <heed/kernels/cpu/attention/attention_blocking.h>
#include <heed/kernels/cpu/gemm/amx.h>
#include <heed/kernels/cpu/gemm/gemm_path.h>

namespace heed::cpu {

enum class AttentionPath : uint8_t { amx, vectors };

/// For forward and backward alike: products in AMX pay where the sequences are long enough to pack.
template <class T>
AttentionPath attention_path(const kernels::AttentionScores<T>& args) {
  constexpr int64_t kMinTokens = std::is_same_v<T, bfloat16> ? 48 : kKeyBlock + 1;
  const bool amx = !std::is_same_v<T, double> && args.width % kAmxDepth == 0 && args.logit_cap == 0 &&
                   amx_enabled() && std::min(args.segments.max_query, args.segments.max_key) >= kMinTokens;
  return amx ? AttentionPath::amx : AttentionPath::vectors;
}

template <class T>
bool attends_one_query(const kernels::AttentionForward<T>& args, const BatchHead& p) {
  return p.queries == 1 && !args.lse && !args.dropout.active();
}

}  // namespace heed::cpu

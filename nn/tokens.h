// A batch of token sequences.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <heed/core/segments.h>
#include <heed/core/tensor.h>

namespace heed::nn {

/// Ids in rows, and which rows belong to which sequence. Rows outside the segments hold kNoToken.
struct Tokens {
  Tensor ids;             // i64 [rows]
  Segments segments;      // queries and keys are the same rows
  Tensor positions = {};  // each row's position in its sequence, i64 [rows]; undefined: position_ids()

  /// `positions`, or else position_ids() of the segments.
  Tensor row_positions() const;

  /// The sequences one after another, without padding.
  static Tokens packed(const std::vector<std::vector<int64_t>>& sequences, Device device = kCpu);
  /// From a padded matrix i64 [sequences, length] of which the first lengths[i] ids of row i count.
  /// ShapeError where the numbers do not fit.
  static Tokens dense(const Tensor& ids, std::span<const int32_t> lengths);
  /// All ids count.
  static Tokens dense(const Tensor& ids);
};

/// Each row's position in its sequence, i64 [rows]; 0 outside the segments. Made on the host: StateError for
/// segments that a device alone knows.
Tensor position_ids(const Segments& segments, int64_t rows, Device device);

}  // namespace heed::nn

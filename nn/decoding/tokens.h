// A batch of token sequences.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include <heed/core/base/philox.h>
#include <heed/core/generator.h>
#include <heed/core/segments.h>
#include <heed/core/tensor.h>

namespace heed::nn {

/// Ids in rows, and which rows belong to which sequence. Rows outside the segments hold kNoToken.
struct Tokens {
  Tensor ids;             // i64 [rows]
  Segments segments;      // queries and keys are the same rows
  Tensor positions = {};  // each row's position in its sequence, i64 [rows]; undefined: position_ids()
  int64_t range = 0;      // positions are less than this; 0: than the longest sequence's length

  /// `positions`, or else position_ids() of the segments.
  Tensor row_positions() const;
  /// Positions are less than this: `range`, or more where a sequence is longer.
  int64_t position_end() const { return std::max<int64_t>(range, segments.max_query()); }

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

/// Fills `positions` with different numbers of [0, range) in rising order, so that a model trained with them
/// knows the positions of sequences longer than any it saw (Ruoss et al., arXiv 2305.16843). They are drawn
/// from a window whose width, from their number to `range`, and place are drawn first: some stand close and
/// some far apart, and 0, 1, 2, …, which a trained model is used with, are among the choices (the paper's
/// window is always the whole range, and its models need random positions in use too). Follows from `random`
/// and `sequence` alone. ShapeError where the range is too small.
void draw_positions(std::span<int64_t> positions, int64_t range, const PhiloxState& random,
                    int64_t sequence = 0);
/// The tokens with positions drawn for each sequence, on the device of the ids. StateError for segments that
/// a device alone knows.
Tokens with_random_positions(Tokens tokens, int64_t range, Generator& generator = default_generator());

}  // namespace heed::nn

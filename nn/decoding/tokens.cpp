#include <numeric>

#include <heed/core/base/check.h>
#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/kernels/embedding.h>
#include <heed/nn/decoding/tokens.h>

namespace heed::nn {

Tokens Tokens::packed(const std::vector<std::vector<int64_t>>& sequences, Device device) {
  PooledVector<int64_t> ids;
  PooledVector<int32_t> lengths;
  for (const std::vector<int64_t>& sequence : sequences) {
    ids.insert(ids.end(), sequence.begin(), sequence.end());
    lengths.push_back(static_cast<int32_t>(sequence.size()));
  }
  const auto rows = static_cast<int64_t>(ids.size());
  return {tensor(ids, {rows}, device), Segments::packed(lengths)};
}

Tokens Tokens::dense(const Tensor& ids, std::span<const int32_t> lengths) {
  HEED_CHECK(ids.rank() == 2, ShapeError, "Tokens::dense: ids must be [sequences, length], got ",
             ids.shape());
  HEED_CHECK(static_cast<int64_t>(lengths.size()) == ids.size(0), ShapeError,
             "Tokens::dense: ", lengths.size(), " lengths for ids of shape ", ids.shape());
  const Tensor rows = ids.to(kCpu).clone().reshape({ids.numel()});
  int64_t* row = rows.data<int64_t>();
  for (int64_t i = 0; i < ids.size(0); ++i) {
    const int64_t length = lengths[static_cast<size_t>(i)];
    HEED_CHECK(length >= 0 && length <= ids.size(1), ShapeError, "Tokens::dense: length ", length,
               " of sequence ", i, " is not in [0, ", ids.size(1), "]");
    std::fill(row + i * ids.size(1) + length, row + (i + 1) * ids.size(1), kNoToken);
  }
  return {rows.to(ids.device()), Segments::dense(ids.size(0), ids.size(1), lengths)};
}

Tokens Tokens::dense(const Tensor& ids) {
  HEED_CHECK(ids.rank() == 2, ShapeError, "Tokens::dense: ids must be [sequences, length], got ",
             ids.shape());
  return {ids.reshape({ids.numel()}), Segments::dense(ids.size(0), ids.size(1))};
}

Tensor Tokens::row_positions() const {
  return positions.defined() ? positions : position_ids(segments, ids.numel(), ids.device());
}

Tensor position_ids(const Segments& segments, int64_t rows, Device device) {
  const Tensor positions = zeros({rows}, {DType::i64, kCpu});
  int64_t* position = positions.data<int64_t>();
  for (int64_t i = 0; i < segments.count(); ++i) {
    int64_t* first = position + segments.query_first(i);
    std::iota(first, first + segments.query_length(i), int64_t{0});
  }
  return positions.to(device);
}

void draw_positions(std::span<int64_t> positions, int64_t range, const PhiloxState& random,
                    int64_t sequence) {
  const auto count = std::ssize(positions);
  HEED_CHECK(count <= range, ShapeError, "draw_positions: ", count, " different positions below ", range);
  const uint64_t offset = random.position();
  uint32_t draws = 0;
  const auto below = [&](int64_t n) {
    const Philox4 drawn = philox(draws++, static_cast<uint32_t>(sequence), static_cast<uint32_t>(offset),
                                 static_cast<uint32_t>(offset >> 32), static_cast<uint32_t>(random.seed),
                                 static_cast<uint32_t>(random.seed >> 32));
    return static_cast<int64_t>((uint64_t{drawn.word[0]} * static_cast<uint64_t>(n)) >> 32);
  };
  const int64_t width = count + below(range - count + 1), begin = below(range - width + 1);
  // Each number of the window is chosen with the share of those left that are still wanted (Knuth's algorithm
  // S).
  auto next = positions.begin();
  for (int64_t number = 0, wanted = count; wanted > 0; ++number) {
    if (below(width - number) >= wanted) continue;
    *next++ = begin + number;
    --wanted;
  }
}

Tokens with_random_positions(Tokens tokens, int64_t range, Generator& generator) {
  const Tensor positions = zeros({tokens.ids.numel()}, {DType::i64, kCpu});
  const PhiloxState random = generator.next();
  for (int64_t i = 0; i < tokens.segments.count(); ++i)
    draw_positions({positions.data<int64_t>() + tokens.segments.query_first(i),
                    static_cast<size_t>(tokens.segments.query_length(i))},
                   range, random, i);
  tokens.positions = positions.to(tokens.ids.device());
  tokens.range = range;
  return tokens;
}

}  // namespace heed::nn

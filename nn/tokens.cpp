#include <numeric>

#include <heed/core/base/check.h>
#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/kernels/embedding.h>
#include <heed/nn/tokens.h>

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

}  // namespace heed::nn

// Packed batches of pairs.
#pragma once

#include <memory>

#include <heed/data/loader.h>
#include <heed/data/pair_batch.h>
#include <heed/data/pair_dataset.h>

namespace heed::data {

/// A loader whose batches are packed, without padding. max_tokens counts the rows of sources and targets
/// together; windows are sorted by the length of the target, then of the source.
class PairLoader : public Loader<Pair, PairBatch> {
 public:
  /// `marks` are added to each pair. Errors as Loader's.
  PairLoader(const std::shared_ptr<const PairDataset>& dataset, const LoaderOptions& options,
             Marks marks = {}, LoaderState start = {});
};

}  // namespace heed::data

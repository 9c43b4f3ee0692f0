#include <heed/data/pair_loader.h>

namespace heed::data {
namespace {

Collate<Pair, PairBatch> packing(const PairDataset* dataset, Marks marks) {
  return {.batch = [marks](std::span<const Pair> pairs,
                           std::span<const int64_t> numbers) { return pack(pairs, numbers, marks); },
          .size =
              [marks](const Pair& pair) {
                return SampleSize{source_rows(pair, marks) + target_rows(pair, marks),
                                  {std::ssize(pair.target), std::ssize(pair.source)}};
              },
          .most_rows = dataset ? dataset->longest_source() + (marks.source ? 2 : 0) +
                                     dataset->longest_target() + marks.end
                               : 0};
}

}  // namespace

PairLoader::PairLoader(const std::shared_ptr<const PairDataset>& dataset, const LoaderOptions& options,
                       Marks marks, LoaderState start)
    : Loader(dataset, packing(dataset.get(), marks), options, start) {}

}  // namespace heed::data

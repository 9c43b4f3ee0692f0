#include "bench/pair_batches.h"

#include <optional>
#include <string>
#include <vector>

#include <heed/core/io/atomic_file.h>

#include "apps/common/json_lines.h"

namespace heed::bench {
namespace {

apps::Json rows(const data::TokenIds& ids, const data::Sequences& sequences) {
  apps::Json result = apps::Json::array();
  for (size_t i = 0; i < sequences.first.size(); ++i) {
    const auto first = ids.begin() + sequences.first[i];
    result.push_back(std::vector<int64_t>(first, first + sequences.length[i]));
  }
  return result;
}

}  // namespace

void write_batches(data::PairLoader& loader, int64_t count, const std::filesystem::path& file) {
  std::string lines;
  loader.seek({0, 0});
  for (int64_t written = 0; written < count;) {
    const std::optional<data::PairBatch> batch = loader.next();
    if (!batch) continue;  // an epoch has ended
    lines += apps::json_line({{"source", rows(batch->source_ids, batch->source)},
                              {"target", rows(batch->target_ids, batch->target)},
                              {"labels", rows(batch->labels, batch->target)}});
    lines += '\n';
    ++written;
  }
  write_whole_file(file.string(), lines);
}

}  // namespace heed::bench

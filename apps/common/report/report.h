// A training run as one HTML file that needs nothing else: apps/common/report/report.html with the run's data
// in it.
#pragma once

#include <filesystem>

#include "apps/common/json_lines.h"

namespace heed::apps {

/// Writes the report, whole or not at all. Texts are shown as they are, whatever is in them. `data` holds:
///   title, subtitle     texts
///   result              {loss, token_accuracy, sequence_accuracy, pairs}; null before the run has ended
///   epochs              the lines of metrics.jsonl: {epoch, step, loss, lr, grad_norm, …}
///   steps               [[step, loss, lr, grad_norm], …]
///   settings            [[name, value], …]
///   components          [[name, count], …]
///   parameters          [[name, shape, count], …]
///   attention           [{title, kinds: [{name, queries, keys, layers}]}]: texts for rows and columns, and
///                       layers[i][head][query][key] from 0 to 1
///   examples, failures  [{source, target, output, finished, right}], lists of texts or numbers
/// IoError.
void write_report(const std::filesystem::path& file, const Json& data);

}  // namespace heed::apps

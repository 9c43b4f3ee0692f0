// The paragraphs of a folder's texts as vectors, kept on disk and brought up to date.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <heed/core/tensor.h>

#include "apps/common/text_files.h"

namespace heed::apps {

/// Texts to vectors of length 1, f32 [texts, width].
using Encode = std::function<Tensor(const std::vector<std::string>& texts)>;

/// Where a vector's text stands.
struct Place {
  int64_t file = 0;  ///< in SearchIndex::files
  int64_t first_line = 0, last_line = 0;
};

struct SearchIndex {
  std::vector<FileStamp> files;
  std::vector<Place> places;
  Tensor vectors;  ///< f32 [places, width]
  Tensor probe;    ///< f32 [1, width], by which the model that made the vectors is known again

  int64_t size() const { return std::ssize(places); }
};

/// What an update did.
struct UpdateReport {
  int64_t added = 0, changed = 0, removed = 0;  ///< files
  int64_t paragraphs = 0;                       ///< that were encoded
  int64_t passed_over = 0;                      ///< files that are no texts
};

/// Called with how many of how many paragraphs are done; what it throws ends the update.
using UpdateProgress = std::function<void(int64_t done, int64_t all)>;

/// Encodes the paragraphs of files that are new or have changed, and forgets those of files that are not
/// there any more. An index of another model is made anew. If anything throws, the index stays as it was.
UpdateReport update(SearchIndex& index, const std::filesystem::path& folder,
                    const std::vector<std::string>& extensions, const Encode& encode,
                    const UpdateProgress& progress = {});

struct Hit {
  int64_t place;  ///< in SearchIndex::places
  double score;   ///< the cosine
};

/// The places whose vectors are the nearest to a query's, f32 [1, width], best first.
std::vector<Hit> nearest(const SearchIndex& index, const Tensor& query, int64_t count);

/// The line of a paragraph that is the nearest to a query.
struct BestLine {
  int64_t line = 0;  ///< 0: the text is not there any more
  std::string text;
};
BestLine best_line(const std::filesystem::path& file, const Place& place, const Tensor& query,
                   const Encode& encode);

/// An index that is not there is empty. CheckpointError for a file that is none, IoError.
SearchIndex load_index(const std::filesystem::path& file);
/// Whole or not at all. IoError.
void save_index(const SearchIndex& index, const std::filesystem::path& file);

}  // namespace heed::apps

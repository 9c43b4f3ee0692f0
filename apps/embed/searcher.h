// A folder's index and the encoder that made it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "apps/embed/commands.h"
#include "apps/embed/index.h"

namespace heed::apps {

/// A paragraph that was found.
struct Answer {
  double score = 0;  ///< the cosine
  std::string file;  ///< in the folder
  Place place;
  BestLine best;
};

/// What is found of it: {"score", "file", "line", "first_line", "last_line", "text"}.
Json to_json(const Answer& answer);

class Searcher {
 public:
  /// Takes the folder from the settings' words. ConfigError, DataError where there is none; errors as of
  /// open_encoder().
  explicit Searcher(const SearchSettings& settings);

  /// Reads the index, brings it up to date with the folder and writes it, with progress on standard error.
  /// Errors as of load_index(), update() and save_index().
  void bring_up_to_date();

  /// The paragraphs whose vectors are the nearest to a question's, f32 [1, width].
  std::vector<Answer> find(const Tensor& query, int64_t top) const;
  /// Vectors of texts, f32 [texts, width].
  Tensor encode(const std::vector<std::string>& texts) const { return encoder_.encode(texts); }

  const nn::SentenceEncoder& encoder() const { return encoder_; }
  const std::filesystem::path& folder() const { return folder_; }
  int64_t paragraphs() const { return index_.size(); }
  int64_t files() const { return std::ssize(index_.files); }

 private:
  const SearchSettings& settings_;
  std::filesystem::path folder_, file_;
  nn::SentenceEncoder encoder_;
  SearchIndex index_;
};

}  // namespace heed::apps

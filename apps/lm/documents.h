// The documents of a training: read, divided, and some held back for validation.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apps/lm/train_settings.h"

namespace heed::apps {

struct Documents {
  std::vector<std::string> train, valid;
  int64_t passed_over = 0;  // files of a folder that are no UTF-8 texts
};

/// A text as documents: itself, what blank lines separate, or its lines; none is empty.
std::vector<std::string> divide(std::string_view text, DocumentUnit unit);

/// Holds documents back. By hash: those whose SHA-256 falls into that share, so that equal ones stay
/// together and none changes sides when others come; by tail: the last, so that they have that share of the
/// bytes, where one is cut at the end of a line, if it has any. DataError where a side is empty.
Documents split_documents(std::vector<std::string> documents, double valid_share, Split split);

/// The documents of a file, or of all texts of a folder in the order of their paths. IoError, DataError.
std::vector<std::string> read_documents(const std::filesystem::path& path, DocumentUnit unit);

/// Of all.
int64_t count_characters(const std::vector<std::string>& documents);

/// --data and --valid: files, or all texts of folders in the order of their paths. IoError, DataError.
Documents read_documents(const DocumentSettings& settings);

}  // namespace heed::apps

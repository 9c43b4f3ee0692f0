#include "apps/lm/documents.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include <heed/core/base/check.h>
#include <heed/core/io/file.h>
#include <heed/core/io/sha256.h>

#include "apps/common/text.h"
#include "apps/common/text_files.h"

namespace heed::apps {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxBytes = int64_t{1} << 32;  // of a file
constexpr size_t kManyDocuments = 100;

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r\f\v") == std::string_view::npos; }

/// Calls f(line) for each line, without its end.
template <class F>
void for_each_line(std::string_view text, F&& f) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    f(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

void append(std::vector<std::string>& documents, std::string_view text, DocumentUnit unit) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  for (std::string& document : divide(text, unit)) documents.push_back(std::move(document));
}

std::string read_file(const fs::path& file) {
  std::string text = read_whole_file(file.string(), kMaxBytes);
  const std::optional<size_t> invalid = invalid_utf8(text);
  HEED_CHECK(!invalid, DataError, file.string(), " is not UTF-8 (byte ", *invalid + 1, ")");
  return text;
}

std::vector<std::string> read_all(const fs::path& path, DocumentUnit unit, int64_t& passed_over) {
  std::vector<std::string> documents;
  if (!fs::is_directory(path)) {
    append(documents, read_file(path), unit);
  } else {
    for (const FileStamp& file : list_text_files(path, {}, kMaxBytes)) {
      if (const std::optional<std::string> text = read_text(path / file.path, kMaxBytes))
        append(documents, *text, unit);
      else
        ++passed_over;
    }
  }
  HEED_CHECK(!documents.empty(), DataError, path.string(), " holds no text");
  return documents;
}

// From 0 to 1, by the document's content alone.
double place_of(const std::string& document) {
  const Sha256::Digest digest = sha256(document.data(), document.size());
  uint64_t bits = 0;
  std::memcpy(&bits, digest.data(), sizeof(bits));
  return std::ldexp(static_cast<double>(bits), -64);
}

// Where a document is cut so that at least `bytes` are before: after a line, else before a character.
size_t cut_after(std::string_view document, size_t bytes) {
  const size_t line = document.find('\n', bytes);
  if (line != std::string_view::npos && line + 1 < document.size()) return line + 1;
  while (bytes < document.size() && (static_cast<unsigned char>(document[bytes]) & 0xc0) == 0x80) ++bytes;
  return bytes;
}

Documents split_tail(std::vector<std::string> documents, double valid_share) {
  size_t total = 0;
  for (const std::string& document : documents) total += document.size();
  auto room = static_cast<size_t>(static_cast<double>(total) * (1 - valid_share));
  Documents result;
  for (std::string& document : documents) {
    const size_t cut = document.size() <= room ? document.size() : room > 0 ? cut_after(document, room) : 0;
    room = cut < document.size() ? 0 : room - std::min(room, document.size());
    if (cut < document.size()) result.valid.push_back(document.substr(cut));
    document.resize(cut);
    if (cut > 0) result.train.push_back(std::move(document));
  }
  return result;
}

}  // namespace

std::vector<std::string> divide(std::string_view text, DocumentUnit unit) {
  std::vector<std::string> documents;
  if (unit == DocumentUnit::file) {
    if (!text.empty()) documents.emplace_back(text);
    return documents;
  }
  std::string paragraph;
  const auto end_paragraph = [&] {
    if (!paragraph.empty()) documents.push_back(std::move(paragraph));
    paragraph.clear();
  };
  for_each_line(text, [&](std::string_view line) {
    if (is_blank(line)) return end_paragraph();
    if (!paragraph.empty()) paragraph += '\n';
    paragraph += line;
    if (unit == DocumentUnit::line) end_paragraph();
  });
  end_paragraph();
  return documents;
}

Documents split_documents(std::vector<std::string> documents, double valid_share, Split split) {
  if (valid_share == 0) return {std::move(documents), {}, 0};
  if (split == Split::automatic) split = documents.size() >= kManyDocuments ? Split::hash : Split::tail;
  Documents result;
  if (split == Split::tail) {
    result = split_tail(std::move(documents), valid_share);
  } else {
    for (std::string& document : documents)
      (place_of(document) < valid_share ? result.valid : result.train).push_back(std::move(document));
  }
  HEED_CHECK(!result.train.empty() && !result.valid.empty(), DataError, "of the text, ", result.train.size(),
             " documents are for training and ", result.valid.size(), " for validation; set --valid-share ",
             "otherwise", split == Split::hash ? ", or --split tail" : "");
  return result;
}

std::vector<std::string> read_documents(const fs::path& path, DocumentUnit unit) {
  int64_t passed_over = 0;
  return read_all(path, unit, passed_over);
}

int64_t count_characters(const std::vector<std::string>& documents) {
  int64_t count = 0;
  for (const std::string& document : documents)
    for_each_character(document, [&](std::string_view) { ++count; });
  return count;
}

Documents read_documents(const DocumentSettings& s) {
  int64_t passed_over = 0;
  std::vector<std::string> all = read_all(s.data, s.unit, passed_over);
  Documents result = s.valid.empty() ? split_documents(std::move(all), s.valid_share, s.split)
                                     : Documents{std::move(all), {}, 0};
  if (!s.valid.empty()) result.valid = read_all(s.valid, s.unit, passed_over);
  result.passed_over = passed_over;
  return result;
}

}  // namespace heed::apps

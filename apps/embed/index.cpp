#include "apps/embed/index.h"

#include <algorithm>
#include <map>

#include <heed/core/base/text.h>
#include <heed/core/ops.h>

#include "apps/embed/paragraphs.h"

namespace heed::apps {
namespace {

constexpr int64_t kTogether = 1024;  // paragraphs encoded between two looks at the clock and at signals

Tensor probe_of(const Encode& encode) {
  return encode({"A ship sails by the stars; this sentence tells one model from another."});
}

// Another instruction set or element type makes small differences, another model large ones.
bool is_same_model(const Tensor& a, const Tensor& b) {
  constexpr double kNear = 0.99;
  return a.defined() && b.defined() && a.shape() == b.shape() && sum(a * b).item<double>() > kNear;
}

// A file's paragraphs that are to be encoded.
struct Pending {
  int64_t file;
  std::vector<Paragraph> paragraphs;
};

Tensor encode_all(const std::vector<Pending>& pending, const Encode& encode, const UpdateProgress& progress) {
  std::vector<std::string> texts;
  for (const Pending& each : pending)
    for (const Paragraph& p : each.paragraphs) texts.push_back(p.text);
  std::vector<Tensor> parts;
  for (int64_t first = 0; first < std::ssize(texts); first += kTogether) {
    const int64_t last = std::min(first + kTogether, std::ssize(texts));
    if (progress) progress(first, std::ssize(texts));
    parts.push_back(encode({texts.begin() + first, texts.begin() + last}));
  }
  if (progress) progress(std::ssize(texts), std::ssize(texts));
  return parts.empty() ? Tensor() : cat(parts, 0);
}

std::vector<std::string> lines_of(const std::string& text, const Place& place) {
  std::vector<std::string> lines;
  int64_t number = 0;
  for (const std::string_view line : split(text, '\n'))
    if (++number >= place.first_line && number <= place.last_line) lines.emplace_back(line);
  return lines;
}

}  // namespace

UpdateReport update(SearchIndex& index, const std::filesystem::path& folder,
                    const std::vector<std::string>& extensions, const Encode& encode,
                    const UpdateProgress& progress) {
  const Tensor probe = probe_of(encode);
  const bool same = is_same_model(index.probe, probe);
  std::map<std::string, int64_t> known;
  if (same)
    for (int64_t i = 0; i < std::ssize(index.files); ++i) known[index.files[static_cast<size_t>(i)].path] = i;

  SearchIndex next;
  next.probe = probe;
  next.files = list_text_files(folder, extensions);
  UpdateReport report;
  std::map<int64_t, int64_t> kept;  // files that have not changed: their old number to the new one
  std::vector<Pending> pending;
  for (int64_t i = 0; i < std::ssize(next.files); ++i) {
    const FileStamp& file = next.files[static_cast<size_t>(i)];
    const auto found = known.find(file.path);
    if (found != known.end() && index.files[static_cast<size_t>(found->second)] == file) {
      kept[found->second] = i;
      continue;
    }
    ++(found == known.end() ? report.added : report.changed);
    const std::optional<std::string> text = read_text(folder / file.path);
    if (text)
      pending.push_back({i, split_paragraphs(*text)});
    else
      ++report.passed_over;
  }
  report.removed = std::ssize(index.files) - std::ssize(kept) - report.changed;
  if (same && report.added + report.changed + report.removed == 0) return report;

  std::vector<int64_t> rows;  // of the old vectors that stay
  for (int64_t p = 0; p < (same ? index.size() : 0); ++p) {
    const Place& place = index.places[static_cast<size_t>(p)];
    const auto file = kept.find(place.file);
    if (file == kept.end()) continue;
    rows.push_back(p);
    next.places.push_back({file->second, place.first_line, place.last_line});
  }
  std::vector<Tensor> vectors;
  if (!rows.empty()) vectors.push_back(index_select(index.vectors, tensor(rows, {std::ssize(rows)})));
  if (const Tensor fresh = encode_all(pending, encode, progress); fresh.defined()) vectors.push_back(fresh);
  for (const Pending& each : pending) {
    for (const Paragraph& p : each.paragraphs) next.places.push_back({each.file, p.first_line, p.last_line});
    report.paragraphs += std::ssize(each.paragraphs);
  }
  next.vectors = vectors.empty() ? zeros({0, probe.size(1)}) : cat(vectors, 0);
  index = std::move(next);
  return report;
}

std::vector<Hit> nearest(const SearchIndex& index, const Tensor& query, int64_t count) {
  count = std::min(count, index.size());
  std::vector<Hit> hits;
  if (count == 0) return hits;
  const NoGrad no_grad;
  const auto [scores, places] = topk(matmul(query, index.vectors.transpose(0, 1)), count);
  for (int64_t i = 0; i < count; ++i)
    hits.push_back(
        {places.select(0, 0).select(0, i).item<int64_t>(), scores.select(0, 0).select(0, i).item<double>()});
  return hits;
}

BestLine best_line(const std::filesystem::path& file, const Place& place, const Tensor& query,
                   const Encode& encode) {
  const std::optional<std::string> text = read_text(file);
  if (!text) return {};
  const std::vector<std::string> lines = lines_of(*text, place);
  std::vector<std::string> texts;
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].find_first_not_of(" \t\r") == std::string::npos) continue;
    texts.push_back(lines[i]);
    numbers.push_back(place.first_line + static_cast<int64_t>(i));
  }
  if (texts.empty()) return {};
  int64_t best = 0;
  if (texts.size() > 1) best = argmax(matmul(encode(texts), query.transpose(0, 1)), 0).item<int64_t>();
  return {numbers[static_cast<size_t>(best)], texts[static_cast<size_t>(best)]};
}

}  // namespace heed::apps

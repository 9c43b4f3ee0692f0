#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <heed/core/base/check.h>
#include <heed/core/base/memory/pooled_vector.h>
#include <heed/core/base/threads/parallel_for.h>
#include <heed/core/io/sha256.h>
#include <heed/core/io/unnamed_file.h>
#include <heed/data/text/text_dataset.h>

namespace heed::data {
namespace {

/// Numbers appended one after another, and then read anywhere: in memory, or with a folder in a file there.
template <class T>
class NumberStore {
 public:
  explicit NumberStore(const std::string& folder) {
    if (!folder.empty()) file_.emplace(folder);
  }
  void append(std::span<const T> numbers) {
    if (file_)
      file_->append(std::as_bytes(numbers));
    else
      numbers_.insert(numbers_.end(), numbers.begin(), numbers.end());
    size_ += std::ssize(numbers);
  }
  void finish() {
    if (file_) file_->flush();
  }
  int64_t size() const { return size_; }
  void read(int64_t first, std::span<T> out) const {
    if (file_)
      file_->read_at(static_cast<uint64_t>(first) * sizeof(T), std::as_writable_bytes(out));
    else
      std::copy_n(numbers_.begin() + first, out.size(), out.begin());
  }
  /// The first `count`.
  void update(Sha256& hash, int64_t count) const {
    std::vector<T> part(1 << 16);
    for (int64_t first = 0; first < count; first += std::ssize(part)) {
      part.resize(static_cast<size_t>(std::min(count - first, std::ssize(part))));
      read(first, part);
      hash.update(part.data(), part.size() * sizeof(T));
    }
  }

 private:
  std::vector<T> numbers_;
  std::optional<UnnamedFile> file_;
  int64_t size_ = 0;
};

constexpr int64_t kTogether = 4096;  // pairs tokenized at a time
constexpr int64_t kGrain = 64;       // by one thread

}  // namespace

struct detail::EncodedTexts {
  EncodedTexts(int64_t vocab_size, const std::string& folder)
      : vocab(vocab_size), symbols(folder), first(folder) {
    mark();
  }

  int64_t size() const { return first.size() / 2; }

  void append(const TokenIds& ids) {
    narrow.assign(ids.begin(), ids.end());
    symbols.append(narrow);
    mark();
  }

  void mark() {
    const int64_t end = symbols.size();
    first.append({&end, 1});
  }

  int64_t vocab, longest_source = 0, longest_target = 0, too_long = 0;
  NumberStore<int32_t> symbols;  // of all sources and targets, in the order of the pairs
  NumberStore<int64_t> first;    // where source 0, target 0, source 1, … begin in `symbols`, and their end
  std::vector<int32_t> narrow;
  std::string fingerprint;
};

TextDatasetBuilder::TextDatasetBuilder(const Tokenizer& source, const Tokenizer& target, int64_t max_tokens,
                                       const std::string& folder)
    : source_(source),
      target_(target),
      max_tokens_(max_tokens),
      texts_(std::make_unique<detail::EncodedTexts>(std::max(source.vocab(), target.vocab()), folder)) {}

TextDatasetBuilder::~TextDatasetBuilder() = default;

void TextDatasetBuilder::add(std::string source, std::string target) {
  waiting_.add(std::move(source), std::move(target));
  if (waiting_.size() == kTogether) encode();
}

void TextDatasetBuilder::encode() {
  const auto count = static_cast<size_t>(waiting_.size());
  std::vector<TokenIds> from(count), to(count);
  parallel_for(waiting_.size(), kGrain, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      from[i] = source_.encode(waiting_.sources[i]);
      to[i] = target_.encode(waiting_.targets[i]);
    }
  });
  waiting_ = {};
  for (size_t i = 0; i < count; ++i) {
    if (max_tokens_ > 0 && std::max(std::ssize(from[i]), std::ssize(to[i])) > max_tokens_) {
      ++texts_->too_long;
      continue;
    }
    texts_->append(from[i]);
    texts_->append(to[i]);
    texts_->longest_source = std::max<int64_t>(texts_->longest_source, std::ssize(from[i]));
    texts_->longest_target = std::max<int64_t>(texts_->longest_target, std::ssize(to[i]));
  }
}

TextDataset TextDatasetBuilder::finish() {
  encode();
  texts_->symbols.finish();
  texts_->first.finish();
  Sha256 hash;
  texts_->first.update(hash, 2 * texts_->size());
  texts_->symbols.update(hash, texts_->symbols.size());
  texts_->fingerprint = "text " + to_hex(hash.finish());
  return TextDataset(std::move(texts_));
}

TextDataset::TextDataset(const TextPairs& pairs, const Tokenizer& source, const Tokenizer& target,
                         int64_t max_tokens) {
  TextDatasetBuilder builder(source, target, max_tokens);
  for (size_t i = 0; i < pairs.sources.size(); ++i) builder.add(pairs.sources[i], pairs.targets[i]);
  texts_ = std::move(builder.finish().texts_);
}

TextDataset::TextDataset(std::unique_ptr<detail::EncodedTexts> texts) : texts_(std::move(texts)) {}
TextDataset::TextDataset(TextDataset&&) noexcept = default;
TextDataset::~TextDataset() = default;

int64_t TextDataset::size() const { return texts_->size(); }
int64_t TextDataset::vocab() const { return texts_->vocab; }
int64_t TextDataset::longest_source() const { return texts_->longest_source; }
int64_t TextDataset::longest_target() const { return texts_->longest_target; }
std::string TextDataset::fingerprint() const { return texts_->fingerprint; }
int64_t TextDataset::too_long() const { return texts_->too_long; }

Pair TextDataset::get(int64_t, int64_t index) const {
  HEED_CHECK(index >= 0 && index < size(), IndexError, "pair ", index, " is not in 0 to ", size() - 1);
  std::array<int64_t, 3> at;
  texts_->first.read(2 * index, at);
  PooledVector<int32_t> ids(static_cast<size_t>(at[2] - at[0]));
  texts_->symbols.read(at[0], ids);
  const auto target = ids.begin() + (at[1] - at[0]);
  return {TokenIds(ids.begin(), target), TokenIds(target, ids.end())};
}

}  // namespace heed::data

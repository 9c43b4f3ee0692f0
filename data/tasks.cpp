#include <algorithm>
#include <limits>
#include <set>

#include <heed/core/base/check.h>
#include <heed/data/detail/task_draw.h>
#include <heed/data/tasks.h>

namespace heed::data {
namespace {

using detail::TaskDraw;

constexpr int64_t kMaxLength = 1 << 16;
constexpr uint32_t kAttempts = 4096;  // to draw a training source; one in eight fails

TaskDraw draw_of(const TaskOptions& options, Split split, int64_t epoch, int64_t index, uint32_t attempt) {
  return {options.seed, static_cast<uint32_t>(epoch) << 1 | (split == Split::valid), index, attempt};
}

TokenIds draw_source(const TaskOptions& options, TaskDraw draw) {
  return options.task.draw(options.min_length, options.max_length, options.vocab, options.last_digit_first,
                           draw);
}

/// One source in eight is for validation, by a hash (FNV-1a with a final mix) that depends on nothing else.
bool is_validation(const TokenIds& source) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const int64_t symbol : source) hash = (hash ^ static_cast<uint64_t>(symbol)) * 0x100000001b3u;
  hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccdu;
  hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53u;
  return hash >> 61 == 0;
}

void check_options(const TaskOptions& options) {
  const auto range = [](const char* option, int64_t value, int64_t least, int64_t most) {
    HEED_CHECK(value >= least && value <= most, ConfigError, option, " is ", value, "; expected ", least,
               " to ", most);
  };
  range("min_length", options.min_length, 1, kMaxLength);
  range("max_length", options.max_length, 1, kMaxLength);
  HEED_CHECK(options.min_length <= options.max_length, ConfigError, "min_length ", options.min_length,
             " exceeds max_length ", options.max_length);
  HEED_CHECK(
      options.vocab >= options.task.least_vocab() && options.vocab <= std::numeric_limits<int32_t>::max(),
      ConfigError, "vocab is ", options.vocab, "; task ", options.task.name(), " needs at least ",
      options.task.vocab_text());
  HEED_CHECK(!options.last_digit_first || options.task.has_numbers(), ConfigError, "task ",
             options.task.name(), " has no numbers whose digits could be written from the last to the first");
  options.task.longest_source(options.max_length, options.vocab);  // throws if there are too few symbols
  range("pairs", options.pairs, 1, int64_t{1} << 40);
  range("valid_pairs", options.valid_pairs, 0, int64_t{1} << 20);
}

int64_t different_sources(const TaskOptions& options) {
  return options.task.sources(options.min_length, options.max_length, options.vocab);
}

}  // namespace

TaskDataset::TaskDataset(const TaskOptions& options, Split split) : options_(options), split_(split) {
  check_options(options);
  if (split == Split::valid) {
    choose_validation_draws();
  } else {
    training_source(0, 0);  // throws if validation leaves nothing
  }
}

bool TaskDataset::belongs(const TokenIds& source) const {
  return options_.valid_pairs == 0 || is_validation(source) == (split_ == Split::valid);
}

void TaskDataset::choose_validation_draws() {
  const int64_t wanted = options_.valid_pairs;
  const int64_t most = 64 * wanted + 10'000;  // eight draws a source where there are plenty
  std::set<TokenIds> seen;
  for (int64_t draw = 0; draw < most && size_t(wanted) > draws_.size(); ++draw) {
    TokenIds source = draw_source(options_, draw_of(options_, Split::valid, 0, draw, 0));
    if (belongs(source) && seen.insert(std::move(source)).second) draws_.push_back(draw);
  }
  HEED_CHECK(static_cast<int64_t>(draws_.size()) == wanted, ConfigError,
             "too few different sources for valid_pairs = ", wanted, ": found ", draws_.size(), " in ", most,
             " draws; task ", options_.task.name(), " with lengths ", options_.min_length, " to ",
             options_.max_length, " and vocab ", options_.vocab, " has ", different_sources(options_),
             " sources, an eighth of them for validation; ask for fewer, or for longer sources");
}

TokenIds TaskDataset::training_source(int64_t epoch, int64_t index) const {
  const int64_t stream = options_.fresh ? epoch : 0;
  for (uint32_t attempt = 0; attempt < kAttempts; ++attempt) {
    TokenIds source = draw_source(options_, draw_of(options_, Split::train, stream, index, attempt));
    if (belongs(source)) return source;
  }
  throw ConfigError(concat("too few different sources: none is left for training; task ",
                           options_.task.name(), " with lengths ", options_.min_length, " to ",
                           options_.max_length, " and vocab ", options_.vocab, " has ",
                           different_sources(options_), " sources; allow longer ones"));
}

Pair TaskDataset::get(int64_t epoch, int64_t index) const {
  HEED_CHECK(index >= 0 && index < size(), IndexError, "pair ", index, " is not in 0 to ", size() - 1);
  HEED_CHECK(epoch >= 0 && epoch < int64_t{1} << 31, IndexError, "epoch ", epoch, " is not in 0 to 2^31 - 1");
  Pair pair;
  pair.source =
      split_ == Split::train
          ? training_source(epoch, index)
          : draw_source(options_, draw_of(options_, Split::valid, 0, draws_[static_cast<size_t>(index)], 0));
  pair.target = options_.task.solve(pair.source, options_.vocab, options_.last_digit_first);
  return pair;
}

int64_t TaskDataset::longest_source() const {
  return options_.task.longest_source(options_.max_length, options_.vocab);
}

int64_t TaskDataset::longest_target() const { return options_.task.longest_target(options_.max_length); }

std::string TaskDataset::fingerprint() const {
  return concat("task=", options_.task.name(), " split=", split_ == Split::train ? "train" : "valid",
                " length=", options_.min_length, "..", options_.max_length, " vocab=", options_.vocab,
                " pairs=", size(), " held_out=", options_.valid_pairs > 0, " fresh=", options_.fresh,
                " seed=", options_.seed, options_.last_digit_first ? " last_digit_first" : "");
}

}  // namespace heed::data

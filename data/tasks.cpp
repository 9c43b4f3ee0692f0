#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <utility>

#include <heed/core/base/check.h>
#include <heed/core/base/philox.h>
#include <heed/data/tasks.h>

namespace heed::data {
namespace {

constexpr std::array<std::pair<const char*, Task>, 5> kNames{{{"copy_reverse", Task::copy_reverse},
                                                              {"copy", Task::copy},
                                                              {"reverse", Task::reverse},
                                                              {"sort", Task::sort},
                                                              {"add", Task::add}}};
constexpr int64_t kPlus = kFirstSymbol + 10;
constexpr int64_t kMaxLength = 1 << 16;
constexpr uint32_t kAttempts = 4096;           // to draw a training source; one in eight fails
constexpr uint64_t kKey = 0x7461736b64617461;  // parts this stream from others of the same seed

/// The stream of random numbers behind one drawn source.
class Draw {
 public:
  Draw(uint64_t seed, Split split, int64_t epoch, int64_t index, uint32_t attempt)
      : key_(seed ^ kKey),
        index_(static_cast<uint64_t>(index)),
        epoch_(static_cast<uint32_t>(epoch) << 1 | (split == Split::valid)),
        attempt_(attempt << 18) {}

  /// A number from 0 to n - 1, n < 2^32. Its bias, below n / 2^32, is far from measurable here.
  int64_t below(int64_t n) {
    if (used_ == 4) {
      block_ = philox(attempt_ | next_++, epoch_, static_cast<uint32_t>(index_),
                      static_cast<uint32_t>(index_ >> 32), static_cast<uint32_t>(key_),
                      static_cast<uint32_t>(key_ >> 32));
      used_ = 0;
    }
    return static_cast<int64_t>((uint64_t{block_.word[used_++]} * static_cast<uint64_t>(n)) >> 32);
  }

 private:
  uint64_t key_;
  uint64_t index_;
  uint32_t epoch_;
  uint32_t attempt_;
  uint32_t next_ = 0;  // block of this draw; 4 * 2^18 numbers are enough for the longest source
  Philox4 block_{};
  int used_ = 4;
};

void append_number(Symbols& source, int64_t digits, Draw& draw) {
  for (int64_t i = 0; i < digits; ++i)
    source.push_back(kFirstSymbol + (i == 0 && digits > 1 ? 1 + draw.below(9) : draw.below(10)));
}

Symbols draw_source(const TaskOptions& options, Draw draw) {
  const int64_t lengths = options.max_length - options.min_length + 1;
  Symbols source;
  if (options.task == Task::add) {
    append_number(source, options.min_length + draw.below(lengths), draw);
    source.push_back(kPlus);
    append_number(source, options.min_length + draw.below(lengths), draw);
    return source;
  }
  source.resize(static_cast<size_t>(options.min_length + draw.below(lengths)));
  for (int64_t& symbol : source) symbol = kFirstSymbol + draw.below(options.vocab - kFirstSymbol);
  return source;
}

/// One source in eight is for validation, by a hash (FNV-1a with a final mix) that depends on nothing else.
bool is_validation(const Symbols& source) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const int64_t symbol : source) hash = (hash ^ static_cast<uint64_t>(symbol)) * 0x100000001b3u;
  hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccdu;
  hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53u;
  return hash >> 61 == 0;
}

Symbols add(const Symbols& source) {
  const auto plus = std::find(source.begin(), source.end(), kPlus);
  const auto is_digit = [](int64_t symbol) { return symbol >= kFirstSymbol && symbol < kFirstSymbol + 10; };
  HEED_CHECK(plus != source.begin() && plus != source.end() && plus + 1 != source.end() &&
                 std::all_of(source.begin(), plus, is_digit) && std::all_of(plus + 1, source.end(), is_digit),
             DataError, "task add: a source is digits (3 to 12), plus (13) and digits");
  Symbols sum;
  auto a = std::make_reverse_iterator(plus);
  auto b = source.rbegin();
  const auto a_end = source.rend();
  const auto b_end = std::make_reverse_iterator(plus + 1);
  int64_t carry = 0;
  while (a != a_end || b != b_end || carry > 0) {
    if (a != a_end) carry += *a++ - kFirstSymbol;
    if (b != b_end) carry += *b++ - kFirstSymbol;
    sum.push_back(kFirstSymbol + carry % 10);
    carry /= 10;
  }
  while (sum.size() > 1 && sum.back() == kFirstSymbol)
    sum.pop_back();  // leading zeros of hand-written sources
  std::reverse(sum.begin(), sum.end());
  return sum;
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
  const bool adds = options.task == Task::add;
  HEED_CHECK(options.vocab >= (adds ? kPlus : kFirstSymbol) + 1 &&
                 options.vocab <= std::numeric_limits<int32_t>::max(),
             ConfigError, "vocab is ", options.vocab, "; task ", name(options.task), " needs at least ",
             adds ? "14 (pad, start, end, ten digits and plus)" : "4 (pad, start, end and one symbol)");
  range("pairs", options.pairs, 1, int64_t{1} << 40);
  range("valid_pairs", options.valid_pairs, 0, int64_t{1} << 20);
}

/// How many different sources there are, for a message; at most 2^62.
int64_t different_sources(const TaskOptions& options) {
  constexpr int64_t kMany = int64_t{1} << 62;
  const auto times = [](int64_t a, int64_t b) { return a > kMany / b ? kMany : a * b; };
  const bool adds = options.task == Task::add;
  const int64_t symbols = adds ? 10 : options.vocab - kFirstSymbol;
  int64_t total = 0;
  for (int64_t length = options.min_length; length <= options.max_length && total < kMany; ++length) {
    int64_t count = adds && length > 1 ? 9 : symbols;
    for (int64_t i = 1; i < length && count < kMany && symbols > 1; ++i) count = times(count, symbols);
    total = std::min(kMany, total + count);
  }
  return adds ? times(total, total) : total;
}

}  // namespace

const char* name(Task task) {
  for (const auto& entry : kNames)
    if (entry.second == task) return entry.first;
  return "?";
}

Task parse_task(std::string_view text) {
  for (const auto& entry : kNames)
    if (text == entry.first) return entry.second;
  throw ConfigError(concat("unknown task '", text, "'; expected copy_reverse, copy, reverse, sort or add"));
}

Symbols solve(Task task, const Symbols& source) {
  Symbols target = source;
  switch (task) {
    case Task::copy:
      break;
    case Task::copy_reverse:
      target.insert(target.end(), source.rbegin(), source.rend());
      break;
    case Task::reverse:
      std::reverse(target.begin(), target.end());
      break;
    case Task::sort:
      std::sort(target.begin(), target.end());
      break;
    case Task::add:
      return add(source);
  }
  return target;
}

TaskDataset::TaskDataset(const TaskOptions& options, Split split) : options_(options), split_(split) {
  check_options(options);
  if (split == Split::valid) {
    choose_validation_draws();
  } else {
    training_source(0, 0);  // throws if validation leaves nothing
  }
}

bool TaskDataset::belongs(const Symbols& source) const {
  return options_.valid_pairs == 0 || is_validation(source) == (split_ == Split::valid);
}

void TaskDataset::choose_validation_draws() {
  const int64_t wanted = options_.valid_pairs;
  const int64_t most = 64 * wanted + 10'000;  // eight draws a source where there are plenty
  std::set<Symbols> seen;
  for (int64_t draw = 0; draw < most && size_t(wanted) > draws_.size(); ++draw) {
    Symbols source = draw_source(options_, Draw(options_.seed, Split::valid, 0, draw, 0));
    if (belongs(source) && seen.insert(std::move(source)).second) draws_.push_back(draw);
  }
  HEED_CHECK(static_cast<int64_t>(draws_.size()) == wanted, ConfigError,
             "too few different sources for valid_pairs = ", wanted, ": found ", draws_.size(), " in ", most,
             " draws; task ", name(options_.task), " with lengths ", options_.min_length, " to ",
             options_.max_length, " and vocab ", options_.vocab, " has ", different_sources(options_),
             " sources, an eighth of them for validation; ask for fewer, or for longer sources");
}

Symbols TaskDataset::training_source(int64_t epoch, int64_t index) const {
  const int64_t stream = options_.fresh ? epoch : 0;
  for (uint32_t attempt = 0; attempt < kAttempts; ++attempt) {
    Symbols source = draw_source(options_, Draw(options_.seed, Split::train, stream, index, attempt));
    if (belongs(source)) return source;
  }
  throw ConfigError(concat("too few different sources: none is left for training; task ", name(options_.task),
                           " with lengths ", options_.min_length, " to ", options_.max_length, " and vocab ",
                           options_.vocab, " has ", different_sources(options_),
                           " sources; allow longer ones"));
}

Pair TaskDataset::get(int64_t epoch, int64_t index) const {
  HEED_CHECK(index >= 0 && index < size(), IndexError, "pair ", index, " is not in 0 to ", size() - 1);
  HEED_CHECK(epoch >= 0 && epoch < int64_t{1} << 31, IndexError, "epoch ", epoch, " is not in 0 to 2^31 - 1");
  Pair pair;
  pair.source = split_ == Split::train ? training_source(epoch, index)
                                       : draw_source(options_, Draw(options_.seed, Split::valid, 0,
                                                                    draws_[static_cast<size_t>(index)], 0));
  pair.target = solve(options_.task, pair.source);
  return pair;
}

int64_t TaskDataset::longest_source() const {
  return options_.task == Task::add ? 2 * options_.max_length + 1 : options_.max_length;
}

int64_t TaskDataset::longest_target() const {
  if (options_.task == Task::copy_reverse) return 2 * options_.max_length;
  return options_.task == Task::add ? options_.max_length + 1 : options_.max_length;
}

std::string TaskDataset::fingerprint() const {
  return concat("task=", name(options_.task), " split=", split_ == Split::train ? "train" : "valid",
                " length=", options_.min_length, "..", options_.max_length, " vocab=", options_.vocab,
                " pairs=", size(), " held_out=", options_.valid_pairs > 0, " fresh=", options_.fresh,
                " seed=", options_.seed);
}

}  // namespace heed::data

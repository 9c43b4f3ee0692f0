// Tercom's search, with its limits and its order of preference, as sacrebleu has them: scores depend on both.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <heed/core/base/check.h>
#include <heed/data/text/metrics/detail/ter_edits.h>

namespace heed::data::detail {
namespace {

constexpr int64_t kMaxMovedWords = 10, kMaxDistance = 50, kMaxCandidates = 1000;
constexpr double kBeamWidth = 25;
constexpr int32_t kUnreachable = 1 << 30;

enum class Edit : uint8_t { none, keep, replace, insert, remove };

struct Cell {
  int32_t cost = kUnreachable;
  Edit last = Edit::none;

  void offer(int32_t other, Edit edit) {
    if (other < cost) *this = {other, edit};
  }
};

// The cells of one prefix of the hypothesis, from `first` on; the others cannot be reached.
struct Row {
  int64_t first = 0;
  std::vector<Cell> cells;

  Cell at(int64_t j) const {
    const int64_t place = j - first;
    return place >= 0 && place < static_cast<int64_t>(cells.size()) ? cells[static_cast<size_t>(place)]
                                                                    : Cell{};
  }
};

// What the cheapest edits make of each word.
struct Alignment {
  std::vector<int64_t>
      word_before;  // of each reference word: its word of the hypothesis, or the last before it; -1
  std::vector<bool> reference_wrong, hypothesis_wrong;
};

// Edit distances between the prefixes of two sequences, near the diagonal.
class EditTable {
 public:
  EditTable(std::u32string_view reference, size_t length)
      : reference_(reference),
        length_(static_cast<int64_t>(length)),
        ratio_(length > 0 ? static_cast<double>(reference.size()) / static_cast<double>(length) : 1),
        beam_(
            static_cast<int64_t>(kBeamWidth < ratio_ / 2 ? std::ceil(ratio_ / 2 + kBeamWidth) : kBeamWidth)),
        rows_(length + 1) {
    for (size_t j = 0; j <= reference.size(); ++j)
      rows_[0].cells.push_back({static_cast<int32_t>(j), Edit::insert});
  }

  void fill(std::u32string_view hypothesis) {
    for (size_t i = 1; i < rows_.size(); ++i)
      fill_row(static_cast<int64_t>(i), hypothesis, rows_[i - 1], rows_[i]);
  }

  int64_t distance() const { return rows_.back().cells.back().cost; }

  /// Of another hypothesis, which has its first `same` words in common with the one that filled the table.
  int64_t distance_of(std::u32string_view hypothesis, size_t same) {
    const Row* above = &rows_[same];
    for (size_t i = same + 1; i < rows_.size(); ++i) {
      Row& row = scratch_[i % 2];
      fill_row(static_cast<int64_t>(i), hypothesis, *above, row);
      above = &row;
    }
    return above->cells.back().cost;
  }

  Alignment alignment() const;

 private:
  void fill_row(int64_t i, std::u32string_view hypothesis, const Row& above, Row& row) const;

  std::u32string_view reference_;
  int64_t length_;
  double ratio_;
  int64_t beam_;
  std::vector<Row> rows_;
  Row scratch_[2];
};

void EditTable::fill_row(int64_t i, std::u32string_view hypothesis, const Row& above, Row& row) const {
  const int64_t all = static_cast<int64_t>(reference_.size()) + 1;
  const int64_t diagonal = static_cast<int64_t>(std::floor(static_cast<double>(i) * ratio_));
  const int64_t end = i == length_ ? all : std::min(all, diagonal + beam_);
  const char32_t word = hypothesis[static_cast<size_t>(i - 1)];
  row.first = std::max<int64_t>(0, diagonal - beam_);
  row.cells.clear();
  for (int64_t j = row.first; j < end; ++j) {
    Cell cell;
    if (j > 0) {
      const bool same = word == reference_[static_cast<size_t>(j - 1)];
      cell.offer(above.at(j - 1).cost + (same ? 0 : 1), same ? Edit::keep : Edit::replace);
    }
    cell.offer(above.at(j).cost + 1, Edit::remove);
    if (!row.cells.empty()) cell.offer(row.cells.back().cost + 1, Edit::insert);
    row.cells.push_back(cell);
  }
}

Alignment EditTable::alignment() const {
  Alignment result{std::vector<int64_t>(reference_.size()), std::vector<bool>(reference_.size()),
                   std::vector<bool>(static_cast<size_t>(length_))};
  for (int64_t i = length_, j = static_cast<int64_t>(reference_.size()); i > 0 || j > 0;) {
    const Edit edit = rows_[static_cast<size_t>(i)].at(j).last;
    HEED_ASSERT(edit != Edit::none, "TER: the edits leave the table");
    if (edit != Edit::insert) result.hypothesis_wrong[static_cast<size_t>(--i)] = edit != Edit::keep;
    if (edit != Edit::remove) {
      result.reference_wrong[static_cast<size_t>(--j)] = edit != Edit::keep;
      result.word_before[static_cast<size_t>(j)] = edit == Edit::insert ? i - 1 : i;
    }
  }
  return result;
}

struct Move {
  int64_t gain, length, start, target;
  std::u32string words;  // after it

  // The greatest gain, then the longest run, then the first.
  auto rank() const { return std::make_tuple(gain, length, -start, -target); }
};

// Words without the run, and then with it at its new place.
std::u32string moved(const std::u32string& words, int64_t start, int64_t length, int64_t target,
                     size_t& same) {
  std::u32string result = words;
  result.erase(static_cast<size_t>(start), static_cast<size_t>(length));
  const int64_t place =
      target <= start + length ? std::min(target, static_cast<int64_t>(result.size())) : target - length;
  same = static_cast<size_t>(std::min(start, place));
  return result.insert(static_cast<size_t>(place), words, static_cast<size_t>(start),
                       static_cast<size_t>(length));
}

class MoveSearch {
 public:
  MoveSearch(std::u32string_view reference, const std::u32string& words, EditTable& table,
             int64_t& candidates)
      : reference_(reference),
        words_(words),
        table_(table),
        candidates_(candidates),
        alignment_(table.alignment()) {}

  std::optional<Move> best() {
    const auto words = static_cast<int64_t>(words_.size()), all = static_cast<int64_t>(reference_.size());
    for (int64_t start = 0; start < words; ++start)
      for (int64_t from = std::max<int64_t>(0, start - kMaxDistance);
           from < std::min(all, start + kMaxDistance + 1); ++from)
        for (int64_t length = 1;
             length <= kMaxMovedWords && start + length <= words && from + length <= all &&
             words_[static_cast<size_t>(start + length - 1)] ==
                 reference_[static_cast<size_t>(from + length - 1)];
             ++length) {
          if (may_help(start, from, length)) try_places(start, from, length);
          if (candidates_ >= kMaxCandidates) return std::move(best_);
        }
    return std::move(best_);
  }

 private:
  // Both have mistakes there, and the run would not move into itself.
  bool may_help(int64_t start, int64_t from, int64_t length) const {
    const auto any = [length](const std::vector<bool>& wrong, int64_t first) {
      return std::find(wrong.begin() + first, wrong.begin() + first + length, true) !=
             wrong.begin() + first + length;
    };
    const int64_t now = alignment_.word_before[static_cast<size_t>(from)];
    return any(alignment_.hypothesis_wrong, start) && any(alignment_.reference_wrong, from) &&
           !(start <= now && now < start + length);
  }

  // After the word that each of the reference's words is aligned to, the one before the run included.
  void try_places(int64_t start, int64_t from, int64_t length) {
    int64_t last = -1;
    for (int64_t j = from - 1; j < from + length; ++j) {
      const int64_t target = j < 0 ? 0 : alignment_.word_before[static_cast<size_t>(j)] + 1;
      if (target == last) continue;
      last = target;
      ++candidates_;
      size_t same = 0;
      std::u32string words = moved(words_, start, length, target, same);
      const int64_t gain = table_.distance() - table_.distance_of(words, same);
      Move move{gain, length, start, target, std::move(words)};
      if (!best_ || move.rank() > best_->rank()) best_ = std::move(move);
    }
  }

  std::u32string_view reference_;
  const std::u32string& words_;
  EditTable& table_;
  int64_t& candidates_;  // tried in the whole segment
  Alignment alignment_;
  std::optional<Move> best_;
};

}  // namespace

int64_t count_ter_edits(std::u32string_view hypothesis, std::u32string_view reference) {
  if (reference.empty()) return static_cast<int64_t>(hypothesis.size());
  std::u32string words(hypothesis);
  EditTable table(reference, words.size());
  int64_t candidates = 0, moves = 0;
  while (true) {
    table.fill(words);
    std::optional<Move> move = MoveSearch(reference, words, table, candidates).best();
    if (candidates >= kMaxCandidates || !move || move->gain <= 0) return moves + table.distance();
    words = std::move(move->words);
    ++moves;
  }
}

}  // namespace heed::data::detail

#include "apps/common/sweep/sweep.h"

#include <algorithm>
#include <map>
#include <optional>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <heed/core/base/check.h>
#include <heed/core/base/text.h>
#include <heed/core/io/atomic_file.h>
#include <heed/core/io/directory_lock.h>
#include <heed/core/io/file.h>
#include <heed/train/checkpoint.h>

#include "apps/common/program.h"
#include "apps/common/progress.h"
#include "apps/common/sweep/child_process.h"
#include "apps/common/text.h"

namespace heed::apps {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxBytes = uint64_t{1} << 30;

template <class T>
bool has_twice(std::vector<T> values) {
  std::sort(values.begin(), values.end());
  return std::adjacent_find(values.begin(), values.end()) != values.end();
}

std::string text_of(const OptionValue& value) {
  struct Text {
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(int64_t integer) const { return std::to_string(integer); }
    std::string operator()(double number) const { return format_number(number); }
    std::string operator()(const std::string& text) const { return text; }
    std::string operator()(const std::vector<std::string>& list) const {
      return fmt::format("{}", fmt::join(list, ","));
    }
  };
  return std::visit(Text(), value);
}

// A name for a folder: "heads=4,seed=42".
std::string name_of(const SweepRun& run, const std::vector<Variation>& variations) {
  std::string name;
  for (size_t i = 0; i < variations.size(); ++i)
    name += fmt::format("{}={},", variations[i].option, run.values[i]);
  name += fmt::format("seed={}", run.seed);
  for (char& c : name)
    if (c == '/' || static_cast<unsigned char>(c) < 0x20) c = '_';
  return name;
}

// The environment without heed's settings.
std::vector<std::string> plain_environment() {
  std::vector<std::string> result;
  for (char** variable = environ; *variable; ++variable)
    if (!std::string_view(*variable).starts_with("HEED_")) result.emplace_back(*variable);
  return result;
}

double middle(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

// The lines that a training has written so far.
std::vector<Json> metrics(const fs::path& folder) {
  std::vector<Json> lines;
  const fs::path file = folder / "metrics.jsonl";
  std::error_code ignored;
  if (!fs::is_regular_file(file, ignored)) return lines;
  const std::string text = read_whole_file(file, kMaxJsonLinesBytes);
  for (const std::string_view line : split(text, '\n'))
    if (std::optional<Json> object = parse_json_line(line)) lines.push_back(std::move(*object));
  return lines;
}

// "heed: error: …", the last line that the program wrote to its log.
std::string last_line(const fs::path& log) {
  std::string text = read_whole_file(log, kMaxBytes);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text.substr(text.find_last_of('\n') + 1);
}

// The trainings of a sweep, at most so many at once.
class Sweep {
 public:
  Sweep(const std::vector<SweepRun>& runs, const SweepOptions& options)
      : runs_(runs), options_(options), lock_(prepare(options)), progress_("sweep", work(runs), "epochs") {
    for (const SweepRun& run : runs) names_.push_back(name_of(run, options.variations));
    HEED_CHECK(!has_twice(names_), ConfigError, "two settings of the sweep have the same name");
    for (const Json& row : repair_json_lines(options.folder / "sweep.jsonl", [](const Json& line) {
           return line.contains("name") && line["name"].is_string();
         }))
      rows_.insert_or_assign(row["name"].get<std::string>(), row);
    rows_file_.emplace(options.folder / "sweep.jsonl");
  }

  std::vector<Json> run() {
    for (size_t next = 0; next < runs_.size() || !running_.empty();) {
      while (!failed_ && !stopping_ && next < runs_.size() && std::ssize(running_) < options_.jobs) {
        if (!rows_.contains(names_[next])) start(next);
        ++next;
      }
      if ((failed_ || stopping_) && running_.empty()) break;
      watch();
      show();
    }
    progress_.finish();
    if (failed_) std::rethrow_exception(failed_);
    throw_if_stopped();
    std::vector<Json> result;
    for (const std::string& name : names_) result.push_back(rows_.at(name));
    return result;
  }

 private:
  static int64_t work(const std::vector<SweepRun>& runs) {
    int64_t epochs = 0;
    for (const SweepRun& run : runs) epochs += run.epochs;
    return epochs;
  }

  static DirectoryLock prepare(const SweepOptions& options) {
    std::error_code error;
    fs::create_directories(options.folder, error);
    HEED_CHECK(!error, IoError, "cannot make the folder ", options.folder.string(), ": ", error.message());
    DirectoryLock lock(options.folder);
    const fs::path file = options.folder / "sweep.json", rows = options.folder / "sweep.jsonl";
    const std::string base = json_line({{"train", fmt::format("{}", fmt::join(options.base, " "))}}) + "\n";
    const bool used = fs::exists(fs::symlink_status(file));
    HEED_CHECK(!used || options.resume || options.force, ConfigError, "--out ", options.folder.string(),
               " holds a sweep already; add --resume to go on or --force to replace it");
    if (used && options.resume) {
      const std::string before = read_whole_file(file, kMaxBytes);
      HEED_CHECK(before == base, ConfigError, "--out ", options.folder.string(),
                 " holds a sweep of other options: ", printable(before), "this one has ", printable(base));
    } else {
      fs::remove(rows);
    }
    write_whole_file(file, base);
    return lock;
  }

  fs::path folder(size_t index) const { return options_.folder / names_[index]; }
  fs::path log(size_t index) const { return options_.folder / (names_[index] + ".log"); }

  void start(size_t index) {
    const SweepRun& run = runs_[index];
    std::vector<std::string> words{"/proc/self/exe", "train"};
    words.insert(words.end(), run.arguments.begin(), run.arguments.end());
    for (std::string word :
         {fmt::format("--seed={}", run.seed), "--out=" + folder(index).string(), std::string("--json"),
          std::string(options_.resume && train::has_checkpoint(folder(index)) ? "--resume" : "--force")})
      words.push_back(std::move(word));
    running_.try_emplace(index, words, plain_environment(), log(index));
  }

  // Waits a little; takes what has ended, and passes a signal on once.
  void watch() {
    constexpr std::chrono::milliseconds kPause(50);
    std::this_thread::sleep_for(kPause);
    if ((stop_requested() || failed_) && !stopping_) {
      stopping_ = true;
      for (auto& [index, process] : running_) process.terminate();
    }
    for (auto each = running_.begin(); each != running_.end();) {
      const std::optional<ChildProcess::Ended> ended = each->second.poll();
      if (ended) take(each->first, *ended);
      each = ended ? running_.erase(each) : std::next(each);
    }
  }

  void take(size_t index, const ChildProcess::Ended& ended) {
    if (stopping_) return;
    if (ended.code != 0 && ended.code != static_cast<int>(ExitCode::numeric)) {
      if (!stop_requested()) failed_ = std::make_exception_ptr(failure(index, ended.code));
      return;
    }
    Json row = this->row(index, ended);
    rows_file_->write(row);
    rows_[names_[index]] = std::move(row);
  }

  StateError failure(size_t index, int code) const {
    return StateError(fmt::format("the training {} ended with code {}: {} (all of it in {})",
                                  printable(names_[index]), code, printable(last_line(log(index))),
                                  printable(log(index).string())));
  }

  Json row(size_t index, const ChildProcess::Ended& ended) const {
    const SweepRun& run = runs_[index];
    Json row{{"name", names_[index]}};
    for (size_t i = 0; i < options_.variations.size(); ++i)
      row[options_.variations[i].option] = run.values[i];
    row["seed"] = run.seed;
    const Json settings = row;
    row.update(run.known);
    std::vector<double> rates;
    for (const Json& line : metrics(folder(index))) {
      if (line.contains("samples_per_second") && line["samples_per_second"].is_number())
        rates.push_back(line["samples_per_second"].get<double>());
      if (!line.value("final", false)) continue;
      for (const auto& [key, value] : line.items())
        if (value.is_number()) row[key] = value;
    }
    row.update(settings);  // a result may have an option's name: pairs
    if (!rates.empty() && run.samples_per_step > 0)
      row["step_ms"] = 1000 * run.samples_per_step / middle(rates);
    row["seconds"] = ended.seconds;
    if (ended.code == 0)
      row["peak_mib"] = static_cast<double>(ended.peak_bytes) / (1 << 20);
    else
      row["failed"] = last_line(log(index));
    return row;
  }

  void show() {
    constexpr int64_t kLookEvery = 20;  // pauses of watch()
    int64_t done = 0;
    std::string names;
    for (size_t i = 0; i < runs_.size(); ++i)
      if (rows_.contains(names_[i])) done += runs_[i].epochs;
    for (const auto& [index, process] : running_) {
      names += (names.empty() ? "" : "  ") + printable(names_[index]);
      if (looked_ % kLookEvery == 0) seen_[index] = std::ssize(metrics(folder(index)));
      done += std::min(seen_[index], runs_[index].epochs);
    }
    ++looked_;
    progress_.note(std::move(names));
    progress_.advance(std::max<int64_t>(done - shown_, 0));
    shown_ = std::max(done, shown_);
  }

  const std::vector<SweepRun>& runs_;
  const SweepOptions& options_;
  DirectoryLock lock_;
  std::vector<std::string> names_;
  std::map<std::string, Json> rows_;
  std::optional<JsonLines> rows_file_;
  std::map<size_t, ChildProcess> running_;  // by index

  std::map<size_t, int64_t> seen_;  // epochs of those that run
  int64_t looked_ = 0, shown_ = 0;
  bool stopping_ = false;
  std::exception_ptr failed_;
  Progress progress_;
};

}  // namespace

std::vector<Variation> parse_variations(std::string_view text) {
  std::vector<Variation> result;
  std::vector<std::string> names;
  for (const std::string_view part : split(text, ' ')) {
    if (part.empty()) continue;
    const size_t equals = part.find('=');
    HEED_CHECK(equals != std::string_view::npos && equals > 0, ConfigError, "'", printable(part),
               "' is not an option and its values, such as heads=1,2,4");
    const auto values = split(part.substr(equals + 1), ',');
    Variation variation{std::string(part.substr(0, equals)), {values.begin(), values.end()}};
    HEED_CHECK(!has_twice(variation.values), ConfigError, "a value of ", printable(variation.option),
               " is there twice");
    for (const std::string& value : variation.values)
      HEED_CHECK(!value.empty(), ConfigError, "a value of ", printable(variation.option), " is missing");
    names.push_back(variation.option);
    result.push_back(std::move(variation));
  }
  HEED_CHECK(!has_twice(names), ConfigError, "an option is there twice");
  return result;
}

std::vector<std::vector<std::string>> combinations(const std::vector<Variation>& variations) {
  std::vector<std::vector<std::string>> result{{}};
  for (const Variation& variation : variations) {
    std::vector<std::vector<std::string>> longer;
    for (const auto& values : result) {
      for (const std::string& value : variation.values) {
        longer.push_back(values);
        longer.back().push_back(value);
      }
    }
    result = std::move(longer);
  }
  return result;
}

std::vector<std::string> given_arguments(const OptionTable& table, const std::vector<std::string>& without) {
  std::vector<std::string> arguments;
  for (const auto& option : table.options()) {
    if (option->source == ValueSource::default_value ||
        std::find(without.begin(), without.end(), option->name) != without.end())
      continue;
    if (const std::optional<OptionValue> value = option->load())
      arguments.push_back(fmt::format("--{}={}", option->name, text_of(*value)));
  }
  return arguments;
}

std::vector<Json> run_sweep(const std::vector<SweepRun>& runs, const SweepOptions& options) {
  return Sweep(runs, options).run();
}

}  // namespace heed::apps

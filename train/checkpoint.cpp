#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <vector>

#include <heed/core/autograd/autograd.h>
#include <heed/core/base/warning.h>
#include <heed/core/io/file.h>
#include <heed/core/io/safetensors.h>
#include <heed/core/serialize.h>
#include <heed/train/checkpoint.h>

namespace heed::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormatKey = "heed.checkpoint";
constexpr int64_t kFormatVersion = 1;
constexpr const char* kPrefix = "checkpoint-";
constexpr const char* kSuffix = ".safetensors";

WarningCause damaged_checkpoint;

// The number that all of a text is, if it is one.
template <class T>
std::optional<T> parse(std::string_view text) {
  T value{};
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

// The shortest text that reads back as the same number, with a point or an exponent.
std::string number_text(double value) {
  char text[32];
  std::string number(text, std::to_chars(text, text + sizeof text, value).ptr);
  return number.find_first_of(".en") == std::string::npos ? number + ".0" : number;
}

// Checkpoints of a folder, the newest first.
std::vector<std::pair<int64_t, fs::path>> list_checkpoints(const fs::path& directory) {
  std::vector<std::pair<int64_t, fs::path>> result;
  for (const std::string& file : folder_entries(directory.string())) {
    const std::string_view prefix = kPrefix, suffix = kSuffix;
    if (file.size() <= prefix.size() + suffix.size() || file.compare(0, prefix.size(), prefix) != 0 ||
        file.compare(file.size() - suffix.size(), suffix.size(), suffix) != 0)
      continue;
    const std::string_view digits =
        std::string_view(file).substr(prefix.size(), file.size() - prefix.size() - suffix.size());
    if (const auto step = parse<int64_t>(digits)) result.emplace_back(*step, directory / file);
  }
  std::sort(result.rbegin(), result.rend());
  return result;
}

constexpr std::string_view kOptimizer = "optimizer.";

// What a checkpoint has besides the optimizer's state, as it lives.
NamedTensors live_tensors(nn::Module& model, const NamedTensors& more) {
  NamedTensors tensors;
  for (const Parameter& parameter : model.parameters())
    tensors.emplace_back("model." + parameter.name, parameter.tensor);
  for (const auto& [name, buffer] : model.named_buffers()) tensors.emplace_back("model." + name, buffer);
  tensors.insert(tensors.end(), more.begin(), more.end());
  return tensors;
}

std::map<std::string, std::string> to_metadata(const TrainingState& s) {
  return {{kFormatKey, std::to_string(kFormatVersion)},
          {"step", std::to_string(s.step)},
          {"epoch", std::to_string(s.epoch)},
          {"position", std::to_string(s.position)},
          {"seed", std::to_string(s.seed)},
          {"offset", std::to_string(s.offset)},
          {"loss_sum", number_text(s.loss_sum)},
          {"tokens", std::to_string(s.tokens)},
          {"norm_sum", number_text(s.norm_sum)},
          {"batches", std::to_string(s.batches)},
          {"settings", s.settings},
          {"data", s.data}};
}

class MetadataReader {
 public:
  MetadataReader(const std::map<std::string, std::string>& metadata, const std::string& file)
      : metadata_(metadata), file_(file) {}

  const std::string& text(const char* key) const {
    const auto found = metadata_.find(key);
    HEED_CHECK(found != metadata_.end(), CheckpointError, file_, ": the entry '", key, "' is missing");
    return found->second;
  }
  int64_t integer(const char* key) const {
    const auto value = parse<int64_t>(text(key));
    HEED_CHECK(value && *value >= 0, CheckpointError, file_, ": '", key, "' is '", text(key),
               "', no whole number");
    return *value;
  }
  double number(const char* key) const {
    const auto value = parse<double>(text(key));
    HEED_CHECK(value && std::isfinite(*value), CheckpointError, file_, ": '", key, "' is '", text(key),
               "', no number");
    return *value;
  }

 private:
  const std::map<std::string, std::string>& metadata_;
  const std::string& file_;
};

TrainingState from_metadata(const std::map<std::string, std::string>& metadata, const std::string& file) {
  const MetadataReader read(metadata, file);
  return {.step = read.integer("step"),
          .epoch = read.integer("epoch"),
          .position = read.integer("position"),
          .seed = static_cast<uint64_t>(read.integer("seed")),
          .offset = static_cast<uint64_t>(read.integer("offset")),
          .loss_sum = read.number("loss_sum"),
          .tokens = read.integer("tokens"),
          .norm_sum = read.number("norm_sum"),
          .batches = read.integer("batches"),
          .settings = read.text("settings"),
          .data = read.text("data")};
}

using Entries = std::map<std::string, std::string>;

// The lines "key = value" of a TOML text; how long a run is may change when it goes on.
Entries entries_of(const std::string& settings) {
  Entries entries;
  std::istringstream in(settings);
  for (std::string line; std::getline(in, line);)
    if (const size_t equals = line.find(" = "); equals != std::string::npos)
      entries.emplace(line.substr(0, equals), line.substr(equals + 3));
  for (const char* length : {"epochs", "steps", "save-every"}) entries.erase(length);
  return entries;
}

// "batch-size = 32 (now 64), …": the settings that differ.
std::string differences(const Entries& saved, const Entries& now) {
  std::set<std::string> keys;
  for (const Entries* entries : {&saved, &now})
    for (const auto& entry : *entries) keys.insert(entry.first);
  const auto value = [](const Entries& entries, const std::string& key) {
    const auto found = entries.find(key);
    return found == entries.end() ? "unset" : found->second;
  };
  std::string text;
  for (const std::string& key : keys)
    if (value(saved, key) != value(now, key))
      text += concat(text.empty() ? "" : ", ", key, " = ", value(saved, key), " (now ", value(now, key), ")");
  return text;
}

TrainingState read_state(const SafetensorsReader& reader, const std::string& file) {
  read_format_version(reader.header(), kFormatKey, kFormatVersion, kFormatVersion, file);
  return from_metadata(reader.header().metadata, file);
}

struct Loaded {
  NamedTensors tensors;
  TrainingState state;
};

Loaded read_checkpoint(const std::string& file) {
  const SafetensorsReader reader(file);
  TrainingState state = read_state(reader, file);
  return {load_tensors(file), std::move(state)};
}

bool has_sound_header(const fs::path& file) {
  try {
    read_state(SafetensorsReader(file.string()), file.string());
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Of those before a step all but the newest sound one. What stands at later steps is damaged, or the run
// would have gone on from there: it says nothing about which are the newest.
void remove_older(const fs::path& directory, int64_t step) {
  bool kept = false;
  for (const auto& entry : list_checkpoints(directory)) {
    if (entry.first >= step) continue;
    if (!kept && has_sound_header(entry.second))
      kept = true;
    else
      fs::remove(entry.second);
  }
}

// All tensors of a checkpoint, after everything has been checked.
void restore(const Loaded& loaded, const std::string& file, const NamedTensors& live,
             optim::Optimizer& optimizer) {
  std::map<std::string, Tensor> saved;
  NamedTensors optimizer_state;
  for (const auto& entry : loaded.tensors) {
    if (entry.first.starts_with(kOptimizer))
      optimizer_state.emplace_back(entry.first.substr(kOptimizer.size()), entry.second);
    else
      saved.insert(entry);
  }
  for (const auto& entry : live) {
    const auto found = saved.find(entry.first);
    HEED_CHECK(found != saved.end(), CheckpointError, file, ": '", entry.first, "' is missing");
    const Tensor &value = found->second, &now = entry.second;
    HEED_CHECK(value.shape() == now.shape() && value.dtype() == now.dtype(), CheckpointError, file, ": '",
               entry.first, "' is ", value.dtype(), " ", value.shape(), ", the training's is ", now.dtype(),
               " ", now.shape());
  }
  HEED_CHECK(saved.size() == live.size(), CheckpointError, file, " has ", saved.size(),
             " tensors besides the optimizer's, the training ", live.size());
  optimizer.load_state(optimizer_state);
  const NoGrad no_grad;
  for (const auto& entry : live) entry.second.copy_(saved.at(entry.first));
}

}  // namespace

void save_checkpoint(const fs::path& directory, nn::Module& model, const optim::Optimizer& optimizer,
                     const TrainingState& state, const NamedTensors& more) {
  NamedTensors tensors = live_tensors(model, {});
  for (const auto& entry : optimizer.state())
    tensors.emplace_back(concat(kOptimizer, entry.first), entry.second);
  tensors.insert(tensors.end(), more.begin(), more.end());
  std::error_code error;
  fs::create_directories(directory, error);
  HEED_CHECK(!error, IoError, "cannot make the folder ", directory.string(), ": ", error.message());
  const fs::path file = directory / concat(kPrefix, state.step, kSuffix);
  save_tensors(file, tensors, to_metadata(state));
  remove_older(directory, state.step);
}

bool has_checkpoint(const fs::path& directory) { return !list_checkpoints(directory).empty(); }

std::string saved_settings(const fs::path& directory) {
  for (const auto& entry : list_checkpoints(directory)) {
    try {
      const std::string file = entry.second.string();
      return read_state(SafetensorsReader(file), file).settings;
    } catch (const Error&) {  // told by load_checkpoint
    }
  }
  return "";
}

void remove_checkpoints(const fs::path& directory) {
  for (const auto& entry : list_checkpoints(directory)) fs::remove(entry.second);
}

TrainingState load_checkpoint(const fs::path& directory, nn::Module& model, optim::Optimizer& optimizer,
                              const std::string& settings, const std::string& data,
                              const NamedTensors& more) {
  const auto all = list_checkpoints(directory);
  HEED_CHECK(!all.empty(), CheckpointError, directory.string(), ": there is no checkpoint to resume from");
  for (const auto& entry : all) {
    const std::string file = entry.second.string();
    Loaded loaded;
    try {
      loaded = read_checkpoint(file);
    } catch (const Error& error) {
      damaged_checkpoint.warn(concat("passing over a damaged checkpoint: ", error.what()));
      continue;
    }
    const std::string other = differences(entries_of(loaded.state.settings), entries_of(settings));
    HEED_CHECK(other.empty(), CheckpointError, file, " was made with other settings: ", other);
    HEED_CHECK(loaded.state.data == data, CheckpointError, file, ": the training data have changed since (",
               loaded.state.data, ", now ", data, ")");
    restore(loaded, file, live_tensors(model, more), optimizer);
    return loaded.state;
  }
  throw CheckpointError(concat(directory.string(), ": none of the ", all.size(), " checkpoints is sound"));
}

}  // namespace heed::train

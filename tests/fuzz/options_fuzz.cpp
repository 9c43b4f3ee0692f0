// Any command line, environment and file of settings: a ConfigError that changes nothing, or values within
// their ranges that are written and read back unchanged. An input is the file, then arguments, each after a
// NUL; those of the form HEED_NAME=value are the environment.
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "apps/common/options/options.h"
#include "fuzz.h"

using heed::fuzz::require;

namespace {

enum class Norm { pre, post };

// An option of every kind, with a preset that changes defaults.
struct Program {
  std::string preset = "default", device = "auto";
  int64_t epochs = 20, seed = 42;
  std::optional<int64_t> layers;
  std::optional<double> warm;
  double rate = 1e-4, dropout = 0.1, scale = 0;
  bool shuffle = true, force = false;
  Norm norm = Norm::post;
  std::filesystem::path out = "runs";
  std::vector<std::string> tags, words;
  heed::apps::OptionTable table{"program"};

  Program() {
    table.choice("preset", preset, "sets of defaults", {"default", "small"}).before_others([this] {
      if (preset == "small") epochs = 3;
    });
    table.integer("epochs", epochs, "passes", {1, 1000});
    table.integer("seed", seed, "of all random numbers");
    table.integer("layers", layers, "unset at first", {1, 100});
    table.number("rate", rate, "of learning", {.low = 0, .open_low = true});
    table.number("dropout", dropout, "a rate", {.low = 0, .high = 1, .open_high = true});
    table.number("scale", scale, "any number");
    table.number("warm", warm, "unset at first", {.low = 0});
    table.flag("shuffle", shuffle, "mix the pairs");
    table.flag("force", force, "overwrite").not_saved();
    table.choice<Norm>("norm", norm, "where norms stand", {{"pre", Norm::pre}, {"post", Norm::post}});
    table.path("out", out, "where to write");
    table.list("tags", tags, "words");
    table.text("device", device, "auto, cpu or cuda").checked([](const std::string& text) {
      HEED_CHECK(text != "tpu", ConfigError, "'tpu' is no device");
    });
    table.positionals("WORD", words, "anything");
  }

  void require_in_range() const {
    require(epochs >= 1 && epochs <= 1000 && (!layers || (*layers >= 1 && *layers <= 100)));
    require(rate > 0 && dropout >= 0 && dropout < 1 && (!warm || *warm >= 0));
    require(scale - scale == 0 && device != "tpu" && (preset == "default" || preset == "small"));
  }
};

// Of the pieces after the file. Whatever names another file is left out: its content is no part of the input.
struct Words {
  std::vector<std::string> arguments;
  std::map<std::string, std::string> environment;

  void add(std::string_view piece) {
    if (piece.starts_with("--config")) return;
    const size_t equals = piece.find('=');
    if (!piece.starts_with("HEED_") || equals == std::string_view::npos)
      arguments.emplace_back(piece);
    else if (piece.substr(0, equals) != "HEED_CONFIG")
      environment[std::string(piece.substr(0, equals))] = piece.substr(equals + 1);
  }
};

void check_written_values(const Program& program) {
  program.require_in_range();
  const std::string written = program.table.dump_toml();
  Program again;
  again.table.read_toml(written, "written");  // a ConfigError here ends the process
  require(again.table.dump_toml() == written && again.table.dump_json() == program.table.dump_json());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const std::string_view file = rest.substr(0, rest.find('\0'));
  Words words;
  while (rest.find('\0') != std::string_view::npos) {
    rest.remove_prefix(rest.find('\0') + 1);
    words.add(rest.substr(0, rest.find('\0')));
  }

  Program program;
  std::string before = program.table.dump_toml();
  bool right = true;
  const auto attempt = [&](auto&& read) {
    try {
      read();
    } catch (const heed::ConfigError& error) {
      require(*error.what() != '\0' && program.table.dump_toml() == before);
      right = false;
    }
    before = program.table.dump_toml();
  };
  attempt([&] {
    program.table.parse(words.arguments, [&](const char* name) {
      const auto found = words.environment.find(name);
      return found == words.environment.end() ? nullptr : found->second.c_str();
    });
  });
  attempt([&] { program.table.read_toml(file, "input"); });
  check_written_values(program);
  if (right) require(!program.table.help("What it does.").empty());
  return 0;
}

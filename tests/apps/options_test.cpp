#include "apps/common/options/options.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>

#include "../support/foreign_locale.h"
#include "apps/common/text.h"

namespace heed::apps {
namespace {

enum class Norm { pre, post };

// A small copy of what a training program declares.
struct Fixture {
  std::string preset = "default", device = "auto";
  int64_t epochs = 20, seed = 42;
  std::optional<int64_t> encoder_layers;
  std::optional<double> warm;
  double lr = 1e-4, dropout = 0.1, scale = 0;
  bool no_shuffle = false, force = false;
  Norm norm = Norm::post;
  std::filesystem::path out = "runs";
  std::vector<std::string> tags, inputs;
  OptionTable table{"probe train"};

  Fixture() {
    table.choice("preset", preset, "sets of defaults", {"default", "small"}).before_others([this] {
      if (preset != "small") return;
      epochs = 3;
      lr = 0.5;
    });
    table.group("Training");
    table.integer("epochs", epochs, "passes over the data", {1, 1000});
    table.integer("seed", seed, "of all random numbers");
    table.integer("encoder-layers", encoder_layers, "layers of the encoder", {1, 100});
    table.number("lr", lr, "learning rate", {.low = 0, .open_low = true});
    table.number("dropout", dropout, "rate", {.low = 0, .high = 1, .open_high = true});
    table.number("scale", scale, "any number");
    table.number("warm", warm, "unset by default", {.low = 0});
    table.flag("no-shuffle", no_shuffle, "keep the order");
    table.flag("force", force, "overwrite").not_saved();
    table.choice<Norm>("norm", norm, "where the norms stand", {{"pre", Norm::pre}, {"post", Norm::post}});
    table.group("Files");
    table.path("out", out, "where to write").called("DIR");
    table.list("tags", tags, "words");
    table.text("device", device, "auto, cpu or cuda").checked([](const std::string& text) {
      HEED_CHECK(text != "tpu", ConfigError, "'tpu' is not a device of heed");
    });
  }

  void parse(const std::vector<std::string>& arguments, std::map<std::string, std::string> environment = {}) {
    table.parse(arguments, [environment](const char* name) -> const char* {
      const auto found = environment.find(name);
      return found == environment.end() ? nullptr : found->second.c_str();
    });
  }
};

// The message of the ConfigError that f throws.
template <class F>
std::string message(F&& f) {
  try {
    f();
  } catch (const ConfigError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no ConfigError";
  return "";
}

std::string line_error(const std::vector<std::string>& arguments) {
  Fixture f;
  const std::string before = f.table.dump_toml();
  const std::string text = message([&] { f.parse(arguments); });
  EXPECT_EQ(f.table.dump_toml(), before) << "a refused line changed something";
  return text;
}

std::string file_error(const std::string& text) {
  Fixture f;
  const std::string before = f.table.dump_toml();
  const std::string said = message([&] { f.table.read_toml(text, "F.toml"); });
  EXPECT_EQ(f.table.dump_toml(), before) << "a refused file changed something";
  return said;
}

TEST(Options, EveryTypeIsReadFromTheCommandLine) {
  Fixture f;
  f.parse({"--epochs", "7", "--lr=0.25", "--scale", "-1.5e-3", "--no-shuffle", "--norm", "pre", "--out=a b",
           "--tags", "x,y z,", "--encoder-layers=4", "--seed", "-9223372036854775808"});
  EXPECT_EQ(f.epochs, 7);
  EXPECT_EQ(f.lr, 0.25);
  EXPECT_EQ(f.scale, -1.5e-3);
  EXPECT_TRUE(f.no_shuffle);
  EXPECT_EQ(f.norm, Norm::pre);
  EXPECT_EQ(f.out, "a b");
  EXPECT_EQ(f.tags, (std::vector<std::string>{"x", "y z", ""}));
  EXPECT_EQ(f.encoder_layers, 4);
  EXPECT_EQ(f.seed, std::numeric_limits<int64_t>::min());
  EXPECT_FALSE(f.warm);
  EXPECT_TRUE(f.table.given("lr"));
  EXPECT_FALSE(f.table.given("dropout"));
}

TEST(Options, FlagsCanBeSwitchedOffAgain) {
  Fixture f;
  f.parse({"--no-shuffle=false"}, {{"HEED_NO_SHUFFLE", "yes"}});
  EXPECT_FALSE(f.no_shuffle);
  Fixture g;
  g.parse({}, {{"HEED_NO_SHUFFLE", "1"}});
  EXPECT_TRUE(g.no_shuffle);
}

class BadLine : public testing::TestWithParam<std::pair<std::vector<std::string>, std::string>> {};

TEST_P(BadLine, SaysWhatIsWrong) { EXPECT_EQ(line_error(GetParam().first), GetParam().second); }

INSTANTIATE_TEST_SUITE_P(
    Options, BadLine,
    testing::Values(
        std::pair(std::vector<std::string>{"--epoch", "3"},
                  std::string("unknown option --epoch; did you mean --epochs? (see 'probe train --help')")),
        std::pair(
            std::vector<std::string>{"--droupot=0.1"},
            std::string("unknown option --droupot; did you mean --dropout? (see 'probe train --help')")),
        std::pair(std::vector<std::string>{"--encoder", "3"},
                  std::string(
                      "unknown option --encoder; did you mean --encoder-layers? (see 'probe train --help')")),
        std::pair(std::vector<std::string>{"--zzzzzzzzz"},
                  std::string("unknown option --zzzzzzzzz (see 'probe train --help')")),
        std::pair(std::vector<std::string>{"-e", "3"},
                  std::string("unknown option -e; did you mean --epochs? (see 'probe train --help')")),
        std::pair(std::vector<std::string>{"3"},
                  std::string("unexpected argument '3' (see 'probe train --help')")),
        std::pair(std::vector<std::string>{"--epochs", "3", "--epochs=4"},
                  std::string("--epochs is given 2 times: it takes one value")),
        std::pair(std::vector<std::string>{"--no-shuffle", "--no-shuffle"},
                  std::string("--no-shuffle is given 2 times: it takes one value")),
        std::pair(std::vector<std::string>{"--epochs"}, std::string("--epochs: the value is missing")),
        std::pair(std::vector<std::string>{"--epochs="}, std::string("--epochs: the value is missing")),
        std::pair(std::vector<std::string>{"--epochs", "--lr", "3"},
                  std::string("--epochs: the value is missing before --lr")),
        std::pair(std::vector<std::string>{"--no-shuffle=maybe"},
                  std::string("--no-shuffle: 'maybe' is not true or false")),
        std::pair(std::vector<std::string>{"--norm", "pst"},
                  std::string("--norm: 'pst' is not one of pre, post; did you mean 'post'?")),
        std::pair(std::vector<std::string>{"--norm", "PRE"},
                  std::string("--norm: 'PRE' is not one of pre, post")),
        std::pair(std::vector<std::string>{"--device", "tpu"},
                  std::string("--device: 'tpu' is not a device of heed")),
        std::pair(std::vector<std::string>{"--out", "a\xff"},
                  std::string("--out: 'a\\xff' is not UTF-8 (byte 2)")),
        std::pair(std::vector<std::string>{"--\xff\xfe\x1b[2J"},
                  std::string("unknown option --\\xff\\xfe\\x1b[2J (see 'probe train --help')")),
        std::pair(std::vector<std::string>{"\xc3"},
                  std::string("unexpected argument '\\xc3' (see 'probe train --help')")),
        std::pair(std::vector<std::string>{"--config", "no/such.toml"},
                  std::string("cannot read 'no/such.toml': No such file or directory")),
        std::pair(std::vector<std::string>{"--config", "/"},
                  std::string("/ is a directory: expected a TOML file of settings"))));

TEST(Options, BadNumbersAreNamedWithTheirRange) {
  for (const char* text :
       {"1e999", "nan", "inf", "0x10", "12abc", " 5", "5 ",   "-0", "18446744073709551616", "0,5", "+5",
        "1_000", "5.0", "",    "''",   "٣",     "0",  "1001", "-3", "9223372036854775808"}) {
    Fixture f;
    const std::string said = message([&] {
      f.table.read_toml("", "F"), f.parse({}, {{"HEED_EPOCHS", text[0] ? text : "?"}});
    });
    EXPECT_EQ(said.substr(0, 13), "HEED_EPOCHS: ");
    EXPECT_NE(said.find(text), std::string::npos) << said;
    EXPECT_NE(said.find("is not a whole number from 1 to 1000"), std::string::npos) << said;
    EXPECT_EQ(f.epochs, 20);
  }
  EXPECT_EQ(line_error({"--epochs", "12abc"}), "--epochs: '12abc' is not a whole number from 1 to 1000");
  EXPECT_EQ(line_error({"--epochs", "1001"}), "--epochs: 1001 is not a whole number from 1 to 1000");
  EXPECT_EQ(line_error({"--seed", "18446744073709551616"}),
            "--seed: '18446744073709551616' is not a whole number");
  for (const char* text : {"1e999", "nan", "-inf", "infinity", "0x1p3", "0,5", " 0.5", "0.5 ", "-0", "-0.0",
                           "1e", ".", "--", "1e-999", "0.5f"}) {
    const std::string said = line_error({"--dropout", text});
    EXPECT_NE(said.find(std::string("'") + text + "' is not a number in [0, 1)"), std::string::npos) << said;
  }
  EXPECT_EQ(line_error({"--dropout", "1"}), "--dropout: 1 is not a number in [0, 1)");
  EXPECT_EQ(line_error({"--dropout", "-0.5"}), "--dropout: -0.5 is not a number in [0, 1)");
  EXPECT_EQ(line_error({"--lr", "0"}), "--lr: 0 is not a number above 0");
  EXPECT_EQ(line_error({"--warm", "-1"}), "--warm: -1 is not a number of at least 0");
  EXPECT_EQ(line_error({"--scale", "x"}), "--scale: 'x' is not a finite number");
}

TEST(Options, LineBeatsEnvironmentBeatsFileBeatsDefault) {
  const std::string file = testing::TempDir() + "precedence.toml";
  std::ofstream(file) << "epochs = 2\nseed = 2\nlr = 2\n";
  const std::map<std::string, std::string> environment{
      {"HEED_EPOCHS", "3"}, {"HEED_SEED", "3"}, {"HEED_DROPOUT", ""}};
  Fixture f;
  f.parse({"--epochs=4", "--config", file}, environment);
  EXPECT_EQ(f.epochs, 4);
  EXPECT_EQ(f.seed, 3);
  EXPECT_EQ(f.lr, 2);
  EXPECT_EQ(f.dropout, 0.1);
  EXPECT_EQ(f.table.source("epochs"), ValueSource::command_line);
  EXPECT_EQ(f.table.source("seed"), ValueSource::environment);
  EXPECT_EQ(f.table.source("lr"), ValueSource::file);
  EXPECT_EQ(f.table.source("dropout"), ValueSource::default_value);
  // The file of a model, read afterwards, fills only what nothing else gave.
  f.table.read_toml("epochs = 9\nseed = 9\nlr = 9\ndropout = 0.9\n", "model");
  EXPECT_EQ(f.epochs, 4);
  EXPECT_EQ(f.seed, 3);
  EXPECT_EQ(f.lr, 2);
  EXPECT_EQ(f.dropout, 0.9);
  // The file can also be named by the environment, and the line's --config wins over that.
  Fixture g;
  g.parse({}, {{"HEED_CONFIG", file}});
  EXPECT_EQ(g.epochs, 2);
  Fixture h;
  h.parse({"--config", file}, {{"HEED_CONFIG", "no/such/file"}});
  EXPECT_EQ(h.epochs, 2);
}

TEST(Options, AFileMayHaveOneTextForAList) {
  Fixture f;
  f.table.read_toml("tags = \"a,b\"", "F.toml");
  EXPECT_EQ(f.tags, std::vector<std::string>{"a,b"});
}

TEST(Options, WeakerSourcesAreStillChecked) {
  Fixture f;
  EXPECT_EQ(message([&] {
              f.parse({"--epochs", "4"}, {{"HEED_EPOCHS", "many"}});
            }),
            "HEED_EPOCHS: 'many' is not a whole number from 1 to 1000");
}

TEST(Options, PresetChangesDefaultsOnly) {
  Fixture f;
  f.parse({"--lr", "0.125", "--preset", "small"}, {{"HEED_SEED", "5"}});
  EXPECT_EQ(f.epochs, 3);
  EXPECT_EQ(f.lr, 0.125);
  EXPECT_EQ(f.seed, 5);
  // From a file that is read later, too.
  Fixture g;
  g.parse({"--lr", "0.125"});
  g.table.read_toml("preset = \"small\"", "model");
  EXPECT_EQ(g.epochs, 3);
  EXPECT_EQ(g.lr, 0.125);
}

class BadFile : public testing::TestWithParam<std::pair<std::string, std::string>> {};

TEST_P(BadFile, SaysWhere) { EXPECT_EQ(file_error(GetParam().first), GetParam().second); }

INSTANTIATE_TEST_SUITE_P(
    Options, BadFile,
    testing::Values(
        std::pair("seed = 1\n\nepoch = 3\n", "F.toml:3:1: unknown key epoch; did you mean epochs?"),
        std::pair("[training]\nepochs = 3\n", "F.toml:1:2: unknown key training"),
        std::pair("batch_size = 3\n", "F.toml:1:1: unknown key batch_size"),
        std::pair("encoder_layers = 3\n",
                  "F.toml:1:1: unknown key encoder_layers; did you mean encoder-layers?"),
        std::pair("config = \"x\"\n", "F.toml:1:1: unknown key config"),
        std::pair("epochs = \"3\"\n",
                  "F.toml:1:10: epochs: expected a whole number from 1 to 1000, found the string '3'"),
        std::pair("epochs = 3.0\n",
                  "F.toml:1:10: epochs: expected a whole number from 1 to 1000, found the number 3"),
        std::pair("  epochs = [3]\n",
                  "F.toml:1:12: epochs: expected a whole number from 1 to 1000, found an array"),
        std::pair("lr = 1979-05-27\n", "F.toml:1:6: lr: expected a number above 0, found a date or time"),
        std::pair("no-shuffle = 1\n",
                  "F.toml:1:14: no-shuffle: expected true or false, found a whole number"),
        std::pair("tags = [\"a\", 1]\n", "F.toml:1:8: tags: expected a list of texts, found an array"),
        std::pair("out = { a = 1 }\n", "F.toml:1:7: out: expected a text, found a table"),
        std::pair("epochs = 0\n", "F.toml:1:10: epochs: 0 is not a whole number from 1 to 1000"),
        std::pair("dropout = nan\n", "F.toml:1:11: dropout: nan is not a number in [0, 1)"),
        std::pair("lr = inf\n", "F.toml:1:6: lr: inf is not a number above 0"),
        std::pair("norm = \"pots\"\n",
                  "F.toml:1:8: norm: 'pots' is not one of pre, post; did you mean 'post'?")));

TEST(Options, BrokenTomlIsReportedWithItsPlace) {
  const auto begins = [](const std::string& text, const std::string& with) {
    const std::string said = file_error(text);
    EXPECT_EQ(said.substr(0, with.size()), with) << said;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  };
  begins("seed = 1\nseed = 2\n", "F.toml:2:");
  begins("seed = \n", "F.toml:1:");
  begins("a b\n", "F.toml:1:");
  begins("seed = 9223372036854775808\n", "F.toml:1:");
  begins("out = \"abc\nseed = 1\n", "F.toml:1:");
  begins("out = \"\xff\"\n", "F.toml:1:");
  begins(std::string("out = \"a\0b\"\n", 12), "F.toml:1:");
  begins("lr = 1e999\n", "F.toml:1:");
  begins("[ = 0\n", "F.toml: malformed TOML");
  begins("epochs = \u03471\n", "F.toml:1:10: a character that is not ASCII stands outside quotes");
}

TEST(Options, DeepAndLargeFilesAreRefusedBeforeTheyAreParsed) {
  const auto repeat = [](const std::string& piece, int times) {
    std::string out;
    for (int i = 0; i < times; ++i) out += piece;
    return out;
  };
  EXPECT_EQ(file_error("tags = " + repeat("[", 33)), "F.toml:1:40: nested deeper than 32 levels");
  EXPECT_EQ(file_error("seed = 1\nx = " + repeat("{a = ", 400000 / 5)).substr(0, 9), "F.toml:2:");
  EXPECT_NE(file_error(repeat("a.", 500000) + "a = 1").find("nested deeper than 32 levels"),
            std::string::npos);
  EXPECT_NE(file_error("[" + repeat("a.", 500000) + "a]").find("nested deeper than 32 levels"),
            std::string::npos);
  EXPECT_EQ(file_error("tags = " + repeat("[", 32) + repeat("]", 32)),
            "F.toml:1:8: tags: expected a list of texts, found an array");
  EXPECT_EQ(file_error(std::string((1 << 20) + 1, '#')),
            "F.toml is larger than 1 MiB: not a file of settings");
  // Brackets and points inside texts and comments are not nesting.
  Fixture f;
  f.table.read_toml("# " + repeat("[", 100) + "\nout = \"" + repeat("..[", 100) + "\\\"[\"\ndevice = '''" +
                        repeat("'[", 50) + "'''\ntags = ['" + repeat("{", 50) + "', \"\"\"" +
                        repeat("[", 40) + "\"\"\"\"\"]\n",
                    "F.toml");
  EXPECT_EQ(f.tags, (std::vector<std::string>{repeat("{", 50), repeat("[", 40) + "\"\""}));
  EXPECT_EQ(f.device, repeat("'[", 50));
  Fixture g;
  const std::string large = testing::TempDir() + "large.toml";
  std::ofstream(large) << std::string((1 << 20) + 1, '\n');
  EXPECT_EQ(message([&] { g.table.read_file(large); }),
            large + " is larger than 1 MiB: not a file of settings");
}

TEST(Options, BomAndCrlfAreAccepted) {
  Fixture f;
  f.table.read_toml("\xef\xbb\xbfseed = 7\r\nepochs = 8\r\n", "F.toml");
  EXPECT_EQ(f.seed, 7);
  EXPECT_EQ(f.epochs, 8);
}

TEST(Options, TomlRoundTripIsExact) {
  for (const double lr : {0.1, 1.0, 1e-4, 5e-324, 1.7976931348623157e308, 1.0 / 3, 123456789.125, 1e22}) {
    Fixture f;
    f.lr = lr;
    f.scale = -lr;
    f.seed = std::numeric_limits<int64_t>::min();
    f.preset = "small";
    f.norm = Norm::pre;
    f.no_shuffle = true;
    f.force = true;
    f.encoder_layers = 3;
    f.out = "a \"quoted\"\\ path\n\t\x01\x7f ü 日本";
    f.tags = {"", "a,b", "'", "\"\"\"", "#"};
    Fixture g;
    g.table.read_toml(f.table.dump_toml(), "config.toml");
    EXPECT_EQ(g.lr, f.lr);
    EXPECT_EQ(g.scale, f.scale);
    EXPECT_EQ(g.seed, f.seed);
    EXPECT_EQ(g.preset, f.preset);
    EXPECT_EQ(g.epochs, f.epochs);
    EXPECT_EQ(g.norm, f.norm);
    EXPECT_TRUE(g.no_shuffle);
    EXPECT_FALSE(g.force) << "settings of a run are not saved";
    EXPECT_EQ(g.encoder_layers, 3);
    EXPECT_FALSE(g.warm);
    EXPECT_EQ(g.out, f.out);
    EXPECT_EQ(g.tags, f.tags);
    EXPECT_EQ(g.table.dump_toml(), f.table.dump_toml());
    EXPECT_EQ(g.table.dump_json(), f.table.dump_json());
  }
}

void check_numbers_of_settings() {
  Fixture f, g;
  f.parse({"--lr", "0.25", "--seed", "1234567"}, {{"HEED_SCALE", "-1.5e-3"}, {"HEED_NO_SHUFFLE", "1"}});
  EXPECT_EQ(f.lr, 0.25);
  EXPECT_EQ(f.scale, -1.5e-3);
  EXPECT_TRUE(f.no_shuffle);
  const std::string text = f.table.dump_toml();
  EXPECT_NE(text.find("seed = 1234567\nlr = 0.25\ndropout = 0.1\nscale = -0.0015\n"), std::string::npos)
      << text;
  g.table.read_toml(text, "config.toml");
  EXPECT_EQ(g.table.dump_toml(), text);
  EXPECT_NE(f.table.dump_json().find("\"seed\":1234567,\"lr\":0.25,"), std::string::npos)
      << f.table.dump_json();
  EXPECT_EQ(message([&] { f.parse({"--lr", "0,25"}); }).substr(0, 12), "--lr: '0,25'");
}

TEST(Options, NoLocaleChangesNumbers) {
  {
    const test::ForeignLocale locale;
    check_numbers_of_settings();
  }
  const test::ForeignCLocale locale;
  if (!locale.found()) GTEST_SKIP() << "no locale with a decimal comma is installed";
  check_numbers_of_settings();
}

// Opening a pipe would wait for a writer, and the device never ends.
TEST(Options, SettingsComeFromRegularFiles) {
  const std::string pipe = testing::TempDir() + "settings_pipe_" + std::to_string(::getpid());
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& file : {pipe, std::string("/dev/zero")}) {
    Fixture f;
    EXPECT_EQ(message([&] {
                f.parse({"--config", file});
              }),
              "cannot read '" + file + "': it is not a regular file");
    EXPECT_EQ(message([&] { f.table.read_file(file); }),
              "cannot read '" + file + "': it is not a regular file");
  }
  std::filesystem::remove(pipe);
}

TEST(Options, DumpsReadWell) {
  Fixture f;
  EXPECT_EQ(
      f.table.dump_toml(),
      "# Options\npreset = \"default\"\n\n# Training\nepochs = 20\nseed = 42\nlr = 0.0001\ndropout = 0.1\n"
      "scale = 0.0\nno-shuffle = false\nnorm = \"post\"\n\n# Files\nout = \"runs\"\ntags = []\ndevice = "
      "\"auto\"\n");
  EXPECT_EQ(
      f.table.dump_json(),
      R"({"preset":"default","epochs":20,"seed":42,"lr":0.0001,"dropout":0.1,"scale":0.0,"no-shuffle":false,)"
      R"("norm":"post","out":"runs","tags":[],"device":"auto"})");
}

TEST(Options, PositionalsAreKeptInOrder) {
  Fixture f;
  f.table.positionals("INPUT", f.inputs, "symbols separated by spaces");
  f.parse({"3 4 5", "--epochs", "2", "[6]", "-", "--", "--epochs", "-7"});
  EXPECT_EQ(f.inputs, (std::vector<std::string>{"3 4 5", "[6]", "-", "--epochs", "-7"}));
  EXPECT_EQ(f.epochs, 2);
}

TEST(Options, HelpShowsGroupsDefaultsAndChoices) {
  Fixture f;
  f.parse({"--epochs", "nonsense-is-not-read", "--help"});
  EXPECT_TRUE(f.table.help_wanted());
  EXPECT_EQ(f.epochs, 20);
  const std::string help = f.table.help("Trains.");
  for (const char* part : {"Trains.\n\nUsage: probe train [options]\n", "\nTraining\n",
                           "  --epochs N                  passes over the data [20]\n",
                           "  --norm pre|post             where the norms stand [post]\n",
                           "  --no-shuffle                keep the order\n", "  --out DIR"}) {
    EXPECT_NE(help.find(part), std::string::npos) << part << "\nis not in\n" << help;
  }
}

TEST(OptionValues, NearestFindsTyposAndBeginnings) {
  const std::vector<std::string> names{"epochs", "steps", "max-length", "min-length"};
  EXPECT_EQ(nearest("epohcs", names), "epochs");
  EXPECT_EQ(nearest("step", names), "steps");
  EXPECT_EQ(nearest("max", names), "max-length");
  EXPECT_EQ(nearest("qqqqqq", names), "");
  EXPECT_EQ(nearest("", names), "");
  EXPECT_EQ(nearest(std::string(100000, 'e'), names), "");
}

TEST(OptionValues, PrintableKeepsTextAndDisarmsTheRest) {
  EXPECT_EQ(printable("ü日本😀"), "ü日本😀");
  EXPECT_EQ(printable("a\nb\tc\x1b[31m\x7f"), "a\\nb\\tc\\x1b[31m\\x7f");
  EXPECT_EQ(printable_lines("a\nb\tc\x1b[31m\x7f"), "a\nb\tc\\x1b[31m\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b");
  EXPECT_EQ(printable("\xed\xa0\x80\xc0\x80\xf5"), "\\xed\\xa0\\x80\\xc0\\x80\\xf5");
}

}  // namespace
}  // namespace heed::apps

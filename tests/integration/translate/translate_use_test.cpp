// The commands of translate that use a trained model, on one with random weights: run's options, attention,
// export, and po.
#include <heed/data/text/gettext.h>
#include <heed/nn/text/text_alignment.h>

#include "../../docs/markdown.h"
#include "../program_run.h"
#include "../search_tree.h"
#include "random_text_model.h"

namespace heed {
namespace {

using Texts = std::vector<std::string>;

class TranslateUse : public ProgramTest {
 protected:
  TranslateUse() : ProgramTest(HEED_TRANSLATE) {
    fs::create_directory(dir_ / "m");
    model_.save(model());
  }

  std::string model() const { return (dir_ / "m").string(); }

  Result use(const std::string& command, Texts arguments) const {
    arguments.insert(arguments.begin(), {command, "--model", model()});
    return run(arguments);
  }
  void refuse(const std::string& command, const Texts& arguments, int code,
              const std::string& message) const {
    const Result result = use(command, arguments);
    EXPECT_EQ(result.code, code) << result.err;
    EXPECT_NE(result.err.find(message), std::string::npos) << result.err;
  }

  const nn::TextModel model_ = random_text_model();
};

TEST_F(TranslateUse, OutputsAreForced) {
  const Texts texts{"abc"};
  const nn::TextOutput want =
      model_.run(texts, {.beam = 3, .max_length = 9, .min_length = 6, .prefix = "B A"}).front().front();
  const Json json = use("run", {"--beam", "3", "--max-length", "9", "--min-length", "6", "--prefix", "B A",
                                "--json", "abc"})
                        .last();
  EXPECT_EQ(json["outputs"][0]["text"], want.text);
  EXPECT_EQ(want.text.substr(0, 3), "B A");
  refuse("run", {"--max-length", "2", "--prefix", "B A", "abc"}, 2, "a prefix of 2 tokens");
  refuse("run", {"--max-length", "3", "--min-length", "3", "abc"}, 2, "min_length 3");
}

TEST_F(TranslateUse, OutputsAreDrawnFromTheSeed) {
  const auto draw = [&](const std::string& seed) {
    return use("run", {"--temperature", "20", "--best", "4", "--seed", seed, "abc", "h"}).out;
  };
  const std::string first = draw("1");
  EXPECT_EQ(std::count(first.begin(), first.end(), '\n'), 8);
  EXPECT_EQ(first, draw("1"));
  EXPECT_NE(first, draw("2"));
  // Of the most probable token alone there is one to draw: that of a search without a beam.
  EXPECT_EQ(use("run", {"--top-k", "1", "abc", "hgf"}).out, use("run", {"--beam", "1", "abc", "hgf"}).out);
  refuse("run", {"--temperature", "0", "a"}, 2, "--temperature");
  refuse("run", {"--top-p", "0", "a"}, 2, "--top-p");
}

TEST_F(TranslateUse, AlignmentsFollowOutputs) {
  const nn::TextOutput output = model_.run(Texts{"ab c"}, {.beam = 5}).front().front();
  const nn::TextAlignment want = nn::align(model_, {"ab c"}, {output.tokens}).front();
  std::string pairs;
  for (int64_t o = 0; o < std::ssize(want.output); ++o)
    pairs += concat(o > 0 ? " " : "", want.source_of(o), "-", o);
  EXPECT_EQ(use("run", {"--alignment", "ab c"}).out,
            concat("ab c  ->  ", output.text, output.finished ? "" : " …", "\t", pairs, "\n"));
  const Json alignment = use("run", {"--alignment", "--json", "ab c"}).last()["outputs"][0]["alignment"];
  EXPECT_EQ(alignment["source"], (Texts{"ab", "c"}));
  EXPECT_EQ(alignment["output"], want.output);
  for (int64_t o = 0; o < std::ssize(want.output); ++o)
    for (int64_t s = 0; s < 2; ++s)
      EXPECT_NEAR(alignment["weights"][static_cast<size_t>(o)][static_cast<size_t>(s)], want.at(o, s), 1e-4);
}

TEST_F(TranslateUse, AttentionIsDrawn) {
  const std::string out = (dir_ / "figures").string();
  const Result result = use("attention", {"--out", out, "--target", "C A B", "--json", "ab c"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.last()["output"], "C A B");
  const auto& t = model_.target();
  const data::TokenIds symbols = t.encode("C A B");
  const nn::TextAlignment want = nn::align(model_, {"ab c"}, {{symbols.begin(), symbols.end()}}).front();
  EXPECT_NEAR(result.last()["alignment"]["weights"][2][1], want.at(2, 1), 1e-4);
  const Json files = result.last()["files"];
  ASSERT_EQ(files.size(), 2u);
  for (const Json& file : files) EXPECT_TRUE(fs::exists(file.get<std::string>())) << file;
  refuse("attention", {"a", "b"}, 2, "one text, got 2");
  refuse("attention", {""}, 3, "nothing to draw");
}

TEST_F(TranslateUse, ExportHasWhatUseNeeds) {
  folder_.put("m/config.toml", "preset = \"default\"\n");
  folder_.put("m/checkpoint-1.safetensors", "no");
  const std::string full = (dir_ / "full").string(), half = (dir_ / "half").string();
  ASSERT_EQ(use("export", {"--out", full}).code, 0);
  ASSERT_EQ(use("export", {"--out", half, "--dtype", "bf16", "--json"}).code, 0);
  for (const std::string& folder : {full, half}) {
    Texts names;
    for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    EXPECT_EQ(names, (Texts{"config.toml", "model.safetensors", "source.tokenizer", "target.tokenizer"}));
  }
  EXPECT_EQ(folder_.get("full/model.safetensors"), folder_.get("m/model.safetensors"));
  EXPECT_LT(fs::file_size(half + "/model.safetensors"),
            0.6 * static_cast<double>(fs::file_size(full + "/model.safetensors")));
  const std::string text = use("run", {"abc"}).out;
  EXPECT_EQ(run({"run", "--model", full, "abc"}).out, text);
  EXPECT_EQ(run({"run", "--model", half, "abc"}).code, 0);
  refuse("export", {}, 2, "--out");
  refuse("export", {"--out", full}, 2, "is not empty; --force");
  refuse("export", {"--out", model(), "--force"}, 2, "folder of the model itself");
  EXPECT_EQ(use("export", {"--out", full, "--force"}).code, 0);
}

constexpr const char* kCatalogue = R"(msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

# by hand
msgid "abc"
msgstr "von Hand"

#: main.c:1
msgid "  abc\n"
"hg\n"
msgstr ""

msgid "ab %s"
msgstr ""

msgid "a"
msgid_plural "hg"
msgstr[0] ""
msgstr[1] ""

msgid "a"
msgid_plural "%d hg"
msgstr[0] ""
msgstr[1] ""

msgid "abc"
msgid_plural "abc"
msgstr[0] ""

msgid "cab"
msgid_plural "cabs"
msgstr[0] "von Hand"
msgstr[1] ""
)";

TEST_F(TranslateUse, CataloguesAreFilledIn) {
  const std::string po = folder_.put("de.po", kCatalogue), out = (dir_ / "new.po").string();
  const Result result = use("po", {po, "--out", out, "--beam", "2", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.last(), Json({{"file", out},
                                 {"filled", 2},
                                 {"translated", 2},
                                 {"plural", 1},
                                 {"placeholders", 2},
                                 {"cut_short", 0}}));
  EXPECT_EQ(folder_.get("de.po"), kCatalogue);
  const auto output = [&](const char* text) { return model_.run(text, {.beam = 2}); };
  std::string want = kCatalogue;
  const std::string from = "msgid \"  abc\\n\"\n\"hg\\n\"\nmsgstr \"\"";
  ASSERT_FALSE(output("abc").empty());
  want.replace(want.find(from), from.size(),
               concat("#, fuzzy\n", from, "\n\"  ", output("abc"), "\\n\"\n\"", output("hg"), "\\n\""));
  const std::string plural = "msgid \"a\"\nmsgid_plural \"hg\"\nmsgstr[0] \"";
  want.replace(want.find(plural), plural.size() + 14,
               concat("#, fuzzy\n", plural, output("a"), "\"\nmsgstr[1] \"", output("hg"), "\""));
  EXPECT_EQ(folder_.get("new.po"), want);
  ASSERT_EQ(use("po", {po, "--in-place", "--beam", "2"}).code, 0);
  EXPECT_EQ(folder_.get("de.po"), want);
  const Result shorter =
      use("po", {folder_.put("de.po", kCatalogue), "--in-place", "--max-length", "3", "--json"});
  EXPECT_EQ(shorter.last()["filled"], 0);
  EXPECT_EQ(shorter.last()["cut_short"].get<int>() + shorter.last()["placeholders"].get<int>(), 4);
  EXPECT_EQ(folder_.get("de.po"), kCatalogue);

  refuse("po", {po}, 2, "--out for a new file, or --in-place");
  refuse("po", {po, "--out", po}, 2, "--in-place replaces it");
  refuse("po", {(dir_ / "none.po").string(), "--out", out}, 3, "none.po");
  refuse("po", {folder_.put("bad.po", "msgid \"a\n"), "--in-place"}, 3, "bad.po:1");
}

TEST_F(TranslateUse, ABeamIsATree) {
  const auto outputs = model_.run(Texts{"abc"}, {.beam = 3, .best = 3}).front();
  const Json json = use("beam", {"--json", "abc"}).last();
  std::map<std::string, double> found;
  collect_outputs(json["tree"], "<end>", found);
  ASSERT_EQ(json["outputs"].size(), 3u);
  int finished = 0;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(json["outputs"][i]["text"], outputs[i].text);
    if (!outputs[i].finished) continue;
    ++finished;
    EXPECT_NEAR(found.at(outputs[i].text), outputs[i].score, 1e-9);
  }
  EXPECT_EQ(found.size(), static_cast<size_t>(finished));
  const std::string text = use("beam", {"abc"}).out;
  EXPECT_TRUE(text.starts_with("abc\n├ ")) << text;
  for (const std::string& part :
       {std::string("  output 1\n"), std::string(" was the least kept\n"), "  " + outputs[0].text + "\n"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  refuse("beam", {"a", "b"}, 2, "beam draws the search for one text");
}

TEST_F(TranslateUse, SeveralModelsAreAnEnsemble) {
  const nn::TextModel other = random_text_model(56);
  const auto save = [&](const char* name) {
    fs::create_directory(dir_ / name);
    other.save((dir_ / name).string());
    return concat(model(), ",", (dir_ / name).string());
  };
  const std::string both = save("n");
  const nn::TextModel ensemble = nn::TextModel::ensemble({model_, other});
  const auto want = ensemble.run(Texts{"abc"}, {.beam = 3, .best = 3}).front();
  const Json found =
      run({"run", "--model", both, "--beam", "3", "--best", "3", "--alignment", "--json", "abc"})
          .last()["outputs"];
  ASSERT_EQ(found.size(), 3u);
  for (size_t n = 0; n < 3; ++n) {
    EXPECT_EQ(found[n]["text"], want[n].text);
    EXPECT_NEAR(found[n]["score"], want[n].score, 1e-5);
    const nn::TextAlignment aligned = nn::align(ensemble, {"abc"}, {want[n].tokens}).front();
    EXPECT_EQ(found[n]["alignment"]["output"], aligned.output);
    for (int64_t o = 0; o < std::ssize(aligned.output); ++o)
      EXPECT_NEAR(found[n]["alignment"]["weights"][static_cast<size_t>(o)][1], aligned.at(o, 1), 1e-4);
  }
  EXPECT_NE(want[0].score, model_.run(Texts{"abc"}, {.beam = 3}).front().front().score);
  EXPECT_EQ(run({"beam", "--model", both, "--json", "abc"}).last()["outputs"][0]["text"], want[0].text);
  // The same model twice says what it says.
  EXPECT_EQ(run({"run", "--model", concat(model(), ",", model()), "abc", "hg"}).out,
            use("run", {"abc", "hg"}).out);

  const std::string unlike = save("o");
  const Texts symbols{"A B C D E F G X"};
  data::save_tokenizer(*data::train_tokenizer({.kind = data::TokenizerKind::symbols}, {symbols}),
                       (dir_ / "o/target.tokenizer").string());
  const Result refused = run({"run", "--model", unlike, "abc"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find(
                "target tokenizer, but that of model 2 is not the first model's: id 11 is 'X', not 'H'"),
            std::string::npos)
      << refused.err;
  EXPECT_EQ(run({"run", "--model", concat(model(), ",", (dir_ / "none").string()), "abc"}).code, 8);
}

// What docs/text.md shows of the use of a model runs as it stands there.
TEST_F(TranslateUse, CommandsOfTheDocumentationRun) {
  fs::create_directories(dir_ / "runs");
  fs::rename(dir_ / "m", dir_ / "runs/mine");
  fs::create_directory(dir_ / "runs/other");
  random_text_model(56).save((dir_ / "runs/other").string());
  for (const char* name : {"mine", "other"})
    folder_.put(concat("runs/", name, "/config.toml"), "preset = \"default\"\n");
  std::string pairs;
  for (int i = 0; i < 300; ++i) pairs += concat("ab ", i, "\tA B ", i, "\n");
  folder_.put("pairs.tsv", pairs);
  folder_.put("text.en", "abc\n\nhg\n");
  folder_.put("de.po", kCatalogue);
  const std::string begin = "./heed run translate ";
  int shown = 0;
  for (const test::Block& block : test::fenced_blocks(test::read_file(HEED_TEXT_PAGE))) {
    if (block.language != "sh") continue;
    std::istringstream lines(block.text);
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with(begin) || line.find("--model") == std::string::npos) continue;
      if (line.starts_with(begin + "serve")) continue;             // serve_test
      if (line.find("runs/en-de") != std::string::npos) continue;  // trained for twenty minutes
      ++shown;
      const std::string command =
          concat("cd ", dir_.string(), " && { ", program_, " ", line.substr(begin.size()), "\n} > said 2>&1");
      EXPECT_EQ(std::system(command.c_str()), 0) << line << "\n" << folder_.get("said");
    }
  }
  EXPECT_EQ(shown, 14);
  for (const char* file : {"text.de", "de.new.po", "runs/small/model.safetensors"})
    EXPECT_TRUE(fs::exists(dir_ / file)) << file;
}

}  // namespace
}  // namespace heed

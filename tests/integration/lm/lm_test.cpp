// lm as its users run it, with the small Llama of the fixtures.
#include <cmath>

#include <heed/nn/parameter.h>
#include <heed/nn/pretrained/pretrained.h>

#include "../../support/address_sanitizer.h"
#include "../program_run.h"

namespace heed {
namespace {

class Lm : public ProgramTest {
 protected:
  Lm() : ProgramTest(HEED_LM) {
    // Its vocabulary of 19: bytes have no place in it, so the tokenizer knows words.
    fs::create_directories(model_);
    for (const auto& entry : fs::directory_iterator(HEED_FIXTURES "/pretrained/gpt2"))
      fs::copy(entry, model_);
    std::ofstream(model_ / "vocab.txt")
        << "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nl\nm\nn\no\n";
  }
  std::vector<std::string> command(const std::string& name, const std::vector<std::string>& more) const {
    std::vector<std::string> words{name, "--model", model_.string()};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  const fs::path model_ = dir_ / "model";
};

TEST_F(Lm, Generates) {
  const std::vector<std::string> greedy{"--temperature", "0", "--max-tokens", "3", "--json", "a b"};
  const Result first = run(command("generate", greedy));
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_FALSE(first.last()["text"].get<std::string>().empty());
  EXPECT_EQ(run(command("generate", greedy)).last()["text"], first.last()["text"]);
  const Result shown = run(command("generate", {"--temperature", "0", "--max-tokens", "3", "a b"}));
  EXPECT_EQ(shown.out, "a b" + first.last()["text"].get<std::string>() + "\n");
  const auto drawn = [&](const char* seed) {
    return run(command("generate",
                       {"--json", "--max-tokens", "3", "--seed", seed, "--temperature", "3", "a b"}))
        .last()["text"];
  };
  EXPECT_EQ(drawn("1"), drawn("1"));
}

TEST_F(Lm, TellsHowWellATextIsPredicted) {
  std::ofstream(dir_ / "text") << "a b c";
  const Result r = run(command("eval", {"--json", "--data", (dir_ / "text").string()}));
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.last()["characters"], 5);
  EXPECT_EQ(r.last()["tokens"], 2);
  EXPECT_NEAR(r.last()["perplexity"].get<double>(), std::exp(r.last()["loss"].get<double>()), 1e-6);
  EXPECT_NEAR(r.last()["bits_per_character"].get<double>(),
              r.last()["loss"].get<double>() * 2 / std::log(2.0) / 5, 1e-9);
}

TEST_F(Lm, WeightsOf8BitsPredictNearlyAsWell) {
  std::ofstream(dir_ / "text") << "a b c d e f g h";
  const auto loss = [&](const char* dtype) {
    const Result r = run(command("eval", {"--json", "--dtype", dtype, "--data", (dir_ / "text").string()}));
    EXPECT_EQ(r.code, 0) << r.err;
    return r.last()["loss"].get<double>();
  };
  const double f32 = loss("f32"), int8 = loss("int8");
  EXPECT_NE(int8, f32);
  EXPECT_NEAR(int8, f32, 0.02 * f32);
  const Result cuda = run(command("generate", {"--dtype", "int8", "--device", "cuda", "a"}));
  EXPECT_NE(cuda.code, 0) << "they are for the CPU";
}

// What a model of some 60 MB adds to the program's memory at its peak, loading included.
TEST_F(Lm, TakesLittleMoreMemoryThanTheWeights) {
#ifdef HEED_ADDRESS_SANITIZER
  GTEST_SKIP() << "the address sanitizer holds freed memory back";
#endif
  const auto peak = [&](const char* dtype) {
    const Result r =
        run(command("generate", {"--dtype", dtype, "--temperature", "0", "--max-tokens", "6", "a b c"}));
    EXPECT_EQ(r.code, 0) << r.err;
    return static_cast<double>(r.peak_kilobytes) * 1024;
  };
  const double f32_alone = peak("f32"), bf16_alone = peak("bf16");
  nn::LanguageModelConfig config = nn::LanguageModelConfig::llama();
  config.vocabulary = 19;
  config.d_model = 512;
  config.heads = 8;
  config.key_heads = 8;
  config.d_ff = 1536;
  config.layers = 5;
  double parameters = 0;
  {
    const nn::ShapesOnly shapes_only;
    nn::LanguageModel model(config);
    for (const Parameter& parameter : model.named_parameters())
      parameters += static_cast<double>(parameter.tensor.numel());
  }
  ASSERT_GT(parameters * 4, 50e6);
  // By another process, for the peak of one begins with the memory of what started it.
  const pid_t writer = fork();
  if (writer == 0) {
    nn::LanguageModel model(config);
    nn::save_pretrained(model, model_.string());
    _exit(0);
  }
  int status = 0;
  waitpid(writer, &status, 0);
  ASSERT_EQ(status, 0);
  EXPECT_LT(peak("f32") - f32_alone, 1.5 * 4 * parameters);
  EXPECT_LT(peak("bf16") - bf16_alone, 1.5 * 2 * parameters);
}

// The fixture has 2 layers of 3 heads and 9 positions: a start and twice 4 tokens.
TEST_F(Lm, HeadsAreWorthWhatIsLostWithoutThem) {
  const std::string text = (dir_ / "text").string(), out = (dir_ / "maps").string();
  std::ofstream(text) << "a b c d e f g h i j k l m n o a c e g i k m o b d f h";
  const Result r = run(command("heads", {"--json", "--data", text, "--window", "9", "--period", "4",
                                         "--sequences", "5", "--out", out}));
  ASSERT_EQ(r.code, 0) << r.err;
  const Json result = r.last(), &heads = result["heads"];
  EXPECT_EQ(result["bits_per_character"],
            run(command("eval", {"--json", "--data", text, "--window", "9"})).last()["bits_per_character"]);
  ASSERT_EQ(heads.size(), 6u);
  for (size_t i = 0; i < heads.size(); ++i) {
    EXPECT_EQ(heads[i]["Layer"], i / 3);
    EXPECT_EQ(heads[i]["Head"], i % 3);
    EXPECT_NE(heads[i]["Bits lost"].get<double>(), 0);
    EXPECT_NE(heads[i]["Repeat loss +"].get<double>(), 0);
    for (const char* share : {"Previous", "Induction"}) {
      EXPECT_GT(heads[i][share].get<double>(), 0);
      EXPECT_LT(heads[i][share].get<double>(), 1);
    }
    EXPECT_LE(heads[i]["Entropy"].get<double>(), std::log2(9));
  }
  EXPECT_EQ(result["period"], 4);
  for (const char* when : {"first", "again"}) {
    EXPECT_GT(result[when]["loss"].get<double>(), 0);
    EXPECT_GE(result[when]["right"].get<double>(), 0);
    EXPECT_LE(result[when]["right"].get<double>(), 1);
  }
  // The head with the most induction, and what is left of it without one of the layer before.
  const Json& induction = result["induction"];
  const auto score = [](const Json& head) { return head["Induction"].get<double>(); };
  double most = 0;
  for (const Json& head : heads) most = std::max(most, score(head));
  EXPECT_EQ(induction["score"], most);
  EXPECT_EQ(score(heads[3 * induction["layer"].get<size_t>() + induction["head"].get<size_t>()]), most);
  EXPECT_EQ(induction.contains("helper"), induction["layer"] == 1) << "no layer is before the first";
  EXPECT_TRUE(fs::exists(dir_ / "maps/heads.svg") || fs::exists(dir_ / "maps/heads.gp"));
  EXPECT_TRUE(fs::exists(dir_ / "maps/heads-induction.svg") || fs::exists(dir_ / "maps/heads-induction.gp"));
  EXPECT_EQ(run(command("heads", {"--data", text, "--period", "5"})).code, 2) << "11 positions";
  EXPECT_EQ(run(command("heads", {"--period", "4"})).code, 2) << "no text";
  std::ofstream(text) << "a b c";
  EXPECT_EQ(run(command("heads", {"--data", text, "--period", "4"})).code, 3);
}

// Lines as documents are measured each on its own.
TEST_F(Lm, DocumentsKnowNothingOfEachOther) {
  const std::string text = (dir_ / "text").string();
  const auto eval = [&](const std::string& content, const char* documents) {
    std::ofstream(text) << content;
    const Result r = run(command("eval", {"--json", "--data", text, "--documents", documents}));
    EXPECT_EQ(r.code, 0) << r.err;
    return r.last();
  };
  const Json first = eval("a b c", "file"), second = eval("d e f g h", "file"),
             lines = eval("a b c\nd e f g h\n", "line");
  EXPECT_EQ(lines["tokens"], 2 + 4);
  EXPECT_EQ(lines["characters"], 5 + 9);
  EXPECT_NEAR(lines["loss"].get<double>() * 6,
              first["loss"].get<double>() * 2 + second["loss"].get<double>() * 4, 1e-6);
  EXPECT_EQ(eval("a b c\nd e f g h\n", "file")["tokens"], 7);
  std::ofstream(text) << "a b c d e\nf g h i j k\nl m n o\n";
  const Result r = run(command("heads", {"--json", "--data", text, "--documents", "line", "--period", "4"}));
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.last()["bits_per_character"],
            eval("a b c d e\nf g h i j k\nl m n o\n", "line")["bits_per_character"]);
}

TEST_F(Lm, RefusesWithTheRightCode) {
  EXPECT_EQ(run({"generate", "x"}).code, 2);
  EXPECT_EQ(run({"generate", "--model", (dir_ / "none").string(), "x"}).code, 2);
  EXPECT_EQ(run(command("generate", {"--top-p", "0", "x"})).code, 2);
  EXPECT_EQ(run(command("chat", {"hello"})).code, 2) << "no conversations";
  EXPECT_EQ(run(command("eval", {})).code, 2);
  std::ofstream(dir_ / "text") << "\xff";
  EXPECT_EQ(run(command("eval", {"--data", (dir_ / "text").string()})).code, 3);
  std::ofstream(model_ / "model.safetensors") << "rubbish";
  EXPECT_EQ(run(command("generate", {"a"})).code, 4);
}

}  // namespace
}  // namespace heed

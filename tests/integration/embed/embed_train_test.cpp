// embed train and classify as their users run them: what is learned, what stays, and what a resumed run
// gives.
#include <map>

#include <heed/core/ops.h>
#include <heed/core/serialize.h>

#include "embed_run.h"

namespace heed {
namespace {

using Words = std::vector<std::string>;

class EmbedTrain : public EmbedTest {
 protected:
  EmbedTrain() {
    const Words kitchen{"flour", "water", "bread", "make"}, sea{"ship", "sails", "stars", "by"};
    std::ofstream labels(dir_ / "labels.tsv"), swapped(dir_ / "swapped.tsv"), pairs(dir_ / "pairs.tsv");
    for (size_t i = 0; i < 48; ++i) {
      const Words& words = i % 2 ? sea : kitchen;
      const std::string text = words[i / 2 % 4] + " and " + words[i / 8 % 4] + " the " + words[i % 3];
      labels << (i % 2 ? "sea" : "kitchen") << '\t' << text << '\n';
      swapped << text << '\t' << (i % 2 ? "sea" : "kitchen") << '\n';
    }
    // Each word's question is in the other's words, so that an encoder without training finds few.
    const Words questions{"flour", "water", "bread", "make", "ship", "sails", "stars", "by"};
    const Words answers{"stars", "ship", "by", "sails", "make", "flour", "water", "bread"};
    for (size_t i = 0; i < questions.size(); ++i)
      pairs << "the " << questions[i] << "\ta " << answers[i] << " .\n";
  }

  std::string file(const std::string& name) const { return (dir_ / name).string(); }
  Result train(const std::string& out, Words more) const {
    more.insert(more.begin(), {"--out", file(out), "--threads", "1"});
    return run(command("train", more));
  }
  NamedTensors weights(const std::string& folder) const {
    return load_tensors(file(folder) + "/model.safetensors");
  }
  // Names of the tensors that differ between two models.
  Words differing(const std::string& a, const std::string& b) const {
    Words names;
    const NamedTensors first = weights(a), second = weights(b);
    EXPECT_EQ(first.size(), second.size());
    for (size_t i = 0; i < first.size(); ++i) {
      EXPECT_EQ(first[i].first, second[i].first);
      if (max(abs(first[i].second - second[i].second)).item<float>() != 0) names.push_back(first[i].first);
    }
    return names;
  }
};

TEST_F(EmbedTrain, AClassifierLearnsLabels) {
  const auto settings = [&](const std::string& data) {
    return Words{"--data", data,       "--test", data,           "--json", "--lr",
                 "3e-3",   "--epochs", "8",      "--batch-size", "8"};
  };
  const Result r = train("m", settings(file("labels.tsv")));
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.last()["epoch"], 8);
  EXPECT_EQ(r.last()["test_accuracy"], 1.0);

  const Result said = run({"classify", "--model", file("m"), "--json", "a ship sails", "water and flour"});
  ASSERT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(said.last()["label"], "kitchen");
  EXPECT_GT(said.last()["probabilities"]["kitchen"].get<double>(), 0.5);
  EXPECT_NEAR(said.last()["probabilities"]["kitchen"].get<double>() +
                  said.last()["probabilities"]["sea"].get<double>(),
              1, 1e-5);
  EXPECT_EQ(Json::parse(said.out.substr(0, said.out.find('\n')))["label"], "sea");
  const Result judged = run({"classify", "--model", file("m"), "--data", file("swapped.tsv")});
  EXPECT_EQ(judged.out, "100.00 % of 48 are right\n") << judged.err;

  // The column of the labels makes no difference.
  ASSERT_EQ(train("s", settings(file("swapped.tsv"))).code, 0);
  EXPECT_EQ(read_file(dir_ / "m/model.safetensors"), read_file(dir_ / "s/model.safetensors"));
  EXPECT_EQ(read_file(dir_ / "m/classifier.safetensors"), read_file(dir_ / "s/classifier.safetensors"));
  EXPECT_EQ(run({"encode", "--model", file("m"), "bread"}).code, 0);  // it is an encoder still
}

TEST_F(EmbedTrain, AFrozenEncoderStaysAsItIs) {
  const Result r =
      train("m", {"--data", file("labels.tsv"), "--test", file("labels.tsv"), "--json", "--freeze", "encoder",
                  "--lr", "0.05", "--save-every", "1000", "--epochs", "60"});
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_GT(r.last()["test_accuracy"].get<double>(), 0.75);
  EXPECT_TRUE(differing("model", "m").empty());

  ASSERT_EQ(train("part", {"--data", file("labels.tsv"), "--lr", "1e-3", "--freeze",
                           "encoder.embedding,encoder.layers.0.linear1"})
                .code,
            0);
  const Words changed = differing("model", "part");
  EXPECT_FALSE(changed.empty());
  for (const std::string& name : changed) {
    EXPECT_EQ(name.find("word_embeddings"), std::string::npos);
    EXPECT_EQ(name.find("intermediate"), std::string::npos) << name;
    EXPECT_EQ(name.find("pooler"), std::string::npos) << "no gradient reaches " << name;
  }
}

TEST_F(EmbedTrain, PartsHaveRatesOfTheirOwn) {
  // At the rate 0 neither gradient nor weight decay moves a weight.
  ASSERT_EQ(train("m", {"--data", file("labels.tsv"), "--lr", "1e-2", "--epochs", "1", "--rates",
                        "encoder.layers.0=0,encoder.embedding=0,encoder.position=0,encoder.token_type=0,"
                        "encoder.pooler=0,head=1e-2"})
                .code,
            0);
  for (const std::string& name : differing("model", "m"))
    EXPECT_NE(name.find("embeddings.LayerNorm"), std::string::npos) << name;
  EXPECT_EQ(differing("model", "m").size(), 2u);
}

TEST_F(EmbedTrain, AResumedRunGivesTheSameBits) {
  for (const Words& task : {Words{"--data", file("labels.tsv"), "--batch-size", "8"},
                            Words{"--data", file("labels.tsv"), "--batch-size", "8", "--freeze", "encoder"},
                            Words{"--data", file("pairs.tsv"), "--task", "pairs", "--batch-size", "3"}}) {
    const auto with = [&](Words more) {
      more.insert(more.end(), task.begin(), task.end());
      more.insert(more.end(), {"--lr", "1e-3"});
      return more;
    };
    ASSERT_EQ(train("whole", with({"--force", "--steps", "10", "--epochs", "9"})).code, 0);
    ASSERT_EQ(train("parts", with({"--force", "--steps", "4", "--epochs", "9"})).code, 0);
    EXPECT_NE(read_file(dir_ / "whole/model.safetensors") + read_file(dir_ / "whole/classifier.safetensors"),
              read_file(dir_ / "parts/model.safetensors") + read_file(dir_ / "parts/classifier.safetensors"));
    const Result resumed =  // with two threads, on which the bits do not depend
        run(command("train", {"--out", file("parts"), "--threads", "2", "--resume", "--steps", "10"}));
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    for (const char* name : {"model.safetensors", "classifier.safetensors"})
      EXPECT_EQ(read_file(dir_ / "whole" / name), read_file(dir_ / "parts" / name)) << name;
    const Result other = train("parts", {"--resume", "--steps", "12", "--lr", "1e-2"});
    EXPECT_EQ(other.code, 4);
    EXPECT_NE(other.err.find("lr"), std::string::npos) << other.err;
  }
}

TEST_F(EmbedTrain, PairsComeTogether) {
  const Words settings{"--task", "pairs",        "--data", file("pairs.tsv"), "--test", file("pairs.tsv"),
                       "--json", "--batch-size", "8"};
  Words none = settings, many = settings;
  none.insert(none.end(), {"--epochs", "1", "--lr", "1e-9"});
  many.insert(many.end(), {"--epochs", "300", "--lr", "3e-3", "--save-every", "1000"});
  const Result before = train("none", none), after = train("m", many);
  ASSERT_EQ(after.code, 0) << after.err;
  EXPECT_LT(before.last()["test_accuracy"].get<double>(), 0.6);
  EXPECT_GE(after.last()["test_accuracy"].get<double>(), 0.75);
  EXPECT_LT(after.last()["loss"].get<double>(), before.last()["loss"].get<double>() / 2);

  // Names and settings are those that it came with, and sentence-transformers' files lie beside.
  EXPECT_FALSE(differing("model", "m").empty());
  EXPECT_EQ(Json::parse(read_file(dir_ / "m/config.json")),
            Json::parse(read_file(dir_ / "model/config.json")));
  EXPECT_EQ(Json::parse(read_file(dir_ / "m/1_Pooling/config.json"))["pooling_mode_mean_tokens"], true);
  EXPECT_EQ(Json::parse(read_file(dir_ / "m/modules.json"))[1]["path"], "1_Pooling");
  EXPECT_FALSE(fs::exists(dir_ / "m/classifier.json"));
  const Result near = run({"compare", "--model", file("m"), "--json", "the flour", "a stars .", "a water ."});
  ASSERT_EQ(near.code, 0) << near.err;
  EXPECT_GT(near.last()["cosines"][0][1].get<double>(), near.last()["cosines"][0][2].get<double>());
}

TEST_F(EmbedTrain, OtherTypesAndDevicesLearnTheSame) {
  for (const Words& task :
       {Words{"--data", file("labels.tsv")}, Words{"--data", file("labels.tsv"), "--freeze", "encoder"},
        Words{"--data", file("pairs.tsv"), "--task", "pairs"}}) {
    const auto loss = [&](const Words& kind) {
      Words more{"--force", "--json", "--batch-size", "4", "--steps", "2", "--lr", "1e-3"};
      more.insert(more.end(), task.begin(), task.end());
      more.insert(more.end(), kind.begin(), kind.end());
      const Result r = train("m", more);
      constexpr int kNoDevice = 7;
      if (r.code == kNoDevice) return -1.0;
      EXPECT_EQ(r.code, 0) << r.err;
      return r.code == 0 ? r.last()["loss"].get<double>() : 0.0;
    };
    const double expected = loss({});
    EXPECT_NEAR(loss({"--dtype", "bf16"}), expected, 0.1 * expected);
    const double on_device = loss({"--device", "cuda"});
    if (on_device != -1) {
      EXPECT_NEAR(on_device, expected, 1e-3 * expected);
    }
  }
}

TEST_F(EmbedTrain, RefusesWithTheRightCode) {
  const auto refuse = [&](Words more, int code, const std::string& text) {
    const Result r = train("m", more);
    EXPECT_EQ(r.code, code) << text;
    EXPECT_NE(r.err.find(text), std::string::npos) << r.err;
    EXPECT_FALSE(fs::exists(dir_ / "m/model.safetensors"));
  };
  const std::string data = file("labels.tsv");
  refuse({}, 2, "--data");
  refuse({"--data", file("none.tsv")}, 3, "none.tsv");
  refuse({"--data", data, "--freeze", "encodre"}, 2, "encodre");
  refuse({"--data", data, "--freeze", "encoder,head"}, 2, "nothing to learn");
  refuse({"--data", data, "--rates", "head"}, 2, "NAME=RATE");
  refuse({"--data", data, "--rates", "head=x"}, 2, "NAME=RATE");
  refuse({"--data", data, "--rates", "haed=1"}, 2, "haed");
  refuse({"--data", data, "--freeze", "encoder", "--rates", "head=1"}, 2, "head");
  refuse({"--data", data, "--task", "pairs", "--batch-size", "1"}, 2, "batch-size 1");
  refuse({"--data", data, "--task", "pairs", "--label-smoothing", "0.1"}, 2, "label-smoothing");
  refuse({"--data", data, "--resume"}, 4, "no checkpoint");
  std::ofstream(dir_ / "one.tsv") << "x\tflour\nx\twater\n";
  refuse({"--data", file("one.tsv"), "--label-column", "first"}, 2, "two labels");
  EXPECT_EQ(run(command("classify", {"flour"})).code, 2);

  ASSERT_EQ(train("m", {"--data", data}).code, 0);
  EXPECT_EQ(train("m", {"--data", data}).code, 2) << "a model is there";
  std::ofstream(dir_ / "other.tsv") << "air\tflour\nsea\twater\n";
  EXPECT_EQ(
      run({"classify", "--model", file("m"), "--data", file("other.tsv"), "--label-column", "first"}).code,
      3);
  EXPECT_EQ(run({"classify", "--model", file("m"), "--data", data, "flour"}).code, 2);
  std::ofstream(dir_ / "m/classifier.json") << R"({"labels": ["a", "b", "c"]})";
  EXPECT_EQ(run({"classify", "--model", file("m"), "flour"}).code, 4);
  std::ofstream(dir_ / "m/classifier.json") << R"({"labels": ["a", 3]})";
  EXPECT_EQ(run({"classify", "--model", file("m"), "flour"}).code, 4);
}

}  // namespace
}  // namespace heed

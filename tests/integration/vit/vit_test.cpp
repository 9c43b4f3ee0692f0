// vit as its users run it, on pictures that the test draws.
#include <heed/core/serialize.h>

#include "../program_run.h"

namespace heed {
namespace {

class Vit : public ProgramTest {
 protected:
  Vit() : ProgramTest(HEED_VIT) {
    // Bars across an 8 x 8 picture and down it, at any place, and a corner: three classes.
    uint32_t state = 7;
    const auto draw = [&](uint32_t range) { return ((state = state * 1664525 + 1013904223) >> 16) % range; };
    std::ofstream file(data_);
    for (int i = 0; i < 400; ++i) {
      const uint32_t label = static_cast<uint32_t>(i) % 3, at = draw(8);
      for (uint32_t y = 0; y < 8; ++y)
        for (uint32_t x = 0; x < 8; ++x) {
          const bool on = label == 0 ? y == at : label == 1 ? x == at : y == at || x == at;
          file << (on ? 10 + draw(6) : draw(4)) << ',';
        }
      file << label << '\n';
    }
  }

  std::vector<std::string> small(const std::string& out, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words{"train",
                                   "--data",
                                   data_.string(),
                                   "--out",
                                   (dir_ / out).string(),
                                   "--json",
                                   "--patch",
                                   "2",
                                   "--d-model",
                                   "32",
                                   "--heads",
                                   "2",
                                   "--layers",
                                   "2",
                                   "--d-ff",
                                   "64",
                                   "--warmup",
                                   "20",
                                   "--dropout",
                                   "0"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  const fs::path data_ = dir_ / "bars.csv";
};

TEST_F(Vit, LearnsPredictsAndShowsItsAttention) {
  const Result r = run(small("m", {"--epochs", "25", "--shift", "0"}));
  ASSERT_EQ(r.code, 0) << r.err;
  const Json last = r.last();
  EXPECT_TRUE(last.at("final").get<bool>());
  EXPECT_EQ(last.at("pictures").get<int>(), 80);
  EXPECT_GE(last.at("accuracy").get<double>(), 0.95);
  EXPECT_TRUE(fs::exists(dir_ / "m" / "loss.svg") || fs::exists(dir_ / "m" / "loss.gp"));

  const std::vector<std::string> of_model{"--model", (dir_ / "m").string(), "--data", data_.string(),
                                          "--json"};
  const auto use = [&](const std::string& command, const std::vector<std::string>& more) {
    std::vector<std::string> words{command};
    words.insert(words.end(), of_model.begin(), of_model.end());
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const Json eval = use("eval", {}).last();
  EXPECT_EQ(eval.at("loss"), last.at("loss"));
  EXPECT_EQ(eval.at("right"), last.at("right"));
  EXPECT_EQ(use("eval", {"--all"}).last().at("pictures").get<int>(), 400);

  const Json predicted = use("predict", {"0", "301"}).last().at("pictures");
  ASSERT_EQ(predicted.size(), 2u);
  EXPECT_NE(use("predict", {"400"}).err.find("'400' is no picture of the file, whose numbers are 0 to 399"),
            std::string::npos);

  const Result maps = use("attention", {"--picture", "4"});
  ASSERT_EQ(maps.code, 0) << maps.err;
  const NamedTensors tensors = load_tensors((dir_ / "m" / "attention.safetensors").string());
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[0].first, "rollout");
  EXPECT_EQ(tensors[0].second.shape(), (Shape{17, 17}));
  EXPECT_EQ(tensors[2].second.shape(), (Shape{2, 17, 17}));
  const std::vector<float> rollout = tensors[0].second.to_vector<float>();
  double sum = 0;
  for (size_t i = 0; i < 17; ++i) sum += rollout[i];
  EXPECT_NEAR(sum, 1, 1e-5);
  EXPECT_NE(use("attention", {"--layer", "2"}).err.find("--layer 2: the model has layers 0 to 1"),
            std::string::npos);
}

// With batch norm, whose running statistics are in the checkpoint too.
TEST_F(Vit, TheConvolutionalNetworkResumesToTheSameBits) {
  std::vector<std::string> arguments = small("c", {"--model", "cnn", "--epochs", "6", "--shift", "1"});
  const Result r = run(arguments);
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_GE(r.last().at("accuracy").get<double>(), 0.9);
  const std::string whole = read_file(dir_ / "c" / "model.safetensors");
  std::vector<fs::path> checkpoints;
  for (const auto& entry : fs::directory_iterator(dir_ / "c"))
    if (entry.path().filename().string().starts_with("checkpoint")) checkpoints.push_back(entry.path());
  ASSERT_EQ(checkpoints.size(), 2u);
  std::sort(checkpoints.begin(), checkpoints.end());
  fs::remove(checkpoints[1]);  // the last: it goes on from the one before
  arguments.push_back("--resume");
  const Result again = run(arguments);
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(read_file(dir_ / "c" / "model.safetensors"), whole);
  EXPECT_EQ(again.last(), r.last());
  const Result maps = run({"attention", "--model", (dir_ / "c").string(), "--data", data_.string()});
  EXPECT_NE(maps.err.find("a convolutional network: it has no attention"), std::string::npos) << maps.err;
}

TEST_F(Vit, TheCudaDeviceTrainsAlike) {
  std::vector<Json> results;
  for (const char* device : {"cpu", "cuda"}) {
    const Result r = run(small(device, {"--steps", "8", "--batch-size", "8", "--device", device}));
    if (r.code == 7) GTEST_SKIP() << "no CUDA device";
    ASSERT_EQ(r.code, 0) << r.err;
    results.push_back(r.last());
  }
  EXPECT_NEAR(results[0].at("loss").get<double>(), results[1].at("loss").get<double>(), 1e-4);
}

TEST_F(Vit, Errors) {
  const auto refused = [&](const std::vector<std::string>& words, int code, const char* message) {
    const Result r = run(words);
    EXPECT_EQ(r.code, code) << r.err;
    EXPECT_NE(r.err.find(message), std::string::npos) << r.err;
  };
  refused({"train"}, 2, "--data FILE is missing");
  refused({"train", "--data", (dir_ / "none.csv").string()}, 3, "none.csv");
  refused({"train", "--data", data_.string(), "--out", (dir_ / "m").string(), "--patch", "3"}, 2,
          "patches of 3 x 3 do not divide an image of 8 x 8");
  refused(small("m", {"--classes", "2"}), 2, "--classes 2: a picture has the label 2");
  refused({"eval", "--model", dir_.string(), "--data", data_.string()}, 4, "config.toml is missing");
}

}  // namespace
}  // namespace heed

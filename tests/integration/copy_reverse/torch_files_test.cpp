// Models travel between heed and PyTorch: folders of tests/fixtures were written by python/heed_torch.py.
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/io/safetensors.h>
#include <heed/core/serialize.h>

#include "temporary_folder.h"

namespace heed {
namespace {

class TorchFiles : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string model_ = std::string(HEED_FIXTURES "/") + GetParam();
};

INSTANTIATE_TEST_SUITE_P(Folders, TorchFiles, ::testing::Values("torch_model", "torch_model_without_marks"),
                         [](const auto& info) { return std::string(info.param); });

// Runs the program; its standard output goes to a file in the folder.
int run(const std::string& arguments, const test::TemporaryFolder& folder) {
  const std::string command = concat("'" HEED_COPY_REVERSE "' ", arguments, " >'", folder.file("out"), "'");
  return std::system(command.c_str());
}

std::string read_file(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

TEST_P(TorchFiles, LogitsOfAModelThatPyTorchWrote) {
  const test::TemporaryFolder folder;
  const std::string out = folder.file("l.safetensors");
  ASSERT_EQ(
      run(concat("logits --model '", model_, "' --data '", model_, "/pairs.tsv' --out '", out, "'"), folder),
      0);
  const NamedTensors got = load_tensors(out), want = load_tensors(model_ + "/logits.safetensors");
  ASSERT_EQ(got.size(), 1u);
  ASSERT_EQ(want.size(), 1u);
  EXPECT_EQ(got[0].first, want[0].first);
  ASSERT_EQ(got[0].second.shape(), want[0].second.shape());
  const std::vector<float> a = got[0].second.to_vector<float>(), b = want[0].second.to_vector<float>();
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-5) << "element " << i;
}

// PyTorch loads by name and shape, so a model that took its weights from a file of PyTorch's writes the same
// names, shapes and bits, and settings that heed_torch.py reads back as they were.
TEST_P(TorchFiles, WritesTheTensorsThatPyTorchWrites) {
  const test::TemporaryFolder folder;
  const std::string out = folder.file("m"), file = model_ + "/model.safetensors";
  ASSERT_EQ(
      run(concat("train --config '", model_, "/config.toml' --steps 0 --init '", file, "' --out '", out, "'"),
          folder),
      0);
  const SafetensorsReader ours(out + "/model.safetensors"), theirs(file);
  EXPECT_EQ(ours.header().metadata.at("format"), theirs.header().metadata.at("format"));
  ASSERT_EQ(ours.header().tensors.size(), theirs.header().tensors.size());
  for (const TensorEntry& want : theirs.header().tensors) {
    const TensorEntry* got = ours.header().find(want.name);
    ASSERT_TRUE(got) << want.name;
    EXPECT_EQ(got->dtype, DType::f32) << want.name;
    EXPECT_EQ(got->dtype, want.dtype) << want.name;
    EXPECT_EQ(got->shape, want.shape) << want.name;
    std::vector<char> a(static_cast<size_t>(got->bytes())), b(static_cast<size_t>(want.bytes()));
    ASSERT_EQ(a.size(), b.size()) << want.name;
    ours.read(*got, a.data(), got->bytes());
    theirs.read(want, b.data(), want.bytes());
    EXPECT_EQ(a, b) << want.name;
  }
  std::istringstream settings(read_file(model_ + "/config.toml"));
  const std::string kept = "\n" + read_file(out + "/config.toml");
  for (std::string line; std::getline(settings, line);)
    EXPECT_NE(kept.find("\n" + line + "\n"), std::string::npos) << line << "\nis not in\n" << kept;
}

}  // namespace
}  // namespace heed

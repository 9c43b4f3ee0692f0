// What was trained in a notebook loads here and gives the same numbers: tests/fixtures/notebooks was written
// by write_notebooks.py with PyTorch, python/heed_tutorials.py renames it.
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/io/safetensors.h>
#include <heed/core/ops.h>
#include <heed/core/serialize.h>
#include <heed/nn/models/transformer.h>
#include <heed/nn/weights.h>

#include "apps/explain/language_model.h"
#include "temporary_folder.h"

namespace heed {
namespace {

const std::string kNotebooks = HEED_FIXTURES "/notebooks/";
constexpr int64_t kWidth = 16, kHeads = 4, kHidden = 24, kVocabulary = 14;  // as in write_notebooks.py

class NotebookWeights : public ::testing::Test {
 protected:
  // Runs a command; its exit code, and what it says in `said_`.
  int run(const std::string& command) {
    const int status = std::system((command + " >'" + folder_.file("said") + "' 2>&1").c_str());
    said_ = folder_.get("said");
    return WEXITSTATUS(status);
  }

  std::string out() const { return folder_.file("model"); }
  std::string model_file() const { return out() + "/model.safetensors"; }

  int convert(const std::string& notebook, const std::string& file, const std::string& heads = "4") {
    return run("'" HEED_PYTHON "' -B '" HEED_TUTORIALS "' " + notebook + " '" + file + "' '" + out() +
               "' --heads " + heads);
  }

  // A notebook's weights in a module, which must have all of them and no others.
  void load(nn::Module& module, const std::string& notebook) {
    ASSERT_EQ(convert(notebook, kNotebooks + notebook + ".safetensors"), 0) << said_;
    nn::load_weights(module, model_file());
    module.eval();
  }

  static Tensor expected(const std::string& notebook, const std::string& name) {
    for (const auto& [key, tensor] : load_tensors(kNotebooks + notebook + ".expected.safetensors"))
      if (key == name) return tensor;
    throw IndexError("the fixture lacks " + name);
  }

  static void expect_close(const Tensor& got, const Tensor& want) {
    ASSERT_EQ(got.numel(), want.numel());
    EXPECT_LE(max(abs(got.reshape(want.shape()) - want)).item<float>(), 1e-5f);
  }

  // A block on two sequences of five rows, without a mask and with a causal one.
  void expect_block(const std::string& notebook, const nn::LayerConfig& config) {
    nn::EncoderLayer block(config);
    load(block, notebook);
    const NoGrad no_grad;
    const Tensor x = expected(notebook, "x").reshape({10, kWidth});
    const Segments segments = Segments::dense(2, 5);
    expect_close(block(x, segments), expected(notebook, "output"));
    expect_close(block(x, segments, {.visibility = {Causal::top_left}}), expected(notebook, "causal"));
  }

  // The logits and an output of the program for a folder that the script wrote.
  void expect_program(const std::string& notebook) {
    ASSERT_EQ(convert(notebook, kNotebooks + notebook + ".safetensors"), 0) << said_;
    const std::string program = "'" HEED_COPY_REVERSE "' ", model = " --model '" + out() + "' ";
    const std::string file = folder_.file("logits.safetensors");
    ASSERT_EQ(
        run(program + "logits" + model + "--data '" + kNotebooks + notebook + ".tsv' --out '" + file + "'"),
        0)
        << said_;
    expect_close(load_tensors(file).front().second, expected(notebook, "logits"));
    EXPECT_EQ(run(program + "decode" + model + "'3 4 5'"), 0) << said_;
    EXPECT_EQ(said_.find("3 4 5  ->  "), 0u) << said_;
  }

  // A file with one tensor of a notebook's under another name, or with other values.
  template <class Change>
  std::string changed(const std::string& notebook, Change&& change) const {
    NamedTensors tensors = load_tensors(kNotebooks + notebook + ".safetensors");
    for (auto& [name, tensor] : tensors) change(name, tensor);
    const std::string file = folder_.file("changed.safetensors");
    save_tensors(file, tensors);
    return file;
  }

  // The script names what is wrong, and writes nothing.
  void expect_refusal(const std::string& notebook, const std::string& file,
                      const std::vector<std::string>& lines) {
    EXPECT_EQ(convert(notebook, file), 1) << said_;
    for (const std::string& line : lines) EXPECT_NE(said_.find(line), std::string::npos) << said_;
    EXPECT_EQ(said_.find("Traceback"), std::string::npos) << said_;
    EXPECT_FALSE(std::filesystem::exists(out()));
  }

  const test::TemporaryFolder folder_;
  std::string said_;
};

nn::LayerConfig block_config() {
  nn::LayerConfig config;
  config.d_model = kWidth;
  config.heads = kHeads;
  config.d_ff = kHidden;
  return config;
}

// Sources of 1 to 10 symbols in one batch: the notebook's masks hide the pads, here there are none.
TEST_F(NotebookWeights, CopyAndReverse) { expect_program("copy_and_reverse"); }

// Without marks; pre-norm with final norms.
TEST_F(NotebookWeights, Paper) { expect_program("paper"); }

TEST_F(NotebookWeights, EncoderBlock) { expect_block("encoder_block", block_config()); }

TEST_F(NotebookWeights, TrainingStability) {
  nn::LayerConfig config = block_config();
  config.norm = nn::NormPlacement::pre;
  config.activation = nn::FeedForwardKind::gelu;
  config.qkv_bias = false;
  expect_block("training_stability", config);
}

TEST_F(NotebookWeights, AttentionStepByStepBlock) {
  expect_block("attention_step_by_step_block", block_config());
}

TEST_F(NotebookWeights, AttentionStepByStep) {
  apps::LanguageModelConfig config;
  static_cast<nn::LayerConfig&>(config) = block_config();
  config.vocabulary = kVocabulary;
  config.layers = 2;
  apps::LanguageModel model(config);
  load(model, "attention_step_by_step");
  const NoGrad no_grad;
  const nn::Tokens ids = nn::Tokens::dense(expected("attention_step_by_step", "ids"));
  expect_close(model.forward(ids, {}), expected("attention_step_by_step", "output"));
  expect_close(model.forward(ids), expected("attention_step_by_step", "causal"));
}

TEST_F(NotebookWeights, NamesWhatIsMissingOrUnknown) {
  const std::string file = changed("copy_and_reverse", [](std::string& name, Tensor&) {
    if (name == "encoder_layers.1.self_attn.W_k.bias") name = "encoder_layers.1.self_attn.key.bias";
    if (name == "fc_out.weight") name = "head.weight";
  });
  expect_refusal("copy_and_reverse", file,
                 {"missing: encoder_layers.1.self_attn.W_k.bias", "missing: fc_out.weight",
                  "unknown: encoder_layers.1.self_attn.key.bias", "unknown: head.weight"});
  expect_refusal("paper", kNotebooks + "encoder_block.safetensors",
                 {"missing: src_embedding.weight", "missing: decoder.layers.0.cross_attn.W_v.bias",
                  "unknown: self_attn.fc.weight"});
}

TEST_F(NotebookWeights, NamesWhatHasAnotherShapeOrType) {
  expect_refusal("paper",
                 changed("paper",
                         [](const std::string& name, Tensor& tensor) {
                           if (name == "decoder.layers.1.feed_forward.w_1.weight")
                             tensor = tensor.transpose(0, 1).contiguous();
                           if (name == "output_projection.bias") tensor = zeros({kVocabulary + 1});
                           if (name == "encoder.norm.weight") tensor = tensor.to(DType::f64);
                         }),
                 {"decoder.layers.1.feed_forward.w_1.weight is F32 [16, 24]; expected F32 [24, 16]",
                  "output_projection.bias is F32 [15]; expected F32 [14]",
                  "encoder.norm.weight is F64 [16]; expected F32 [16]"});
}

TEST_F(NotebookWeights, NamesTensorsOfAnotherRank) {
  expect_refusal("encoder_block",
                 changed("encoder_block", [](const std::string&, Tensor& tensor) { tensor = zeros({}); }),
                 {"self_attn.w_q.weight is F32 []; expected F32 [0, 0]", "norm2.bias is F32 []"});
}

TEST_F(NotebookWeights, NamesATableThatHoldsOtherPositions) {
  expect_refusal("attention_step_by_step",
                 changed("attention_step_by_step",
                         [](const std::string& name, Tensor& tensor) {
                           if (name == "pos_encoding") tensor = tensor * 2.0f;
                         }),
                 {"pos_encoding holds no sinusoidal positions: 2 at [0, 1], not 1"});
}

TEST_F(NotebookWeights, RefusesOtherFilesHeadsAndFolders) {
  expect_refusal("paper", folder_.put("half.safetensors", "half of"),
                 {"half.safetensors is no sound safetensors"});
  expect_refusal("paper", folder_.file("none.safetensors"), {"none.safetensors"});
  EXPECT_EQ(convert("encoder_block", kNotebooks + "encoder_block.safetensors", "3"), 1);
  EXPECT_NE(said_.find("3 heads do not divide the width 16"), std::string::npos) << said_;
  EXPECT_FALSE(std::filesystem::exists(out()));
  ASSERT_EQ(convert("encoder_block", kNotebooks + "encoder_block.safetensors"), 0) << said_;
  EXPECT_EQ(convert("training_stability", kNotebooks + "training_stability.safetensors"), 1);
  EXPECT_NE(said_.find("holds a model already"), std::string::npos) << said_;
}

}  // namespace
}  // namespace heed

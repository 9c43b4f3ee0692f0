// explain: what the parts of a Transformer do, in numbers and figures.
#include "apps/common/command_line.h"
#include "apps/common/program.h"
#include "apps/explain/commands.h"

namespace {

using namespace heed::apps;
using heed::nn::FeedForwardKind;
using heed::nn::NormPlacement;

constexpr IntegerRange kSize{1, 1 << 14};
constexpr IntegerRange kCount{1, 100'000};

void declare(OptionTable& table, ExplainSettings& settings) {
  declare_common(table, settings);
  table.path("out", settings.out, "Folder of the figures").not_saved();
  table.flag("no-figures", settings.no_figures, "Numbers only").not_saved();
}

void declare_block(OptionTable& table, BlockSettings& s) {
  declare(table, s);
  table.group("Block");
  table.integer("d-model", s.d_model, "Width", kSize);
  table.integer("heads", s.heads, "Attention heads", kSize);
  table.integer("d-ff", s.d_ff, "Width of the feed-forward network", kSize);
  table.choice("activation", s.activation, "Feed-forward activation",
               {{"relu", FeedForwardKind::relu}, {"gelu", FeedForwardKind::gelu}});
  table.flag("no-qkv-bias", s.no_qkv_bias, "No biases in the projections to q, k and v");
}

void declare_norm(OptionTable& table, BlockSettings& s) {
  table.choice("norm", s.norm, "Where the block normalises",
               {{"pre", NormPlacement::pre}, {"post", NormPlacement::post}});
}

void run(const std::vector<std::string>& arguments) {
  CommandLine line("explain", "Shows what the parts of a Transformer do, in numbers and figures.");

  AttentionSettings attention;
  OptionTable& attention_table = line.command("attention", "Attention on a sentence, step by step",
                                              [&] { explain_attention(attention); });
  declare(attention_table, attention);
  attention_table.text("sentence", attention.sentence, "Words; vectors other than the example's are drawn");

  ScaleSettings scale;
  OptionTable& scale_table =
      line.command("scale", "Why scores are divided by √d", [&] { explain_scale(scale); });
  declare(scale_table, scale);
  scale_table.integer("draws", scale.draws, "Random queries for each width", {2, 2000});
  scale_table.integer("keys", scale.keys, "Keys of each query", {2, 64});

  HeadsSettings heads;
  OptionTable& heads_table =
      line.command("heads", "Two heads, untrained and trained", [&] { explain_heads(heads); });
  declare(heads_table, heads);
  heads_table.text("sentence", heads.sentence, "Words, each different one a token");
  heads_table.integer("steps", heads.steps, "Optimizer steps", kCount);

  SizesSettings sizes;
  OptionTable& sizes_table = line.command("sizes", "A block, a language model, and what their sizes cost",
                                          [&] { explain_sizes(sizes); });
  declare(sizes_table, sizes);
  sizes_table.group("Language model");
  sizes_table.integer("vocab", sizes.vocabulary, "Tokens", {1, 1 << 20});
  sizes_table.integer("d-model", sizes.d_model, "Width", kSize);
  sizes_table.integer("heads", sizes.heads, "Attention heads", kSize);
  sizes_table.integer("layers", sizes.layers, "Layers", {0, 64});
  sizes_table.integer("d-ff", sizes.d_ff, "Width of the feed-forward network", kSize);
  sizes_table.flag("tree", sizes.tree, "Print the nested modules");

  PositionsSettings positions;
  OptionTable& positions_table = line.command("positions", "Sinusoidal positions and the causal mask",
                                              [&] { explain_positions(positions); });
  declare(positions_table, positions);
  positions_table.integer("length", positions.length, "Positions", {2, 5000});
  positions_table.integer("d-model", positions.d_model, "Width; it may be odd", {1, 4096});

  EncoderSettings encoder;
  OptionTable& encoder_table = line.command("encoder", "An encoder block, piece by piece, and word order",
                                            [&] { explain_encoder(encoder); });
  declare_block(encoder_table, encoder);
  declare_norm(encoder_table, encoder);
  encoder_table.integer("batch", encoder.batch, "Sequences", {1, 256});
  encoder_table.integer("length", encoder.length, "Tokens of each", {1, 1024});
  encoder_table.text("sentence", encoder.sentence, "Its words are put in another order");

  GradientsSettings gradients;
  gradients.activation = FeedForwardKind::gelu;
  gradients.no_qkv_bias = true;
  OptionTable& gradients_table =
      line.command("gradients", "How gradients flow through blocks", [&] { explain_gradients(gradients); });
  declare_block(gradients_table, gradients);
  gradients_table.integer("length", gradients.length, "Tokens", {1, 1024});
  gradients_table.integer("deepest", gradients.deepest, "Blocks of the deepest stack", {1, 128});
  gradients_table.integer("steps", gradients.steps, "Steps of training", kCount);

  InitializationSettings initialization;
  initialization.norm = NormPlacement::pre;
  initialization.activation = FeedForwardKind::gelu;
  initialization.no_qkv_bias = true;
  OptionTable& initialization_table = line.command("initialization", "What first weights make of the signal",
                                                   [&] { explain_initialization(initialization); });
  declare_block(initialization_table, initialization);
  declare_norm(initialization_table, initialization);
  initialization_table.integer("length", initialization.length, "Tokens", {1, 1024});
  initialization_table.integer("draws", initialization.draws, "Blocks drawn for each initialiser", {1, 1000});
  initialization_table.integer("deepest", initialization.deepest, "Blocks of the deepest stack", {1, 128});
  initialization_table.integer("stack-d-model", initialization.stack_d_model,
                               "Its width; the feed-forward network is four times as wide", kSize);

  line.run(arguments);
}

}  // namespace

int main(int argc, char** argv) { return run_program(argc, argv, run); }

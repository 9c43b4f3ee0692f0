// explain: what the parts of a Transformer do, in numbers and figures.
#include "apps/common/options/command_line.h"
#include "apps/common/program.h"
#include "apps/explain/commands.h"

namespace {

using namespace heed::apps;
using heed::nn::FeedForwardKind;
using heed::nn::NormPlacement;

constexpr IntegerRange kSize{1, 1 << 14}, kLength{1, 1024}, kBlocks{1, 128}, kSteps{1, 100'000};

void declare_options(OptionTable& table, AttentionSettings& s) {
  table.text("sentence", s.sentence, "Words; vectors other than the example's are drawn");
}

void declare_options(OptionTable& table, ScaleSettings& s) {
  table.integer("draws", s.draws, "Random queries for each width", {2, 2000});
  table.integer("keys", s.keys, "Keys of each query", {2, 64});
}

void declare_options(OptionTable& table, SparseSettings& s) {
  table.integer("length", s.length, "Tokens of the patterns that are drawn", {64, 4096});
  table.integer("longest", s.longest, "Tokens up to which blocks are counted", {1024, 1 << 17});
}

void declare_options(OptionTable& table, HeadsSettings& s) {
  table.text("sentence", s.sentence, "Words, each different one a token");
  table.integer("steps", s.steps, "Optimizer steps", kSteps);
}

void declare_options(OptionTable& table, SizesSettings& s) {
  table.group("Language model");
  table.integer("vocab", s.vocabulary, "Tokens", {1, 1 << 20});
  table.integer("d-model", s.d_model, "Width", kSize);
  table.integer("heads", s.heads, "Attention heads", kSize);
  table.integer("layers", s.layers, "Layers", {0, 64});
  table.integer("d-ff", s.d_ff, "Width of the feed-forward network", kSize);
  table.flag("tree", s.tree, "Print the nested modules");
}

void declare_options(OptionTable& table, PositionsSettings& s) {
  table.integer("length", s.length, "Positions", {2, 5000});
  table.integer("d-model", s.d_model, "Width; it may be odd", {1, 4096});
}

void declare_block(OptionTable& table, BlockSettings& s) {
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

void declare_options(OptionTable& table, EncoderSettings& s) {
  declare_block(table, s);
  declare_norm(table, s);
  table.integer("batch", s.batch, "Sequences", {1, 256});
  table.integer("length", s.length, "Tokens of each", kLength);
  table.text("sentence", s.sentence, "Its words are put in another order");
}

void declare_options(OptionTable& table, GradientsSettings& s) {
  declare_block(table, s);
  table.integer("length", s.length, "Tokens", kLength);
  table.integer("deepest", s.deepest, "Blocks of the stack that is shown over depth", kBlocks);
  table.integer("steps", s.steps, "Steps of training", kSteps);
}

void declare_options(OptionTable& table, InitializationSettings& s) {
  declare_block(table, s);
  declare_norm(table, s);
  table.integer("length", s.length, "Tokens", kLength);
  table.integer("draws", s.draws, "Blocks drawn for each initialiser", {1, 1000});
  table.integer("deepest", s.deepest, "Blocks of the deepest stack", kBlocks);
  table.integer("stack-d-model", s.stack_d_model, "Its width; the feed-forward network is four times as wide",
                kSize);
}

void declare_options(OptionTable& table, TransformerSettings& s) {
  table.group("Model");
  table.integer("vocab", s.vocabulary, "Tokens of the source's vocabulary, and of the target's",
                {2, 1 << 20});
  table.integer("d-model", s.d_model, "Width", kSize);
  table.integer("heads", s.heads, "Attention heads", kSize);
  table.integer("layers", s.layers, "Layers of the encoder, and of the decoder", {1, 64});
  table.integer("d-ff", s.d_ff, "Width of the feed-forward network", kSize);
  table.integer("batch", s.batch, "Sequences", {1, 256});
  table.integer("source-length", s.source_length, "Tokens of each source", kLength);
  table.integer("target-length", s.target_length, "Tokens of each target", kLength);
}

// A command with its own options after those that all have.
template <class Settings>
void add(CommandLine& line, const char* name, const char* summary, Settings& settings,
         void (*explain)(const Settings&)) {
  OptionTable& table = line.command(name, summary, [&settings, explain] { explain(settings); });
  declare_common(table, settings);
  table.path("out", settings.out, "Folder of the figures").not_saved();
  table.flag("no-figures", settings.no_figures, "Numbers only").not_saved();
  table.group("What is shown");
  declare_options(table, settings);
}

void run(const std::vector<std::string>& arguments) {
  CommandLine line("explain", "Shows what the parts of a Transformer do, in numbers and figures.");
  AttentionSettings attention;
  add(line, "attention", "Attention on a sentence, step by step", attention, explain_attention);
  ScaleSettings scale;
  add(line, "scale", "Why scores are divided by √d", scale, explain_scale);
  HeadsSettings heads;
  add(line, "heads", "Two heads, untrained and trained", heads, explain_heads);
  SizesSettings sizes;
  add(line, "sizes", "A block, a language model, and what their sizes cost", sizes, explain_sizes);
  PositionsSettings positions;
  add(line, "positions", "Sinusoidal positions and the causal mask", positions, explain_positions);
  EncoderSettings encoder;
  add(line, "encoder", "An encoder block, piece by piece, and word order", encoder, explain_encoder);
  GradientsSettings gradients;
  add(line, "gradients", "How gradients flow through blocks", gradients, explain_gradients);
  InitializationSettings initialization;
  add(line, "initialization", "What first weights make of the signal", initialization,
      explain_initialization);
  TransformerSettings transformer;
  add(line, "transformer", "The whole Transformer: heads, residuals, masks, parameters", transformer,
      explain_transformer);
  SparseSettings sparse;
  add(line, "sparse", "Sparse attention: windows, global tokens, blocks", sparse, explain_sparse);
  line.run(arguments);
}

}  // namespace

int main(int argc, char** argv) { return run_program(argc, argv, run); }

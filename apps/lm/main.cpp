// lm: language models that write and answer.
#include "apps/common/options/command_line.h"
#include "apps/common/program.h"
#include "apps/lm/commands.h"

namespace {

using namespace heed::apps;

void declare_model(OptionTable& table, ModelSettings& s) {
  declare_common(table, s);
  table.group("Model");
  table
      .path("model", s.model,
            "A GGUF file, or a folder with config.json, model.safetensors and tokenizer.json")
      .not_saved();
  table.choice("dtype", s.weights, "Of the weights; int8: of 8-bit integers, with activations in f32",
               {{"f32", WeightKind::f32}, {"bf16", WeightKind::bf16}, {"int8", WeightKind::int8}});
}

void declare_sampling(OptionTable& table, SamplingSettings& s) {
  declare_model(table, s);
  table.group("Sampling");
  table.integer("max-tokens", s.max_tokens, "Tokens of a text, at most", {1, 1 << 20});
  table.number("temperature", s.temperature, "Logits are divided by it; 0: the most probable token",
               {0, 100});
  table.integer("top-k", s.top_k, "Draw from so many most probable tokens; 0: from all", {0, 1 << 24});
  table.number("top-p", s.top_p, "Draw from the most probable that make up this part", {0, 1, true, false});
  table.number("min-p", s.min_p, "Draw from those at least so probable as this part of the most probable",
               {0, 1});
  table.number("repetition-penalty", s.repetition_penalty,
               "Lessens the logits of tokens that were there; 1: none", {0, 100, true, false});
  table.list("stop", s.stop, "Texts that end a text");
}

void declare_text(OptionTable& table, MeasuredText& s) {
  table.path("data", s.data, "A UTF-8 text, or a folder of them").not_saved();
  table.choice(
      "documents", s.unit, "What a document is, across whose ends no token is looked back at",
      {{"file", DocumentUnit::file}, {"paragraph", DocumentUnit::paragraph}, {"line", DocumentUnit::line}});
  table.integer("window", s.window, "Tokens that are looked back at, at most", {2, 1 << 20});
}

void run(const std::vector<std::string>& arguments) {
  CommandLine line("lm", "Language models that write and answer: published ones, and your own.");

  TrainSettings training;
  declare_training(
      line.command("train", "Train a model on a text", [&](OptionTable& table) { train(training, table); }),
      training);

  MergeSettings merging;
  OptionTable& merge_table =
      line.command("merge", "Adapters that `train` made, and their model, as one", [&] { merge(merging); });
  declare_common(merge_table, merging);
  merge_table.group("Model");
  merge_table.path("model", merging.model, "Folder of the adapters").not_saved();
  merge_table.path("base", merging.base, "Their model, where it is elsewhere than in training").not_saved();
  merge_table.path("out", merging.out, "Folder of the merged model").not_saved();

  GenerateSettings generating;
  OptionTable& generate_table =
      line.command("generate", "What follows prompts", [&] { generate(generating); });
  declare_sampling(generate_table, generating);
  generate_table.positionals("PROMPT", generating.prompts, "Beginnings of texts, each as one argument");

  ChatSettings chatting;
  OptionTable& chat_table =
      line.command("chat", "A conversation, in the terminal or a pipe", [&] { chat(chatting); });
  declare_sampling(chat_table, chatting);
  chat_table.text("system", chatting.system, "What the model is told first; by default as it was trained");
  chat_table.positionals("MESSAGE", chatting.messages,
                         "What is said, each as one argument; by default lines of standard input");

  EvalSettings evaluating;
  OptionTable& eval_table =
      line.command("eval", "How well a text is predicted", [&] { evaluate(evaluating); });
  declare_model(eval_table, evaluating);
  declare_text(eval_table, evaluating);

  AttentionSettings looking;
  OptionTable& attention_table =
      line.command("attention", "What the tokens of a text look back at, drawn", [&] { attention(looking); });
  declare_model(attention_table, looking);
  attention_table.integer("layer", looking.layer, "Layer, from 0", {0, 1 << 20});
  attention_table.integer("head", looking.head, "Head, from 0; by default all", {0, 1 << 20});
  attention_table.path("out", looking.out, "Folder of the figure; by default the model's").not_saved();
  attention_table.positionals("TEXT", looking.texts, "The text, as one argument");

  HeadsSettings roles;
  OptionTable& heads_table = line.command(
      "heads", "What each head looks at, and what the model loses without it", [&] { heads(roles); });
  declare_model(heads_table, roles);
  declare_text(heads_table, roles);
  heads_table.integer("period", roles.period, "Random tokens that come again, at most", {2, 1 << 16});
  heads_table.integer("sequences", roles.sequences, "Sequences of such tokens", {1, 1 << 16});
  heads_table.path("out", roles.out, "Folder of the figures; by default the model's").not_saved();

  ModelSettings shown;
  OptionTable& info_table = line.command("info", "Parameters of a model", [&] { info(shown); });
  declare_model(info_table, shown);

  line.run(arguments);
}

}  // namespace

int main(int argc, char** argv) { return run_program(argc, argv, run); }

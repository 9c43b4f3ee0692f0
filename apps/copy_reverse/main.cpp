// copy_reverse: a Transformer learns to write a sequence and then its reverse.
#include "apps/common/options/command_line.h"
#include "apps/common/program.h"
#include "apps/copy_reverse/commands.h"

namespace {

using namespace heed::apps;

void declare_model(OptionTable& table, ModelSettings& settings, bool with_data) {
  declare_common(table, settings);
  table.group("Model");
  table.path("model", settings.model, "Folder that `train` wrote").not_saved();
  if (with_data) table.path("data", settings.data, "Pairs from a file: source<TAB>target").not_saved();
}

// Of eval and failures without --data.
void declare_pairs(OptionTable& table, PairsSettings& s) {
  table.group("Generated pairs; by default those that validated the training");
  table.text("task", s.task, "As of `train`").checked([](const std::string& text) {
    heed::data::Task task(text);
  });
  table.integer("min-length", s.min_length, "Length of the shortest source", {1, 1 << 16});
  table.integer("max-length", s.max_length, "Length of the longest source", {1, 1 << 16});
  table.integer("pairs", s.pairs, "Pairs", {1, 1 << 20});
}

void declare_search(OptionTable& table, DecodeSettings& s) {
  table.group("Search");
  table.integer("beam", s.beam, "Hypotheses followed", {1, 1 << 16});
  table.number("length-penalty", s.length_penalty, "Exponent of the length penalty", {0, 100, false, false});
  table.integer("max-decode-length", s.max_decode_length, "Longest output; 0: from the source's length",
                {0, 1 << 24});
}

void declare_sweep(OptionTable& table, SweepOfTrainings& s) {
  s.out = "runs/sweep";
  declare_sweep(table, static_cast<SweepSettings&>(s));
  declare_training(table, s);
}

void run(const std::vector<std::string>& arguments) {
  CommandLine line("copy_reverse",
                   "Trains a Transformer to write a sequence and then its reverse, and shows how.");

  Settings training;
  declare_training(
      line.command("train", "Train a model", [&](OptionTable& table) { train(training, table); }), training);

  SweepOfTrainings swept;
  declare_sweep(line.command("sweep", "Train models with options varied, over several seeds",
                             [&](OptionTable& table) { sweep(swept, table); }),
                swept);

  EvalSettings eval;
  OptionTable& eval_table =
      line.command("eval", "Loss and accuracies of a model", [&] { evaluate_model(eval); });
  declare_model(eval_table, eval, true);
  eval_table.integer("max-decode-length", eval.max_decode_length,
                     "Longest output; 0: from the longest target", {0, 1 << 24});
  declare_pairs(eval_table, eval);

  LengthsSettings compared;
  OptionTable& lengths_table = line.command("lengths", "Accuracy of models over the length of the source",
                                            [&] { compare_lengths(compared); });
  declare_common(lengths_table, compared);
  lengths_table.group("Lengths");
  lengths_table.text("lengths", compared.lengths, "Lengths, separated by commas").checked(parse_lengths);
  lengths_table.integer("pairs", compared.pairs, "Pairs of each length", {1, 1 << 20});
  lengths_table.path("out", compared.out, "Folder for the figure and the numbers");
  lengths_table.positionals("MODEL", compared.models, "Folders that `train` wrote");

  DecodeSettings decoding;
  OptionTable& decode_table = line.command("decode", "Outputs for given sources", [&] { decode(decoding); });
  declare_model(decode_table, decoding, true);
  declare_search(decode_table, decoding);
  decode_table.positionals("SOURCE", decoding.sources, "Sources, each as one argument: \"3 4 5\"");

  BeamSettings searching;
  OptionTable& beam_table =
      line.command("beam", "The search for a source's output, drawn as a tree", [&] { beam(searching); });
  declare_model(beam_table, searching, false);
  declare_search(beam_table, searching);
  beam_table.positionals("SOURCE", searching.sources, "The source, as one argument: \"3 4 5\"");

  LogitsSettings outputs;
  OptionTable& logits_table =
      line.command("logits", "Teacher-forced logits, as safetensors", [&] { logits(outputs); });
  declare_model(logits_table, outputs, true);
  logits_table.path("out", outputs.out, "File to write").not_saved();

  AttentionSettings maps;
  OptionTable& attention_table =
      line.command("attention", "Attention maps of one input", [&] { attention(maps); });
  declare_model(attention_table, maps, false);
  attention_table.group("Maps");
  attention_table.text("input", maps.input, "Source: \"3 4 5\"");
  attention_table.text("target", maps.target, "Target; by default the model's own output");
  attention_table.integer("layer", maps.layer, "Layer of the single maps; by default the last", {0, 1024});
  attention_table.integer("head", maps.head, "Head of the single maps; by default that of the lowest entropy",
                          {0, 1 << 16});
  attention_table.path("out", maps.out, "Folder for figures and maps; by default the model's").not_saved();

  HeadsSettings roles;
  OptionTable& heads_table = line.command(
      "heads", "What each head looks at, and what the model loses without it", [&] { heads(roles); });
  declare_model(heads_table, roles, true);
  heads_table.group("Heads");
  heads_table.integer("length", roles.length, "Length of the sources; by default the longest of the training",
                      {1, 1 << 16});
  heads_table.integer("pairs", roles.pairs, "Pairs, all of one length", {2, 1 << 16});
  heads_table.integer("layer", roles.layer, "Layer whose heads are drawn, from 0", {0, 1024});
  heads_table.path("out", roles.out, "Folder for figures and numbers; by default the model's").not_saved();

  FailuresSettings wrong;
  OptionTable& failures_table =
      line.command("failures", "Where a model goes wrong, and its worst outputs", [&] { failures(wrong); });
  declare_model(failures_table, wrong, true);
  failures_table.group("Failures");
  failures_table.integer("worst", wrong.worst, "Outputs shown with their maps, at most", {0, 64});
  failures_table.path("out", wrong.out, "Folder for figures and numbers; by default the model's").not_saved();
  declare_pairs(failures_table, wrong);

  InfoSettings shown;
  Settings fresh;
  OptionTable& info_table =
      line.command("info", "Parameters, shapes, memory and work", [&] { info(shown, fresh); });
  declare_model(info_table, shown, false);
  info_table.flag("tree", shown.tree, "Print the nested modules");

  line.run(arguments);
}

}  // namespace

int main(int argc, char** argv) { return run_program(argc, argv, run); }

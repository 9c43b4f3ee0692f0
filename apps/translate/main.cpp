// translate: a Transformer from text to text, trained on pairs of your own, and used.
#include "apps/common/options/command_line.h"
#include "apps/common/program.h"
#include "apps/translate/commands.h"

namespace {

using namespace heed::apps;
using heed::DType;

void declare_use(OptionTable& table, UseSettings& settings) {
  declare_common(table, settings);
  table.group("Model");
  table
      .list(
          "model", settings.models,
          "Folder that `train` wrote; several with the same vocabularies are an ensemble: the mean of their "
          "probabilities")
      .not_saved();
}

void declare_folder(OptionTable& table, FolderSettings& settings) {
  declare_common(table, settings);
  table.group("Model");
  table.path("model", settings.model, "Folder that `train` wrote").not_saved();
}

void declare_search(OptionTable& table, SearchSettings& s) {
  table.group("Search");
  table.integer("beam", s.beam, "Hypotheses followed for each text", {1, 1 << 10});
  table.number("length-penalty", s.length_penalty, "Exponent of the length penalty", {0, 100, false, false});
  table.integer("max-length", s.max_length, "Tokens of an output, at most; 0: as in training", {0, 1 << 16});
  table.integer("batch-tokens", s.batch_tokens,
                "Source tokens computed together, at most; memory grows with this times the beam",
                {1, 1 << 24});
}

void declare_server(OptionTable& table, ServeSettings& s) {
  declare_text_server(table, s.http, s.gather, s.limits);
  table.integer("max-beam", s.limits.max_beam, "Hypotheses of a text that a request may ask for, at most",
                {1, 1 << 10});
}

void declare_sweep(OptionTable& table, SweepOfTrainings& s) {
  s.out = "runs/sweep";
  declare_sweep(table, static_cast<SweepSettings&>(s));
  declare_training(table, s);
}

void declare_eval(OptionTable& table, EvalSettings& s) {
  declare_use(table, s);
  table.path("data", s.data, "Pairs, in the format of the training's").not_saved();
  table.choice("part", s.part, "Which of the pairs, as the training would split them",
               {{"test", Part::test}, {"valid", Part::valid}, {"train", Part::train}, {"all", Part::all}});
  table.integer("failures", s.failures, "Wrong outputs that are shown", {0, 1 << 20});
  declare_search(table, s);
}

void declare_run(OptionTable& table, TextSettings& s) {
  declare_use(table, s);
  declare_search(table, s);
  table.integer("best", s.best, "Outputs of each text, best first, with their scores", {1, 1 << 10});
  table.integer("min-length", s.min_length, "Tokens of an output, at least", {0, 1 << 16});
  table.text("prefix", s.prefix, "What each output begins with");
  table.flag("alignment", s.alignment,
             "After an output which source words its words attend to most: 0-1 1-0");
  table.path("input", s.input, "Texts from a file, one a line").not_saved();
  table.positionals("TEXT", s.texts, "Texts, each as one argument");
  table.group("Sampling");
  table.number("temperature", s.temperature,
               "Outputs are drawn, not searched for; less than 1: closer to the most probable",
               {0, 1000, true, false});
  table.integer("top-k", s.top_k, "Drawn from so many most probable tokens; 0: from all", {0, 1 << 24});
  table.number("top-p", s.top_p, "Drawn from the most probable tokens that make up so much",
               {0, 1, true, false});
}

void declare_attention(OptionTable& table, AttentionSettings& s) {
  declare_use(table, s);
  declare_search(table, s);
  table.text("target", s.target, "An output; by default the model's own");
  table.path("out", s.out, "Folder for the figure; by default the model's").not_saved();
  table.positionals("TEXT", s.texts, "The text, as one argument");
}

void declare_beam(OptionTable& table, BeamSettings& s) {
  s.beam = 3;  // a tree to be read
  declare_use(table, s);
  declare_search(table, s);
  table.positionals("TEXT", s.texts, "The text, as one argument");
}

void declare_export(OptionTable& table, ExportSettings& s) {
  declare_folder(table, s);
  table.path("out", s.out, "Folder to write").not_saved();
  table.choice("dtype", s.dtype, "Element type of the weights in the file",
               {{"f32", DType::f32}, {"bf16", DType::bf16}});
  table.flag("force", s.force, "Write into a folder that is not empty").not_saved();
}

void declare_po(OptionTable& table, PoSettings& s) {
  declare_use(table, s);
  declare_search(table, s);
  table.path("out", s.out, "File to write").not_saved();
  table.flag("in-place", s.in_place, "Replace the catalogue itself").not_saved();
  table.positionals("FILE.po", s.files, "The catalogue");
}

/// The settings of all commands; a command fills in its own.
struct Commands {
  Settings training;
  SweepOfTrainings swept;
  EvalSettings eval;
  TextSettings use;
  AttentionSettings attention;
  BeamSettings beam;
  ExportSettings exported;
  PoSettings po;
  ServeSettings serve;
  InfoSettings info;
};

void run(const std::vector<std::string>& arguments) {
  CommandLine line("translate",
                   "Trains a Transformer on pairs of texts, and turns texts into others with it.");
  Commands c;
  declare_training(line.command("train", "Train a model on a file of pairs",
                                [&](OptionTable& table) { train(c.training, table); }),
                   c.training);
  declare_sweep(line.command("sweep", "Train models with options varied, over several seeds",
                             [&](OptionTable& table) { sweep(c.swept, table); }),
                c.swept);
  declare_eval(line.command("eval", "Errors of a model on pairs", [&] { evaluate_model(c.eval); }), c.eval);
  declare_run(line.command("run", "Outputs for texts: arguments, a file's lines or standard input's",
                           [&] { run_model(c.use); }),
              c.use);
  declare_attention(line.command("attention", "Which words of a text those of its output attend to, drawn",
                                 [&] { attention(c.attention); }),
                    c.attention);
  declare_beam(line.command("beam", "The search for a text's output, drawn as a tree", [&] { beam(c.beam); }),
               c.beam);
  declare_export(
      line.command("export", "A folder with only what use needs", [&] { export_model(c.exported); }),
      c.exported);
  declare_po(line.command("po", "Fill in what a gettext catalogue has no translation for",
                          [&] { fill_catalogue(c.po); }),
             c.po);
  OptionTable& served =
      line.command("serve", "A page and an HTTP endpoint for texts", [&] { serve(c.serve); });
  declare_use(served, c.serve);
  declare_search(served, c.serve);
  declare_server(served, c.serve);
  OptionTable& shown = line.command("info", "Parameters and vocabularies of a model", [&] { info(c.info); });
  declare_folder(shown, c.info);
  shown.flag("tree", c.info.tree, "Print the nested modules");
  line.run(arguments);
}

}  // namespace

int main(int argc, char** argv) { return run_program(argc, argv, run); }

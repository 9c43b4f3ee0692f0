// translate: a Transformer from text to text, trained on pairs of your own, and used.
#include "apps/common/command_line.h"
#include "apps/common/program.h"
#include "apps/translate/commands.h"

namespace {

using namespace heed::apps;

void declare_use(OptionTable& table, UseSettings& settings) {
  declare_common(table, settings);
  table.group("Model");
  table.path("model", settings.model, "Folder that `train` wrote").not_saved();
}

void declare_search(OptionTable& table, SearchSettings& s) {
  table.group("Search");
  table.integer("beam", s.beam, "Hypotheses followed for each text", {1, 1 << 10});
  table.number("length-penalty", s.length_penalty, "Exponent of the length penalty", {0, 100, false, false});
  table.integer("max-length", s.max_length, "Tokens of an output, at most; 0: as in training", {0, 1 << 16});
  table.integer("batch-tokens", s.batch_tokens, "Source tokens computed together, at most", {1, 1 << 24});
}

void declare_server(OptionTable& table, ServeSettings& s) {
  constexpr int64_t kMany = 1 << 20;
  table.group("Server");
  table.text("host", s.http.host, "Address to listen on; 0.0.0.0: every one of this machine").not_saved();
  table.integer("port", s.http.port, "Port to listen on; 0: one that is free", {0, 65535});
  table.integer("connections", s.http.connections, "Connections served at once; others wait", {1, 4096});
  table.integer("gather", s.gather, "Milliseconds that a text waits for others to be computed with",
                {0, 1000});
  table.integer("max-text", s.limits.max_text, "Characters of a text, at most", {1, kMany});
  table.integer("max-texts", s.limits.max_texts, "Texts of a request, at most", {1, kMany});
  table.integer("max-body", s.http.max_body, "Bytes of a request, at most", {1, int64_t{1} << 30});
  table.integer("max-waiting", s.limits.max_waiting, "Texts of all requests that wait, at most", {1, kMany});
  table.integer("max-beam", s.limits.max_beam, "Hypotheses of a text that a request may ask for, at most",
                {1, 1 << 10});
}

void run(const std::vector<std::string>& arguments) {
  CommandLine line("translate",
                   "Trains a Transformer on pairs of texts, and turns texts into others with it.");

  Settings training;
  OptionTable* training_table = nullptr;
  OptionTable& table =
      line.command("train", "Train a model on a file of pairs", [&] { train(training, *training_table); });
  training_table = &table;
  declare_training(table, training);

  EvalSettings eval;
  OptionTable& eval_table = line.command("eval", "Errors of a model on pairs", [&] { evaluate_model(eval); });
  declare_use(eval_table, eval);
  eval_table.path("data", eval.data, "Pairs, in the format of the training's").not_saved();
  eval_table.choice(
      "part", eval.part, "Which of the pairs, as the training would split them",
      {{"test", Part::test}, {"valid", Part::valid}, {"train", Part::train}, {"all", Part::all}});
  eval_table.integer("failures", eval.failures, "Wrong outputs that are shown", {0, 1 << 20});
  declare_search(eval_table, eval);

  TextSettings use;
  OptionTable& run_table = line.command(
      "run", "Outputs for texts: arguments, a file's lines or standard input's", [&] { run_model(use); });
  declare_use(run_table, use);
  declare_search(run_table, use);
  run_table.integer("best", use.best, "Outputs of each text, best first, with their scores", {1, 1 << 10});
  run_table.path("input", use.input, "Texts from a file, one a line").not_saved();
  run_table.positionals("TEXT", use.texts, "Texts, each as one argument");

  ServeSettings served;
  OptionTable& serve_table =
      line.command("serve", "A page and an HTTP endpoint for texts", [&] { serve(served); });
  declare_use(serve_table, served);
  declare_search(serve_table, served);
  declare_server(serve_table, served);

  InfoSettings shown;
  OptionTable& info_table =
      line.command("info", "Parameters and vocabularies of a model", [&] { info(shown); });
  declare_use(info_table, shown);
  info_table.flag("tree", shown.tree, "Print the nested modules");

  line.run(arguments);
}

}  // namespace

int main(int argc, char** argv) { return run_program(argc, argv, run); }

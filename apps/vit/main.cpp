// vit: a Vision Transformer, and a convolutional network beside it, learn to tell pictures apart.
#include "apps/common/options/command_line.h"
#include "apps/common/program.h"
#include "apps/vit/commands.h"

namespace {

using namespace heed::apps;

void declare_model(OptionTable& table, ModelSettings& s) {
  declare_common(table, s);
  table.group("Model");
  table.path("model", s.model, "Folder that `train` wrote").not_saved();
  table.path("data", s.data, "Pictures, as of `train`").not_saved();
  table.path("labels", s.labels, "IDX file of labels").not_saved();
}

void run(const std::vector<std::string>& arguments) {
  CommandLine line("vit", "Trains a Vision Transformer to tell pictures apart, and shows what it looks at.");

  Settings training;
  declare_training(
      line.command("train", "Train a model", [&](OptionTable& table) { train(training, table); }), training);

  EvalSettings eval;
  OptionTable& eval_table =
      line.command("eval", "How many pictures are told right, and which are not", [&] { evaluate(eval); });
  declare_model(eval_table, eval);
  eval_table.flag("all", eval.all, "All pictures of the file, not those for testing alone");

  PredictSettings predicting;
  OptionTable& predict_table = line.command("predict", "What pictures are", [&] { predict(predicting); });
  declare_model(predict_table, predicting);
  predict_table.positionals("NUMBER", predicting.numbers,
                            "Pictures of the file, from 0; by default the first for testing");

  AttentionSettings maps;
  OptionTable& attention_table =
      line.command("attention", "What a picture's class token attends to", [&] { attention(maps); });
  declare_model(attention_table, maps);
  attention_table.group("Maps");
  attention_table.integer("picture", maps.picture, "Its number in the file; by default the first for testing",
                          {0, int64_t{1} << 40});
  attention_table.integer("layer", maps.layer, "Layer whose heads are drawn; by default the last", {0, 1024});
  attention_table.path("out", maps.out, "Folder for figures and maps; by default the model's").not_saved();

  line.run(arguments);
}

}  // namespace

int main(int argc, char** argv) { return run_program(argc, argv, run); }

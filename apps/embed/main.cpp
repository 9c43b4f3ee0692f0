// embed: texts as vectors, and search in a folder's texts by what they mean.
#include "apps/common/options/command_line.h"
#include "apps/common/program.h"
#include "apps/embed/commands.h"

namespace {

using namespace heed::apps;

void declare_model(OptionTable& table, ModelSettings& s) {
  declare_common(table, s);
  table.group("Model");
  table.path("model", s.model, "Folder in the layout of sentence-transformers").not_saved();
  declare_dtype(table, s.dtype);
}

void declare_search(OptionTable& table, SearchSettings& s) {
  declare_model(table, s);
  table.group("Search");
  table.integer("top", s.top, "Paragraphs shown of each question", {1, 1000});
  table.list("extensions", s.extensions, "Endings of the files that are searched");
  table.flag("all", s.all, "All files that are texts, whatever their endings");
  table
      .path("index", s.index, "Where the vectors are kept; by default .heed-search.safetensors in the folder")
      .not_saved();
}

void run(const std::vector<std::string>& arguments) {
  CommandLine line("embed",
                   "Makes vectors of texts by a published model, and finds texts by what they mean.");

  EncodeSettings encoding;
  OptionTable& encode_table = line.command(
      "encode", "Vectors of texts: arguments, a file's lines or standard input's", [&] { encode(encoding); });
  declare_model(encode_table, encoding);
  encode_table.path("input", encoding.input, "Texts from a file, one a line").not_saved();
  encode_table.path("out", encoding.out, "NumPy file to write them to").not_saved();
  encode_table.positionals("TEXT", encoding.texts, "Texts, each as one argument");

  CompareSettings comparing;
  OptionTable& compare_table =
      line.command("compare", "How near texts are to each other", [&] { compare(comparing); });
  declare_model(compare_table, comparing);
  compare_table.positionals("TEXT", comparing.texts, "Two texts or more, each as one argument");

  SearchSettings searching;
  OptionTable& search_table =
      line.command("search", "Find texts by what they mean", [&] { search(searching); });
  declare_search(search_table, searching);
  search_table.positionals(
      "FOLDER [QUESTION]", searching.words,
      "The folder, and questions, each as one argument; without any, lines of standard input");

  ServeSettings serving;
  OptionTable& serve_table =
      line.command("serve", "A page and HTTP endpoints for search and vectors", [&] { serve(serving); });
  declare_search(serve_table, serving);
  declare_text_server(serve_table, serving.http, serving.gather, serving.limits);
  serve_table.integer("max-top", serving.max_top, "Paragraphs that a request may ask for, at most",
                      {1, 1000});
  serve_table.positionals("FOLDER", serving.words, "The folder; brought up to date at the start");

  TrainSettings training;
  declare_training(line.command("train", "Fine-tune an encoder: on texts with labels, or on pairs of texts",
                                [&](OptionTable& table) { train(training, table); }),
                   training);

  ClassifySettings classifying;
  OptionTable& classify_table = line.command("classify", "Labels of texts, by a model that `train` made",
                                             [&] { classify(classifying); });
  declare_model(classify_table, classifying);
  classify_table.path("input", classifying.input, "Texts from a file, one a line").not_saved();
  classify_table.path("data", classifying.data, "File of texts with labels: how many are right").not_saved();
  classify_table.choice(
      "label-column", classifying.label, "Which column of --data has the labels",
      {{"detect", LabelColumn::detect}, {"first", LabelColumn::first}, {"second", LabelColumn::second}});
  classify_table.positionals("TEXT", classifying.texts, "Texts, each as one argument");

  InfoSettings shown;
  OptionTable& info_table = line.command("info", "Parameters of a model", [&] { info(shown); });
  declare_model(info_table, shown);

  line.run(arguments);
}

}  // namespace

int main(int argc, char** argv) { return run_program(argc, argv, run); }

// embed: texts as vectors, and search in a folder's texts by what they mean.
#include "apps/common/command_line.h"
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
  declare_model(search_table, searching);
  search_table.group("Search");
  search_table.integer("top", searching.top, "Paragraphs shown of each question", {1, 1000});
  search_table.list("extensions", searching.extensions, "Endings of the files that are searched");
  search_table.flag("all", searching.all, "All files that are texts, whatever their endings");
  search_table
      .path("index", searching.index,
            "Where the vectors are kept; by default .heed-search.safetensors in the folder")
      .not_saved();
  search_table.positionals(
      "FOLDER [QUESTION]", searching.words,
      "The folder, and questions, each as one argument; without any, lines of standard input");

  InfoSettings shown;
  OptionTable& info_table = line.command("info", "Parameters of a model", [&] { info(shown); });
  declare_model(info_table, shown);

  line.run(arguments);
}

}  // namespace

int main(int argc, char** argv) { return run_program(argc, argv, run); }

// The texts of a file through a published model's tokenizer: tokenize TOKENIZER TEXTS [ids | marks].
// Texts end with a NUL. "ids" writes the ids of each text, without marks, a text a line, and then their
// decoded texts, ended with NULs; "marks" writes the ids with marks. Otherwise each line of standard input
// asks for one pass, of which it writes the seconds.
#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include <heed/core/base/check.h>
#include <heed/core/io/file.h>
#include <heed/data/text/pretrained_tokenizer.h>

namespace {

using heed::data::PretrainedTokenizer;
using heed::data::TokenIds;

std::vector<std::string> texts_of(const std::string& path) {
  const std::string content = heed::read_whole_file(path, uint64_t{1} << 31);
  std::vector<std::string> texts;
  for (size_t begin = 0; begin < content.size();) {
    const size_t end = std::min(content.find('\0', begin), content.size());
    texts.push_back(content.substr(begin, end - begin));
    begin = end + 1;
  }
  return texts;
}

void write(const PretrainedTokenizer& tokenizer, const std::vector<std::string>& texts, bool marks) {
  std::string decoded;
  for (const std::string& text : texts) {
    const TokenIds ids = tokenizer.encode(text, {.add_marks = marks});
    std::string line;
    for (const int64_t id : ids) line += (line.empty() ? "" : " ") + std::to_string(id);
    std::puts(line.c_str());
    decoded += tokenizer.decode(ids) + '\0';
  }
  std::fwrite(decoded.data(), 1, decoded.size(), stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  try {
    const auto tokenizer = heed::data::load_pretrained_tokenizer(argv[1]);
    const std::vector<std::string> texts = texts_of(argv[2]);
    if (argc > 3) {
      write(*tokenizer, texts, std::string(argv[3]) == "marks");
      return 0;
    }
    for (std::string line; std::getline(std::cin, line);) {
      const auto begin = std::chrono::steady_clock::now();
      size_t ids = 0;
      for (const std::string& text : texts) ids += tokenizer->encode(text).size();
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      std::cout << seconds.count() << ' ' << ids << std::endl;
    }
  } catch (const heed::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}

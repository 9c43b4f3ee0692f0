// Reading the pages of the documentation.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace heed::test {

inline std::string read_file(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

/// A fenced block: ```language, lines, ```.
struct Block {
  std::string language, text;
};

inline std::vector<Block> fenced_blocks(const std::string& markdown) {
  std::vector<Block> found;
  std::istringstream lines(markdown);
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    const bool fence = line.compare(0, 3, "```") == 0;
    if (fence && !inside) found.push_back({line.substr(3), ""});
    if (!fence && inside) found.back().text += line + "\n";
    if (fence) inside = !inside;
  }
  return found;
}

/// What stands outside of fenced blocks.
inline std::string prose(const std::string& markdown) {
  std::string text;
  std::istringstream lines(markdown);
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    const bool fence = line.compare(0, 3, "```") == 0;
    if (fence) inside = !inside;
    if (!fence && !inside) text += line + "\n";
  }
  return text;
}

}  // namespace heed::test

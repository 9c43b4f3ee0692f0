// pretrained_find MODEL FILE QUESTION: the three lines of a text that are nearest to a question.
#include <cstdio>
#include <fstream>

#include <heed/heed.h>
#include <heed/nn/text/sentence_encoder.h>

using namespace heed;

int main(int argc, char** argv) {
  if (argc != 4) return 1;
  const nn::SentenceEncoder encoder = nn::load_sentence_encoder(argv[1]);
  std::vector<std::string> lines;
  std::ifstream file(argv[2]);
  for (std::string line; std::getline(file, line);) lines.push_back(line);

  const Tensor texts = encoder.encode(lines), question = encoder.encode({argv[3]});  // of length 1
  const auto [cosines, places] = topk(matmul(question, texts.transpose(0, 1)), 3);
  for (int i = 0; i < 3; ++i)
    std::printf("%.3f  %s\n", static_cast<double>(cosines.data<float>()[i]),
                lines[static_cast<size_t>(places.data<int64_t>()[i])].c_str());
}

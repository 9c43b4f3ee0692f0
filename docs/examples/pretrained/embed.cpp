// pretrained_embed FOLDER ID…: where a sentence, given as ids of tokens, stands in the space of a sentence
// encoder.
#include <cstdlib>

#include <heed/heed.h>
#include <heed/nn/pretrained/pretrained.h>

int main(int argc, char** argv) {
  const auto model = heed::nn::load_pretrained<heed::nn::TextEncoder>(argv[1]);
  std::vector<int64_t> ids;
  for (int i = 2; i < argc; ++i) ids.push_back(std::atoll(argv[i]));
  const heed::NoGrad no_grad;
  std::cout << model->embed(heed::nn::Tokens::packed({ids})) << "\n";
}

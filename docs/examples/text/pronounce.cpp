// Texts through a model that `translate train` wrote: pronounce FOLDER TEXT…
#include <iostream>

#include <heed/nn/text/text_model.h>

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const heed::nn::TextModel model = heed::nn::load_text_model(argv[1]);
  for (int i = 2; i < argc; ++i) std::cout << argv[i] << "  ->  " << model.run(argv[i], {.beam = 5}) << "\n";
}

// pretrained_look MODEL TEXT WORD LAYER HEAD: what a head of a sentence encoder looks at from a word of a
// text.
#include <cstdio>
#include <cstdlib>

#include <heed/heed.h>
#include <heed/nn/text/sentence_encoder.h>

using namespace heed;

int main(int argc, char** argv) {
  if (argc != 6) return 1;
  const nn::SentenceEncoder encoder = nn::load_sentence_encoder(argv[1]);
  const std::vector<int64_t> ids = encoder.tokenize(argv[2]);
  const AttentionRecord record;  // notes the calls made while it lives
  encoder.embed(nn::Tokens::packed({ids}));
  const Tensor weights = record.weights(concat("layers.", argv[4], ".self_attn"), 0, std::atoll(argv[5]));

  for (int64_t query = 0; query < std::ssize(ids); ++query) {
    if (encoder.tokenizer().piece(ids[static_cast<size_t>(query)]) != argv[3]) continue;
    for (int64_t key = 0; key < std::ssize(ids); ++key)
      std::printf("%.3f  %s\n", weights.select(0, query).select(0, key).item<double>(),
                  encoder.tokenizer().piece(ids[static_cast<size_t>(key)]).c_str());
    return 0;
  }
  std::fprintf(stderr, "no token of the text is '%s'\n", argv[3]);
  return 1;
}

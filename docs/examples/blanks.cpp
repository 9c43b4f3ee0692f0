// An encoder learns a rhyme by filling in characters that were taken out of it, and then fills in three.
#include <heed/heed.h>
using namespace heed;

const std::string kRhyme =
    "This is the farmer sowing his corn, that kept the cock that crowed in the morn, that waked the priest "
    "all shaven and shorn, that married the man all tattered and torn, that kissed the maiden all forlorn.";

int main() {
  nn::TextEncoderConfig config;
  config.vocabulary = 128;
  config.layers = 2;
  config.d_model = 64;
  config.heads = 4;
  config.d_ff = 128;
  config.max_length = 32;
  config.token_types = 0;
  config.pooler = false;
  config.norm = nn::NormPlacement::pre;
  nn::TextEncoder model(config);
  optim::AdamW adam(model.parameters(), {.lr = 5e-3});

  const auto logits = [&](const nn::Tokens& text) {  // the last layer is the table of embeddings
    return linear(model.forward(text), model.embedding.weight);
  };
  data::SampleDraw draw(1, 0, 0);
  for (int step = 0; step < 800; ++step) {
    std::vector<std::vector<int64_t>> texts;
    std::vector<int64_t> labels;  // what stood in a blank; elsewhere kNoLabel, which the loss passes over
    for (size_t from = static_cast<size_t>(step % 4); from + 32 <= kRhyme.size(); from += 4) {
      const data::TokenIds window(kRhyme.begin() + from, kRhyme.begin() + from + 32);
      const data::MaskedText masked =
          data::mask_tokens(window, {.rate = 0.25, .mask = '_', .vocabulary = 128}, draw);
      texts.emplace_back(masked.ids.begin(), masked.ids.end());
      labels.insert(labels.end(), masked.labels.begin(), masked.labels.end());
    }
    const nn::Tokens batch = nn::Tokens::packed(texts);
    const Tensor loss = cross_entropy(logits(batch), tensor(labels, batch.ids.shape()));
    if (step % 200 == 0) std::cout << "step " << step << ": loss " << loss.item<float>() << "\n";
    loss.backward();
    adam.step({.clip = 1});
  }

  model.eval();
  const NoGrad no_grad;
  std::string text = "the c_ck that crow_d in the m_rn";
  const Tensor answers = argmax(logits(nn::Tokens::packed({{text.begin(), text.end()}})), 1);
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] == '_') text[i] = static_cast<char>(answers.data<int64_t>()[i]);
  std::cout << text << "\n";
  return kRhyme.find(text) == std::string::npos;
}

#include <iostream>

#include <heed/data/text/pretrained_tokenizer.h>

int main() {
  const auto t = heed::data::parse_vocab_txt("[UNK]\n[CLS]\n[SEP]\nun\n##aff\n##able\n!\n", "vocab.txt");
  for (const int64_t id : t->encode("Unaffable!", {})) std::cout << id << " " << t->piece(id) << "\n";
  std::cout << t->decode(t->encode("Unaffable!")) << "\n";
}

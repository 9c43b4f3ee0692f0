// BLEU.
#pragma once

#include <array>
#include <cstdint>

#include <heed/data/text/metrics/metric.h>

namespace heed::data {

/// What a token is: mteval_13a: a word or a punctuation mark, as WMT's mteval-v13a.pl parts them; characters:
/// for languages that write no spaces.
enum class BleuTokenizer { mteval_13a, characters };

struct BleuOptions {
  BleuTokenizer tokenizer = BleuTokenizer::mteval_13a;
  bool effective_order = false;  // leave out orders that the text is too short for: for single sentences
};

/// BLEU of orders 1 to 4 (Papineni et al., ACL 2002), of cased text, where an order without a match counts as
/// half, then a quarter, … of a match (smoothing "exp", as mteval has it). Agrees with sacrebleu (Post, WMT
/// 2018).
class Bleu final : public TextMetric {
 public:
  static constexpr size_t kOrders = 4;
  /// What the score is made of.
  struct Parts {
    double score;                           // percent
    std::array<double, kOrders> precision;  // percent, by order
    double brevity_penalty;
    int64_t length, reference_length;  // tokens; of each segment's references the closest length
  };

  explicit Bleu(const BleuOptions& options = {}) : options_(options) {}

  std::string name() const override { return "BLEU"; }
  double score(const Statistics& sum) const override { return parts(sum).score; }
  Parts parts(const Statistics& sum) const;

 private:
  Statistics count(std::string_view hypothesis, const References& references) const override;

  BleuOptions options_;
};

/// The text's tokens, parted by spaces.
std::string tokenize_13a(std::string_view text);

}  // namespace heed::data

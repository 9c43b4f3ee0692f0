// Two translators on the same sentences: scores, how sure they are, and whether they differ.
#include <cstdio>

#include <heed/data/text/metrics/bleu.h>
#include <heed/data/text/metrics/bootstrap.h>
#include <heed/data/text/metrics/chrf.h>
#include <heed/data/text/metrics/ter.h>

using namespace heed::data;

int main() {
  const std::vector<References> references{{"The cat sat on the mat."},
                                           {"It is raining today.", "It rains today."},
                                           {"Where is the railway station?"},
                                           {"She has read all of the books."}};
  const std::vector<std::string> first{"The cat sits on a mat.", "It rains today.", "Where is station?",
                                       "She has all the books read."};
  const std::vector<std::string> second{"The cat sat on the mat.", "It is raining.",
                                        "Where is the train station?", "She has read all the books."};
  const Bleu bleu;
  const Chrf chrf({.word_order = 2});
  const Ter ter;
  for (const TextMetric* metric :
       {static_cast<const TextMetric*>(&bleu), static_cast<const TextMetric*>(&chrf),
        static_cast<const TextMetric*>(&ter)}) {
    const std::vector<Statistics> of_first = metric->statistics(first, references);
    const std::vector<Statistics> of_second = metric->statistics(second, references);
    const Interval interval = bootstrap(*metric, of_second);
    const Comparison comparison = paired_bootstrap(*metric, of_first, of_second);
    std::printf("%-6s first %5.1f, second %5.1f (%.1f to %.1f), difference %+.1f (p = %.2f)\n",
                metric->name().c_str(), metric->corpus_score(first, references), interval.score, interval.low,
                interval.high, comparison.difference.score, comparison.p_value);
  }
}

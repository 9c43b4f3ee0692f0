#include "apps/copy_reverse/heads.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <heed/core/attention.h>
#include <heed/core/io/atomic_file.h>
#include <heed/core/ops.h>
#include <heed/nn/attention/attention_statistics.h>

#include "apps/common/progress.h"

namespace heed::apps {
namespace {

constexpr AttentionKind kKinds[] = {AttentionKind::source, AttentionKind::target, AttentionKind::cross};

// Those pairs of a data set whose source and target have the lengths that most have: their maps are of one
// shape.
class PairsOfOneLength final : public data::PairDataset {
 public:
  PairsOfOneLength(const data::PairDataset& all, int64_t most) : vocab_(all.vocab()) {
    std::map<std::pair<size_t, size_t>, std::vector<data::Pair>> groups;
    for (int64_t i = 0; i < all.size(); ++i) {
      data::Pair pair = all.get(0, i);
      std::vector<data::Pair>& group = groups[{pair.source.size(), pair.target.size()}];
      if (std::ssize(group) < most) group.push_back(std::move(pair));
    }
    for (auto& entry : groups)
      if (entry.second.size() > pairs_.size()) pairs_ = std::move(entry.second);
    HEED_CHECK(std::ssize(pairs_) >= 2, DataError, "no two pairs have the same lengths");
  }
  int64_t size() const override { return std::ssize(pairs_); }
  data::Pair get(int64_t, int64_t index) const override { return pairs_[static_cast<size_t>(index)]; }
  std::string fingerprint() const override { return concat(size(), " pairs of one length"); }
  int64_t vocab() const override { return vocab_; }
  int64_t longest_source() const override { return std::ssize(pairs_.front().source); }
  int64_t longest_target() const override { return std::ssize(pairs_.front().target); }

  const std::vector<data::Pair>& pairs() const { return pairs_; }

 private:
  int64_t vocab_;
  std::vector<data::Pair> pairs_;
};

std::shared_ptr<const data::PairDataset> all_pairs(const HeadsSettings& s, Trained& trained) {
  Settings& settings = trained.settings;
  const bool generated = s.data.empty() && settings.data.empty() && settings.valid.empty();
  HEED_CHECK(generated || !s.length, ConfigError,
             "--length is of generated pairs; those of a file have theirs");
  if (generated) {
    settings.min_length = settings.max_length = s.length.value_or(settings.max_length);
    settings.valid_pairs = s.pairs;
  }
  return pairs_of(s, trained);
}

// ids of one length, [pairs, rows].
Tensor matrix_of(const Tensor& ids, int64_t pairs) { return ids.to(kCpu).view({pairs, -1}); }

void measure(AttentionFacts& facts, const Tensor& query_ids, const Tensor& key_ids) {
  const auto means = [](const Tensor& rows) { return mean(rows, {.axes = {0, 2}}).to_vector<double>(); };
  const std::vector<double> entropy = means(nn::attention_entropy(facts.weights)),
                            distance = means(nn::attention_distance(facts.weights)),
                            place = nn::explained_by_place(facts.weights).to_vector<double>(),
                            symbol = nn::explained_by_symbols(facts.weights, query_ids, key_ids)
                                         .to_vector<double>();
  const std::vector<nn::HeadRole> roles =
      nn::head_roles(facts.weights, query_ids, key_ids, {.cross = facts.kind == AttentionKind::cross});
  for (size_t h = 0; h < roles.size(); ++h)
    facts.heads.push_back({roles[h], entropy[h], distance[h], place[h], symbol[h]});
}

std::vector<AttentionFacts> look(nn::Seq2SeqModel& model, const std::vector<data::Pair>& pairs,
                                 data::Marks marks) {
  const NoGrad no_grad;
  const AttentionRecord record;
  const std::vector<int64_t> numbers(pairs.size());
  const train::Seq2SeqBatch batch =
      train::to_tensors(data::pack(pairs, numbers, marks), model.parameters().device());
  (void)model.forward(batch.source, batch.target);
  const int64_t count = std::ssize(pairs);
  const Tensor source = matrix_of(batch.source.ids, count), target = matrix_of(batch.target.ids, count);
  std::vector<AttentionFacts> result;
  std::map<AttentionKind, int64_t> layers;
  for (nn::MultiHeadAttention* attention : nn::attentions(model)) {
    throw_if_stopped();
    const AttentionKind kind = kind_of(attention->name);
    std::vector<Tensor> weights;
    for (int64_t n = 0; n < count; ++n) weights.push_back(record.weights(attention->name, n).to(kCpu));
    AttentionFacts facts{attention, kind, layers[kind]++, stack(weights, 0).to(DType::f64), {}};
    measure(facts, kind == AttentionKind::source ? source : target,
            kind == AttentionKind::target ? target : source);
    result.push_back(std::move(facts));
  }
  return result;
}

// Without each head, and then without more and more of them.
void ablate(HeadStudy& study, nn::Seq2SeqModel& model, const data::PairDataset& pairs, data::Marks marks) {
  struct Candidate {
    nn::Head head;
    double loss;
  };
  std::vector<Candidate> order;
  size_t count = 0;
  for (const AttentionFacts& facts : study.attentions) count += facts.heads.size();
  Progress progress("without heads", static_cast<int64_t>(2 * count), "evaluations");
  const auto without = [&](const std::vector<nn::Head>& heads) {
    const nn::HeadAblation ablation(heads);
    const Evaluation e = evaluate(model, pairs, {.marks = marks});
    progress.advance(1);
    return e;
  };
  for (AttentionFacts& facts : study.attentions)
    for (size_t h = 0; h < facts.heads.size(); ++h) {
      const nn::Head head{facts.attention, static_cast<int64_t>(h)};
      const Evaluation e = without({head});
      facts.heads[h].loss = e.loss;
      facts.heads[h].right = e.sequence_accuracy;
      order.push_back({head, e.loss});
    }
  std::stable_sort(order.begin(), order.end(),
                   [](const Candidate& a, const Candidate& b) { return a.loss < b.loss; });
  std::vector<nn::Head> gone;
  for (const Candidate& next : order) {
    gone.push_back(next.head);
    const Evaluation e = without(gone);
    study.pruned.push_back({e.loss, e.sequence_accuracy});
  }
  progress.finish();
}

Table table_of(const HeadStudy& study, AttentionKind kind) {
  Table table{{{"Layer"},
               {"Head"},
               {"Looks at"},
               {"Share", "{:.2f}"},
               {"Entropy", "{:.2f}"},
               {"Distance", "{:.1f}"},
               {"By place", "{:.2f}"},
               {"By symbol", "{:.2f}"},
               {"Loss without", "{:.4f}"},
               {"Right without, %", "{:.1f}"}},
              {}};
  for (const AttentionFacts* facts : study.of(kind))
    for (size_t h = 0; h < facts->heads.size(); ++h) {
      const HeadFacts& head = facts->heads[h];
      table.rows.push_back({facts->layer, h, head.role.name, head.role.share, head.entropy, head.distance,
                            head.place, head.symbol, head.loss, 100 * head.right});
    }
  return table;
}

std::string csv_of(const HeadStudy& study) {
  std::string csv =
      "attention,layer,head,looks_at,share,entropy_bits,distance,by_place,by_symbol,loss_without,right_"
      "without\n";
  for (const AttentionFacts& facts : study.attentions)
    for (size_t h = 0; h < facts.heads.size(); ++h) {
      const HeadFacts& head = facts.heads[h];
      csv += fmt::format("{},{},{},\"{}\",{},{},{},{},{},{},{}\n", facts.attention->name, facts.layer, h,
                         head.role.name, head.role.share, head.entropy, head.distance, head.place,
                         head.symbol, head.loss, head.right);
    }
  return csv;
}

void show_tables(Presentation& show, const HeadStudy& study) {
  show.line(fmt::format("{} pairs of {} symbols: loss {:.4f}, {:.1f} % of sequences right", study.pairs,
                        study.first.source.size(), study.whole.loss, 100 * study.whole.sequence_accuracy));
  show.value("pairs", study.pairs);
  show.value("loss", study.whole.loss);
  show.value("sequence_accuracy", study.whole.sequence_accuracy);
  for (const AttentionKind kind : kKinds) {
    if (study.of(kind).empty()) continue;
    const std::string name = name_of(kind);
    show.heading(name);
    show.table(kind == AttentionKind::source   ? "encoder"
               : kind == AttentionKind::target ? "decoder"
                                               : "cross",
               table_of(study, kind));
  }
  show.heading("Heads taken away one after another, the least missed first");
  Table left{{{"Without"}, {"Loss", "{:.4f}"}, {"Right, %", "{:.1f}"}}, {}};
  for (size_t i = 0; i < study.pruned.size(); ++i)
    left.rows.push_back({i + 1, study.pruned[i].loss, 100 * study.pruned[i].right});
  show.table("pruned", left);
}

}  // namespace

std::string name_of(AttentionKind kind) {
  return kind == AttentionKind::source   ? "Encoder"
         : kind == AttentionKind::target ? "Decoder"
                                         : "Cross-attention";
}

std::vector<const AttentionFacts*> HeadStudy::of(AttentionKind kind) const {
  std::vector<const AttentionFacts*> found;
  for (const AttentionFacts& facts : attentions)
    if (facts.kind == kind) found.push_back(&facts);
  return found;
}

void heads(const HeadsSettings& s) {
  Trained trained = open_model(s);
  HEED_CHECK(trained.settings.model == SequenceModel::transformer, ConfigError,
             "the attention of a recurrent model has no heads");
  const PairsOfOneLength pairs(*all_pairs(s, trained), s.pairs);
  nn::Seq2SeqModel& model = *trained.model;
  HeadStudy study;
  study.first = pairs.pairs().front();
  study.pairs = pairs.size();
  study.attentions = look(model, pairs.pairs(), trained.marks());
  HEED_CHECK(!study.attentions.empty(), ConfigError, "the model has no layers, and so no heads");
  study.whole = evaluate(model, pairs, {.marks = trained.marks()});
  ablate(study, model, pairs, trained.marks());

  const std::filesystem::path out = s.out.empty() ? s.model : s.out;
  Presentation show(s.json, out);
  show_tables(show, study);
  draw_heads(show, study, trained, s.layer);
  write_whole_file(out / "heads.csv", csv_of(study));
  show.finish();
}

}  // namespace heed::apps

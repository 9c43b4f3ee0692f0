// Where a model goes wrong: at which places, lengths and symbols, and its worst outputs.
#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include <heed/core/io/atomic_file.h>
#include <heed/core/ops.h>
#include <heed/nn/inspection.h>

#include "apps/common/figures/presentation.h"
#include "apps/common/progress.h"
#include "apps/copy_reverse/figures.h"
#include "apps/copy_reverse/trained.h"

namespace heed::apps {
namespace {

struct Count {
  int64_t right = 0, all = 0;
  void add(bool is_right) {
    right += is_right;
    ++all;
  }
  double percent() const { return 100.0 * static_cast<double>(right) / static_cast<double>(all); }
};

// A pair and how improbable its target is to the model, in nats.
struct Judged {
  Prediction prediction;
  double loss = 0;
};

struct Failures {
  int64_t pairs = 0, wrong = 0;
  std::map<int64_t, Count> places, symbols;  // of labels, given the right ones before
  std::map<int64_t, Count> lengths, twins;   // whole outputs, by the length of the source and its twins
  std::map<std::pair<int64_t, int64_t>, int64_t> confusions;  // label, answer: how often, right ones too
  std::vector<Judged> worst;                                  // of the outputs that are wrong
};

// What the model answers at each place of the targets, given the right symbols before it.
void add_labels(Failures& failures, const data::PairBatch& packed, const Tensor& logits) {
  const std::vector<int64_t> answers = argmax(logits, -1).to_vector<int64_t>();
  for (int64_t n = 0; n < packed.size(); ++n) {
    const int64_t first = packed.target.first[static_cast<size_t>(n)];
    for (int64_t t = 0; t < packed.target.length[static_cast<size_t>(n)]; ++t) {
      const auto row = static_cast<size_t>(first + t);
      const int64_t label = packed.labels[row], answer = answers[row];
      failures.places[t].add(answer == label);
      failures.symbols[label].add(answer == label);
      ++failures.confusions[{label, answer}];
    }
  }
}

// How often a symbol stands beside itself.
int64_t count_twins(const data::TokenIds& symbols) {
  int64_t count = 0;
  for (size_t i = 1; i < symbols.size(); ++i) count += symbols[i] == symbols[i - 1];
  return count;
}

void add_outputs(Failures& failures, std::vector<Prediction> outputs, const data::PairBatch& packed,
                 const Tensor& losses, int64_t worst) {
  const std::vector<double> loss = losses.to(kCpu).to(DType::f64).to_vector<double>();
  for (size_t n = 0; n < outputs.size(); ++n) {
    Prediction& p = outputs[n];
    failures.lengths[std::ssize(p.pair.source)].add(p.right);
    failures.twins[count_twins(p.pair.source)].add(p.right);
    ++failures.pairs;
    if (p.right) continue;
    ++failures.wrong;
    double total = 0;
    for (int64_t t = 0; t < packed.target.length[n]; ++t)
      total += loss[static_cast<size_t>(packed.target.first[n] + t)];
    failures.worst.push_back({std::move(p), total});
  }
  std::stable_sort(failures.worst.begin(), failures.worst.end(),
                   [](const Judged& a, const Judged& b) { return a.loss > b.loss; });
  if (std::ssize(failures.worst) > worst) failures.worst.resize(static_cast<size_t>(worst));
}

Failures find_failures(nn::Seq2SeqModel& model, const data::PairDataset& dataset, data::Marks marks,
                       int64_t worst) {
  constexpr int64_t kBatch = 128;
  const NoGrad no_grad;
  const nn::DecodeOptions decode{.max_length = std::min(dataset.longest_target() + 2, model.max_target()),
                                 .on_step = throw_if_stopped};
  Progress progress("looking for failures", dataset.size(), "pairs");
  Failures failures;
  for (int64_t first = 0; first < dataset.size(); first += kBatch) {
    throw_if_stopped();
    std::vector<data::Pair> pairs;
    for (int64_t i = first; i < std::min(first + kBatch, dataset.size()); ++i)
      pairs.push_back(dataset.get(0, i));
    const std::vector<int64_t> numbers(pairs.size());
    const data::PairBatch packed = data::pack(pairs, numbers, marks);
    const train::Seq2SeqBatch batch = train::to_tensors(packed, model.parameters().device());
    const Tensor logits = model.forward(batch.source, batch.target);
    nn::check_finite(logits, "the logits");
    add_labels(failures, packed, logits);
    const auto outputs = nn::greedy_search(model, batch.source, search_for(pairs, marks, decode));
    add_outputs(failures, grade(outputs, pairs, marks), packed,
                cross_entropy(logits, batch.labels, {.reduction = Reduction::none}), worst);
    progress.advance(std::ssize(pairs));
  }
  progress.finish();
  return failures;
}

// ---- what is shown

// Right, and how many there are, of each place, length or symbol.
template <class Name>
void show_counts(Presentation& show, const std::string& key, const std::string& what,
                 const std::map<int64_t, Count>& counts, const Name& name) {
  Table table{{{what}, {"Right, %", "{:.1f}"}, {"Wrong"}, {"All"}}, {}};
  for (const auto& [at, count] : counts)
    table.rows.push_back({name(at), count.percent(), count.all - count.right, count.all});
  show.table(key, table);
}

void show_confusions(Presentation& show, const Failures& failures, const data::Task& task) {
  std::vector<std::pair<std::pair<int64_t, int64_t>, int64_t>> wrong;
  for (const auto& entry : failures.confusions)
    if (entry.first.first != entry.first.second) wrong.push_back(entry);
  std::stable_sort(wrong.begin(), wrong.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  constexpr size_t kMax = 10;
  if (wrong.size() > kMax) wrong.resize(kMax);
  Table table{{{"Symbol"}, {"Taken for"}, {"Times"}}, {}};
  for (const auto& [pair, times] : wrong)
    table.rows.push_back({token_name(task, pair.first), token_name(task, pair.second), times});
  show.heading("What is taken for what, most often");
  show.table("confusions", table);
}

// Rows are the labels; what is right is left out, for it would hide the rest.
Heatmap confusion_map(const Failures& failures, const data::Task& task) {
  std::vector<int64_t> names;
  for (const auto& entry : failures.confusions) {
    names.push_back(entry.first.first);
    names.push_back(entry.first.second);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  Heatmap map;
  map.title = "What the model answers where another symbol is due";
  map.values = {std::ssize(names), std::ssize(names), {}};
  for (const int64_t label : names) {
    map.row_labels.push_back(token_name(task, label));
    for (const int64_t answer : names) {
      const auto cell = failures.confusions.find({label, answer});
      const bool wrong = label != answer && cell != failures.confusions.end();
      map.values.values.push_back(wrong ? static_cast<float>(cell->second) : 0);
    }
  }
  map.column_labels = map.row_labels;
  map.row_axis = "Symbol";
  map.column_axis = "Answer";
  map.color_label = "Times";
  map.zeros_are_hidden = true;
  map.colors = ColorMap::reds;
  return map;
}

Line line_of(const std::map<int64_t, Count>& counts) {
  Line line{"", {}, {}};
  for (const auto& [at, count] : counts) {
    line.x.push_back(static_cast<double>(at));
    line.y.push_back(count.percent());
  }
  return line;
}

// The last cross-attention, heads averaged, as the model wrote its worst outputs.
void draw_worst(Presentation& show, const Failures& failures, const Trained& trained) {
  HeatmapGrid grid{"What the model looked at as it wrote its worst outputs", 3, {}, true};
  for (const Judged& judged : failures.worst) {
    const auto& [pair, output, right] = judged.prediction;
    const AttentionMaps maps = attention_maps(*trained.model, pair.source, output.tokens, trained.marks(),
                                              trained.settings.task_rule());
    if (maps.of(AttentionKind::cross).empty()) return;
    const AttentionMaps::Map last{
        "", AttentionKind::cross,
        mean(maps.of(AttentionKind::cross).back()->weights, {.axes = {0}, .keep = true})};
    grid.panels.push_back(attention_heatmap(maps, last, 0));
    grid.panels.back().title = concat("Worst ", grid.panels.size());
    grid.panels.back().colors = ColorMap::viridis;
  }
  if (!grid.panels.empty()) show.figure(grid, "failures-worst");
}

void show_worst(Presentation& show, const Failures& failures, const data::Task& task) {
  if (failures.worst.empty()) return;
  show.heading("The worst: outputs whose targets the model thinks least probable");
  Json list = Json::array();
  for (size_t i = 0; i < failures.worst.size(); ++i) {
    const auto& [pair, output, right] = failures.worst[i].prediction;
    const auto at = std::ranges::mismatch(pair.target, output.tokens).in1 - pair.target.begin();
    const std::string source = task.text(pair.source), target = task.text(pair.target),
                      written = task.text(output.tokens);
    show.line(
        fmt::format("{}  source  {}\n   target  {}\n   output  {}{}\n   wrong from place {}; loss {:.2f}",
                    i + 1, source, target, written, output.finished ? "" : " …", at, failures.worst[i].loss));
    list.push_back({{"source", source},
                    {"target", target},
                    {"output", written},
                    {"wrong_from", at},
                    {"loss", failures.worst[i].loss}});
  }
  show.value("worst", list);
}

std::string csv_of(const Failures& failures, const data::Task& task) {
  std::string csv = "what,value,right,all\n";
  const auto add = [&](const char* what, const std::map<int64_t, Count>& counts, bool symbols) {
    for (const auto& [at, count] : counts)
      csv += fmt::format("{},{},{},{}\n", what, symbols ? token_name(task, at) : std::to_string(at),
                         count.right, count.all);
  };
  add("place", failures.places, false);
  add("length", failures.lengths, false);
  add("twins", failures.twins, false);
  add("symbol", failures.symbols, true);
  return csv;
}

}  // namespace

void failures(const FailuresSettings& s) {
  Trained trained = open_model(s);
  use_pairs(trained.settings, s);
  const auto pairs = pairs_of(s, trained);
  const data::Task task = trained.settings.task_rule();
  const Failures found = find_failures(*trained.model, *pairs, trained.marks(), s.worst);
  const std::filesystem::path out = s.out.empty() ? s.model : s.out;
  Presentation show(s.json, out);
  show.line(fmt::format("{} of {} outputs wrong", found.wrong, found.pairs));
  show.value("pairs", found.pairs);
  show.value("wrong", found.wrong);
  show.heading("Whole outputs by the length of the source");
  show_counts(show, "lengths", "Length", found.lengths, [](int64_t length) { return Json(length); });
  show.heading("Whole outputs by twins in the source: how often a symbol stands beside itself");
  show_counts(show, "twins", "Twins", found.twins, [](int64_t twins) { return Json(twins); });
  show.heading("Symbols by their place in the target, given the right ones before");
  show_counts(show, "places", "Place", found.places, [](int64_t place) { return Json(place); });
  show.heading("Symbols by what is due");
  show_counts(show, "symbols", "Symbol", found.symbols,
              [&](int64_t symbol) { return Json(token_name(task, symbol)); });
  show_confusions(show, found, task);
  show_worst(show, found, task);
  show.figure(LinePlot{"Symbols right by place", "Place in the target", "%", {line_of(found.places)}},
              "failures-places");
  show.figure(LinePlot{"Outputs right by length", "Symbols in the source", "%", {line_of(found.lengths)}},
              "failures-lengths");
  show.figure(confusion_map(found, task), "failures-confusions");
  draw_worst(show, found, trained);
  std::filesystem::create_directories(out);
  write_whole_file(out / "failures.csv", csv_of(found, task));
  show.finish();
}

}  // namespace heed::apps

// The command beam: the search for one source's output as a tree.
#include "apps/common/beam_tree.h"
#include "apps/common/program.h"
#include "apps/copy_reverse/figures.h"
#include "apps/copy_reverse/trained.h"

namespace heed::apps {

void beam(const BeamSettings& s) {
  HEED_CHECK(s.sources.size() == 1, ConfigError, "beam draws the search for one source, got ",
             s.sources.size(), "; one of several symbols needs quotes");
  const Trained trained = open_model(s);
  const data::Task task = trained.settings.task_rule();
  const data::Marks marks = trained.marks();
  const std::vector<data::Pair> pair{
      pair_of(task.symbols(s.sources.front(), trained.settings.vocab), trained.settings)};
  const auto length = std::ssize(pair.front().source);
  BeamTree tree(data::kStart);
  const nn::DecodeOptions options{
      .max_length = longest_output(s.max_decode_length, length, *trained.model),
      .beam = s.beam,
      .length_penalty = s.length_penalty,
      .on_step = throw_if_stopped,
      .on_choice = [&](int64_t, BeamTree::Continuations kept, BeamTree::Continuations pruned) {
        tree.add(kept, pruned);
      }};
  const std::vector<int64_t> number{0};
  const train::Seq2SeqBatch batch = train::to_tensors(data::pack(pair, number, marks), trained.device);
  std::vector<BeamOutput> outputs;
  const auto found = nn::beam_search(*trained.model, batch.source, search_for(pair, marks, options));
  for (const nn::Hypothesis& h : found.front()) outputs.push_back({task.text(h.tokens), h.score});
  const auto name = [&](int64_t token) { return token_name(task, token); };
  show_search(task.text(pair.front().source), tree, name, outputs, s.json);
}

}  // namespace heed::apps

#include <heed/core/io/atomic_file.h>
#include <heed/core/ops.h>
#include <heed/data/loader.h>
#include <heed/nn/inspection.h>
#include <heed/nn/summary.h>
#include <heed/nn/weights.h>

#include "apps/common/figures/plot.h"
#include "apps/common/program.h"
#include "apps/common/report/run_metrics.h"
#include "apps/common/text.h"
#include "apps/common/training_console.h"
#include "apps/vit/commands.h"

namespace heed::apps {
namespace {

using Loader = data::Loader<data::LabeledImage, train::Batch>;

Loader make_loader(const Settings& s, std::shared_ptr<const data::ImageDataset> pictures) {
  const data::ImageSize size = pictures->image_size();
  return Loader(
      std::move(pictures),
      {.batch = [size](std::span<const data::LabeledImage> samples,
                       std::span<const int64_t>) { return to_batch(samples, size); }},
      {.batch_size = s.batch_size, .shuffle = !s.no_shuffle, .seed = static_cast<uint64_t>(s.seed)});
}

train::LossFunction make_loss(const Settings& s, const Classifier& classifier) {
  return [&classifier, dtype = s.dtype, smoothing = s.label_smoothing](const StepInputs& batch) {
    return cross_entropy(classifier(batch.tensors[0].to(dtype)), batch.tensors[1],
                         {.label_smoothing = smoothing});
  };
}

// What a run says and leaves beside its weights.
class Output {
 public:
  Output(const Settings& s, int64_t pictures, const train::TrainingState& done)
      : s_(s), pictures_(pictures), console_(s.json), metrics_(s.out, done) {}

  void begin(Device device, data::ImageSize size, int64_t tests, nn::Module& model) const {
    console_.begin(device, s_.seed,
                   concat(", ", pictures_, " pictures of ", size.height, " x ", size.width, ", ", tests,
                          " for testing, ", *s_.classes, " classes"));
    console_.line(model.describe(), "\n", nn::component_table(model));
  }

  void step(const train::StepReport& r) {
    metrics_.step(r);
    console_.step(r, pictures_, "pictures");
  }

  void epoch(const train::EpochReport& r) {
    console_.end_progress();
    metrics_.write(r);
    console_.report(metrics_.epochs().back(), [&] {
      return concat("epoch ", r.epoch, "  step ", r.step, "  loss ", fixed_text(r.loss, 4), "  lr ",
                    fixed_text(r.lr, 6), "  ", format_count(r.samples_per_second), " pictures/s");
    });
  }

  void stopped(int64_t step) { console_.stopped(step); }

  void end(int64_t step, const Judgement& test) {
    const auto count = std::ssize(test.pictures);
    const Json last{{"final", true},
                    {"loss", test.loss},
                    {"accuracy", test.accuracy()},
                    {"right", test.right()},
                    {"pictures", count}};
    metrics_.write_end(step, {{"test/loss", test.loss}, {"test/accuracy", test.accuracy()}}, last);
    console_.report(last, [&] {
      return concat("test loss ", fixed_text(test.loss, 4), "  right ", fixed_text(100 * test.accuracy(), 2),
                    " %: ", test.right(), " of ", count);
    });
    if (!s_.no_figures && !metrics_.steps().empty()) draw();
  }

 private:
  void draw() const {
    const Figure figure = save_loss_figure(metrics_, s_.out);
    if (!figure.drawn) console_.line(figure.message);
    for (const auto& file : figure.files) console_.line("  ", printable(file.string()));
  }

  const Settings& s_;
  int64_t pictures_;
  TrainingConsole console_;
  Metrics metrics_;
};

}  // namespace

void train(Settings& s, OptionTable& table) {
  take_saved_settings(s, table);
  s.RunSettings::check();
  const Device device = apply(s);
  const auto images = read_pictures(s);
  s.take_from(*images);
  const auto white = static_cast<float>(*s.white);
  const auto training = std::make_shared<data::TransformedImages>(
      std::make_shared<data::EveryNth>(images, s.test_every, true),
      data::ImageTransform{white, s.shift, static_cast<uint64_t>(s.seed)});
  const data::TransformedImages test(std::make_shared<data::EveryNth>(images, s.test_every, false), {white});
  const Classifier classifier(s, images->image_size());
  const DirectoryLock lock = open_run_folder(s);

  nn::Module& module = classifier.module();
  module.to(s.dtype);
  module.to(device);
  const auto optimizer = make_optimizer(s, module);
  Loader loader = make_loader(s, training);
  train::Trainer trainer(module, *optimizer, loader, make_loss(s, classifier),
                         trainer_options(s, s, table, loader.count_batches(0), training->fingerprint()));
  if (s.resume) trainer.resume();

  Output output(s, training->size(), trainer.state());
  output.begin(device, images->image_size(), test.size(), module);
  const bool ended = trainer.run({.step = [&](const train::StepReport& report) { output.step(report); },
                                  .epoch = [&](const train::EpochReport& report) { output.epoch(report); },
                                  .stop = stop_requested});
  const train::AveragedWeights averaged(trainer);
  if (!ended) return output.stopped(trainer.state().step);
  nn::save_weights(module, s.out / "model.safetensors");
  write_whole_file(s.out / "config.toml", table.dump_toml());
  output.end(trainer.state().step, grade(classifier, test));
}

}  // namespace heed::apps

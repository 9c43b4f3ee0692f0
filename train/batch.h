// What a training step works on.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <type_traits>

#include <heed/core/runtime/captured_step.h>
#include <heed/data/loader.h>

namespace heed::train {

struct Batch {
  StepInputs inputs;    // what the loss needs, on the CPU: as many tensors and constants in each batch
  int64_t samples = 0;  // of the data set
  int64_t tokens = 0;   // that the loss is a mean of: its weight among a step's batches and in an epoch
};

/// The batches of a loader, which must outlive it.
class BatchSource {
 public:
  /// to_batch(const B&) → Batch. Without it the loader's batches are such themselves.
  template <class S, class B, class ToBatch>
  BatchSource(data::Loader<S, B>& loader, ToBatch to_batch)
      : next_([&loader, to_batch]() -> std::optional<Batch> {
          if (const std::optional<B> batch = loader.next()) return to_batch(*batch);
          return std::nullopt;
        }),
        state_([&loader] { return loader.state(); }),
        seek_([&loader](data::LoaderState state) { loader.seek(state); }) {}
  template <class S>
  BatchSource(data::Loader<S, Batch>& loader)
      : next_([&loader] { return loader.next(); }),
        state_([&loader] { return loader.state(); }),
        seek_([&loader](data::LoaderState state) { loader.seek(state); }) {}

  /// As the loader's.
  std::optional<Batch> next() const { return next_(); }
  data::LoaderState state() const { return state_(); }
  void seek(data::LoaderState state) const { seek_(state); }

 private:
  std::function<std::optional<Batch>()> next_;
  std::function<data::LoaderState()> state_;
  std::function<void(data::LoaderState)> seek_;
};

}  // namespace heed::train

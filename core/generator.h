// The source of all randomness in heed: a seed and a position in one stream, the same on every device.
#pragma once

#include <atomic>
#include <cstdint>

#include <heed/core/base/philox.h>

namespace heed {

/// Every random operation takes an offset of the stream and draws all its numbers there, element by
/// element (core/base/philox.h): results depend on the seed and the order of operations alone. Saved in
/// checkpoints as {seed, offset}. Taking offsets is thread-safe.
class Generator {
 public:
  explicit Generator(uint64_t seed = 42, uint64_t offset = 0) : seed_(seed), offset_(offset) {}
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  uint64_t seed() const { return seed_; }
  uint64_t offset() const { return offset_; }
  /// Starts the stream of `seed` at `offset`.
  void reset(uint64_t seed, uint64_t offset = 0) {
    seed_ = seed;
    offset_ = offset;
  }
  /// The place of the next random operation, which uses `positions` offsets. StateError within a
  /// RepeatedDraws of another generator.
  PhiloxState next(uint64_t positions = 1);

 private:
  std::atomic<uint64_t> seed_;
  std::atomic<uint64_t> offset_;
};

/// The generator that operations use when they are given none: this thread's GeneratorScope's, else one for
/// the whole process.
Generator& default_generator();

/// While one lives on a thread, `generator` is the default there: models that train on several threads each
/// draw from their own, and repeat whatever the others do.
class GeneratorScope {
 public:
  [[nodiscard]] explicit GeneratorScope(Generator& generator);
  ~GeneratorScope();
  GeneratorScope(const GeneratorScope&) = delete;
  GeneratorScope& operator=(const GeneratorScope&) = delete;

 private:
  Generator* previous_;
};

/// While one lives on a thread, what `generator` hands out there is counted from `base`, a number in the
/// memory of a device, instead of from its offset at the start: a captured step that is repeated with another
/// base draws other numbers, those that the generator would have given from that offset on.
class RepeatedDraws {
 public:
  /// StateError if one lives on this thread.
  [[nodiscard]] RepeatedDraws(Generator& generator, const uint64_t* base);
  ~RepeatedDraws();
  RepeatedDraws(const RepeatedDraws&) = delete;
  RepeatedDraws& operator=(const RepeatedDraws&) = delete;

  /// Offsets taken so far.
  uint64_t used() const { return generator_.offset() - start_; }

 private:
  friend class Generator;
  Generator& generator_;
  const uint64_t* base_;
  uint64_t start_;
};

/// default_generator().reset(seed).
void manual_seed(uint64_t seed);

}  // namespace heed

// What the streams and the host wait for, so that work on two streams can be told to be unordered although it
// is done one after the other here. Internal to the emulator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include <heed/kernels/simt/host/location.h>

namespace heed::emulator {

/// By the number of a stream, how many of its operations are known to be over.
using Clock = std::vector<uint32_t>;

/// As CUDA has it: each stream in its order; the default stream and those that are not cudaStreamNonBlocking
/// wait for each other; beyond that only events and the waits of the host order anything. All threads of the
/// host count as one. Calls come one at a time (operations_mutex).
class StreamOrder {
 public:
  StreamOrder();

  /// Of a new stream; 0 is the default one.
  unsigned new_stream(bool waits_for_default);

  /// Begins the next operation of a stream, and returns its number, counted over all streams from 1 on.
  void begin(unsigned stream);
  void launched_at(Location at) { operations_.back().launched_at = at; }
  uint32_t current() const { return static_cast<uint32_t>(operations_.size() - 1); }

  /// Whether the operation was over, for sure, when the current one began. 0 is none.
  bool before_current(uint32_t operation) const {
    const Operation& one = operations_[operation];
    return seen(streams_[operations_.back().stream].clock, one.stream) >= one.place;
  }
  /// What it was, for messages.
  std::string text(uint32_t operation) const;

  /// What an event holds that is recorded by the current operation.
  Clock now() const { return streams_[operations_.back().stream].clock; }
  /// The stream of the current operation waits for an event.
  void current_waits_for(const Clock& event) { join(streams_[operations_.back().stream].clock, event); }

  void host_waits_for(const Clock& event) { join(host_, event); }
  void host_waits_for(unsigned stream) { join(host_, streams_[stream].clock); }
  void host_waits_for_all();

 private:
  struct Stream {
    bool waits_for_default;
    Clock clock;
  };
  struct Operation {
    unsigned stream;
    uint32_t place;        // in its stream, from 1 on
    Location launched_at;  // of a kernel
  };

  static uint32_t seen(const Clock& clock, unsigned stream) {
    return stream < clock.size() ? clock[stream] : 0;
  }
  static void join(Clock& into, const Clock& from);

  std::vector<Stream> streams_;
  std::vector<Operation> operations_;
  Clock host_;
};

StreamOrder& stream_order();

}  // namespace heed::emulator

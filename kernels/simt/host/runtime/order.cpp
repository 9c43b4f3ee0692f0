#include <algorithm>

#include <heed/kernels/simt/host/machine.h>
#include <heed/kernels/simt/host/runtime/order.h>

namespace heed::emulator {

StreamOrder::StreamOrder() : streams_{{true, {}}}, operations_{{0, 0, {}}} {}

unsigned StreamOrder::new_stream(bool waits_for_default) {
  streams_.push_back({waits_for_default, {}});
  return static_cast<unsigned>(streams_.size() - 1);
}

void StreamOrder::begin(unsigned stream) {
  Stream& mine = streams_[stream];
  join(mine.clock, host_);
  if (stream == 0) {
    for (const Stream& other : streams_)
      if (other.waits_for_default) join(mine.clock, other.clock);
  } else if (mine.waits_for_default) {
    join(mine.clock, streams_[0].clock);
  }
  if (mine.clock.size() <= stream) mine.clock.resize(stream + 1);
  operations_.push_back({stream, ++mine.clock[stream], {}});
}

std::string StreamOrder::text(uint32_t operation) const {
  const Location at = operations_[operation].launched_at;
  return at.file ? "the kernel launched at " + emulator::text(at) : "a copy, fill or product";
}

void StreamOrder::host_waits_for_all() {
  for (const Stream& stream : streams_) join(host_, stream.clock);
}

void StreamOrder::join(Clock& into, const Clock& from) {
  if (into.size() < from.size()) into.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

StreamOrder& stream_order() {
  static StreamOrder* const all = new StreamOrder;  // never destroyed: statics may still free
  return *all;
}

}  // namespace heed::emulator

// Numbers over steps as TensorBoard reads them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <heed/core/io/append_file.h>

namespace heed::train {

/// CRC-32C (Castagnoli; RFC 3720, B.4).
uint32_t crc32c(std::string_view bytes);

/// An event file, FOLDER/events.out.tfevents.…: records framed as TFRecords, each a protocol buffer `Event`
/// (tensorflow/core/util/event.proto) with a `Summary` of simple values.
class EventFile {
 public:
  /// Goes on in the folder's event file after its first `kept` events, which leaves nothing twice where a run
  /// repeats what came after them; begins one where there is none. IoError where it cannot be written or is
  /// no regular file.
  explicit EventFile(const std::filesystem::path& folder, int64_t kept = 0);

  /// One event with all these numbers, f32 in the file. Written at once, so that a reader sees it. IoError.
  void write(int64_t step, const std::vector<std::pair<std::string, double>>& scalars);

 private:
  void write_record(const std::string& event);

  AppendFile file_;
};

/// Deletes the event files of a folder that are heed's: their names end in ".heed".
void remove_event_files(const std::filesystem::path& folder);

}  // namespace heed::train

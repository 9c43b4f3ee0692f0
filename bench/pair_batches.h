// Batches of pairs in a file, so that another framework trains on the same.
#pragma once

#include <cstdint>
#include <filesystem>

#include <heed/data/pair_loader.h>

namespace heed::bench {

/// Writes the first `count` batches of all epochs, a line each: {"source": [[…], …], "target": …, "labels":
/// …}, without padding. IoError.
void write_batches(data::PairLoader& loader, int64_t count, const std::filesystem::path& file);

}  // namespace heed::bench

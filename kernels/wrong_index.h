// Indices outside the table they choose from, for both devices: the CPU's operations throw at once, the CUDA
// kernels keep the first one for when the host next waits (kernels/cuda/indexing/wrong_index.cuh).
#pragma once

#include <cstdint>

#include <heed/core/base/check.h>

namespace heed::kernels {

/// What an index is for. Zero is none, as in cleared memory.
enum class IndexUse : int32_t {
  none,
  embedding_id,
  embedding_position,
  cross_entropy_target,
  nll_target,
  gather,
  scatter,
  scatter_add,
  index_put,
  index_select,
  one_hot,
  rotary_position
};

/// An index outside [0, entries) where nothing else is allowed; `use` is none where there was none.
struct WrongIndex {
  IndexUse use;
  int64_t value;
  int64_t place;    // the row, or the element of the index, counted as in a contiguous tensor
  int64_t entries;  // of the table
};

/// IndexError with operation, value, place and bounds, unless wrong.use is none.
inline void throw_if_wrong(const WrongIndex& wrong) {
  const auto element = [&](const char* operation, const char* exception = "") {
    return IndexError(concat(operation, ": index ", wrong.value, " at element ", wrong.place,
                             " of the index is not in [0, ", wrong.entries - 1, "]", exception));
  };
  switch (wrong.use) {
    case IndexUse::none:
      return;
    case IndexUse::embedding_id:
      throw IndexError(concat("embedding: id ", wrong.value, " in row ", wrong.place,
                              " is outside the table; expected 0 to ", wrong.entries - 1,
                              ", or -1 for no token"));
    case IndexUse::embedding_position:
      throw IndexError(concat("embedding: position ", wrong.value, " in row ", wrong.place,
                              " is outside the table of ", wrong.entries,
                              " positions; a longer sequence needs a larger one"));
    case IndexUse::cross_entropy_target:
      throw IndexError(concat("cross_entropy: target ", wrong.value, " in row ", wrong.place,
                              " is not a class; expected 0 to ", wrong.entries - 1,
                              ", or the ignored id for a row to leave out"));
    case IndexUse::nll_target:
      throw IndexError(concat("nll_loss: target ", wrong.value, " in row ", wrong.place,
                              " is not a class; expected 0 to ", wrong.entries - 1,
                              ", or the ignored id for a row to leave out"));
    case IndexUse::gather:
      throw element("gather");
    case IndexUse::scatter:
      throw element("scatter");
    case IndexUse::index_put:
      throw element("index_put");
    case IndexUse::scatter_add:
      throw element("scatter_add");
    case IndexUse::index_select:
      throw element("index_select", ", nor -1 for a row of zeros");
    case IndexUse::one_hot:
      throw element("one_hot");
    case IndexUse::rotary_position:
      throw IndexError(concat("rotary: position ", wrong.value, " in row ", wrong.place,
                              " is outside the table of ", wrong.entries,
                              " positions; a longer sequence needs a larger one"));
  }
}

/// IndexError unless `index` is in [0, entries).
inline void check_index(IndexUse use, int64_t index, int64_t place, int64_t entries) {
  if (index < 0 || index >= entries) [[unlikely]]
    throw_if_wrong({use, index, place, entries});
}

}  // namespace heed::kernels

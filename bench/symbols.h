// Symbols for the programs that are timed beside other frameworks, which draw the same.
#pragma once

#include <heed/core/creation.h>

namespace heed::bench {

/// [rows, length] i64 symbols from 3 on, by a fixed rule instead of a generator: that of bench/peers/peer.py.
inline Tensor ids(int64_t rows, int64_t length, int64_t vocabulary, int64_t seed) {
  const Tensor result = empty({rows, length}, {.dtype = DType::i64});
  for (int64_t i = 0; i < rows * length; ++i)
    result.data<int64_t>()[i] = 3 + (i * i * 7 + i * 11 + seed) % (vocabulary - 3);
  return result;
}

}  // namespace heed::bench

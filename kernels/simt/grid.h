// The blocks of a launch. Both sides of simt.h include this.
#pragma once

#include <cuda_runtime.h>

namespace heed::simt {

/// The blocks of a launch, `cluster` of which, neighbours along x, run at the same time and reach each
/// other's shared memory (hopper.h). Clusters of more than one block need compute capability 9.0.
struct Grid {
  dim3 blocks;
  unsigned cluster = 1;

  Grid(dim3 all, unsigned together = 1) : blocks(all), cluster(together) {}
  Grid(unsigned all) : blocks(all) {}
};

}  // namespace heed::simt

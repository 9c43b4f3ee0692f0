// How a convolution is cut into tasks: by its shape alone. Not installed.
#pragma once

#include <algorithm>
#include <cstdint>

#include <heed/core/base/int_math.h>
#include <heed/kernels/cpu/convolution/convolution_product.h>

namespace heed::cpu {

constexpr int64_t kColumnElements = 160 << 10;  // that stay in a second-level cache
constexpr int64_t kImageTasks = 4;              // kTasks where a task takes several images
constexpr int64_t kPartOutputs = 128;           // of a task, at least, where outputs are divided

/// All positions, groups, outputs and images. Small images are taken several at a time, so that their
/// positions fill whole vectors; of these there are few, and outputs are divided.
struct Cut {
  EvenSplit images, positions, outputs;  // outputs of a group
  int64_t groups;

  struct Task {
    int64_t group, image, images, output, outputs;  // the first of each, how many; outputs of the group
    int64_t begin, end;                             // positions, which count on from image to image
  };

  int64_t tasks() const { return images.parts * groups * outputs.parts * positions.parts; }

  Task operator[](int64_t i) const {
    const int64_t slice = i % positions.parts, rows = i / positions.parts;
    const int64_t part = rows % outputs.parts, planes = rows / outputs.parts, chunk = planes / groups;
    const int64_t count = images.size(chunk);
    return {.group = planes % groups,
            .image = images.begin(chunk),
            .images = count,
            .output = outputs.begin(part),
            .outputs = outputs.size(part),
            .begin = positions.begin(slice),
            .end = count > 1 ? count * positions.count : positions.begin(slice + 1)};
  }

  /// Of a task.
  int64_t most_positions() const {
    return ceil_divide(images.count, images.parts) * ceil_divide(positions.units, positions.parts) *
           positions.unit;
  }
};

inline Cut cut(int64_t positions, int64_t batch, int64_t groups, int64_t outputs,
               const GemmGeometry& geometry) {
  int64_t most = kMaxPositions;
  while (batch * groups * ceil_divide(positions, most) < kTasks && most > geometry.nr) most /= 2;
  const int64_t most_parts = std::max<int64_t>(outputs / kPartOutputs, 1);
  int64_t images = std::clamp<int64_t>(most / positions, 1, batch);
  while (images > 1 && groups * ceil_divide(batch, images) * most_parts < kImageTasks) images /= 2;
  EvenSplit chunks(batch, 1, images);
  if (chunks.parts > 1 && chunks.parts % 2 == 1 && images > 1)
    ++chunks.parts;  // two threads share them evenly
  if (images == 1) return {chunks, {positions, geometry.nr, most}, {outputs, outputs, outputs}, groups};
  const int64_t parts = std::clamp<int64_t>(kImageTasks / (groups * chunks.parts), 1, most_parts);
  return {chunks,
          {positions, positions, positions},
          {outputs, geometry.mr, round_up(ceil_divide(outputs, parts), geometry.mr)},
          groups};
}

}  // namespace heed::cpu

// The tensor memory accelerator: boxes of a matrix in global memory, copied as they are issued or when
// nothing else can run, whichever the schedule says.
#include <algorithm>
#include <cstring>

#include <heed/kernels/simt/host/mbarrier.h>
#include <heed/kernels/simt/host/memory.h>
#include <heed/kernels/simt/host/monitor.h>
#include <heed/kernels/simt/host/ptx_hopper.h>
#include <heed/kernels/simt/host/runtime/device_memory.h>
#include <heed/kernels/simt/host/warpgroup.h>

namespace heed::emulator {
namespace {

constexpr uint64_t kElement = 2, kRowBytes = 128;
constexpr uint64_t kMark = 0x70616d726f736e74;

// What a tensor map holds here; the real encoding is NVIDIA's own.
struct Matrix {
  uint64_t mark;
  const unsigned char* data;
  uint64_t size[3], stride[2];
  uint32_t box[3];
};
static_assert(sizeof(Matrix) <= sizeof(CUtensorMap));

struct BoxCopy {
  Matrix matrix;
  unsigned char* to;
  int64_t first[3];
  Mbarrier* barrier;
  unsigned thread;
  Location at;

  uint32_t bytes() const { return static_cast<uint32_t>(kRowBytes * matrix.box[1] * matrix.box[2]); }
};

std::vector<BoxCopy> in_flight;  // oldest first

// The part of row (y, z) of the box that lies in the matrix; none of it: 0 elements.
struct RowPart {
  const unsigned char* data;
  uint64_t skipped, elements;
};

RowPart row_part(const BoxCopy& copy, uint32_t y, uint32_t z) {
  const Matrix& m = copy.matrix;
  const int64_t row = copy.first[1] + y, plane = copy.first[2] + z;
  const int64_t begin = std::max<int64_t>(copy.first[0], 0);
  const int64_t end = std::min<int64_t>(copy.first[0] + m.box[0], static_cast<int64_t>(m.size[0]));
  const bool inside = row >= 0 && row < static_cast<int64_t>(m.size[1]) && plane >= 0 &&
                      plane < static_cast<int64_t>(m.size[2]) && begin < end;
  if (!inside) return {nullptr, 0, 0};
  return {m.data + static_cast<uint64_t>(plane) * m.stride[1] + static_cast<uint64_t>(row) * m.stride[0] +
              static_cast<uint64_t>(begin) * kElement,
          static_cast<uint64_t>(begin - copy.first[0]), static_cast<uint64_t>(end - begin)};
}

template <class F>
void for_each_row(const BoxCopy& copy, F f) {
  for (uint32_t z = 0; z < copy.matrix.box[2]; ++z)
    for (uint32_t y = 0; y < copy.matrix.box[1]; ++y)
      f(row_part(copy, y, z), copy.to + (z * copy.matrix.box[1] + y) * kRowBytes);
}

void perform(const BoxCopy& copy) {
  for_each_row(copy, [](const RowPart& part, unsigned char* to) {
    unsigned char row[kRowBytes] = {};
    if (part.elements != 0) memcpy(row + part.skipped * kElement, part.data, part.elements * kElement);
    for (size_t chunk = 0; chunk < kRowBytes; chunk += 16)
      memcpy(to + (swizzled(shared_offset(to) + chunk) - shared_offset(to)), row + chunk, 16);
  });
  complete_bytes(*copy.barrier, copy.bytes());
}

// Writes to the block that `to` is in, which has to be there still.
void land(const BoxCopy& copy) {
  const unsigned block = block_of_shared(copy.to);
  if (machine.live_of_block[block] == 0)
    fail("the copy by " + text_of_thread(copy.thread) + "'s tma_load reaches block " + std::to_string(block) +
             " of the cluster, which has ended",
         copy.at);
  perform(copy);
}

void check_source(const BoxCopy& copy) {
  for_each_row(copy, [&](const RowPart& part, unsigned char*) {
    if (part.elements == 0) return;
    const size_t bytes = part.elements * kElement;
    const Placement found = placement(part.data, bytes);
    if (found.kind == MemoryKind::host) fail("tma_load: the matrix is not in memory of the device", copy.at);
    if (!found.fits) fail("tma_load: the matrix of the tensor map exceeds its allocation", copy.at);
    check_access(part.data, bytes, kElement, false, "tma_load source", copy.at);
  });
}

const Matrix& matrix_of(const CUtensorMap& map) { return reinterpret_cast<const Matrix&>(map); }

}  // namespace

cudaError_t encode_tensor_map(CUtensorMap& map, const void* data, const uint64_t* size,
                              const uint64_t* stride, const uint32_t* box) {
  Matrix m{kMark, static_cast<const unsigned char*>(data), {}, {}, {}};
  bool right = data != nullptr && reinterpret_cast<uintptr_t>(data) % 16 == 0 &&
               reinterpret_cast<uintptr_t>(&map) % 64 == 0;
  for (int i = 0; i < 3; ++i) {
    m.size[i] = size[i];
    m.box[i] = box[i];
    right = right && size[i] > 0 && size[i] <= uint64_t{1} << 32 && box[i] > 0 && box[i] <= 256;
  }
  for (int i = 0; i < 2; ++i) {
    m.stride[i] = stride[i];
    right = right && stride[i] % 16 == 0 && stride[i] < uint64_t{1} << 40;
  }
  right = right && box[0] * kElement <= kRowBytes && box[0] * kElement % 16 == 0;
  if (!right) return cudaErrorInvalidValue;
  memset(&map, 0, sizeof map);
  memcpy(&map, &m, sizeof m);
  return cudaSuccess;
}

void check_tensor_map(const CUtensorMap& map, const char* what, Location at) {
  require_fiber(at);
  require_hopper(what, at);
  if (matrix_of(map).mark != kMark || reinterpret_cast<uintptr_t>(&map) % 64 != 0)
    fail(std::string(what) + ": not a map that make_tensor_map() made", at);
}

namespace {

// What is to be copied, to shared memory of the running block.
BoxCopy box_copy(void* shared, const CUtensorMap& map, int x, int y, int z, Location at) {
  check_tensor_map(map, "tma_load", at);
  const BoxCopy copy{
      matrix_of(map), static_cast<unsigned char*>(shared), {x, y, z}, nullptr, machine.current->thread, at};
  if (copy.matrix.box[0] * kElement != kRowBytes)
    fail("tma_load: the emulator copies boxes of 64 elements a row, this has " +
             std::to_string(copy.matrix.box[0]),
         at);
  if (!in_piece_of_shared_memory(shared, copy.bytes()))
    fail("tma_load: the " + std::to_string(copy.bytes()) +
             " bytes of the destination are not in shared memory",
         at);
  if (shared_offset(shared) % 1024 != 0)
    fail("tma_load: misaligned destination, " + std::to_string(shared_offset(shared) % 1024) +
             " bytes past a multiple of 1024, where its permuted chunks repeat",
         at);
  check_source(copy);
  return copy;
}

void begin(BoxCopy copy, uint64_t& word) {
  Mbarrier& barrier = find_mbarrier(word, copy.thread, true, "tma_load", copy.at);
  copy.barrier = &barrier;
  begin_bytes(barrier, copy.bytes(), copy.at);
  if (monitor) monitor->box_copy(copy.to, copy.bytes(), barrier.index, barrier.phase, copy.thread, copy.at);
  if (config().async == Async::eager) return land(copy);
  in_flight.push_back(copy);
}

}  // namespace

void copy_box(void* shared, const CUtensorMap& map, int x, int y, int z, uint64_t& word, Location at) {
  require_fiber(at);
  begin(box_copy(shared, map, x, y, z, at), word);
}

void copy_box_to_blocks(void* shared, const CUtensorMap& map, int x, int y, int z, uint64_t& word,
                        uint32_t blocks, Location at) {
  constexpr const char* kWhat = "tma_load_multicast";
  require_fiber(at);
  BoxCopy copy = box_copy(shared, map, x, y, z, at);
  if (blocks == 0) fail(std::string(kWhat) + ": to no block", at);
  for (unsigned block = 0; blocks >> block != 0; ++block) {
    if ((blocks >> block & 1) == 0) continue;
    copy.to = shared_of_block(shared, block, kWhat, at);
    begin(copy, *reinterpret_cast<uint64_t*>(shared_of_block(&word, block, kWhat, at)));
  }
}

bool land_copy(uint32_t one_in) {
  if (in_flight.empty() || (one_in > 1 && random_below(one_in) != 0)) return false;
  const uint32_t count = static_cast<uint32_t>(in_flight.size());
  const auto which = in_flight.begin() + (config().order == Order::random ? random_below(count) : 0);
  const BoxCopy copy = *which;
  in_flight.erase(which);
  land(copy);
  return true;
}

void reset_copies() { in_flight.clear(); }

void check_copies_landed() {
  if (!in_flight.empty())
    throw Error("emulator: block " + text(machine.fibers[in_flight[0].thread].block) +
                " ended during the copy by " + text_of_thread(in_flight[0].thread) + "'s tma_load at " +
                text(in_flight[0].at) + ", kernel launched at " + text(machine.launch));
}

}  // namespace heed::emulator

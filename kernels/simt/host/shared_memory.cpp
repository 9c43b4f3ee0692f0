// Shared memory of the block: one arena, each piece between redzones and filled with NaN when the block
// starts.
#include <cstdlib>
#include <cstring>
#include <memory>

#include <heed/kernels/simt/host/machine.h>
#include <heed/kernels/simt/host/memory.h>
#include <heed/kernels/simt/host/monitor.h>

#ifdef HEED_EMULATOR_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace heed::emulator {
namespace {

constexpr size_t kRedzone = 32;
#ifndef HEED_EMULATOR_ASAN
constexpr unsigned char kRedzoneByte = 0xfb;
#endif

struct Piece {
  const void* key;  // a type's key for static pieces, kDynamic for Arena::take, kWhole for dynamic_shared
  size_t offset;    // in the kernel's own layout of dynamic shared memory
  size_t bytes;
  size_t place;  // in the arena
};

const char kDynamic = 0, kWhole = 0;
std::vector<Piece> pieces;
size_t used, static_bytes;

unsigned char* arena() {
  static unsigned char* const memory = static_cast<unsigned char*>(std::aligned_alloc(4096, kArenaBytes));
  return memory;
}

void* find(const void* key, size_t offset, size_t bytes) {
  for (const Piece& piece : pieces)
    if (piece.key == key && piece.offset == offset && piece.bytes == bytes) return arena() + piece.place;
  return nullptr;
}

void* add(const void* key, size_t offset, size_t bytes, size_t alignment, Location at) {
  alignment = alignment < 16 ? 16 : alignment;
  const size_t place = (used + kRedzone + alignment - 1) / alignment * alignment;
  if (place + bytes + kRedzone > kArenaBytes)
    fail("shared memory of the block exhausted: " + std::to_string(place + bytes) + " bytes", at);
#ifdef HEED_EMULATOR_ASAN
  __asan_unpoison_memory_region(arena() + place, bytes);
#else
  memset(arena() + used, kRedzoneByte, place - used);
  memset(arena() + place + bytes, kRedzoneByte, kRedzone);
#endif
  memset(arena() + place, 0xff, bytes);
  used = place + bytes;
  pieces.push_back({key, offset, bytes, place});
  if (monitor) monitor->shared_piece(place, bytes);
  return arena() + place;
}

}  // namespace

void reset_shared_memory() {
  pieces.clear();
  used = static_bytes = 0;
#ifdef HEED_EMULATOR_ASAN
  __asan_poison_memory_region(arena(), kArenaBytes);
#endif
}

void check_shared_redzones() {
#ifndef HEED_EMULATOR_ASAN
  for (const Piece& piece : pieces)
    for (size_t i = 0; i < kRedzone; ++i)
      if (arena()[piece.place + piece.bytes + i] != kRedzoneByte ||
          arena()[piece.place - 1 - i] != kRedzoneByte)
        throw Error("emulator: out-of-bounds shared memory write: block " + text(blockIdx) +
                    " wrote next to a piece of " + std::to_string(piece.bytes) +
                    " bytes, kernel launched at " + text(machine.launch));
#endif
}

bool in_shared_memory(const void* address, size_t bytes) {
  const size_t offset = shared_offset(address);
  return offset < kArenaBytes && offset + bytes <= kArenaBytes;
}

bool in_piece_of_shared_memory(const void* address, size_t bytes) {
  const size_t offset = shared_offset(address);
  for (const Piece& piece : pieces)
    if (offset >= piece.place && offset + bytes <= piece.place + piece.bytes) return true;
  return false;
}

size_t shared_offset(const void* address) {
  return static_cast<size_t>(static_cast<const unsigned char*>(address) - arena());
}

unsigned char* shared_at(size_t offset) { return arena() + offset; }

void* static_shared(const void* key, size_t bytes, size_t alignment, Location at) {
  require_fiber(at);
  if (void* known = find(key, 0, bytes)) return known;
  static_bytes = (static_bytes + alignment - 1) / alignment * alignment + bytes;
  if (static_bytes + machine.dynamic_bytes > machine.shared_allowed)
    fail("too much shared memory: " + std::to_string(static_bytes) + " bytes static and " +
             std::to_string(machine.dynamic_bytes) + " dynamic, the limit is " +
             std::to_string(machine.shared_allowed),
         at);
  return add(key, 0, bytes, alignment, at);
}

void* dynamic_shared(Location at) {
  require_fiber(at);
  void* known = find(&kWhole, 0, machine.dynamic_bytes);
  return known ? known : add(&kWhole, 0, machine.dynamic_bytes, 1024, at);
}

void* take_shared(size_t* layout_end, size_t bytes, size_t alignment, Location at) {
  require_fiber(at);
  const size_t offset = (*layout_end + alignment - 1) / alignment * alignment;
  *layout_end = offset + bytes;
  if (*layout_end > machine.dynamic_bytes)
    fail("dynamic shared memory: the kernel takes " + std::to_string(*layout_end) +
             " bytes, the launch provides " + std::to_string(machine.dynamic_bytes),
         at);
  void* known = find(&kDynamic, offset, bytes);
  return known ? known : add(&kDynamic, offset, bytes, alignment, at);
}

void check_access(const void* address, size_t bytes, size_t alignment, bool write, const char* what,
                  Location at) {
  const size_t past = reinterpret_cast<uintptr_t>(address) % alignment;
  if (past != 0)
    fail(std::string(what) + ": misaligned address, " + std::to_string(past) + " bytes past a multiple of " +
             std::to_string(alignment),
         at);
#ifdef HEED_EMULATOR_ASAN
  if (__asan_region_is_poisoned(const_cast<void*>(address), bytes))
    fail(std::string(what) + ": out-of-bounds " + (in_shared_memory(address, 1) ? "shared" : "global") +
             " memory " + (write ? "write" : "read") + " of " + std::to_string(bytes) + " bytes",
         at);
#endif
  check_has_waited(address, what, at);
  if (monitor && machine.current) monitor->access(address, bytes, write, machine.current->thread, at);
}

void check_global(const void* address, const char* what, Location at) {
  if (in_shared_memory(address, 1)) fail(std::string(what) + ": the address is in shared memory", at);
}

uint32_t shared_address(const void* pointer, Location at) {
  if (!in_shared_memory(pointer, 1))
    fail("the address is not in shared memory (take it from simt::shared or simt::Arena)", at);
  return static_cast<uint32_t>(shared_offset(pointer));
}

}  // namespace heed::emulator

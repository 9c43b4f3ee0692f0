// Shared memory: an arena for each block of the cluster, each piece between redzones and filled with NaN when
// the block starts.
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

// Of a block.
struct Window {
  std::vector<Piece> pieces;
  size_t used = 0, static_bytes = 0;
};
Window windows[kMaxBlocks];

unsigned char* arena(unsigned block = 0) {
  static unsigned char* const memory =
      static_cast<unsigned char*>(std::aligned_alloc(4096, kMaxBlocks * kArenaBytes));
  return memory + block * kArenaBytes;
}

unsigned running_block() { return machine.current == nullptr ? 0 : block_of(machine.current->thread); }

const Piece* find(unsigned block, const void* key, size_t offset, size_t bytes) {
  for (const Piece& piece : windows[block].pieces)
    if (piece.key == key && piece.offset == offset && piece.bytes == bytes) return &piece;
  return nullptr;
}

void* known_piece(const void* key, size_t offset, size_t bytes) {
  const Piece* const piece = find(running_block(), key, offset, bytes);
  return piece == nullptr ? nullptr : shared_at(piece->place);
}

// The piece of the running block that holds so many bytes from there on; null if there is none.
const Piece* piece_around(const void* address, size_t bytes) {
  const unsigned block = running_block();
  const size_t offset = static_cast<size_t>(static_cast<const unsigned char*>(address) - arena(block));
  for (const Piece& piece : windows[block].pieces)
    if (offset >= piece.place && offset + bytes <= piece.place + piece.bytes) return &piece;
  return nullptr;
}

void* add(const void* key, size_t offset, size_t bytes, size_t alignment, Location at) {
  const unsigned block = running_block();
  size_t& used = windows[block].used;
  unsigned char* const memory = arena(block);
  alignment = alignment < 16 ? 16 : alignment;
  const size_t place = (used + kRedzone + alignment - 1) / alignment * alignment;
  if (place + bytes + kRedzone > kArenaBytes)
    fail("shared memory of the block exhausted: " + std::to_string(place + bytes) + " bytes", at);
#ifdef HEED_EMULATOR_ASAN
  __asan_unpoison_memory_region(memory + place, bytes);
#else
  memset(memory + used, kRedzoneByte, place - used);
  memset(memory + place + bytes, kRedzoneByte, kRedzone);
#endif
  memset(memory + place, 0xff, bytes);
  used = place + bytes;
  windows[block].pieces.push_back({key, offset, bytes, place});
  if (monitor) monitor->shared_piece(cluster_offset(memory + place), bytes);
  return memory + place;
}

}  // namespace

void reset_shared_memory() {
  for (unsigned block = 0; block < machine.blocks; ++block) {
    windows[block].pieces.clear();
    windows[block].used = windows[block].static_bytes = 0;
  }
#ifdef HEED_EMULATOR_ASAN
  __asan_poison_memory_region(arena(), machine.blocks * kArenaBytes);
#endif
}

void check_shared_redzones() {
#ifndef HEED_EMULATOR_ASAN
  for (unsigned block = 0; block < machine.blocks; ++block)
    for (const Piece& piece : windows[block].pieces)
      for (size_t i = 0; i < kRedzone; ++i)
        if (arena(block)[piece.place + piece.bytes + i] != kRedzoneByte ||
            arena(block)[piece.place - 1 - i] != kRedzoneByte)
          throw Error("emulator: out-of-bounds shared memory write: block " +
                      text(machine.fibers[block * machine.block_threads].block) +
                      " wrote next to a piece of " + std::to_string(piece.bytes) +
                      " bytes, kernel launched at " + text(machine.launch));
#endif
}

bool in_shared_memory(const void* address, size_t bytes) {
  const size_t offset = cluster_offset(address), all = machine.blocks * kArenaBytes;
  return offset < all && offset + bytes <= all;
}

bool in_piece_of_shared_memory(const void* address, size_t bytes) {
  return piece_around(address, bytes) != nullptr;
}

size_t cluster_offset(const void* address) {
  return static_cast<size_t>(static_cast<const unsigned char*>(address) - arena());
}

size_t shared_offset(const void* address) { return cluster_offset(address) % kArenaBytes; }

unsigned block_of_shared(const void* address) {
  return static_cast<unsigned>(cluster_offset(address) / kArenaBytes);
}

unsigned char* shared_at(size_t offset) { return arena(running_block()) + offset; }

unsigned char* shared_of_block(const void* address, unsigned block, const char* what, Location at) {
  const auto refuse = [&](const std::string& why) { fail(std::string(what) + ": " + why, at); };
  if (block >= machine.blocks)
    refuse("block " + std::to_string(block) + " of a cluster of " + std::to_string(machine.blocks));
  if (machine.live_of_block[block] == 0)
    refuse("block " + std::to_string(block) + " of the cluster has ended, and its shared memory with it");
  const Piece* const mine = piece_around(address, 1);
  if (mine == nullptr) refuse("the address is not in shared memory of the block");
  const Piece* const its = find(block, mine->key, mine->offset, mine->bytes);
  if (its == nullptr) refuse("block " + std::to_string(block) + " of the cluster has not begun to use it");
  return arena(block) + its->place + (shared_offset(address) - mine->place);
}

void* static_shared(const void* key, size_t bytes, size_t alignment, Location at) {
  require_fiber(at);
  if (void* known = known_piece(key, 0, bytes)) return known;
  size_t& static_bytes = windows[running_block()].static_bytes;
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
  void* known = known_piece(&kWhole, 0, machine.dynamic_bytes);
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
  void* known = known_piece(&kDynamic, offset, bytes);
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
  if (block_of_shared(pointer) != running_block())
    fail("the address is in shared memory of another block of the cluster", at);
  return static_cast<uint32_t>(shared_offset(pointer));
}

}  // namespace heed::emulator

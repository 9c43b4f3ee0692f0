// Stacks and the switch between them.
#include <cstring>
#include <sys/mman.h>

#include <heed/kernels/simt/host/builtins.h>
#include <heed/kernels/simt/host/launch.h>
#include <heed/kernels/simt/host/machine.h>

#ifdef HEED_EMULATOR_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/lsan_interface.h>
#endif

extern "C" void heed_emulator_switch(void** save, void* to);
extern "C" void heed_emulator_fiber();

// Saves what the calling convention lets a callee keep, exchanges the stacks, and restores.
#if defined(__x86_64__)
asm(R"(.text
.globl heed_emulator_switch
.type heed_emulator_switch,@function
heed_emulator_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
.size heed_emulator_switch,.-heed_emulator_switch
)");
#elif defined(__aarch64__)
asm(R"(.text
.globl heed_emulator_switch
.type heed_emulator_switch,%function
heed_emulator_switch:
  sub sp, sp, #160
  stp x19, x20, [sp,#0];  stp x21, x22, [sp,#16]; stp x23, x24, [sp,#32]; stp x25, x26, [sp,#48]
  stp x27, x28, [sp,#64]; stp x29, x30, [sp,#80]; stp d8, d9, [sp,#96];   stp d10, d11, [sp,#112]
  stp d12, d13, [sp,#128]; stp d14, d15, [sp,#144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp,#0];  ldp x21, x22, [sp,#16]; ldp x23, x24, [sp,#32]; ldp x25, x26, [sp,#48]
  ldp x27, x28, [sp,#64]; ldp x29, x30, [sp,#80]; ldp d8, d9, [sp,#96];   ldp d10, d11, [sp,#112]
  ldp d12, d13, [sp,#128]; ldp d14, d15, [sp,#144]
  add sp, sp, #160
  ret
)");
#else
#error "the emulator's context switch is written for x86-64 and aarch64"
#endif

namespace heed::emulator {
namespace {

constexpr size_t kPage = 4096;

char* stacks;
size_t stack_bytes, stack_count;
void* os_stack_pointer;
#ifdef HEED_EMULATOR_ASAN
void* os_frame;
const void* os_stack;
size_t os_stack_bytes;
#endif

}  // namespace

void make_stacks(unsigned threads) {
  size_t bytes = config().stack_bytes;
#ifdef HEED_EMULATOR_ASAN
  if (bytes == 0) bytes = 256 * 1024;
#endif
  if (bytes == 0) bytes = 64 * 1024;
  bytes = (bytes + kPage - 1) / kPage * kPage;
  if (threads <= stack_count && bytes == stack_bytes) return;
  if (stacks != nullptr) munmap(stacks, stack_count * stack_bytes);
  stacks = nullptr;
  stack_count = 0;
  void* memory = mmap(nullptr, threads * bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw Error("emulator: no memory for the stacks of " + std::to_string(threads) + " threads");
  stacks = static_cast<char*>(memory);
  stack_count = threads;
  stack_bytes = bytes;
  for (size_t i = 0; i < threads; ++i) mprotect(stacks + i * bytes, kPage, PROT_NONE);
  machine.fibers.resize(threads);
  reclaim_stacks();
}

void reclaim_stacks() {
#ifdef HEED_EMULATOR_ASAN
  __asan_unpoison_memory_region(stacks, stack_count * stack_bytes);
#endif
}

bool on_fiber_stack(const void* address) {
  return static_cast<size_t>(static_cast<const char*>(address) - stacks) < stack_count * stack_bytes;
}

void prepare_fiber(Fiber& fiber, unsigned thread) {
  fiber.thread = thread;
  fiber.state = State::ready;
  fiber.asan_frame = nullptr;
  fiber.waits_in = nullptr;
  fiber.barrier_result = 0;
  fiber.has_waited = !machine.waits_itself;
  fiber.copies.clear();
  fiber.copy_groups.clear();
  fiber.open_copies = 0;
  fiber.stack = stacks + thread * stack_bytes;
#ifdef HEED_EMULATOR_ASAN
  // A thread that returned leaves only its first frames behind.
  __asan_unpoison_memory_region(fiber.stack + stack_bytes - 2 * kPage, 2 * kPage);
#endif
  // The tops are staggered, or the hot lines of all stacks would compete for the same cache sets.
  void** top = reinterpret_cast<void**>(fiber.stack + stack_bytes - (thread % 16) * 256);
#if defined(__x86_64__)
  top[-1] = nullptr;
  top[-2] = reinterpret_cast<void*>(heed_emulator_fiber);
  for (int i = 3; i <= 8; ++i) top[-i] = nullptr;
  fiber.stack_pointer = top - 8;
#else
  memset(top - 20, 0, 160);
  top[-20 + 11] = reinterpret_cast<void*>(heed_emulator_fiber);
  fiber.stack_pointer = top - 20;
#endif
}

__attribute__((noinline)) void switch_to(Fiber* from, Fiber* to) {
#ifdef HEED_EMULATOR_ASAN
  // A thread given up after a failure takes what it allocated (the text of the message) with it.
  if (from == nullptr) __lsan_disable();
  if (to == nullptr) __lsan_enable();
  void** keep = from == nullptr ? &os_frame : from->state == State::done ? nullptr : &from->asan_frame;
  __sanitizer_start_switch_fiber(keep, to ? to->stack : os_stack, to ? stack_bytes : os_stack_bytes);
#endif
  machine.current = to;
  if (to != nullptr) {
    threadIdx = to->index;
    blockIdx = to->block;
  }
  ++stats().switches;
  heed_emulator_switch(from ? &from->stack_pointer : &os_stack_pointer,
                       to ? to->stack_pointer : os_stack_pointer);
#ifdef HEED_EMULATOR_ASAN
  __sanitizer_finish_switch_fiber(from ? from->asan_frame : os_frame, nullptr, nullptr);
#endif
}

}  // namespace heed::emulator

// Where every fiber starts.
extern "C" void heed_emulator_fiber() {
  using namespace heed::emulator;
#ifdef HEED_EMULATOR_ASAN
  const void* previous_stack;
  size_t previous_bytes;
  __sanitizer_finish_switch_fiber(nullptr, &previous_stack, &previous_bytes);
  if (!on_fiber_stack(previous_stack)) {
    os_stack = previous_stack;
    os_stack_bytes = previous_bytes;
  }
#endif
  machine.body->run();
  finish_fiber();
}

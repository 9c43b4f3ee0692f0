// Kernels with one deliberate mistake each, what every build of the emulator must say of it, and correct
// kernels of which none may complain.
#pragma once

#include <ostream>
#include <vector>

namespace heed::testing {

constexpr int kThreads = 128;  // of a block, where a kernel does not say otherwise

struct Bug {
  const char* name;
  void (*run)(float* out, const float* in);  // out: 128 zeros, in: 0, 1, … 2047; both on the device
  // What is noticed: a part of the error's text; "differs" or "nan" of the results; "" nothing; null:
  // undefined, so not run; "crash: …" a part of a sanitizer's report, after the emulator's word on where.
  const char* plain;
  const char* address;
  const char* race;
};

inline void PrintTo(const Bug& bug, std::ostream* out) { *out << bug.name; }

std::vector<Bug> barrier_bugs();
std::vector<Bug> warp_bugs();
std::vector<Bug> memory_bugs();
std::vector<Bug> launch_bugs();
std::vector<Bug> async_bugs();
std::vector<Bug> stream_bugs();
std::vector<Bug> dependent_bugs();
std::vector<Bug> hopper_bugs();
std::vector<Bug> bulk_bugs();
std::vector<Bug> cluster_bugs();
std::vector<Bug> correct_sync_kernels();
std::vector<Bug> correct_memory_kernels();
std::vector<Bug> correct_async_kernels();
std::vector<Bug> correct_streams();
std::vector<Bug> correct_dependent_kernels();
std::vector<Bug> correct_hopper_kernels();
std::vector<Bug> correct_bulk_kernels();
std::vector<Bug> correct_cluster_kernels();

}  // namespace heed::testing

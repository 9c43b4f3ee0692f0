// One kernel for each function of kernels/simt/ptx.h and ptx_hopper.h, on integers for which every result is
// exact. The emulator's results are kept in ptx_goldens.txt; a GPU must give the same bits.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace heed::testing {

struct GoldenCase {
  const char* name;
  const char* covers;                              // functions of simt::, separated by spaces
  int words;                                       // of results
  void (*run)(const uint32_t* in, uint32_t* out);  // launches; both on the device, in: kGoldenInputs words
};

inline constexpr int kGoldenInputs = 512;

const std::vector<GoldenCase>& golden_cases();
const std::vector<GoldenCase>& hopper_golden_cases();  // their names begin with "hopper_"

/// Whether the device is one that the Hopper cases run on: of compute capability 9.0.
bool runs_hopper_cases();

using Goldens = std::map<std::string, std::vector<uint32_t>>;

/// Runs every case that the device can run. Throws std::runtime_error on an error of the runtime.
Goldens run_goldens();

/// A line for each case: its name and its results in hexadecimal.
Goldens read_goldens(const std::string& path);
void write_goldens(const std::string& path, const Goldens& goldens);

/// Takes the cases for Hopper out; how many they were.
size_t leave_out_hopper(Goldens& goldens);

/// A line for each case that is missing on one side or differs, with the first word that does; empty if none.
std::vector<std::string> compare_goldens(const Goldens& expected, const Goldens& got);

}  // namespace heed::testing

// ptx_goldens compare|write FILE: compares this device's results with those in FILE, or writes them there.
#include <cstdio>
#include <exception>
#include <string>

#include <cuda_runtime.h>

#include "ptx_goldens.h"

namespace {

constexpr int kUsage = 2, kNoDevice = 7;

int run(const std::string& command, const std::string& path) {
  using namespace heed::testing;
  const bool all = runs_hopper_cases();
  if (command == "write" && !all) {
    std::fprintf(stderr, "error: not every case runs on this device (the emulator: HEED_SIMT_ARCH=90)\n");
    return 1;
  }
  const Goldens results = run_goldens();
  if (command == "write") {
    write_goldens(path, results);
    return 0;
  }
  Goldens expected = read_goldens(path);
  if (!all) std::printf("%zu cases need compute capability 9.0: not compared\n", leave_out_hopper(expected));
  const auto wrong = compare_goldens(expected, results);
  for (const std::string& line : wrong) std::printf("%s\n", line.c_str());
  std::printf("%zu cases, %zu differ\n", results.size(), wrong.size());
  return wrong.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc == 3 ? argv[1] : "";
  if (command != "compare" && command != "write") {
    std::fprintf(stderr, "usage: ptx_goldens compare|write FILE\n");
    return kUsage;
  }
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("no CUDA device: nothing was compared\n");
    return kNoDevice;
  }
  try {
    return run(command, argv[2]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}

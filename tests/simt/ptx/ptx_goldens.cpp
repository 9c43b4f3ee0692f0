#include "ptx_goldens.h"

#include <fstream>
#include <sstream>
#include <stdexcept>

#include <cuda_runtime.h>

namespace heed::testing {
namespace {

void check(cudaError_t error, const std::string& what) {
  if (error != cudaSuccess) throw std::runtime_error(what + ": " + cudaGetErrorString(error));
}

class Words {
 public:
  explicit Words(size_t count) : bytes_(count * sizeof(uint32_t)) {
    check(cudaMalloc(reinterpret_cast<void**>(&data_), bytes_), "cudaMalloc");
  }
  ~Words() { cudaFree(data_); }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;
  uint32_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  uint32_t* data_ = nullptr;
  size_t bytes_;
};

}  // namespace

bool runs_hopper_cases() {
  int device = 0, major = 0, minor = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "compute capability");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "compute capability");
  return major == 9 && minor == 0;
}

size_t leave_out_hopper(Goldens& goldens) {
  size_t count = 0;
  for (const GoldenCase& one : hopper_golden_cases()) count += goldens.erase(one.name);
  return count;
}

Goldens run_goldens() {
  std::vector<uint32_t> values(kGoldenInputs);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint32_t>(i + 1) * 0x9e3779b1u;
  const Words in(values.size());
  check(cudaMemcpy(in.data(), values.data(), in.bytes(), cudaMemcpyHostToDevice), "input");
  Goldens results;
  std::vector<GoldenCase> cases = golden_cases();
  if (runs_hopper_cases())
    cases.insert(cases.end(), hopper_golden_cases().begin(), hopper_golden_cases().end());
  for (const GoldenCase& one : cases) {
    std::vector<uint32_t> result(static_cast<size_t>(one.words));
    const Words out(result.size());
    check(cudaMemset(out.data(), 0xff, out.bytes()), one.name);
    one.run(in.data(), out.data());
    check(cudaGetLastError(), one.name);
    check(cudaDeviceSynchronize(), one.name);
    check(cudaMemcpy(result.data(), out.data(), out.bytes(), cudaMemcpyDeviceToHost), one.name);
    results[one.name] = result;
  }
  return results;
}

Goldens read_goldens(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  Goldens goldens;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, word;
    if (!(words >> name)) continue;
    std::vector<uint32_t>& values = goldens[name];
    while (words >> word) {
      size_t end = 0;
      values.push_back(static_cast<uint32_t>(std::stoul(word, &end, 16)));
      if (end != word.size()) throw std::runtime_error(path + ": " + name + ": not a number: " + word);
    }
  }
  return goldens;
}

void write_goldens(const std::string& path, const Goldens& goldens) {
  std::ofstream file(path);
  for (const auto& golden : goldens) {
    file << golden.first << std::hex;
    for (const uint32_t word : golden.second) file << ' ' << word;
    file << '\n';
  }
  if (!file.flush()) throw std::runtime_error(path + ": cannot be written");
}

std::vector<std::string> compare_goldens(const Goldens& expected, const Goldens& got) {
  std::vector<std::string> wrong;
  for (const auto& golden : expected) {
    const auto found = got.find(golden.first);
    if (found == got.end()) {
      wrong.push_back(golden.first + ": no such case");
      continue;
    }
    const std::vector<uint32_t>&want = golden.second, &have = found->second;
    if (want == have) continue;
    std::ostringstream line;
    line << golden.first << ": ";
    if (want.size() != have.size()) {
      line << have.size() << " words where " << want.size() << " are expected";
    } else {
      size_t i = 0;
      while (want[i] == have[i]) ++i;
      line << "word " << i << " is 0x" << std::hex << have[i] << " instead of 0x" << want[i];
    }
    wrong.push_back(line.str());
  }
  for (const auto& result : got)
    if (expected.count(result.first) == 0) wrong.push_back(result.first + ": has no golden result");
  return wrong;
}

}  // namespace heed::testing

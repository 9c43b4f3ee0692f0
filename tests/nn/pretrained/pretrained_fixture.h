// The tiny models of tests/fixtures/pretrained, and the texts that write_pretrained.py gave them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/core/serialize.h>

#include "temporary_folder.h"

namespace heed::test {

inline std::string pretrained_folder() { return HEED_FIXTURES "/pretrained"; }

/// A family's folder, and what its model computes.
class PretrainedFixture {
 public:
  explicit PretrainedFixture(const std::string& family) : path_(pretrained_folder() + "/" + family) {
    for (const auto& entry : load_tensors(path_ + "/expected.safetensors")) tensors_.insert(entry);
  }

  const std::string& path() const { return path_; }
  const Tensor& operator[](const std::string& name) const {
    const auto found = tensors_.find(name);
    HEED_CHECK(found != tensors_.end(), IndexError, path_, " expects no '", name, "'");
    return found->second;
  }
  double number(const std::string& name) const { return (*this)[name].item<double>(); }
  size_t gradients() const {
    size_t count = 0;
    for (const auto& entry : tensors_) count += entry.first.rfind("gradient/", 0) == 0;
    return count;
  }

 private:
  std::string path_;
  std::map<std::string, Tensor> tensors_;
};

/// write_pretrained.rows.
inline std::vector<std::vector<int64_t>> rows_by_rule(int64_t a, int64_t b, int64_t c) {
  constexpr int64_t kVocabulary = 19, kFirst = 2;
  std::vector<std::vector<int64_t>> texts;
  for (const int64_t length : {5, 7, 1}) {
    const auto i = static_cast<int64_t>(texts.size());
    auto& text = texts.emplace_back();
    for (int64_t j = 0; j < length; ++j)
      text.push_back((a * i * i + b * j * j + c) % (kVocabulary - kFirst) + kFirst);
  }
  return texts;
}

inline Tensor flat(const std::vector<std::vector<int64_t>>& texts) {
  std::vector<int64_t> ids;
  for (const auto& text : texts) ids.insert(ids.end(), text.begin(), text.end());
  return tensor(ids, {static_cast<int64_t>(ids.size())});
}

}  // namespace heed::test

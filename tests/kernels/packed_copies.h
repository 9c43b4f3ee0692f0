// What the memory of a weight keeps for the CPU's product, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include <heed/kernels/packed_copies.h>

namespace heed::test {

/// Keeps the copy of one matrix. A second one is a failure.
class Copies : public kernels::PackedCopies {
 public:
  const std::byte* find(const Matrix& matrix) const override {
    return made() && matrix == matrix_ ? copy_.data() : nullptr;
  }
  const std::byte* keep(const Matrix& matrix, int64_t bytes, FunctionRef<void(std::byte*)> pack) override {
    EXPECT_FALSE(made());
    matrix_ = matrix;
    copy_.assign(static_cast<size_t>(bytes), std::byte{0xff});  // NaN
    pack(copy_.data());
    return copy_.data();
  }
  bool made() const { return !copy_.empty(); }
  const std::vector<std::byte>& bytes() const { return copy_; }

 private:
  Matrix matrix_{};
  std::vector<std::byte> copy_;
};

}  // namespace heed::test

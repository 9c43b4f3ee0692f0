#include <sstream>

#include "reference.h"

namespace heed::test {
namespace {

std::string text(const Tensor& x) { return concat(x); }

TEST(Print, Integers) {
  EXPECT_EQ(text(arange(0, 6).reshape({2, 3})), "[[0, 1, 2],\n [3, 4, 5]] ([2, 3] i64 cpu)");
  EXPECT_EQ(text(tensor<int32_t>({-10, 5})), "[-10,   5] ([2] i32 cpu)");
}

TEST(Print, FloatsShareOneStyle) {
  EXPECT_EQ(text(tensor<float>({1, 20, -3})), "[ 1., 20., -3.] ([3] f32 cpu)");
  EXPECT_EQ(text(tensor<float>({0.5, -12.25})), "[  0.5000, -12.2500] ([2] f32 cpu)");
  EXPECT_EQ(text(tensor<double>({1e-5, 2})), "[1.0000e-05, 2.0000e+00] ([2] f64 cpu)");
  EXPECT_EQ(text(tensor<double>({1e10, 2})), "[1.0000e+10, 2.0000e+00] ([2] f64 cpu)");
  EXPECT_EQ(text(tensor<float>({NAN, HUGE_VALF, -HUGE_VALF, 1.5})),
            "[   nan,    inf,   -inf, 1.5000] ([4] f32 cpu)");
  EXPECT_EQ(text(full({2}, 0.5, {.dtype = DType::bf16})), "[0.5000, 0.5000] ([2] bf16 cpu)");
}

TEST(Print, BoolsScalarsAndEmptyTensors) {
  EXPECT_EQ(text(tensor<bool>({true, false})), "[ true, false] ([2] bool cpu)");
  EXPECT_EQ(text(scalar(3.5)), "3.5000 ([] f32 cpu)");
  EXPECT_EQ(text(zeros({0})), "[] ([0] f32 cpu)");
  EXPECT_EQ(text(zeros({2, 0})), "[[],\n []] ([2, 0] f32 cpu)");
  EXPECT_EQ(text(Tensor()), "tensor(undefined)");
}

TEST(Print, AxesAreSeparatedByBlankLines) {
  EXPECT_EQ(text(arange(0, 8).reshape({2, 2, 2})),
            "[[[0, 1],\n  [2, 3]],\n\n [[4, 5],\n  [6, 7]]] ([2, 2, 2] i64 cpu)");
}

TEST(Print, ViewsPrintTheirElements) {
  EXPECT_EQ(text(arange(0, 6).reshape({2, 3}).transpose(0, 1)),
            "[[0, 3],\n [1, 4],\n [2, 5]] ([3, 2] i64 cpu)");
}

TEST(Print, LongRowsAreWrapped) {
  std::istringstream lines(text(arange(1000, 1100)));
  std::string line;
  int count = 0;
  while (std::getline(lines, line)) {
    ++count;
    EXPECT_LE(line.size(), 120u) << line;
    EXPECT_EQ(line[0], count == 1 ? '[' : ' ');
  }
  EXPECT_EQ(count, 7);
}

TEST(Print, LargeTensorsAreAbridged) {
  EXPECT_EQ(text(arange(0, 1001)), "[   0,    1,    2, ...,  998,  999, 1000] ([1001] i64 cpu)");
  EXPECT_EQ(text(arange(0, 1000)).find("..."), std::string::npos);
  const std::string matrix = text(zeros({100, 100}));
  EXPECT_EQ(matrix.substr(0, 38), "[[0., 0., 0., ..., 0., 0., 0.],\n [0., ");
  EXPECT_NE(matrix.find(",\n ...,\n "), std::string::npos);
  EXPECT_LT(text(zeros({100, 100, 100})).size(), 2500u);
  // An axis that is short is shown whole.
  EXPECT_EQ(text(zeros({2, 1000})),
            "[[0., 0., 0., ..., 0., 0., 0.],\n [0., 0., 0., ..., 0., 0., 0.]] ([2, 1000] f32 cpu)");
}

TEST(Print, GradientsAreMentioned) {
  const Tensor x = ones({1}).set_requires_grad();
  EXPECT_EQ(text(x), "[1.] ([1] f32 cpu, requires grad)");
  EXPECT_EQ(text(x * 2.0), "[2.] ([1] f32 cpu, made by multiply)");
}

TEST(Print, LeavesTheStreamAsItWas) {
  std::ostringstream out;
  out << tensor<float>({0.5}) << ' ' << 0.123456789;
  EXPECT_EQ(out.str(), "[0.5000] ([1] f32 cpu) 0.123457");
}

}  // namespace
}  // namespace heed::test

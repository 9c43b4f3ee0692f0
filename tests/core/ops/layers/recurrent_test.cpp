#include <gtest/gtest.h>

#include <heed/core/base/threads/parallel_for.h>
#include <heed/core/ops.h>
#include <heed/core/recurrent.h>

#include "../fused_check.h"

namespace heed::test {
namespace {

struct Case {
  CellKind kind;
  std::vector<int32_t> lengths;
  int64_t width = 5;
  bool bias = true, states = true, reverse = false;
  int64_t gap = 0;  // rows before each sequence that no sequence has
};

Segments segments(const Case& c) {
  std::vector<int64_t> first;
  int64_t row = 0;
  for (int32_t length : c.lengths) {
    first.push_back(row += c.gap);
    row += length;
  }
  return Segments(first, c.lengths, first, c.lengths);
}

int64_t rows(const Case& c) {
  int64_t sum = 0;
  for (int32_t length : c.lengths) sum += length + c.gap;
  return sum;
}

// A cell from simple operations, the formulas of PyTorch's documentation.
void step(CellKind kind, const Tensor& x, const Tensor& p, Tensor& h, Tensor& c) {
  const std::vector<Tensor> a = chunk(x, gate_count(kind), -1), b = chunk(p, gate_count(kind), -1);
  if (kind == CellKind::lstm) {
    c = sigmoid(a[1] + b[1]) * c + sigmoid(a[0] + b[0]) * tanh(a[2] + b[2]);
    h = sigmoid(a[3] + b[3]) * tanh(c);
  } else {
    const Tensor z = sigmoid(a[1] + b[1]);
    h = (1.0 - z) * tanh(a[2] + sigmoid(a[0] + b[0]) * b[2]) + z * h;
  }
}

// Sequence by sequence, step by step.
Tensors composed(const Tensors& in, const Case& c) {
  const Segments batch = segments(c);
  const Tensor& gates = in[0];
  const Tensor blank = zeros({1, c.width}, gates.options());
  std::vector<Tensor> y(static_cast<size_t>(rows(c)), blank), hidden, cell;
  for (int64_t s = 0; s < batch.count(); ++s) {
    Tensor h = in[3].defined() ? in[3].slice(0, s, s + 1) : blank;
    Tensor memory = in[4].defined() ? in[4].slice(0, s, s + 1) : blank;
    const int64_t length = batch.query_length(s);
    for (int64_t t = 0; t < length; ++t) {
      const int64_t row = batch.query_first(s) + (c.reverse ? length - 1 - t : t);
      Tensor p = matmul(h, in[1].transpose(0, 1));
      if (in[2].defined()) p = p + in[2];
      step(c.kind, gates.slice(0, row, row + 1), p, h, memory);
      y[static_cast<size_t>(row)] = h;
    }
    hidden.push_back(h);
    cell.push_back(memory);
  }
  Tensors results{cat(y, 0), cat(hidden, 0)};
  if (c.kind == CellKind::lstm) results.push_back(cat(cell, 0));
  return results;
}

void check(const Case& c) {
  const int64_t all = gate_count(c.kind) * c.width, count = static_cast<int64_t>(c.lengths.size());
  const bool lstm = c.kind == CellKind::lstm;
  check_fused({.name = concat(lstm ? "lstm " : "gru ", c.width, " of ", count, " sequences",
                              c.reverse ? " reversed" : "", c.gap ? " with gaps" : ""),
               .inputs = {normal({rows(c), all}, 1), normal({all, c.width}, 2) * 0.5,
                          c.bias ? normal({all}, 3) * 0.5 : Tensor(),
                          c.states ? normal({count, c.width}, 4) : Tensor(),
                          c.states && lstm ? normal({count, c.width}, 5) : Tensor()},
               .function =
                   [=](const Tensors& in) {
                     const RecurrentStates out =
                         recurrent(c.kind, in[0], in[1], segments(c),
                                   {.bias = in[2], .hidden = in[3], .cell = in[4], .reverse = c.reverse});
                     Tensors results{out.output, out.hidden};
                     if (lstm) results.push_back(out.cell);
                     return results;
                   },
               .reference = [=](const Tensors& in) { return composed(in, c); },
               .plain = [=](const Tensors& in) { return composed(in, c); },
               .magnitude = 4});  // of the sums before a gate
}

constexpr CellKind kKinds[] = {CellKind::lstm, CellKind::gru};

TEST(Recurrent, LengthsInAnyOrder) {
  for (CellKind kind : kKinds) check({.kind = kind, .lengths = {2, 5, 1, 3}});
}

TEST(Recurrent, Reversed) {
  for (CellKind kind : kKinds) check({.kind = kind, .lengths = {2, 4}, .reverse = true});
}

TEST(Recurrent, WithoutBiasAndStates) {
  for (CellKind kind : kKinds) check({.kind = kind, .lengths = {3, 1}, .bias = false, .states = false});
}

TEST(Recurrent, RowsOfNoSequenceAndEmptySequences) {
  for (CellKind kind : kKinds) check({.kind = kind, .lengths = {2, 0, 3}, .gap = 1});
}

// More rows than the dot products of few take, so that the weight is packed, until few sequences are left.
TEST(Recurrent, PackedWeight) {
  for (CellKind kind : kKinds)
    check({.kind = kind, .lengths = {1, 2, 2, 2, 1, 1, 2, 2, 1, 2, 1}, .width = 18});
}

// Several blocks of units, the last one narrow, and more sequences than one task takes.
TEST(Recurrent, WhatIsCutIntoTasksIsWhole) {
  std::vector<int32_t> lengths;
  for (int32_t i = 0; i < 100; ++i) lengths.push_back(1 + i * 7 % 4);
  for (CellKind kind : kKinds) {
    SCOPED_TRACE(kind == CellKind::lstm ? "LSTM" : "GRU");
    const Case c{.kind = kind, .lengths = lengths, .width = 100};
    const int64_t all = gate_count(kind) * c.width;
    const Tensors inputs{normal({rows(c), all}, 1), normal({all, c.width}, 2) * 0.2, normal({all}, 3),
                         normal({100, c.width}, 4),
                         kind == CellKind::lstm ? normal({100, c.width}, 5) : Tensor()};
    const auto run = [&](DType dtype, bool fused) {
      Tensors in;
      for (const Tensor& x : inputs) in.push_back(x.defined() ? x.to(dtype).clone().set_requires_grad() : x);
      Tensors results;
      if (fused) {
        const RecurrentStates out =
            recurrent(kind, in[0], in[1], segments(c), {.bias = in[2], .hidden = in[3], .cell = in[4]});
        results = {out.output, out.hidden};
      } else {
        results = composed(in, c);
      }
      sum(results[0] * normal(results[0].shape(), 6).to(dtype) +
          sum(results[1] * normal(results[1].shape(), 7).to(dtype)))
          .backward();
      results.resize(2);
      for (const Tensor& x : in)
        if (x.defined()) results.push_back(x.grad());
      return results;
    };
    const Tensors want = run(DType::f64, false);
    for (const auto& [dtype, tolerance] : {std::pair(DType::f64, 1e-13), std::pair(DType::f32, 1e-5)}) {
      const Tensors got = run(dtype, true);
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_LE(max_difference(got[i].to(DType::f64), want[i]), tolerance * std::max(1.0, max_abs(want[i])))
            << dtype << ", result " << i;
    }
  }
}

TEST(Recurrent, RecordingChangesNothing) {
  const Segments batch = Segments::packed(std::vector<int32_t>{3, 5});
  for (Device device : devices())
    for (CellKind kind : kKinds)
      for (DType dtype : {DType::f32, DType::bf16}) {
        const int64_t all = gate_count(kind) * 17;
        const Tensor x = normal({8, all}, 1).to(dtype).to(device),
                     w = normal({all, 17}, 2).to(dtype).to(device);
        const RecurrentStates plain = recurrent(kind, x, w, batch),
                              recorded = recurrent(kind, x.clone().set_requires_grad(), w, batch);
        EXPECT_EQ(max_difference(plain.output, recorded.output), 0);
        EXPECT_EQ(max_difference(plain.hidden, recorded.hidden), 0);
      }
}

// Work is cut by shape alone.
TEST(Recurrent, AnyNumberOfThreadsGivesTheSameBits) {
  const auto run = [](CellKind kind, int threads) {
    set_thread_count(threads);
    const int64_t width = 130, all = gate_count(kind) * width;
    const std::vector<int32_t> lengths(40, 3);
    const Tensor x = normal({120, all}, 1).to(DType::f32).set_requires_grad(),
                 w = (normal({all, width}, 2) * 0.1).to(DType::f32).set_requires_grad();
    const Tensor y = recurrent(kind, x, w, Segments::packed(lengths)).output;
    sum(y * y).backward();
    set_thread_count(1);
    return Tensors{y.detach(), x.grad(), w.grad()};
  };
  for (CellKind kind : kKinds) {
    const Tensors one = run(kind, 1), three = run(kind, 3);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(array_equal(one[i], three[i])) << i;
  }
}

// The gradient of a final state alone, and of the output alone.
TEST(Recurrent, OneResultIsEnough) {
  const Segments batch = Segments::packed(std::vector<int32_t>{2, 1});
  for (CellKind kind : kKinds) {
    const int64_t all = gate_count(kind) * 3;
    const auto gradient = [&](bool of_output) {
      const Tensor x = normal({3, all}, 1).set_requires_grad(), w = normal({all, 3}, 2);
      const RecurrentStates out = recurrent(kind, x, w, batch);
      sum(of_output ? index_select(out.output, tensor<int64_t>({1, 2})) : out.hidden).backward();
      return x.grad();
    };
    EXPECT_LE(max_difference(gradient(true), gradient(false)), 1e-15);
    EXPECT_GT(max_abs(gradient(true)), 1e-3);
  }
}

TEST(Recurrent, Errors) {
  const Tensor x = zeros({4, 12}), w = zeros({12, 3});
  const Segments batch = Segments::packed(std::vector<int32_t>{4});
  expect_error<ShapeError>([&] { (void)recurrent(CellKind::gru, x, w, batch); },
                           "recurrent: weight is [12, 3], expected [3 hidden, hidden]");
  expect_error<ShapeError>(
      [&] {
        (void)recurrent(CellKind::lstm, zeros({4, 9}), w, batch);
      },
      "recurrent: gates are [4, 9], expected [rows, 12]");
  expect_error<ShapeError>([&] { (void)recurrent(CellKind::lstm, x, w, batch, {.bias = zeros({3})}); },
                           "recurrent: bias is [3], expected [12]");
  expect_error<ShapeError>(
      [&] {
        (void)recurrent(CellKind::lstm, x, w, batch, {.hidden = zeros({2, 3})});
      },
      "recurrent: hidden is [2, 3], expected [1, 3]");
  expect_error<ConfigError>(
      [&] {
        (void)recurrent(CellKind::gru, zeros({4, 9}), zeros({9, 3}), batch, {.cell = zeros({1, 3})});
      },
      "a GRU has no cell state");
  expect_error<ShapeError>(
      [&] { (void)recurrent(CellKind::lstm, x, w, Segments::packed(std::vector<int32_t>{5})); },
      "the segments end at row 5 of 4");
  expect_error<DTypeError>([&] { (void)recurrent(CellKind::lstm, x, w.to(DType::f64), batch); }, "f64");
}

TEST(Recurrent, ChangedWeightIsNoticed) {
  const Tensor x = normal({4, 12}, 1).set_requires_grad(), w = normal({12, 3}, 2);
  const RecurrentStates out = recurrent(CellKind::lstm, x, w, Segments::packed(std::vector<int32_t>{4}));
  expect_change_is_noticed(out.output, w);
}

}  // namespace
}  // namespace heed::test

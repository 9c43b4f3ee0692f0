// CUDA kernels that take elements one by one or by index, under every schedule of the emulator: the bits must
// not depend on it, and the builds with checks look for races and wrong addresses. What the results should be
// is tested with the operations, in tests/core/ops.
#include <algorithm>

#include <heed/kernels/activation.h>
#include <heed/kernels/dropout.h>
#include <heed/kernels/elementwise.h>
#include <heed/kernels/embedding.h>
#include <heed/kernels/index_put.h>
#include <heed/kernels/indexing.h>
#include <heed/kernels/random.h>
#include <heed/kernels/sampling.h>

#include "schedules.h"

namespace heed::testing {
namespace {

template <class T>
class ElementSchedules : public ::testing::Test {};
TYPED_TEST_SUITE(ElementSchedules, KernelTypes);

// One element, rows that fill vectors and rows that do not, and more than a block takes.
struct Shape {
  int64_t rows, cols;
};
constexpr Shape kShapes[] = {{1, 1}, {9, 40}, {9, 37}, {2, 1025}};

TYPED_TEST(ElementSchedules, Copies) {
  using T = TypeParam;
  for (const Shape& s : kShapes) {
    const int64_t count = s.rows * s.cols;
    const Strided<2> turned = space<2>(s.rows, s.cols, {2, -1});
    Strided<2> of_one = line<2>(count);
    of_one.strides[1][0] = 0;
    check_schedules("copy, turned over", [&] {
      const Buffer<T> x(numbers<T>(count, 1)), y(count);
      cuda::copy(kernels::Copy<T, T>{y.data(), x.data(), turned, false});
      return bytes(y);
    });
    check_schedules("copy, added in float", [&] {
      const Buffer<T> x(numbers<T>(count, 1));
      const Buffer<float> y(numbers<float>(count, 3));
      cuda::copy(kernels::Copy<float, T>{y.data(), x.data(), line<2>(count), true});
      return bytes(y);
    });
    check_schedules("copy of one element", [&] {
      const Buffer<T> x(numbers<T>(1, 1)), y(count);
      cuda::copy(kernels::Copy<T, T>{y.data(), x.data(), of_one, false});
      return bytes(y);
    });
    check_schedules("fill", [&] {
      const Buffer<T> y(count);
      cuda::fill(kernels::Fill<T>{y.data(), T(2.5f), line<1>(count)});
      return bytes(y);
    });
  }
}

TYPED_TEST(ElementSchedules, Arithmetic) {
  using T = TypeParam;
  for (const Shape& s : kShapes) {
    const int64_t cols = s.cols, count = s.rows * cols;
    const Strided<3> with_row = space<3>(s.rows, cols, {2, 2, 1});
    check_schedules("binary", [&] {
      const Buffer<T> x(numbers<T>(count, 1)), row(numbers<T>(cols, 2)), y(count);
      cuda::binary(
          kernels::Binary<T>{kernels::BinaryOp::add, y.data(), x.data(), row.data(), T(0.0f), with_row});
      return bytes(y);
    });
    check_schedules("binary with a number", [&] {
      const Buffer<T> x(numbers<T>(count, 1)), y(count);
      cuda::binary(kernels::Binary<T>{kernels::BinaryOp::divide, y.data(), nullptr, x.data(), T(2.0f),
                                      line<3>(count)});
      return bytes(y);
    });
    check_schedules("clamp", [&] {
      const Buffer<T> x(numbers<T>(count, 1)), y(count);
      cuda::clamp(kernels::Clamp<T>{y.data(), x.data(), T(-0.5f), T(0.5f), line<2>(count)});
      return bytes(y);
    });
    check_schedules("unary in place", [&] {
      const Buffer<T> x(numbers<T>(count, 1));
      cuda::unary(kernels::Unary<T>{kernels::UnaryOp::exponential, x.data(), x.data(), line<2>(count)});
      return bytes(x);
    });
  }
}

TYPED_TEST(ElementSchedules, Choices) {
  using T = TypeParam;
  for (const Shape& s : kShapes) {
    const int64_t cols = s.cols, count = s.rows * cols;
    const Strided<3> with_row = space<3>(s.rows, cols, {2, 2, 1});
    const Strided<4> chosen = space<4>(s.rows, cols, {2, 2, 2, 1});
    check_schedules("compare", [&] {
      const Buffer<T> x(numbers<T>(count, 1)), row(numbers<T>(cols, 2));
      const Buffer<unsigned char> less(count);
      cuda::compare(kernels::Compare<T>{kernels::CompareOp::less, reinterpret_cast<bool*>(less.data()),
                                        x.data(), row.data(), with_row});
      return bytes(less);
    });
    check_schedules("where", [&] {
      std::vector<unsigned char> flags(static_cast<size_t>(count));
      for (size_t i = 0; i < flags.size(); ++i) flags[i] = random_word(i, 4) % 2;
      const Buffer<unsigned char> condition(flags);
      const Buffer<T> a(numbers<T>(count, 1)), row(numbers<T>(cols, 2)), y(count);
      cuda::where(kernels::Where<T>{y.data(), reinterpret_cast<const bool*>(condition.data()), a.data(),
                                    row.data(), chosen});
      return bytes(y);
    });
    check_schedules("predicate", [&] {
      const Buffer<T> x(numbers<T>(count, 1));
      const Buffer<unsigned char> finite(count);
      cuda::predicate(kernels::Predicate<T>{
          kernels::PredicateOp::is_finite, reinterpret_cast<bool*>(finite.data()), x.data(), line<2>(count)});
      return bytes(finite);
    });
  }
}

// No operation does so.
TEST(CopyElements, AddsTruthValuesByOr) {
  const Buffer<unsigned char> y(std::vector<unsigned char>{0, 1, 0, 1}),
      x(std::vector<unsigned char>{0, 0, 1, 1});
  cuda::copy(kernels::Copy<bool, bool>{reinterpret_cast<bool*>(y.data()),
                                       reinterpret_cast<const bool*>(x.data()), line<2>(4), true});
  EXPECT_EQ(y.get(), (std::vector<unsigned char>{0, 1, 1, 1}));
}

constexpr Activation kActivations[] = {Activation::relu, Activation::gelu, Activation::gelu_tanh,
                                       Activation::silu};

TYPED_TEST(ElementSchedules, Activations) {
  using T = TypeParam;
  for (const Activation activation : kActivations)
    for (const int64_t count : {1, 83, 256}) {
      check_schedules("activation forward", [&] {
        const Buffer<T> x(numbers<T>(count, 1)), y(count);
        cuda::activation_forward(kernels::ActivationForward<T>{activation, x.data(), y.data(), count});
        return bytes(y);
      });
      check_schedules("activation backward", [&] {
        const Buffer<T> x(numbers<T>(count, 1)), gy(numbers<T>(count, 2)), gx(numbers<T>(count, 3));
        cuda::activation_backward(
            kernels::ActivationBackward<T>{activation, x.data(), gy.data(), gx.data(), count, count != 83});
        return bytes(gx);
      });
    }
}

TYPED_TEST(ElementSchedules, Dropout) {
  using T = TypeParam;
  for (const int64_t count : {1, 83, 256}) {
    for (const bool residual : {false, true})
      check_schedules("dropout forward", [&] {
        const Buffer<T> x(numbers<T>(count, 1)), to(numbers<T>(count, 2)), y(count);
        cuda::dropout_forward(kernels::DropoutForward<T>{x.data(), residual ? to.data() : nullptr, y.data(),
                                                         count, some_dropout()});
        return bytes(y);
      });
    check_schedules("dropout backward", [&] {
      const Buffer<T> gy(numbers<T>(count, 1)), gx(numbers<T>(count, 3));
      cuda::dropout_backward(
          kernels::DropoutBackward<T>{gy.data(), gx.data(), count, some_dropout(), count != 83});
      return bytes(gx);
    });
  }
}

// Both halves of a row in one matrix, as one product gives them.
TYPED_TEST(ElementSchedules, Gated) {
  using T = TypeParam;
  for (const Activation activation : kActivations)
    for (const int64_t cols : {1, 9, 16}) {
      const int64_t rows = 5, ld = 2 * cols, count = rows * ld;
      check_schedules("gated forward", [&] {
        const Buffer<T> gate(numbers<T>(count, 1)), up(numbers<T>(count, 2)), y(count / 2);
        cuda::gated_forward(
            kernels::GatedForward<T>{activation, gate.data(), up.data(), y.data(), rows, cols, ld});
        return bytes(y);
      });
      check_schedules("gated backward", [&] {
        const Buffer<T> gate(numbers<T>(count, 1)), up(numbers<T>(count, 2)), gy(numbers<T>(count / 2, 3)),
            ggate(numbers<T>(count, 4)), gup(numbers<T>(count, 5));
        cuda::gated_backward(kernels::GatedBackward<T>{activation, gate.data(), up.data(), gy.data(),
                                                       ggate.data(), gup.data(), rows, cols, ld, ld,
                                                       cols == 1, true});
        return bytes(ggate, gup);
      });
    }
}

constexpr int64_t kDrawn[] = {1, 5, 1027};

TYPED_TEST(ElementSchedules, RandomFills) {
  using T = TypeParam;
  for (const int64_t count : kDrawn) {
    check_schedules("fill_uniform", [&] {
      const Buffer<uint64_t> base(std::vector<uint64_t>{1000});
      const Buffer<T> y(count);
      cuda::fill_uniform(kernels::FillUniform<T>{y.data(), count, -3, 5, {5, base.data(), 9}});
      return bytes(y);
    });
    check_schedules("fill_normal", [&] {
      const Buffer<uint64_t> base(std::vector<uint64_t>{1000});
      const Buffer<T> y(count);
      cuda::fill_normal(kernels::FillNormal<T>{y.data(), count, 1, 2, {5, base.data(), 9}});
      return bytes(y);
    });
  }
}

TEST(IntegerSchedules, RandomFills) {
  for (const int64_t count : kDrawn)
    check_schedules("fill_integers", [&] {
      const Buffer<uint64_t> base(std::vector<uint64_t>{1000});
      const PhiloxState rng{5, base.data(), 9};
      const Buffer<int64_t> y(count);
      cuda::fill_integers(kernels::FillIntegers{y.data(), count, -7, int64_t{1} << 62, rng});
      cuda::fill_integers(kernels::FillIntegers{y.data(), 0, 0, 1, rng});  // launches nothing
      return bytes(y);
    });
}

// Each place once for each column; where there is none, the first.
std::vector<int64_t> ids_for(const std::vector<int64_t>& places, int64_t width) {
  std::vector<int64_t> out;
  for (const int64_t place : places)
    out.insert(out.end(), static_cast<size_t>(width), place == kNoToken ? 0 : place);
  return out;
}

TYPED_TEST(ElementSchedules, Sort) {
  using T = TypeParam;
  struct Lines {
    int64_t n, k;
    bool descending;
  };
  for (const Lines& l : {Lines{1, 1, false}, Lines{2, 2, true}, Lines{33, 5, true}, Lines{300, 300, true},
                         Lines{300, 1, false}})
    check_schedules("sort", [&] {
      const Buffer<T> x(numbers<T>(2 * l.n, 1)), values(2 * l.k);
      const Buffer<int64_t> indices(2 * l.k);
      Strided<3> lines = line<3>(2, l.k);
      lines.strides[2][0] = l.n;
      cuda::sort(
          kernels::Sort<T>{values.data(), indices.data(), x.data(), lines, l.n, l.k, 1, 1, 1, l.descending});
      return bytes(values, indices);
    });
}

TYPED_TEST(ElementSchedules, RowsByIndex) {
  using T = TypeParam;
  using A = math_t<T>;
  const int64_t count = 400, rows = 1100;  // two digits, and more than are searched for one by one
  const std::vector<int64_t> few(150, 4);  // one target over several stretches
  std::vector<int64_t> spread = ids(count, rows, 2);
  std::copy(few.begin(), few.end(), spread.begin() + 50);
  const std::vector<int64_t> nowhere(static_cast<size_t>(count), kNoToken), alone{7};
  std::vector<int64_t> turned(static_cast<size_t>(count), kNoToken);  // every second one, from the end on
  for (int64_t i = 0; i < count; i += 2) turned[static_cast<size_t>(i)] = rows - 1 - i;
  for (const std::vector<int64_t>& places : {turned, nowhere, alone})
    for (const int64_t width : {1, 7, 8})
      check_schedules("index_put", [&] {
        const Buffer<T> x(numbers<T>(count * (width + 8), 1)), y(numbers<T>(rows * width, 2));
        const Buffer<int64_t> index(places);
        cuda::index_put(kernels::IndexPut<T>{y.data(), x.data(), index.data(), std::ssize(places), width,
                                             rows, width + 8});
        return bytes(y);
      });
  for (const std::vector<int64_t>& places : {spread, nowhere, alone})
    for (const int64_t width : {1, 7, 8}) {
      const int64_t n = static_cast<int64_t>(places.size());
      check_schedules("index_select", [&] {
        const Buffer<T> table(numbers<T>(rows * width, 1)), y(n * width);
        const Buffer<int64_t> index(places);
        cuda::index_select(kernels::IndexSelect<T>{y.data(), table.data(), index.data(), n, width, rows});
        return bytes(y);
      });
      check_schedules("index_select backward", [&] {
        const Buffer<T> gy(numbers<T>(n * width, 1));
        const Buffer<A> gx(numbers<A>(rows * width, 3));
        const Buffer<int64_t> index(places);
        cuda::index_select_backward(
            kernels::IndexSelectBackward<T>{gx.data(), gy.data(), index.data(), n, width, rows});
        return bytes(gx);
      });
      for (const ScatterOp op :
           {ScatterOp::replace, ScatterOp::add, ScatterOp::multiply, ScatterOp::max, ScatterOp::min})
        check_schedules("scatter", [&] {
          const Buffer<T> source(numbers<T>(n * width, 1));
          const Buffer<A> y(numbers<A>(rows * width, 4));
          const Buffer<int64_t> index(ids_for(places, width));
          cuda::scatter(kernels::Scatter<T>{kernels::IndexUse::scatter, op, y.data(), index.data(),
                                            source.data(), line<3>(width), n, rows, width, width, width});
          return bytes(y);
        });
    }
}

// Lines too long for shared memory lie in global memory, each block's beside the other's.
TEST(SortIndexing, LongLines) {
  const int64_t n = 4097;
  const Buffer<float> x(numbers<float>(2 * n, 1)), values(2 * n);
  const Buffer<int64_t> indices(2 * n);
  cuda::sort(
      kernels::Sort<float>{values.data(), indices.data(), x.data(), line<3>(2, n), n, n, 1, 1, 1, false});
  cuda::synchronize(0);
  std::vector<float> want = x.get();
  std::sort(want.begin(), want.begin() + n);
  std::sort(want.begin() + n, want.end());
  EXPECT_EQ(values.get(), want);
}

TYPED_TEST(ElementSchedules, Selections) {
  using T = TypeParam;
  const int64_t rows = 6, entries = 9;
  for (const int64_t cols : {1, 37, 40}) {
    const int64_t count = rows * cols;
    std::vector<int64_t> places(static_cast<size_t>(count));
    for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int64_t>(random_word(i, 2)) % entries;
    check_schedules("gather", [&] {
      const Buffer<T> x(numbers<T>(entries * cols, 1)), y(count);
      const Buffer<int64_t> index(places);
      const Strided<3> from = space<3>(rows, cols, {2, 2, 1});  // x has stride 0 along the axis of the index
      cuda::gather(kernels::Gather<T>{kernels::IndexUse::gather, y.data(), index.data(), x.data(), from,
                                      entries, cols});
      return bytes(y);
    });
    for (const bool lower : {true, false})
      check_schedules("triangle", [&] {
        const Buffer<T> x(numbers<T>(count, 3)), y(count);
        cuda::triangle(kernels::Triangle<T>{y.data(), x.data(), 1, rows, cols, lower ? 3 : -2, lower});
        return bytes(y);
      });
    check_schedules("one_hot", [&] {
      const Buffer<int64_t> index(
          std::vector<int64_t>(static_cast<size_t>(rows), std::min<int64_t>(cols - 1, 5)));
      const Buffer<T> y(count);
      cuda::one_hot(kernels::OneHot<T>{y.data(), index.data(), rows, cols});
      return bytes(y);
    });
  }
}

TEST(CompactElements, PlacesOfWhatIsTrue) {
  const int64_t n = 1000;
  std::vector<unsigned char> flags(static_cast<size_t>(n));
  std::vector<int64_t> places(flags.size()), want;
  for (size_t i = 0; i < flags.size(); ++i) {
    flags[i] = random_word(i, 4) % 2;
    if (flags[i]) want.push_back(static_cast<int64_t>(i));
    places[i] = static_cast<int64_t>(want.size());
  }
  check_schedules("compact", [&] {
    const Buffer<unsigned char> mask(flags);
    const Buffer<int64_t> place(places), y(static_cast<int64_t>(want.size()));
    cuda::compact(kernels::Compact{y.data(), reinterpret_cast<const bool*>(mask.data()), place.data(), n});
    EXPECT_EQ(y.get(), want);
    return bytes(y);
  });
}

TYPED_TEST(ElementSchedules, Sampling) {
  using T = TypeParam;
  const int64_t rows = 70, cols = 37, count = 3;
  for (const bool replace : {true, false})
    check_schedules("sample", [&] {
      const Buffer<T> x(numbers<T>(rows * cols, 1));
      const Buffer<float> weights(rows * cols);
      const Buffer<int64_t> y(rows * count);
      cuda::sample(kernels::Sample<T>{y.data(), x.data(), weights.data(), true, 0.5, 0.9, replace, rows, cols,
                                      count, PhiloxState{7, nullptr, 3}});
      return bytes(y);
    });
}

TYPED_TEST(ElementSchedules, Embedding) {
  using T = TypeParam;
  const int64_t vocabulary = 20, positions = 40;
  const std::vector<int64_t> gaps(33, kNoToken), token{3};
  for (const std::vector<int64_t>& tokens : {ids(150, vocabulary, 3), gaps, token})
    for (const int64_t cols : {1, 5, 16}) {
      const int64_t rows = static_cast<int64_t>(tokens.size()), count = rows * cols;
      std::vector<int64_t> places(tokens.size());
      for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int64_t>(i) % positions;
      for (const bool placed : {true, false})
        check_schedules("embedding forward", [&] {
          const Buffer<T> table(numbers<T>(vocabulary * cols, 1)), position(numbers<T>(positions * cols, 2)),
              y(count);
          const Buffer<int64_t> id(tokens), at(places);
          cuda::embedding_forward(kernels::EmbeddingForward<T>{
              id.data(), table.data(), placed ? position.data() : nullptr, placed ? at.data() : nullptr,
              some_dropout(), 2.0, y.data(), rows, cols, vocabulary, positions});
          return bytes(y);
        });
      for (const bool placed : {true, false})
        check_schedules("embedding backward", [&] {
          const Buffer<T> gy(numbers<T>(count, 1));
          const Buffer<float> gtable(numbers<float>(vocabulary * cols, 3)),
              gposition(numbers<float>(positions * cols, 4));
          const Buffer<int64_t> id(tokens), at(places);
          cuda::embedding_backward(kernels::EmbeddingBackward<T>{
              gy.data(), id.data(), at.data(), some_dropout(), 2.0, 0, gtable.data(),
              placed ? gposition.data() : nullptr, !placed, placed, rows, cols, vocabulary, positions});
          return bytes(gtable, gposition);
        });
    }
}

}  // namespace
}  // namespace heed::testing

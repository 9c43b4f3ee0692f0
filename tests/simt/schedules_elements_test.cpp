// CUDA kernels that take elements one by one or by index, under every schedule of the emulator: the bits must
// not depend on it, and the builds with checks look for races and wrong addresses. What the results should be
// is tested with the operations, in tests/core/ops.
#include <algorithm>

#include <heed/kernels/activation.h>
#include <heed/kernels/dropout.h>
#include <heed/kernels/elementwise.h>
#include <heed/kernels/embedding.h>
#include <heed/kernels/indexing.h>
#include <heed/kernels/random.h>

#include "schedules.h"

namespace heed::testing {
namespace {

template <class T>
class ElementSchedules : public ::testing::Test {};
TYPED_TEST_SUITE(ElementSchedules, KernelTypes);

TYPED_TEST(ElementSchedules, Elementwise) {
  using T = TypeParam;
  for (const int64_t cols : {40, 37}) {
    const int64_t rows = 9, count = rows * cols;
    check_schedules("copies, sums and choices", [&] {
      Buffer<T> x(numbers<T>(count, 1)), row(numbers<T>(cols, 2)), turned(static_cast<size_t>(count)),
          sum(static_cast<size_t>(count)), chosen(static_cast<size_t>(count)),
          filled(static_cast<size_t>(count)), repeated(static_cast<size_t>(count));
      Buffer<float> wide(numbers<float>(count, 3));
      Buffer<unsigned char> less(static_cast<size_t>(count)), finite(static_cast<size_t>(count));
      bool* const flags = reinterpret_cast<bool*>(less.data());
      cuda::copy(kernels::Copy<T, T>{turned.data(), x.data(), space<2>(rows, cols, {2, -1}), false});
      cuda::copy(kernels::Copy<float, T>{wide.data(), x.data(), line<2>(count), true});
      Strided<2> of_one = line<2>(count);
      of_one.strides[1][0] = 0;
      cuda::copy(kernels::Copy<T, T>{repeated.data(), x.data(), of_one, false});
      cuda::fill(kernels::Fill<T>{filled.data(), T(2.5f), line<1>(count)});
      cuda::binary(kernels::Binary<T>{kernels::BinaryOp::add, sum.data(), x.data(), row.data(), T(0.0f),
                                      space<3>(rows, cols, {2, 2, 1})});
      cuda::unary(kernels::Unary<T>{kernels::UnaryOp::exponential, sum.data(), sum.data(), line<2>(count)});
      cuda::compare(kernels::Compare<T>{kernels::CompareOp::less, flags, x.data(), row.data(),
                                        space<3>(rows, cols, {2, 2, 1})});
      cuda::where(kernels::Where<T>{chosen.data(), flags, sum.data(), row.data(),
                                    space<4>(rows, cols, {2, 2, 2, 1})});
      cuda::predicate(kernels::Predicate<T>{kernels::PredicateOp::is_finite,
                                            reinterpret_cast<bool*>(finite.data()), sum.data(),
                                            line<2>(count)});
      return bytes(turned, wide, repeated, filled, sum, less, chosen, finite);
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

TYPED_TEST(ElementSchedules, ActivationAndDropout) {
  using T = TypeParam;
  for (const int64_t count : {256, 83})
    check_schedules("activation and dropout", [&] {
      const size_t n = static_cast<size_t>(count);
      Buffer<T> x(numbers<T>(count, 1)), gy(numbers<T>(count, 2)), y(n), gx(numbers<T>(count, 3)), d(n);
      cuda::activation_forward(kernels::ActivationForward<T>{Activation::gelu, x.data(), y.data(), count});
      cuda::activation_backward(
          kernels::ActivationBackward<T>{Activation::gelu_tanh, x.data(), gy.data(), gx.data(), count, true});
      cuda::dropout_forward(kernels::DropoutForward<T>{x.data(), y.data(), d.data(), count, some_dropout()});
      cuda::dropout_backward(kernels::DropoutBackward<T>{d.data(), gx.data(), count, some_dropout(), true});
      return bytes(y, gx, d);
    });
}

TYPED_TEST(ElementSchedules, Gated) {
  using T = TypeParam;
  for (const int64_t cols : {16, 9})
    check_schedules("gated", [&] {
      const int64_t rows = 5, ld = 2 * cols, count = rows * ld;
      const size_t n = static_cast<size_t>(count);
      Buffer<T> gate(numbers<T>(count, 1)), up(numbers<T>(count, 2)), y(n / 2), gy(numbers<T>(count / 2, 3)),
          ggate(numbers<T>(count, 4)), gup(numbers<T>(count, 5));
      cuda::gated_forward(
          kernels::GatedForward<T>{Activation::silu, gate.data(), up.data(), y.data(), rows, cols, ld});
      cuda::gated_backward(kernels::GatedBackward<T>{Activation::silu, gate.data(), up.data(), gy.data(),
                                                     ggate.data(), gup.data(), rows, cols, ld, ld, false,
                                                     true});
      return bytes(y, ggate, gup);
    });
}

TYPED_TEST(ElementSchedules, RandomFills) {
  using T = TypeParam;
  const uint64_t base = 1000;
  check_schedules("random", [&] {
    Buffer<uint64_t> device_base(std::vector<uint64_t>{base});
    const PhiloxState rng{5, device_base.data(), 9};
    Buffer<T> uniform(1027), normal(1027);
    Buffer<int64_t> integers(1027);
    cuda::fill_uniform(kernels::FillUniform<T>{uniform.data(), 1027, -3, 5, rng});
    cuda::fill_normal(kernels::FillNormal<T>{normal.data(), 1027, 1, 2, rng});
    cuda::fill_integers(kernels::FillIntegers{integers.data(), 1027, -7, int64_t{1} << 62, rng});
    cuda::fill_integers(kernels::FillIntegers{integers.data(), 0, 0, 1, rng});  // launches nothing
    return bytes(uniform, normal, integers);
  });
}

// Each place once for each column; where there is none, the first.
std::vector<int64_t> ids_for(const std::vector<int64_t>& places, int64_t width) {
  std::vector<int64_t> out;
  for (const int64_t place : places)
    out.insert(out.end(), static_cast<size_t>(width), place == kNoToken ? 0 : place);
  return out;
}

TYPED_TEST(ElementSchedules, Indexing) {
  using T = TypeParam;
  using A = kernels::scattered_t<T>;
  check_schedules("sort", [&] {
    Buffer<T> x(numbers<T>(2 * 300, 1)), values(2 * 300);
    Buffer<int64_t> indices(2 * 300);
    cuda::sort(
        kernels::Sort<T>{values.data(), indices.data(), x.data(), line<3>(2, 300), 300, 300, 1, 1, 1, true});
    return bytes(values, indices);
  });
  for (const int64_t width : {8, 7})
    check_schedules("rows by index", [&] {
      const int64_t count = 400, rows = 300;   // two digits
      const std::vector<int64_t> few(150, 4);  // one target over several stretches
      std::vector<int64_t> places = ids(count, rows, 2);
      std::copy(few.begin(), few.end(), places.begin() + 50);
      Buffer<T> table(numbers<T>(rows * width, 1)), y(static_cast<size_t>(count * width));
      Buffer<A> gx(numbers<A>(rows * width, 3)), sums(numbers<A>(rows * width, 4));
      Buffer<int64_t> index(places), everywhere(ids_for(places, width));
      cuda::index_select(kernels::IndexSelect<T>{y.data(), table.data(), index.data(), count, width, rows});
      cuda::index_select_backward(
          kernels::IndexSelectBackward<T>{gx.data(), y.data(), index.data(), count, width, rows});
      cuda::scatter_add(kernels::ScatterAdd<T>{sums.data(), everywhere.data(), y.data(), line<3>(width),
                                               count, rows, width, width, width});
      return bytes(y, gx, sums);
    });
}

// Lines too long for shared memory lie in global memory, each block's beside the other's.
TEST(SortIndexing, LongLines) {
  const int64_t n = 4097;
  const Buffer<float> x(numbers<float>(2 * n, 1)), values(static_cast<size_t>(2 * n));
  const Buffer<int64_t> indices(static_cast<size_t>(2 * n));
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
  for (const int64_t cols : {40, 37})
    check_schedules("gather, triangle and one-hot", [&] {
      const int64_t rows = 6, entries = 9, count = rows * cols;
      const size_t n = static_cast<size_t>(count);
      std::vector<int64_t> places(n);
      for (size_t i = 0; i < n; ++i) places[i] = static_cast<int64_t>(random_word(i, 2)) % entries;
      Buffer<T> x(numbers<T>(entries * cols, 1)), gathered(n), square(numbers<T>(count, 3)), corner(n),
          hot(static_cast<size_t>(rows * cols));
      Buffer<int64_t> index(places);
      Strided<3> from = space<3>(rows, cols, {2, 2, 1});  // x has stride 0 along the axis of the index
      cuda::gather(kernels::Gather<T>{gathered.data(), index.data(), x.data(), from, entries, cols});
      cuda::triangle(kernels::Triangle<T>{corner.data(), square.data(), 1, rows, cols, 3, true});
      cuda::one_hot(kernels::OneHot<T>{hot.data(), index.data(), rows, cols});
      return bytes(gathered, corner, hot);
    });
}

TYPED_TEST(ElementSchedules, Embedding) {
  using T = TypeParam;
  for (const int64_t cols : {16, 5})
    check_schedules("embedding", [&] {
      const int64_t rows = 150, vocabulary = 20, positions = 40, count = rows * cols;
      std::vector<int64_t> places(static_cast<size_t>(rows));
      for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int64_t>(i) % positions;
      Buffer<T> table(numbers<T>(vocabulary * cols, 1)), position(numbers<T>(positions * cols, 2)),
          y(static_cast<size_t>(count));
      Buffer<float> gtable(static_cast<size_t>(vocabulary * cols)),
          gposition(numbers<float>(positions * cols, 4));
      Buffer<int64_t> tokens(ids(rows, vocabulary, 3)), at(places);
      cuda::embedding_forward(kernels::EmbeddingForward<T>{tokens.data(), table.data(), position.data(),
                                                           at.data(), some_dropout(), 2.0, y.data(), rows,
                                                           cols, vocabulary, positions});
      cuda::embedding_backward(kernels::EmbeddingBackward<T>{
          y.data(), tokens.data(), at.data(), some_dropout(), 2.0, 0, gtable.data(), gposition.data(), false,
          true, rows, cols, vocabulary, positions});
      cuda::embedding_backward(kernels::EmbeddingBackward<T>{
          // positions that need no gradient
          y.data(), tokens.data(), at.data(), some_dropout(), 2.0, 0, gtable.data(), nullptr, true, false,
          rows, cols, vocabulary, positions});
      return bytes(y, gtable, gposition);
    });
}

}  // namespace
}  // namespace heed::testing

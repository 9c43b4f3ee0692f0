// What the steps of optimizers do on every device: bit for bit what the formulas do, written out plainly.
#pragma once

#include <cmath>
#include <vector>

#include "optimizer_reference.h"

namespace heed::testing {

/// Device: the Type of its values; arenas(), the parameters to try; adam, sgd and lion(arenas, slice,
/// options), a step each; rate(value), a rate that was set; advance(step, steps, stepped, norm).
template <class Device>
class OptimizerSteps : public ::testing::Test {
 protected:
  using T = typename Device::Type;
  using A = accumulator_t<T>;

  // `run(arenas, slice, options)` beside `plain(value, m, v, gradient, step, options)`.
  template <class Run, class Plain>
  static void check(const std::vector<Options>& options, const Run& run, const Plain& plain) {
    for (const Options& o : options)
      for (const Arenas<T>& arenas : Device::arenas())
        expect_same_steps(
            arenas, [&](Arenas<T>& there, int64_t step) { run(there, slice_of(there, step, o), o); },
            [&](A& value, A& m, A& v, A g, int64_t step) { plain(value, m, v, g, step, o); });
  }
};
TYPED_TEST_SUITE_P(OptimizerSteps);

TYPED_TEST_P(OptimizerSteps, AdamIsTheTextbookBitForBit) {
  using A = typename TestFixture::A;
  TestFixture::check(adam_options(), TypeParam::adam, plain_adam<A>);
}

TYPED_TEST_P(OptimizerSteps, SgdIsTheTextbookBitForBit) {
  using A = typename TestFixture::A;
  TestFixture::check(
      sgd_options(), TypeParam::sgd,
      [](A& value, A& m, A&, A g, int64_t step, const Options& o) { plain_sgd(value, m, g, step == 1, o); });
}

TYPED_TEST_P(OptimizerSteps, LionIsTheTextbookBitForBit) {
  using A = typename TestFixture::A;
  TestFixture::check(lion_options(), TypeParam::lion,
                     [](A& value, A& m, A&, A g, int64_t, const Options& o) { plain_lion(value, m, g, o); });
}

TYPED_TEST_P(OptimizerSteps, LionStandsStillWhereNothingPointsAndKeepsNan) {
  using T = typename TestFixture::T;
  using A = typename TestFixture::A;
  Arenas<T> arenas(3, false);
  arenas.value = {T(5), T(5), T(5)};
  arenas.gradient = {0, -2, A(NAN)};
  TypeParam::lion(arenas, arenas.slice(1, 0, nullptr, 0), {});
  EXPECT_EQ(widen(arenas.value[0]), 5);
  EXPECT_EQ(widen(arenas.value[1]), widen(T(5 + A(kLr))));
  EXPECT_TRUE(std::isnan(widen(arenas.value[2])));
}

// A master is finer than the value that it rounds to; another value was written since and stands.
TYPED_TEST_P(OptimizerSteps, AWrittenValueReplacesAMasterThatDoesNotRoundToIt) {
  using T = typename TestFixture::T;
  using A = typename TestFixture::A;
  const double still = 0;
  const A master = 1 + A(0x1p-10);  // as bf16 1
  for (const bool written : {false, true}) {
    Arenas<T> arenas(300, true);
    for (size_t i = 0; i < 300; ++i) {
      arenas.master[i] = master;
      arenas.value[i] = i % 3 == 0 ? T(A(5)) : T(master);
    }
    arenas.draw_gradient(1);
    auto slice = arenas.slice(1, 0, nullptr, 0);
    slice.written = written;
    slice.lr = &still;
    TypeParam::sgd(arenas, slice, {});
    for (size_t i = 0; i < 300; ++i) {
      const A want = written && i % 3 == 0 ? A(5) : master;
      EXPECT_EQ(arenas.master[i], want);
      EXPECT_EQ(widen(arenas.value[i]), widen(T(want)));
    }
  }
}

TYPED_TEST_P(OptimizerSteps, ANormThatIsNotFiniteChangesNothing) {
  using T = typename TestFixture::T;
  for (const double norm : {double(NAN), double(INFINITY)}) {
    Arenas<T> arenas(33, false);
    arenas.draw_gradient(1);
    const Arenas<T> before = arenas;
    const Options o{.norm = norm, .clip = 1, .momentum = 0.9};
    TypeParam::adam(arenas, arenas.slice(1, 0, &norm, 1), o);
    TypeParam::sgd(arenas, arenas.slice(1, 0, &norm, 1), o);
    TypeParam::lion(arenas, arenas.slice(1, 0, &norm, 1), o);
    EXPECT_TRUE(same_bits(arenas.value, before.value));
    EXPECT_TRUE(same_bits(arenas.m, before.m) && same_bits(arenas.v, before.v));
  }
}

TYPED_TEST_P(OptimizerSteps, ClippingTakesANormAndALimit) {
  using T = typename TestFixture::T;
  const auto stepped = [](const double* norm, double clip) {
    Arenas<T> arenas(33, false);
    arenas.draw_gradient(1);
    TypeParam::sgd(arenas, arenas.slice(1, 0, norm, clip), {});
    return arenas.value;
  };
  const double norm = 7;
  const std::vector<T> plain = stepped(nullptr, 0);
  EXPECT_TRUE(same_bits(stepped(&norm, 0), plain));
  EXPECT_TRUE(same_bits(stepped(nullptr, 1), plain));
  EXPECT_FALSE(same_bits(stepped(&norm, 1), plain));
}

TYPED_TEST_P(OptimizerSteps, TheRateOfASliceIsTheRateTimesItsFactor) {
  using T = typename TestFixture::T;
  const double lr = TypeParam::rate(0.25);
  EXPECT_EQ(lr, 0.25);
  Arenas<T> arenas(1, false);
  arenas.value = {T(1)};
  arenas.gradient = {2};
  auto slice = arenas.slice(1, 0, nullptr, 0);
  slice.lr = &lr;
  slice.lr_factor = 0.5;
  TypeParam::sgd(arenas, slice, {});
  EXPECT_EQ(widen(arenas.value[0]), 1 - 0.25 * 0.5 * 2);
}

// Of more parameters than a launch has.
TYPED_TEST_P(OptimizerSteps, StepsAdvanceUnlessTheNormIsNotFinite) {
  std::vector<int64_t> stepped;
  for (int64_t i = 0; i < 700; ++i) stepped.push_back(999 - i);
  for (const double norm : {3.0, double(INFINITY), double(NAN)}) {
    std::vector<int64_t> steps(1000, 3);
    int64_t step = 2;
    TypeParam::advance(step, steps, stepped, &norm);
    const int64_t moved = norm == 3 ? 1 : 0;
    EXPECT_EQ(step, 2 + moved);
    for (size_t i = 0; i < steps.size(); ++i) ASSERT_EQ(steps[i], 3 + (i >= 300 ? moved : 0)) << i;
    TypeParam::advance(step, steps, {}, nullptr);
    EXPECT_EQ(step, 3 + moved);
  }
}

TYPED_TEST_P(OptimizerSteps, OfNothing) {
  Arenas<typename TestFixture::T> arenas(0, false);
  TypeParam::adam(arenas, arenas.slice(1, 0, nullptr, 0), {});
  TypeParam::sgd(arenas, arenas.slice(1, 0, nullptr, 0), {});
  TypeParam::lion(arenas, arenas.slice(1, 0, nullptr, 0), {});
}

REGISTER_TYPED_TEST_SUITE_P(OptimizerSteps, AdamIsTheTextbookBitForBit, SgdIsTheTextbookBitForBit,
                            LionIsTheTextbookBitForBit, LionStandsStillWhereNothingPointsAndKeepsNan,
                            AWrittenValueReplacesAMasterThatDoesNotRoundToIt,
                            ANormThatIsNotFiniteChangesNothing, ClippingTakesANormAndALimit,
                            TheRateOfASliceIsTheRateTimesItsFactor, StepsAdvanceUnlessTheNormIsNotFinite,
                            OfNothing);

}  // namespace heed::testing

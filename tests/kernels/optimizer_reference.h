// The steps of optimizers written out plainly, and what they step: the same for the tests of every device.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include <heed/kernels/optimizer.h>

#include "plain_bound.h"

namespace heed::testing {

inline constexpr double kLr = 3e-3;

/// The state of parameters that stand one behind the other.
template <class T>
struct Arenas {
  using A = accumulator_t<T>;
  std::vector<int64_t> sizes;  // of the parameters
  std::vector<T> value;
  std::vector<A> master, gradient, m, v;
  std::vector<kernels::StepPart<T>> parts;
  std::vector<int64_t> steps;  // of each part
  int64_t behind = 0;          // as many steps fewer has every second part taken

  Arenas(const std::vector<int64_t>& parameters, bool with_master)
      : sizes(parameters),
        value(random_values<T>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}), 1)),
        master(with_master ? random_values<A>(elements(), 1) : std::vector<A>()),
        gradient(value.size()),
        m(value.size()),
        v(value.size()) {}
  Arenas(int64_t n, bool with_master) : Arenas(std::vector<int64_t>{n}, with_master) {}

  int64_t elements() const { return static_cast<int64_t>(value.size()); }

  void draw_gradient(uint32_t seed) { gradient = random_values<A>(elements(), seed, -3, 3); }

  /// For a step that is number `step` of the first parameter.
  kernels::StepSlice<T> slice(int64_t step, double decay, const double* norm, double clip) {
    parts.clear();
    steps.clear();
    int64_t first = 0;
    for (const int64_t size : sizes) {
      const int64_t number = static_cast<int64_t>(parts.size());
      parts.push_back({gradient.data() + first, size, value.data() + first, first, number});
      steps.push_back(step - (number % 2 == 1 ? behind : 0));
      first += size;
    }
    return {.parts = parts,
            .master = master.empty() ? nullptr : master.data(),
            .written = false,
            .steps = steps.data(),
            .lr = &kLr,
            .lr_factor = 1,
            .weight_decay = decay,
            .gradient_norm = norm,
            .clip = clip};
  }
};

struct Options {
  double decay = 0;
  bool decoupled = false;
  double norm = 0, clip = 0;  // clipping if norm > 0
  double beta1 = 0.9, beta2 = 0.999;
  double momentum = 0, dampening = 0;
  bool nesterov = false;
};

inline double clip_factor(const Options& o) {
  return o.norm > 0 ? std::min(1.0, o.clip / (o.norm + 1e-6)) : 1.0;
}

// The formulas, one element at a time. Factors are computed in double and rounded to W once.

template <class W>
void plain_adam(W& value, W& m, W& v, W g, int64_t step, const Options& o) {
  g = g * W(clip_factor(o));
  if (o.decoupled)
    value = value * W(1 - kLr * o.decay);
  else if (o.decay != 0)
    g = g + value * W(o.decay);
  const double weight = 1 - o.beta1;
  m = weight < 0.5 ? m + W(weight) * (g - m) : g - (g - m) * (W(1) - W(weight));
  v = v * W(o.beta2) + W(1 - o.beta2) * g * g;
  const double correction1 = 1 - std::pow(o.beta1, double(step)),
               root = std::sqrt(1 - std::pow(o.beta2, double(step)));
  value = value + -W(kLr * root / correction1) * m / (std::sqrt(v) + W(1e-8 * root));
}

template <class W>
void plain_sgd(W& value, W& buffer, W g, bool first, const Options& o) {
  g = g * W(clip_factor(o));
  if (o.decay != 0) g = g + value * W(o.decay);
  if (o.momentum != 0) {
    buffer = first ? g : buffer * W(o.momentum) + g * W(1 - o.dampening);
    g = o.nesterov ? g + buffer * W(o.momentum) : buffer;
  }
  value = value + g * -W(kLr);
}

template <class W>
void plain_lion(W& value, W& m, W g, const Options& o) {
  g = g * W(clip_factor(o));
  const W direction = m * W(o.beta1) + g * W(1 - o.beta1);
  value = value * W(1 - kLr * o.decay) - W(kLr) * W((direction > 0) - (direction < 0));
  m = m * W(o.beta2) + g * W(1 - o.beta2);
}

template <class T>
kernels::StepSlice<T> slice_of(Arenas<T>& arenas, int64_t step, const Options& o) {
  return arenas.slice(step, o.decay, o.norm > 0 ? &o.norm : nullptr, o.clip);
}

inline std::vector<Options> adam_options() {
  return {{},
          {.decay = 0.1},
          {.decay = 0.1, .decoupled = true},
          {.norm = 7, .clip = 0.5},
          {.norm = 0.25, .clip = 0.5},
          {.beta1 = 0.4, .beta2 = 0.6},
          {.beta1 = 0.0},
          {.beta1 = 0.5},
          {.decay = 0.1, .norm = 7, .clip = 0.5}};
}

inline std::vector<Options> sgd_options() {
  return {{},
          {.decay = 0.1},
          {.momentum = 0.9},
          {.momentum = 0.9, .dampening = 0.5},
          {.decay = 0.01, .momentum = 0.9, .nesterov = true},
          {.norm = 7, .clip = 0.5, .momentum = 0.9}};
}

inline std::vector<Options> lion_options() {
  return {{}, {.decay = 0.1, .beta2 = 0.99}, {.norm = 7, .clip = 0.5}};
}

/// Runs four steps of `run` beside `plain(value, m, v, gradient, step)` for each element, and expects the
/// same bits. Every second parameter begins with its first step.
template <class T, class Run, class Plain>
void expect_same_steps(Arenas<T> arenas, const Run& run, const Plain& plain) {
  using A = accumulator_t<T>;
  Arenas<T> expected = arenas;
  arenas.behind = 2;
  const bool with_master = !arenas.master.empty();
  for (int64_t step = 3; step <= 6; ++step) {
    arenas.draw_gradient(static_cast<uint32_t>(100 + step));
    expected.gradient = arenas.gradient;
    run(arenas, step);
    for (const kernels::StepPart<T>& part : arenas.parts)
      for (int64_t at = part.state; at < part.state + part.count; ++at) {
        const size_t i = static_cast<size_t>(at);
        A value = with_master ? expected.master[i] : A(expected.value[i]);
        plain(value, expected.m[i], expected.v[i], expected.gradient[i],
              arenas.steps[static_cast<size_t>(part.index)]);
        if (with_master) expected.master[i] = value;
        expected.value[i] = T(value);
      }
    const std::string where = std::to_string(arenas.elements()) + " elements, step " + std::to_string(step);
    ASSERT_TRUE(same_bits(arenas.value, expected.value)) << where;
    ASSERT_TRUE(same_bits(arenas.master, expected.master)) << where;
    ASSERT_TRUE(same_bits(arenas.m, expected.m)) << where;
    ASSERT_TRUE(same_bits(arenas.v, expected.v)) << where;
  }
}

}  // namespace heed::testing

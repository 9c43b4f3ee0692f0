// HEED_PARTS: makes Module::visit() from the names of the members.
#pragma once

#include <heed/nn/module.h>

/// In the public part of a module: lists its parts, parameters and modules, under the names of the members.
///
///   struct Mlp : heed::nn::Module {
///     heed::nn::Linear fc1{784, 128}, fc2{128, 10};
///     heed::Tensor scale = heed::ones({10}).set_requires_grad();
///     HEED_PARTS(fc1, fc2, scale)
///   };
#define HEED_PARTS(...) \
  void visit(::heed::nn::Visitor& visitor) override { HEED_PARTS_EXPAND(HEED_PARTS_EACH(__VA_ARGS__)) }

// HEED_PARTS_EACH calls itself once for each argument, by rescanning: 27 at most.
#define HEED_PARTS_EACH(part, ...) \
  visitor(#part, part);            \
  __VA_OPT__(HEED_PARTS_AGAIN HEED_PARTS_EMPTY()()(__VA_ARGS__))
#define HEED_PARTS_AGAIN() HEED_PARTS_EACH
#define HEED_PARTS_EMPTY()
#define HEED_PARTS_EXPAND(...) HEED_PARTS_EXPAND_3(HEED_PARTS_EXPAND_3(HEED_PARTS_EXPAND_3(__VA_ARGS__)))
#define HEED_PARTS_EXPAND_3(...) HEED_PARTS_EXPAND_2(HEED_PARTS_EXPAND_2(HEED_PARTS_EXPAND_2(__VA_ARGS__)))
#define HEED_PARTS_EXPAND_2(...) HEED_PARTS_EXPAND_1(HEED_PARTS_EXPAND_1(HEED_PARTS_EXPAND_1(__VA_ARGS__)))
#define HEED_PARTS_EXPAND_1(...) __VA_ARGS__

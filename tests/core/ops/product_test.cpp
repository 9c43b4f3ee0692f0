// Products over axes, sums of products, and means of segments.
#include <functional>

#include <heed/core/segments.h>

#include "reference.h"

namespace heed::test {
namespace {

struct ProductCase {
  Shape shape;
  ReducedAxes axes;
};

// Numbers near 1, so that products stay there too.
Tensor factors(const Shape& shape, uint64_t seed) { return uniform(shape, 0.6, 1.5, seed); }

Tensor product_reference(const Tensor& x, const ReducedAxes& axes, bool keep) {
  Shape kept;
  std::vector<bool> gone(static_cast<size_t>(x.rank()), axes.all());
  for (int64_t axis : axes.list()) gone[static_cast<size_t>(axis < 0 ? axis + x.rank() : axis)] = true;
  for (int axis = 0; axis < x.rank(); ++axis)
    kept.append(gone[static_cast<size_t>(axis)] ? 1 : x.shape()[axis]);
  const Tensor y = ones(kept, {.dtype = DType::f64});
  for_each_place(x.shape(), [&](const Place& p) {
    int64_t offset = 0;
    for (int axis = 0; axis < x.rank(); ++axis)
      if (!gone[static_cast<size_t>(axis)]) offset += p[static_cast<size_t>(axis)] * y.strides()[axis];
    y.data<double>()[offset] *= at(x, p);
  });
  if (keep) return y;
  Shape shape;
  for (int axis = 0; axis < x.rank(); ++axis)
    if (!gone[static_cast<size_t>(axis)]) shape.append(x.shape()[axis]);
  return y.reshape(shape);
}

TEST(Product, OverAxes) {
  const std::vector<ProductCase> cases = {{{}, {}},         {{7}, {}},
                                          {{3, 5}, {}},     {{3, 5}, {0}},
                                          {{3, 5}, {-1}},   {{2, 3, 4}, {0, 2}},
                                          {{2, 3, 4}, {1}}, {{0, 3}, {0}},
                                          {{0, 3}, {1}},    {{3, 5}, std::vector<int64_t>{}}};
  for (const ProductCase& c : cases)
    for (const bool keep : {false, true})
      check_op(
          {.name = concat("prod of ", c.shape, " axes ", Shape(c.axes.list()), keep ? " keep" : ""),
           .inputs = {factors(c.shape, 1)},
           .function = [=](const Tensors& in) { return one(prod(in[0], {.axes = c.axes, .keep = keep})); },
           .reference = [=](const Tensors& in) { return one(product_reference(in[0], c.axes, keep)); },
           .ulps = 4,
           .gradient_ulps = 6});
}

TEST(Product, GradientsAtZeros) {
  for (const Device device : devices()) {
    SCOPED_TRACE(concat(device));
    const Tensor x =
        tensor(std::vector<float>{2, 0, 3, 0, 0, 5, 1, 2, 4}, {3, 3}, device).set_requires_grad();
    const Tensor y = prod(x, {.axes = {1}});
    EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{0, 0, 8}));
    sum(y).backward();
    EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, 6, 0, 0, 0, 0, 8, 4, 2}));
    EXPECT_EQ(prod(tensor<int32_t>({3, -4, 5}, device)).item<int64_t>(), -60);
    EXPECT_EQ(prod(tensor<bool>({true, true}, device)).item<int64_t>(), 1);
  }
  expect_error<IndexError>([] { prod(zeros({2, 3}), {.axes = {1, -1}}); }, {"prod", "axis -1 comes twice"});
  expect_error<IndexError>([] { prod(zeros({2, 3}), {.axes = {2}}); }, {"prod", "axis 2"});
}

TEST(Product, NoAxesReduceNothing) {
  const Tensor x = tensor(std::vector<double>{1, -2, 3, 4}, {2, 2});
  const std::vector<int64_t> none;
  for (const Tensor& y : {sum(x, {.axes = none}), mean(x, {.axes = none}), max(x, {.axes = none}),
                          logsumexp(x, {.axes = none}), prod(x, {.axes = none})})
    EXPECT_LE(max_difference(y, x), 0) << y;
  EXPECT_EQ(norm(x, {.axes = none}).to_vector<double>(), (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(sum(x, {.axes = {}}).item<double>(), 6);
  check_op({.name = "max over no axes",
            .inputs = {x},
            .function = [=](const Tensors& in) { return one(max(in[0], {.axes = none})); },
            .reference = [](const Tensors& in) { return one(in[0].clone()); }});
}

// ---- einsum

// Σ over all letters, by counting through them.
Tensor einsum_reference(const std::vector<std::string>& inputs, const std::string& output,
                        const Tensors& in) {
  std::string letters = output;
  for (const std::string& input : inputs)
    for (char c : input)
      if (letters.find(c) == std::string::npos) letters += c;
  Shape all;
  for (char c : letters) {
    int64_t size = 0;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (const size_t axis = inputs[i].find(c); axis != std::string::npos)
        size = std::max(size, in[i].shape()[static_cast<int>(axis)]);
    all.append(size);
  }
  Shape wanted;
  for (size_t i = 0; i < output.size(); ++i) wanted.append(all[static_cast<int>(i)]);
  const Tensor y = zeros(wanted, {.dtype = DType::f64});
  for_each_place(all, [&](const Place& p) {
    double product = 1;
    for (size_t i = 0; i < inputs.size(); ++i) {
      Place place;
      for (char c : inputs[i])  // an axis of one element is broadcast
        place.push_back(in[i].shape()[static_cast<int>(place.size())] == 1 ? 0 : p[letters.find(c)]);
      product *= at(in[i], place);
    }
    int64_t offset = 0;
    for (size_t i = 0; i < output.size(); ++i) offset += p[i] * y.strides()[static_cast<int>(i)];
    y.data<double>()[offset] += product;
  });
  return y;
}

struct EinsumCase {
  std::string equation;
  std::vector<std::string> inputs;
  std::string output;
};

TEST(Product, Einsum) {
  const std::vector<EinsumCase> cases = {{"ij,jk->ik", {"ij", "jk"}, "ik"},
                                         {"ij,jk", {"ij", "jk"}, "ik"},
                                         {"bij,bjk->bik", {"bij", "bjk"}, "bik"},
                                         {"bik, bjk -> jbi", {"bik", "bjk"}, "jbi"},
                                         {"bhid,bhjd->bhij", {"bhid", "bhjd"}, "bhij"},
                                         {"i,j->ij", {"i", "j"}, "ij"},
                                         {"i,i->", {"i", "i"}, ""},
                                         {"i,i->i", {"i", "i"}, "i"},
                                         {"ij->ji", {"ij"}, "ji"},
                                         {"ba", {"ba"}, "ab"},
                                         {"ij->", {"ij"}, ""},
                                         {"ij->j", {"ij"}, "j"},
                                         {"ii->i", {"ii"}, "i"},
                                         {"ii", {"ii"}, ""},
                                         {"iji,jk->ik", {"iji", "jk"}, "ik"},
                                         {"ijk,l->l", {"ijk", "l"}, "l"},
                                         {"ab,bc,cd->ad", {"ab", "bc", "cd"}, "ad"},
                                         {"ab,ac,ad->bcd", {"ab", "ac", "ad"}, "bcd"}};
  const std::string letters = "abcdhijkl";
  const int64_t sizes[] = {2, 3, 4, 2, 2, 3, 4, 5, 2};
  for (const EinsumCase& c : cases) {
    Tensors inputs;
    for (const std::string& input : c.inputs) {
      Shape shape;
      for (char letter : input) shape.append(sizes[letters.find(letter)]);
      inputs.push_back(normal(shape, 1 + inputs.size()));
    }
    check_op({.name = c.equation,
              .inputs = inputs,
              .function = [=](const Tensors& in) { return one(einsum(c.equation, in)); },
              .reference = [=](const Tensors& in) { return one(einsum_reference(c.inputs, c.output, in)); },
              .ulps = 4,
              .gradient_ulps = 4,
              .magnitude = 4});
  }
  // Sizes of 0.
  EXPECT_EQ(einsum("ij,jk->ik", {zeros({2, 0}), zeros({0, 3})}).to_vector<float>(), std::vector<float>(6, 0));
}

// "..." spelled out in the reference with digits.
TEST(Product, EinsumBroadcastsAnEllipsis) {
  struct Case {
    std::string equation;
    std::vector<std::string> inputs;
    std::string output;
    std::vector<Shape> shapes;
  };
  const Case cases[] = {
      {"...ij,...jk->...ik", {"01ij", "01jk"}, "01ik", {{2, 3, 2, 4}, {2, 3, 4, 5}}},
      {"...ij,jk->...ik", {"01ij", "jk"}, "01ik", {{2, 3, 2, 4}, {4, 5}}},
      {"...ij,...jk->...ik", {"01ij", "1jk"}, "01ik", {{2, 3, 2, 4}, {3, 4, 5}}},  // aligned at the end
      {"...ij,...jk->...ik", {"01ij", "01jk"}, "01ik", {{2, 1, 2, 4}, {1, 3, 4, 5}}},
      {"...i,...i->...", {"0i", "0i"}, "0", {{1, 4}, {3, 4}}},
      {"i...,...j->ij...", {"i01", "01j"}, "ij01", {{2, 3, 4}, {3, 4, 5}}},
      {"i...,i...->...i", {"i0", "i0"}, "0i", {{2, 1}, {2, 1}}},  // one element in all of them stays an axis
      {"...ij", {"0ij"}, "0ij", {{2, 3, 4}}},
      {"b...a", {"b0a"}, "0ab", {{2, 3, 4}}},
      {"...ii->...i", {"0ii"}, "0i", {{2, 3, 3}}},
      {"...,...", {"01", "1"}, "01", {{2, 3}, {3}}},
      {"...,...->...", {"0", ""}, "0", {{3}, {}}},
      {"...i->...", {"i"}, "", {{4}}},
      {"a...,ab,b...->...", {"a0", "ab", "b0"}, "0", {{2, 3}, {2, 4}, {4, 3}}}};
  for (const Case& c : cases) {
    Tensors inputs;
    for (const Shape& shape : c.shapes) inputs.push_back(normal(shape, 1 + inputs.size()));
    check_op({.name = concat(c.equation, " ", c.shapes[0]),
              .inputs = inputs,
              .function = [=](const Tensors& in) { return one(einsum(c.equation, in)); },
              .reference = [=](const Tensors& in) { return one(einsum_reference(c.inputs, c.output, in)); },
              .ulps = 4,
              .gradient_ulps = 4,
              .magnitude = 4});
  }
  // Sizes of 0.
  EXPECT_EQ(einsum("...i,...i->...", {zeros({0, 1, 2}), zeros({3, 2})}).shape(), (Shape{0, 3}));
}

TEST(Product, EinsumErrors) {
  const Tensor x = zeros({2, 3}), i = zeros({2, 3}, {.dtype = DType::i64});
  expect_error<ConfigError>([&] { einsum("ij,jk->ik", {x}); }, {"einsum", "2 operands, got 1"});
  expect_error<ConfigError>([&] { einsum("i.->i", {x}); }, {"einsum", "letters"});
  expect_error<ConfigError>([&] { einsum("ij->ijk", {x}); }, {"einsum", "k"});
  expect_error<ConfigError>([&] { einsum("ij->ii", {x}); }, {"einsum", "twice"});
  expect_error<ShapeError>([&] { einsum("i->i", {x}); }, {"einsum", "operand 0", "[2, 3]"});
  expect_error<ShapeError>([&] { einsum("ij,jk->ik", {x, x}); }, {"einsum", "axis j", "3 and 2"});
  expect_error<ShapeError>([&] { einsum("ii->i", {x}); }, {"einsum", "axis i", "2 and 3"});
  expect_error<DTypeError>([&] { einsum("ij->ji", {i}); }, {"einsum", "i64"});
  for (const char* text : {"..i->i", "....i->i", "...i...->i", "i->.", "i.j->ij"})
    expect_error<ConfigError>([&] { einsum(text, {x}); }, {"einsum", "letters and one ..."});
  expect_error<ConfigError>([&] { einsum("...i->i", {x}); }, {"einsum", "has no ..."});
  expect_error<ShapeError>([&] { einsum("...ijk->...ijk", {x}); }, {"einsum", "3 letters", "[2, 3]"});
  expect_error<ShapeError>(
      [&] {
        einsum("...i,...i->...", {x, zeros({3, 3})});
      },
      {"einsum", "axis 0 of ...", "2 and 3"});
}

// ---- means of segments

TEST(Product, SegmentMean) {
  const std::vector<int32_t> lengths = {2, 0, 3, 1};
  const Segments packed = Segments::packed(lengths);
  const Segments dense = Segments::dense(2, 4, std::vector<int32_t>{3, 1});
  const auto check = [](const char* name, const Segments& segments, const Shape& shape) {
    check_op({.name = concat(name, " ", shape),
              .inputs = {normal(shape, 1)},
              .function = [=](const Tensors& in) { return one(segment_mean(in[0], segments)); },
              .reference =
                  [=](const Tensors& in) {
                    Shape wanted = shape;
                    wanted[0] = segments.count();
                    return one(build(wanted, [&](Place p) {
                      const int64_t i = p[0], first = segments.query_first(i), n = segments.query_length(i);
                      double total = 0;
                      for (p[0] = first; p[0] < first + n; ++p[0]) total += at(in[0], p);
                      return total / static_cast<double>(std::max<int64_t>(1, n));
                    }));
                  },
              .ulps = 4,
              .magnitude = 2});
  };
  check("packed", packed, {6, 5});
  check("packed", packed, {6});
  check("packed with rows to spare", packed, {8, 3});
  check("dense", dense, {8, 33});
  expect_error<ShapeError>([&] { segment_mean(zeros({5, 2}), packed); }, {"segment_mean", "row 6 of 5"});
  expect_error<DTypeError>([&] { segment_mean(zeros({6}, {.dtype = DType::i64}), packed); },
                           {"segment_mean", "i64"});
}

}  // namespace
}  // namespace heed::test

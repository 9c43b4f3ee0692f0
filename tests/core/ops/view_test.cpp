#include "reference.h"

namespace heed::test {
namespace {

using View = std::function<Tensor(const Tensor&)>;

// A view of a tensor of `shape`: its elements by `from`, which tells where the element at a place comes from;
// its gradient; and that it shares memory.
void check(const std::string& name, const Shape& shape, const View& view, const Shape& result,
           const std::function<Place(const Place&)>& from) {
  check_op({.name = concat(name, " of ", shape),
            .inputs = {normal(shape, 1)},
            .function = [=](const Tensors& in) { return one(view(in[0])); },
            .reference =
                [=](const Tensors& in) {
                  return one(build(result, [&](const Place& p) { return at(in[0], from(p)); }));
                }});
  const Tensor x = normal(shape, 1);
  EXPECT_EQ(view(x).storage(), x.storage()) << name;
}

Place same(const Place& p) { return p; }

// The place in `shape` of the element with the same row-major number as `p` in `from`.
std::function<Place(const Place&)> renumbered(const Shape& from, const Shape& to) {
  return [=](const Place& p) {
    int64_t number = 0;
    for (int axis = 0; axis < from.rank(); ++axis)
      number = number * from[axis] + p[static_cast<size_t>(axis)];
    Place place(static_cast<size_t>(to.rank()));
    for (int axis = to.rank() - 1; axis >= 0; --axis) {
      place[static_cast<size_t>(axis)] = number % to[axis];
      number /= to[axis];
    }
    return place;
  };
}

TEST(View, Transpose) {
  check(
      "transpose", {3, 5}, [](const Tensor& x) { return x.transpose(0, 1); }, {5, 3},
      [](const Place& p) {
        return Place{p[1], p[0]};
      });
  check(
      "transpose", {2, 3, 4}, [](const Tensor& x) { return x.transpose(-3, -1); }, {4, 3, 2},
      [](const Place& p) {
        return Place{p[2], p[1], p[0]};
      });
  check(
      "transpose onto itself", {4}, [](const Tensor& x) { return x.transpose(0, 0); }, {4}, same);
  check(
      "transpose", {0, 3}, [](const Tensor& x) { return x.transpose(0, 1); }, {3, 0}, same);
}

TEST(View, Permute) {
  check(
      "permute", {2, 3, 4},
      [](const Tensor& x) {
        return x.permute({2, 0, 1});
      },
      {4, 2, 3},
      [](const Place& p) {
        return Place{p[1], p[2], p[0]};
      });
  check(
      "permute", {2, 3, 4},
      [](const Tensor& x) {
        return x.permute({-1, 0, -2});
      },
      {4, 2, 3},
      [](const Place& p) {
        return Place{p[1], p[2], p[0]};
      });
  check(
      "permute", {}, [](const Tensor& x) { return x.permute({}); }, {}, same);
  check(
      "permute", {1, 2, 1, 3, 1, 2, 1, 2},
      [](const Tensor& x) {
        return x.permute({7, 6, 5, 4, 3, 2, 1, 0});
      },
      {2, 1, 2, 1, 3, 1, 2, 1}, [](const Place& p) { return Place(p.rbegin(), p.rend()); });
}

TEST(View, ReshapeOfContiguous) {
  const std::vector<std::pair<Shape, Shape>> cases = {
      {{6}, {2, 3}}, {{2, 3}, {6}}, {{2, 3, 4}, {4, 6}}, {{2, 3, 4}, {1, 24, 1}},
      {{}, {1, 1}},  {{1}, {}},     {{0, 3}, {5, 0}},    {{2, 2, 2, 2}, {1, 2, 2, 1, 1, 2, 2, 1}}};
  for (const auto& [from, to] : cases) {
    const Shape target = to;
    check(
        concat("reshape to ", to), from,
        [=](const Tensor& x) { return x.is_contiguous() ? x.view(target) : x.reshape(target); }, to,
        renumbered(to, from));
  }
  EXPECT_EQ(zeros({4, 6}).reshape({3, -1}).shape(), (Shape{3, 8}));
  EXPECT_EQ(zeros({4, 6}).reshape({-1}).shape(), (Shape{24}));
  EXPECT_EQ(zeros({0, 6}).reshape({-1, 3}).shape(), (Shape{0, 3}));
}

TEST(View, ReshapeOfStrided) {
  // Whether [4, 6] of these strides can be seen with another shape without copying.
  const Tensor columns = arange(0, 48).reshape({4, 12}).slice(1, 0, 6);           // strides 12, 1
  const Tensor every_second = arange(0, 48).reshape({4, 12}).slice(1, 0, 12, 2);  // strides 12, 2
  EXPECT_EQ(columns.view({4, 2, 3}).storage(), columns.storage());
  EXPECT_EQ(columns.view({2, 2, 6}).storage(), columns.storage());
  EXPECT_EQ(every_second.view({24}).storage(), every_second.storage());
  EXPECT_EQ(zeros({3}).expand({4, 5, 3}).view({20, 3}).strides(), (Shape{0, 1}));
  expect_error<ShapeError>([&] { columns.view({24}); }, {"view", "[4, 6]", "[12, 1]", "[24]", "reshape()"});
  expect_error<ShapeError>([&] { columns.view({8, 3}); }, {"view", "contiguous()"});
  EXPECT_NE(columns.reshape({24}).storage(), columns.storage());
  for (const Tensor& x : {columns, every_second, arange(0, 24).reshape({6, 4}).transpose(0, 1)})
    for (const Shape& shape : {Shape{24}, Shape{8, 3}, Shape{2, 2, 6}, Shape{4, 2, 3}, Shape{1, 4, 1, 6, 1}})
      EXPECT_TRUE(array_equal(x.reshape(shape), x.contiguous().view(shape)))
          << x.strides() << " to " << shape;
}

TEST(View, ReshapeThatCopiesHasAGradient) {
  check_op({.name = "reshape of a transpose",
            .inputs = {normal({3, 4}, 1)},
            .function =
                [](const Tensors& in) {
                  return one(in[0].transpose(0, 1).reshape({2, 6}));
                },
            .reference =
                [](const Tensors& in) {
                  return one(build({2, 6}, [&](const Place& p) {
                    const int64_t number = p[0] * 6 + p[1];
                    return at(in[0], {number % 3, number / 3});
                  }));
                }});
}

TEST(View, Flatten) {
  check_op({.name = "flatten",
            .inputs = {normal({2, 3, 4}, 1)},
            .function = [](const Tensors& in) { return one(in[0].flatten(1, 2)); },
            .reference =
                [](const Tensors& in) {
                  return one(build({2, 12}, [&](const Place& p) {
                    return at(in[0], {p[0], p[1] / 4, p[1] % 4});
                  }));
                }});
  const Tensor x = zeros({2, 3, 4, 5});
  EXPECT_EQ(x.flatten().shape(), (Shape{120}));
  EXPECT_EQ(x.flatten(1).shape(), (Shape{2, 60}));
  EXPECT_EQ(x.flatten(0, 1).shape(), (Shape{6, 4, 5}));
  EXPECT_EQ(x.flatten(-2).shape(), (Shape{2, 3, 20}));
  EXPECT_EQ(x.flatten(2, 2).shape(), x.shape());
  EXPECT_EQ(scalar(1).flatten().shape(), (Shape{1}));
  expect_error<IndexError>([&] { x.flatten(2, 1); }, {"flatten", "2", "1"});
}

TEST(View, UnsqueezeAndSqueeze) {
  for (int64_t axis : {0, 1, 2, -1, -3})
    check(
        concat("unsqueeze ", axis), {3, 5}, [=](const Tensor& x) { return x.unsqueeze(axis); },
        zeros({3, 5}).unsqueeze(axis).shape(),
        [=](const Place& p) {
          Place place = p;
          place.erase(place.begin() + (axis < 0 ? axis + 3 : axis));
          return place;
        });
  check(
      "unsqueeze", {}, [](const Tensor& x) { return x.unsqueeze(0); }, {1},
      [](const Place&) { return Place{}; });
  check(
      "squeeze", {3, 1, 5}, [](const Tensor& x) { return x.squeeze(1); }, {3, 5},
      [](const Place& p) {
        return Place{p[0], 0, p[1]};
      });
  check(
      "squeeze", {1}, [](const Tensor& x) { return x.squeeze(-1); }, {},
      [](const Place&) { return Place{0}; });
  expect_error<ShapeError>([] { zeros({3, 5}).squeeze(0); }, {"squeeze", "axis 0", "[3, 5]", "size 3"});
  expect_error<IndexError>([] { zeros({3, 5}).unsqueeze(3); }, {"unsqueeze", "3", "[-3, 2]"});
  expect_error<ShapeError>([] { zeros({1, 1, 1, 1, 1, 1, 1, 1}).unsqueeze(0); }, {"at most 8"});
}

TEST(View, Expand) {
  const std::vector<std::pair<Shape, Shape>> cases = {
      {{1}, {5}},       {{3, 1}, {3, 4}},       {{}, {2, 3}},     {{3}, {2, 3}},
      {{1, 3}, {0, 3}}, {{2, 1, 3}, {2, 4, 3}}, {{1, 1}, {4, 5}}, {{3, 1}, {2, 2, 3, 4}}};
  for (const auto& [from, to] : cases) {
    const Shape target = to;
    const size_t added = static_cast<size_t>(to.rank() - from.rank());
    const Shape source = from;
    check(
        concat("expand to ", to), from, [=](const Tensor& x) { return x.expand(target); }, to,
        [=](const Place& p) {
          Place place(p.begin() + static_cast<std::ptrdiff_t>(added), p.end());
          for (int axis = 0; axis < source.rank(); ++axis)
            if (source[axis] == 1) place[static_cast<size_t>(axis)] = 0;
          return place;
        });
  }
  EXPECT_EQ(zeros({3, 1}).expand({-1, 4}).shape(), (Shape{3, 4}));
  expect_error<ShapeError>([] { zeros({3, 2}).expand({3, 4}); }, {"expand", "[3, 2]", "[3, 4]", "axis -1"});
  expect_error<ShapeError>([] { zeros({3, 2}).expand({2}); }, {"expand", "more axes"});
  expect_error<ShapeError>([] { zeros({3}).expand({-1, 3}); }, {"negative size", "[-1, 3]"});
}

TEST(View, Select) {
  for (int64_t index : {0, 2, -1})
    check(
        concat("select ", index), {4, 3, 2}, [=](const Tensor& x) { return x.select(1, index); }, {4, 2},
        [=](const Place& p) {
          return Place{p[0], index < 0 ? index + 3 : index, p[1]};
        });
  check(
      "select", {5}, [](const Tensor& x) { return x.select(-1, 3); }, {},
      [](const Place&) { return Place{3}; });
  expect_error<IndexError>([] { zeros({4, 3}).select(1, 3); }, {"select", "index 3", "[-3, 2]", "axis 1"});
  expect_error<IndexError>([] { zeros({4, 0}).select(1, 0); }, {"select", "index 0"});
  expect_error<IndexError>([] { zeros({4, 3}).select(2, 0); }, {"select", "axis 2", "[-2, 1]"});
}

TEST(View, Slice) {
  struct Case {
    int64_t begin, end, step, first, size;
  };
  const std::vector<Case> cases = {{0, 7, 1, 0, 7},    {2, 5, 1, 2, 3},     {1, 7, 3, 1, 2},
                                   {-3, 100, 1, 4, 3}, {-100, -2, 2, 0, 3}, {5, 2, 1, 5, 0},
                                   {7, 9, 1, 7, 0},    {0, 7, 100, 0, 1},   {0, 0, 1, 0, 0}};
  for (const Case& c : cases) {
    check(
        concat("slice ", c.begin, ":", c.end, ":", c.step), {3, 7},
        [=](const Tensor& x) { return x.slice(1, c.begin, c.end, c.step); }, {3, c.size},
        [=](const Place& p) {
          return Place{p[0], c.first + p[1] * c.step};
        });
    check(
        concat("slice ", c.begin, ":", c.end, ":", c.step), {7, 2},
        [=](const Tensor& x) { return x.slice(0, c.begin, c.end, c.step); }, {c.size, 2},
        [=](const Place& p) {
          return Place{c.first + p[0] * c.step, p[1]};
        });
  }
  expect_error<IndexError>([] { zeros({4}).slice(0, 0, 4, 0); }, {"slice", "step is 0", "at least 1"});
  expect_error<IndexError>([] { zeros({4}).slice(0, 3, 0, -1); }, {"slice", "step is -1", "flip()"});
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(zeros({4}).slice(0, -most, most, most).numel(), 1);
}

TEST(View, PartsOfOneTensorEachGetTheirGradient) {
  const Tensor x = normal({4, 6}, 1).set_requires_grad(), w = normal({4, 2}, 2);
  const std::vector<Tensor> parts = split(x, 2, 1);
  sum(parts[0] * w + parts[2] * 3.0 + x.slice(1, 1, 3)).backward();  // parts[1] unused, columns 1 and 2 twice
  const Tensor expected = build({4, 6}, [&](const Place& p) {
    return (p[1] < 2 ? at(w, p) : 0) + (p[1] >= 4 ? 3 : 0) + (p[1] == 1 || p[1] == 2 ? 1 : 0);
  });
  EXPECT_TRUE(array_equal(x.grad(), expected)) << x.grad();
}

TEST(View, SplitAndChunk) {
  const auto sizes = [](const std::vector<Tensor>& parts) {
    std::vector<int64_t> result;
    for (const Tensor& part : parts) result.push_back(part.size(1));
    return result;
  };
  const Tensor x = arange(0, 21).reshape({3, 7});
  EXPECT_EQ(sizes(split(x, 3, 1)), (std::vector<int64_t>{3, 3, 1}));
  EXPECT_EQ(sizes(split(x, 7, -1)), (std::vector<int64_t>{7}));
  EXPECT_EQ(sizes(split(x, std::numeric_limits<int64_t>::max(), 1)), (std::vector<int64_t>{7}));
  EXPECT_EQ(sizes(split(zeros({3, 0}), 2, 1)), (std::vector<int64_t>{0}));
  EXPECT_EQ(sizes(chunk(x, 2, 1)), (std::vector<int64_t>{4, 3}));
  EXPECT_EQ(sizes(chunk(x, 100, 1)), (std::vector<int64_t>{1, 1, 1, 1, 1, 1, 1}));
  EXPECT_TRUE(array_equal(cat(split(x, 3, 1), 1), x));
  EXPECT_EQ(split(x, 3, 1)[1].storage(), x.storage());
  expect_error<ShapeError>([&] { split(x, 0, 1); }, {"split", "0"});
  expect_error<ShapeError>([&] { chunk(x, 0, 1); }, {"chunk", "0"});
  for (int64_t axis : {0, 1, 2})
    check_op({.name = concat("split along ", axis),
              .inputs = {normal({5, 3, 4}, 1)},
              .function = [=](const Tensors& in) { return split(in[0], 2, axis); },
              .reference =
                  [=](const Tensors& in) {
                    Tensors parts;
                    for (int64_t begin = 0; begin < in[0].size(axis); begin += 2) {
                      Shape shape = in[0].shape();
                      shape[static_cast<int>(axis)] = std::min<int64_t>(2, in[0].size(axis) - begin);
                      parts.push_back(build(shape, [&](Place p) {
                        p[static_cast<size_t>(axis)] += begin;
                        return at(in[0], p);
                      }));
                    }
                    return parts;
                  }});
}

TEST(View, ErrorsOfReshape) {
  const Tensor x = zeros({2, 3});
  expect_error<ShapeError>([&] { x.reshape({4, 2}); }, {"reshape", "[2, 3] has 6", "[4, 2] has 8"});
  expect_error<ShapeError>([&] { x.reshape({-1, -1}); }, {"reshape", "two sizes", "[-1, -1]"});
  expect_error<ShapeError>([&] { zeros({0, 3}).reshape({-1, 0}); }, {"reshape", "-1", "another size is 0"});
  expect_error<ShapeError>([&] { x.reshape({-1, 4}); }, {"reshape", "6 elements", "[-1, 4]"});
  expect_error<ShapeError>([&] { x.reshape({-2, 3}); }, {"negative size"});
  expect_error<ShapeError>([&] { x.view({7}); }, {"view", "6", "7"});
}

TEST(View, ErrorsOfAxes) {
  const Tensor x = zeros({2, 3});
  expect_error<IndexError>([&] { x.transpose(0, 2); }, {"transpose", "axis 2", "[-2, 1]"});
  expect_error<IndexError>([&] { x.permute({0}); }, {"permute", "[0]", "[2, 3]", "2 axes"});
  expect_error<IndexError>([&] { x.permute({0, 0}); }, {"permute", "axis 0 comes twice"});
  expect_error<IndexError>([&] { x.permute({0, -2}); }, {"permute", "twice"});
  expect_error<IndexError>([&] { x.permute({0, 5}); }, {"permute", "axis 5"});
  expect_error<IndexError>([&] { scalar(1).transpose(0, 0); }, {"rank 0"});
}

TEST(View, WritingThroughAViewIsSeenByTheBackward) {
  const Tensor x = zeros({3}), w = ones({3}).set_requires_grad();
  const Tensor y = x * w;
  x.unsqueeze(0).select(0, 0).slice(0, 1, 2).fill_(5);
  EXPECT_EQ(x.to_vector<float>(), (std::vector<float>{0, 5, 0}));
  expect_error<AutogradError>([&] { sum(y).backward(); }, {"changed in place", "clone()"});
}

}  // namespace
}  // namespace heed::test

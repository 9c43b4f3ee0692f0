#include <algorithm>
#include <numeric>

#include "reference.h"

namespace heed::test {
namespace {

size_t place_of(int64_t axis, int rank) { return static_cast<size_t>(axis < 0 ? axis + rank : axis); }

struct GatherCase {
  Shape x;
  int64_t axis;
  Shape index;
};

const std::vector<GatherCase>& gather_cases() {
  static const std::vector<GatherCase> cases = {{{7}, 0, {9}},
                                                {{4, 5}, 0, {6, 5}},
                                                {{4, 5}, 1, {4, 3}},
                                                {{4, 5}, -1, {2, 33}},
                                                {{3, 4, 5}, 1, {2, 6, 3}},
                                                {{4, 5}, 0, {0, 5}},
                                                {{4, 5}, 0, {3, 0}},
                                                {{1, 1}, 1, {1, 1}},
                                                {{2, 1, 2, 1, 3, 1, 2, 2}, 4, {2, 1, 1, 1, 5, 1, 2, 1}}};
  return cases;
}

TEST(Indexing, Gather) {
  for (const GatherCase& c : gather_cases()) {
    const size_t place = place_of(c.axis, c.x.rank());
    check_op({.name = concat("gather ", c.x, " along ", c.axis, " by ", c.index),
              .inputs = {normal(c.x, 1), indices(c.index, 0, c.x[static_cast<int>(place)], 2)},
              .function = [=](const Tensors& in) { return one(gather(in[0], c.axis, in[1])); },
              .reference =
                  [=](const Tensors& in) {
                    return one(build(c.index, [&](Place p) {
                      p[place] = static_cast<int64_t>(at(in[1], p));
                      return at(in[0], p);
                    }));
                  }});
  }
}

Tensor scattered(const Tensor& x, size_t place, const Tensor& index, const Tensor& source) {
  const Tensor y = x.clone();
  for_each_place(index.shape(), [&](const Place& p) {
    Place q = p;
    q[place] = static_cast<int64_t>(at(index, p));
    const int64_t offset = std::inner_product(q.begin(), q.end(), y.strides().begin(), int64_t{0});
    y.data<double>()[offset] += at(source, p);
  });
  return y;
}

TEST(Indexing, ScatterAdd) {
  for (const GatherCase& c : gather_cases()) {
    const size_t place = place_of(c.axis, c.x.rank());
    check_op(
        {.name = concat("scatter_add ", c.x, " along ", c.axis, " by ", c.index),
         .inputs = {normal(c.x, 1), indices(c.index, 0, c.x[static_cast<int>(place)], 2), normal(c.index, 3)},
         .function = [=](const Tensors& in) { return one(scatter_add(in[0], c.axis, in[1], in[2])); },
         .reference = [=](const Tensors& in) { return one(scattered(in[0], place, in[1], in[2])); },
         .magnitude = 8});
  }
}

TEST(Indexing, ScatteredBf16KeepsSmallTerms) {
  // 1000 times 1 in bf16 would stop at 256.
  const Tensor x = zeros({1}, {.dtype = DType::bf16}), ones_ = ones({1000}, {.dtype = DType::bf16});
  EXPECT_EQ(scatter_add(x, 0, zeros({1000}, {.dtype = DType::i64}), ones_).item<double>(), 1000);
  const Tensor leaf = ones({2}, {.dtype = DType::bf16}).set_requires_grad();
  sum(gather(leaf, 0, ones({1000}, {.dtype = DType::i64}))).backward();
  EXPECT_EQ(leaf.grad().to(DType::f64).to_vector<double>(), (std::vector<double>{0, 1000}));
  const Tensor table = ones({2, 3}, {.dtype = DType::bf16}).set_requires_grad();
  sum(index_select(table, ones({1000}, {.dtype = DType::i64}))).backward();
  EXPECT_EQ(table.grad().to(DType::f64).to_vector<double>(),
            (std::vector<double>{0, 0, 0, 1000, 1000, 1000}));
}

TEST(Indexing, IndexSelect) {
  struct Case {
    Shape x, index;
  };
  for (const Case& c : std::vector<Case>{{{5}, {7}},
                                         {{5, 3}, {7}},
                                         {{5, 3}, {2, 4}},
                                         {{5, 2, 70}, {}},
                                         {{1, 3}, {4}},
                                         {{5, 3}, {0}},
                                         {{5, 0}, {3}},
                                         {{3, 2, 2, 2}, {2, 1, 3}},
                                         {{9, 130}, {300}}})
    check_op({.name = concat("index_select ", c.x, " by ", c.index),
              .inputs = {normal(c.x, 1), indices(c.index, -1, c.x[0], 2)},  // kNoToken among them
              .function = [](const Tensors& in) { return one(index_select(in[0], in[1])); },
              .reference =
                  [=](const Tensors& in) {
                    Shape shape = c.index;
                    for (int axis = 1; axis < c.x.rank(); ++axis) shape.append(c.x[axis]);
                    return one(build(shape, [&](const Place& p) {
                      const Place where(p.begin(), p.begin() + c.index.rank());
                      Place row(p.begin() + c.index.rank(), p.end());
                      const auto index = static_cast<int64_t>(at(in[1], where));
                      row.insert(row.begin(), index);
                      return index < 0 ? 0.0 : at(in[0], row);
                    }));
                  },
              .magnitude = c.index == Shape{300} ? 40.0 : 8.0});
}

TEST(Indexing, OneHot) {
  const Tensor ids = tensor(std::vector<int64_t>{2, 0, 1, 2}, {2, 2});
  const Tensor y = one_hot(ids, 4);
  EXPECT_EQ(y.shape(), (Shape{2, 2, 4}));
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{0, 0, 1, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0}));
  EXPECT_EQ(one_hot(ids.transpose(0, 1), 3, DType::i64).to_vector<int64_t>(),
            (std::vector<int64_t>{0, 0, 1, 0, 1, 0, 1, 0, 0, 0, 0, 1}));
  EXPECT_EQ(one_hot(zeros({0}, {.dtype = DType::i64}), 3, DType::boolean).shape(), (Shape{0, 3}));
}

// ---- order

// {values, indices} of the first k in order, by a stable sort of each line.
Tensors ordered(const Tensor& x, int64_t axis, int64_t k, bool descending) {
  const size_t place = place_of(axis, x.rank());
  Shape shape = x.shape();
  shape[static_cast<int>(place)] = k;
  const auto element = [&](Place p, int64_t i) {
    p[place] = i;
    return at(x, p);
  };
  const auto position = [&](const Place& p) {
    std::vector<int64_t> order(static_cast<size_t>(x.size(axis)));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return descending ? element(p, a) > element(p, b) : element(p, a) < element(p, b);
    });
    return order[static_cast<size_t>(p[place])];
  };
  return {build(shape, [&](const Place& p) { return element(p, position(p)); }),
          build(
              shape, [&](const Place& p) { return static_cast<double>(position(p)); }, DType::i64)};
}

const std::vector<std::pair<Shape, int64_t>>& lines() {
  static const std::vector<std::pair<Shape, int64_t>> cases = {
      {{7}, 0},       {{1}, 0},    {{3, 33}, -1}, {{5, 3}, 0},
      {{2, 6, 3}, 1}, {{0, 3}, 1}, {{0, 3}, 0},   {{2, 1, 2, 1, 3, 1, 2, 2}, 4}};
  return cases;
}

TEST(Indexing, Sort) {
  for (const auto& [shape, axis] : lines())
    for (bool descending : {false, true}) {
      const int64_t a = axis;
      check_op(
          {.name = concat("sort ", shape, " along ", axis),
           .inputs = {normal(shape, 1)},
           .function =
               [=](const Tensors& in) {
                 const auto [values, indices] = sort(in[0], a, descending);
                 return Tensors{values, indices};
               },
           .reference = [=](const Tensors& in) { return ordered(in[0], a, in[0].size(a), descending); }});
    }
}

TEST(Indexing, TopK) {
  for (const auto& [shape, axis] : lines())
    for (int64_t k : {0, 1, 2, 3}) {
      const int64_t a = axis;
      if (k > shape[static_cast<int>(place_of(axis, shape.rank()))]) continue;
      check_op({.name = concat("topk ", k, " of ", shape, " along ", axis),
                .inputs = {normal(shape, 1)},
                .function =
                    [=](const Tensors& in) {
                      const auto [values, indices] = topk(in[0], k, a);
                      return Tensors{values, indices};
                    },
                .reference = [=](const Tensors& in) { return ordered(in[0], a, k, true); }});
    }
}

TEST(Indexing, EqualElementsKeepTheirOrderAndNanComesLast) {
  const Tensor x = tensor<float>({2, NAN, 1, 2, NAN, 1});
  EXPECT_EQ(sort(x).second.to_vector<int64_t>(), (std::vector<int64_t>{2, 5, 0, 3, 1, 4}));
  EXPECT_EQ(sort(x, 0, true).second.to_vector<int64_t>(), (std::vector<int64_t>{1, 4, 0, 3, 2, 5}));
  EXPECT_EQ(topk(x, 3).second.to_vector<int64_t>(), (std::vector<int64_t>{1, 4, 0}));
  EXPECT_EQ(topk(zeros({1000}), 5).second.to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(sort(tensor<int64_t>({3, -1, 2})).first.to_vector<int64_t>(), (std::vector<int64_t>{-1, 2, 3}));
}

// ---- triangles, joining, flipping

TEST(Indexing, Triangles) {
  for (const Shape& shape :
       {Shape{4, 4}, Shape{3, 5}, Shape{2, 5, 3}, Shape{1, 1}, Shape{0, 3}, Shape{2, 2, 33, 7}})
    for (int64_t diagonal : {0, 1, -2, 100, -100})
      for (bool lower : {true, false})
        check_op({.name = concat(lower ? "tril " : "triu ", shape, " ", diagonal),
                  .inputs = {normal(shape, 1)},
                  .function =
                      [=](const Tensors& in) {
                        return one(lower ? tril(in[0], diagonal) : triu(in[0], diagonal));
                      },
                  .reference =
                      [=](const Tensors& in) {
                        return one(build(shape, [&](const Place& p) {
                          const int64_t over = p[p.size() - 1] - p[p.size() - 2];
                          return (lower ? over <= diagonal : over >= diagonal) ? at(in[0], p) : 0.0;
                        }));
                      }});
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_TRUE(array_equal(tril(ones({2, 3}), most), ones({2, 3})));
  EXPECT_TRUE(array_equal(tril(ones({2, 3}), -most), zeros({2, 3})));
  EXPECT_EQ(tril(full({2, 2}, NAN)).to_vector<float>()[1], 0);
}

TEST(Indexing, Cat) {
  struct Case {
    std::vector<Shape> shapes;
    int64_t axis;
  };
  for (const Case& c : std::vector<Case>{{{{3}, {4}}, 0},
                                         {{{2, 3}, {2, 1}, {2, 4}}, 1},
                                         {{{2, 3}, {0, 3}, {1, 3}}, -2},
                                         {{{5}}, 0},
                                         {{{2, 0}, {2, 0}}, 1},
                                         {{{2, 3, 4}, {2, 2, 4}}, 1}}) {
    Tensors inputs;
    Shape result = c.shapes[0];
    const size_t place = place_of(c.axis, result.rank());
    result[static_cast<int>(place)] = 0;
    for (const Shape& shape : c.shapes) {
      inputs.push_back(normal(shape, inputs.size() + 1));
      result[static_cast<int>(place)] += shape[static_cast<int>(place)];
    }
    check_op({.name = concat("cat of ", c.shapes.size(), " to ", result),
              .inputs = inputs,
              .function = [=](const Tensors& in) { return one(cat(in, c.axis)); },
              .reference =
                  [=](const Tensors& in) {
                    return one(build(result, [&](Place p) {
                      size_t i = 0;
                      for (; p[place] >= in[i].size(c.axis); ++i) p[place] -= in[i].size(c.axis);
                      return at(in[i], p);
                    }));
                  }});
  }
}

TEST(Indexing, OneTensorJoinedWithItself) {
  check_op({.name = "cat of one tensor twice",
            .inputs = {normal({2, 3}, 1)},
            .function =
                [](const Tensors& in) {
                  return one(cat({in[0], in[0].transpose(0, 1).reshape({2, 3}), in[0]}, 0));
                },
            .reference =
                [](const Tensors& in) {
                  return one(build({6, 3}, [&](const Place& p) {
                    const int64_t number = (p[0] - 2) * 3 + p[1];
                    return p[0] == 2 || p[0] == 3 ? at(in[0], {number % 2, number / 2})
                                                  : at(in[0], {p[0] % 2, p[1]});
                  }));
                }});
}

TEST(Indexing, Stack) {
  for (int64_t axis : {0, 1, -1})
    check_op({.name = concat("stack along ", axis),
              .inputs = {normal({2, 3}, 1), normal({2, 3}, 2)},
              .function = [=](const Tensors& in) { return one(stack(in, axis)); },
              .reference =
                  [=](const Tensors& in) {
                    const size_t place = place_of(axis, 3);
                    Shape shape = {2, 3};
                    shape.insert(static_cast<int>(place), 2);
                    return one(build(shape, [&](Place p) {
                      const auto which = static_cast<size_t>(p[place]);
                      p.erase(p.begin() + static_cast<std::ptrdiff_t>(place));
                      return at(in[which], p);
                    }));
                  }});
  EXPECT_EQ(stack({scalar(1), scalar(2)}, 0).to_vector<float>(), (std::vector<float>{1, 2}));
}

TEST(Indexing, Flip) {
  for (const auto& [shape, axis] : std::vector<std::pair<Shape, int64_t>>{
           {{7}, 0}, {{3, 5}, 0}, {{3, 5}, -1}, {{0, 3}, 0}, {{2, 3, 33}, 1}}) {
    const int64_t a = axis;
    const Shape s = shape;
    check_op({.name = concat("flip ", shape, " along ", axis),
              .inputs = {normal(shape, 1)},
              .function = [=](const Tensors& in) { return one(flip(in[0], a)); },
              .reference =
                  [=](const Tensors& in) {
                    return one(build(s, [&](Place p) {
                      const size_t place = place_of(a, s.rank());
                      p[place] = s[static_cast<int>(place)] - 1 - p[place];
                      return at(in[0], p);
                    }));
                  }});
  }
  EXPECT_TRUE(array_equal(flip(flip(arange(0, 12).reshape({3, 4}).transpose(0, 1), 0), 0),
                          arange(0, 12).reshape({3, 4}).transpose(0, 1)));
}

TEST(Indexing, Errors) {
  const Tensor x = zeros({4, 3}), wrong = tensor(std::vector<int64_t>{0, 1, 4, 0}, {2, 2});
  expect_error<IndexError>([&] { gather(x, 0, wrong); }, {"gather", "index 4", "element 2", "[0, 3]"});
  expect_error<IndexError>([&] { gather(x, 0, wrong - 1.0); }, {"gather", "index -1", "element 0"});
  expect_error<DTypeError>([&] { gather(x, 0, zeros({2, 2})); }, {"gather", "f32", "i64"});
  expect_error<ShapeError>([&] { gather(x, 0, tensor<int64_t>({0})); }, {"gather", "[1]", "[4, 3]", "rank"});
  expect_error<ShapeError>([&] { gather(x, 0, zeros({2, 4}, {.dtype = DType::i64})); }, {"gather", "[2, 4]"});
  expect_error<ShapeError>(
      [&] {
        scatter_add(x, 0, wrong, zeros({2, 3}));
      },
      {"scatter_add", "[2, 2]", "[2, 3]"});
  expect_error<IndexError>(
      [&] {
        scatter_add(x, 1, wrong, zeros({2, 2}));
      },
      {"scatter_add", "index 4", "[0, 2]"});
  expect_error<DTypeError>(
      [&] {
        scatter_add(x, 1, wrong, zeros({2, 2}, {.dtype = DType::f64}));
      },
      {"scatter_add", "f32 and f64"});
  expect_error<IndexError>(
      [&] {
        index_select(x, tensor<int64_t>({0, -2}));
      },
      {"index_select", "index -2", "element 1", "[0, 3], nor -1"});
  expect_error<IndexError>([&] { index_select(x, tensor<int64_t>({4})); }, {"index_select", "index 4"});
  expect_error<DTypeError>([&] { index_select(x, tensor<int32_t>({1})); }, {"index_select", "i32"});
  expect_error<ShapeError>([&] { index_select(scalar(1), tensor<int64_t>({0})); },
                           {"index_select", "rank 0"});
  expect_error<IndexError>([&] { one_hot(tensor<int64_t>({3}), 3); }, {"one_hot", "index 3", "[0, 2]"});
  expect_error<ConfigError>([&] { one_hot(tensor<int64_t>({3}), 0); }, {"one_hot", "0"});
  expect_error<ShapeError>([&] { topk(x, 5, 0); }, {"topk", "k is 5", "[4, 3]", "4"});
  expect_error<ShapeError>([&] { topk(x, -1); }, {"topk", "-1"});
  expect_error<DTypeError>([&] { sort(zeros({2}, {.dtype = DType::boolean})); }, {"sort", "bool"});
  expect_error<ShapeError>([&] { tril(zeros({3})); }, {"tril", "[3]"});
  expect_error<ShapeError>([&] { cat(std::vector<Tensor>{}, 0); }, {"cat", "no tensors"});
  expect_error<ShapeError>([&] { stack(std::vector<Tensor>{}, 0); }, {"stack", "no tensors"});
  expect_error<ShapeError>(
      [&] {
        cat({x, zeros({4, 2})}, 0);
      },
      {"cat", "tensor 1", "[4, 2]", "[4, 3]", "axis 0"});
  expect_error<ShapeError>([&] { cat({x, zeros({3})}, 1); }, {"cat", "[3]"});
  expect_error<DTypeError>(
      [&] {
        cat({x, zeros({4, 3}, {.dtype = DType::f64})}, 0);
      },
      {"cat", "f32 and f64"});
  expect_error<ShapeError>([&] { stack({x, zeros({4, 2})}, 0); }, {"stack", "tensor 1", "[4, 2]"});
  expect_error<IndexError>([&] { flip(x, 2); }, {"flip", "axis 2"});
}

TEST(Indexing, AChangedIndexIsNoticed) {
  const Tensor x = zeros({4}).set_requires_grad(), index = tensor<int64_t>({1, 2});
  const Tensor y = gather(x, 0, index);
  index.fill_(0);
  expect_error<AutogradError>([&] { sum(y).backward(); }, {"changed in place"});
}

TEST(Indexing, ResultsDoNotDependOnThreads) {
  const Tensor index = indices({3000}, 0, 50, 1), source = normal({3000, 40}, 2).to(DType::f32);
  const auto gradients = [&] {
    const Tensor x = zeros({50, 40}).set_requires_grad();
    index_select(x, index).backward(source);
    gather(x, 0, index.unsqueeze(1).expand({3000, 40})).backward(source);
    return x.grad();
  };
  const int before = thread_count();
  set_thread_count(1);
  const Tensor alone = gradients();
  set_thread_count(3);
  EXPECT_TRUE(array_equal(alone, gradients()));
  set_thread_count(before);
}

TEST(Indexing, OneHotOnEveryDevice) {
  for (const Device device : devices())
    for (const int64_t classes : {5, 8, 16}) {
      const std::vector<int64_t> ids = {4, 0, 3};
      std::vector<float> want(3 * static_cast<size_t>(classes));
      for (size_t i = 0; i < 3; ++i) want[i * static_cast<size_t>(classes) + static_cast<size_t>(ids[i])] = 1;
      EXPECT_EQ(one_hot(tensor<int64_t>({4, 0, 3}).to(device), classes).to_vector<float>(), want)
          << classes << " on " << device;
    }
}

}  // namespace
}  // namespace heed::test

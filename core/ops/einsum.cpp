// Sums of products by the names of axes, as permutations and matrix products.
#include <algorithm>
#include <string>

#include <heed/core/ops.h>
#include <heed/core/ops/common.h>
#include <heed/core/tensor_impl.h>

namespace heed {
namespace {

/// A tensor and the letter of each of its axes.
struct Named {
  Tensor tensor;
  std::string letters;
};

bool has(const std::string& letters, char letter) { return letters.find(letter) != std::string::npos; }

// The elements of x at which axes a < b have one place, on axis a.
Tensor diagonal(const Tensor& x, int a, int b) {
  const auto view = [a, b](const Tensor& of) {
    Shape shape = of.shape(), strides = of.strides();
    strides[a] += strides[b];
    shape.erase(b);
    strides.erase(b);
    return make_view(of, shape, strides, of.offset());
  };
  return record("einsum", x, view(x), [view, like = x.shape()](const GradIn& gy, GradOut& gx) {
    const Tensor g = zeros(like, gy[0].options());
    view(g).copy_(gy[0]);
    gx.add(0, g);
  });
}

// The axes in the order of `letters`, all of which it has.
Tensor ordered(const Named& x, const std::string& letters) {
  Shape order;
  for (char letter : letters) order.append(static_cast<int64_t>(x.letters.find(letter)));
  return x.tensor.permute(order);
}

// x without the letters that are not in `kept`, over which it is summed.
Named summed(const Named& x, const std::string& kept) {
  std::vector<int64_t> axes;
  std::string letters;
  for (size_t i = 0; i < x.letters.size(); ++i) {
    if (has(kept, x.letters[i]))
      letters += x.letters[i];
    else
      axes.push_back(static_cast<int64_t>(i));
  }
  return axes.empty() ? x : Named{sum(x.tensor, {.axes = axes}), letters};
}

// The operand with its axes in three groups, as a batch of matrices.
Tensor matrices(const Named& x, const std::string& batch, const std::string& rows, const std::string& cols) {
  const Tensor y = ordered(x, batch + rows + cols);
  Shape shape{1, 1, 1};
  int axis = 0;
  for (const std::string* group : {&batch, &rows, &cols}) {
    const int place = group == &batch ? 0 : group == &rows ? 1 : 2;
    for (size_t i = 0; i < group->size(); ++i) shape[place] *= y.shape()[axis++];
  }
  return y.reshape(shape);
}

// The product of two, summed over what neither the result nor a later operand needs.
Named product(const Named& left, const Named& right, const std::string& needed) {
  const Named a = summed(left, needed + right.letters), b = summed(right, needed + left.letters);
  std::string batch, rows, cols, inner;
  for (char letter : a.letters)
    (!has(b.letters, letter) ? rows : has(needed, letter) ? batch : inner) += letter;
  for (char letter : b.letters)
    if (!has(a.letters, letter)) cols += letter;
  Shape shape;
  for (char letter : batch + rows) shape.append(a.tensor.size(static_cast<int64_t>(a.letters.find(letter))));
  for (char letter : cols) shape.append(b.tensor.size(static_cast<int64_t>(b.letters.find(letter))));
  const Tensor p = matrices(a, batch, rows, inner), q = matrices(b, batch, inner, cols);
  const Tensor y = inner.empty() ? p * q : matmul(p, q);
  return {y.reshape(shape), batch + rows + cols};
}

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// "ab,bc->ac" in its parts.
struct Equation {
  std::vector<std::string> inputs;
  std::string output;
};

Equation parse(const std::string& text) {
  Equation parts;
  std::string letters;
  for (char c : text)
    if (c != ' ') letters += c;
  const size_t arrow = letters.find("->");
  const std::string left = letters.substr(0, arrow);
  for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = left.find(',', begin);
    parts.inputs.push_back(left.substr(begin, end == std::string::npos ? end : end - begin));
  }
  if (arrow != std::string::npos) {
    parts.output = letters.substr(arrow + 2);
  } else {  // the letters that come once, in the order of the alphabet
    for (char c : left)
      if (is_letter(c) && std::count(left.begin(), left.end(), c) == 1) parts.output += c;
    std::sort(parts.output.begin(), parts.output.end());
  }
  for (const std::string& input : parts.inputs)
    HEED_CHECK(std::all_of(input.begin(), input.end(), is_letter), ConfigError, "einsum: \"", text,
               "\" names axes by something else than letters");
  for (char c : parts.output)
    HEED_CHECK(has(left, c) && std::count(parts.output.begin(), parts.output.end(), c) == 1 && is_letter(c),
               ConfigError, "einsum: the result of \"", text, "\" names an axis, ", std::string(1, c),
               ", twice or that no operand has");
  return parts;
}

// The operands without letters that come twice in one.
std::vector<Named> named_operands(const std::string& text, const Equation& parts, TensorList tensors) {
  HEED_CHECK(parts.inputs.size() == tensors.size(), ConfigError, "einsum: \"", text, "\" is for ",
             parts.inputs.size(), " operands, got ", tensors.size());
  int64_t sizes[128];
  std::fill_n(sizes, 128, -1);
  std::vector<Named> operands;
  for (size_t i = 0; i < tensors.size(); ++i) {
    Named x{tensors[i], parts.inputs[i]};
    check_same_kind(tensors[0], x.tensor, "einsum");
    HEED_CHECK(x.letters.size() == static_cast<size_t>(x.tensor.rank()), ShapeError, "einsum: operand ", i,
               ", \"", x.letters, "\", is ", x.tensor.shape());
    for (int axis = 0; axis < x.tensor.rank(); ++axis) {
      int64_t& size = sizes[static_cast<size_t>(x.letters[static_cast<size_t>(axis)])];
      HEED_CHECK(size == -1 || size == x.tensor.shape()[axis], ShapeError, "einsum: axis ",
                 x.letters.substr(static_cast<size_t>(axis), 1), " of \"", text, "\" has ", size, " and ",
                 x.tensor.shape()[axis], " elements");
      size = x.tensor.shape()[axis];
    }
    for (size_t a = 0; a < x.letters.size(); ++a)
      for (size_t b = x.letters.find(x.letters[a], a + 1); b != std::string::npos;
           b = x.letters.find(x.letters[a], a + 1)) {
        x.tensor = diagonal(x.tensor, static_cast<int>(a), static_cast<int>(b));
        x.letters.erase(b, 1);
      }
    operands.push_back(x);
  }
  return operands;
}

}  // namespace

Tensor einsum(const std::string& equation, TensorList tensors) {
  const Equation parts = parse(equation);
  const std::vector<Named> operands = named_operands(equation, parts, tensors);
  check_floating(operands[0].tensor, "einsum");
  Named result = operands[0];
  for (size_t i = 1; i < operands.size(); ++i) {
    std::string needed = parts.output;
    for (size_t later = i + 1; later < operands.size(); ++later) needed += operands[later].letters;
    result = product(result, operands[i], needed);
  }
  return ordered(summed(result, parts.output), parts.output);
}

}  // namespace heed

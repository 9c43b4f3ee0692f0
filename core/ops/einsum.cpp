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

// What "..." becomes: one sign first, and then a digit for each axis, the last axis of all operands the same.
constexpr char kEllipsis = '.', kFirstAxis = '0';

/// "ab,bc->ac" in its parts.
struct Equation {
  std::vector<std::string> inputs;
  std::string output;
};

// Letters, and "..." once at most, as one sign.
std::string checked_term(std::string term, const std::string& text) {
  const size_t dots = term.find("...");
  if (dots != std::string::npos) term.erase(dots, 3);
  HEED_CHECK(std::all_of(term.begin(), term.end(), is_letter), ConfigError, "einsum: \"", text,
             "\" names axes by something else than letters and one ...");
  if (dots != std::string::npos) term.insert(dots, 1, kEllipsis);
  return term;
}

Equation parse(const std::string& text) {
  Equation parts;
  std::string letters;
  for (char c : text)
    if (c != ' ') letters += c;
  const size_t arrow = letters.find("->");
  const std::string left = letters.substr(0, arrow);
  for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = left.find(',', begin);
    parts.inputs.push_back(
        checked_term(left.substr(begin, end == std::string::npos ? end : end - begin), text));
  }
  if (arrow != std::string::npos) {
    parts.output = checked_term(letters.substr(arrow + 2), text);
  } else {  // what "..." stands for, and the letters that come once, in the order of the alphabet
    for (char c : left)
      if (is_letter(c) && std::count(left.begin(), left.end(), c) == 1) parts.output += c;
    std::sort(parts.output.begin(), parts.output.end());
    if (has(left, kEllipsis)) parts.output.insert(0, 1, kEllipsis);
  }
  for (char c : parts.output)
    HEED_CHECK(
        c == kEllipsis || (has(left, c) && std::count(parts.output.begin(), parts.output.end(), c) == 1),
        ConfigError, "einsum: the result of \"", text, "\" names an axis, ", std::string(1, c),
        ", twice or that no operand has");
  return parts;
}

// Puts digits for `count` axes, the last of `most`, in place of "...".
void expand(std::string& term, int count, int most) {
  const size_t at = term.find(kEllipsis);
  if (at == std::string::npos) return;
  std::string axes;
  for (int i = most - count; i < most; ++i) axes += static_cast<char>(kFirstAxis + i);
  term.replace(at, 1, axes);
}

// Digits in place of "...", by the ranks of the operands.
void expand_ellipses(Equation& parts, const std::string& text, TensorList tensors) {
  std::vector<int> counts;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string& input = parts.inputs[i];
    const int letters = static_cast<int>(input.size()) - has(input, kEllipsis),
              count = tensors[i].rank() - letters;
    HEED_CHECK(count == 0 || (count > 0 && has(input, kEllipsis)), ShapeError, "einsum: operand ", i,
               " of \"", text, "\" has ", letters, " letters and is ", tensors[i].shape());
    counts.push_back(count);
  }
  const int most = *std::max_element(counts.begin(), counts.end());
  HEED_CHECK(most == 0 || has(parts.output, kEllipsis), ConfigError, "einsum: the result of \"", text,
             "\" has no ... for axes of its operands");
  for (size_t i = 0; i < counts.size(); ++i) expand(parts.inputs[i], counts[i], most);
  expand(parts.output, most, most);
}

// The operands without letters that come twice in one, and without axes of "..." of which they have one
// element, which then is that for all elements of the others.
std::vector<Named> named_operands(const std::string& text, const Equation& parts, TensorList tensors) {
  int64_t sizes[128];
  std::fill_n(sizes, 128, -1);
  std::vector<Named> operands;
  for (size_t i = 0; i < tensors.size(); ++i) {
    Named x{tensors[i], {}};
    check_same_kind(tensors[0], x.tensor, "einsum");
    for (char letter : parts.inputs[i]) {
      const int axis = static_cast<int>(x.letters.size());
      const int64_t found = x.tensor.shape()[axis];
      if (!is_letter(letter) && found == 1) {
        x.tensor = x.tensor.squeeze(axis);
        continue;
      }
      int64_t& size = sizes[static_cast<unsigned char>(letter)];
      HEED_CHECK(size == -1 || size == found, ShapeError, "einsum: axis ",
                 is_letter(letter) ? std::string(1, letter) : concat(letter - kFirstAxis, " of ..."),
                 " of \"", text, "\" has ", size, " and ", found, " elements");
      size = found;
      x.letters += letter;
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

// The axes in the order of `letters`; those that x lacks, of which all operands had one element, come back.
Tensor with_axes(const Named& x, const std::string& letters) {
  std::string present;
  for (char letter : letters)
    if (has(x.letters, letter)) present += letter;
  Tensor y = ordered(x, present);
  for (size_t i = 0; i < letters.size(); ++i)
    if (!has(present, letters[i])) y = y.unsqueeze(static_cast<int64_t>(i));
  return y;
}

}  // namespace

Tensor einsum(const std::string& equation, TensorList tensors) {
  Equation parts = parse(equation);
  HEED_CHECK(parts.inputs.size() == tensors.size(), ConfigError, "einsum: \"", equation, "\" is for ",
             parts.inputs.size(), " operands, got ", tensors.size());
  expand_ellipses(parts, equation, tensors);
  const std::vector<Named> operands = named_operands(equation, parts, tensors);
  check_floating(operands[0].tensor, "einsum");
  Named result = operands[0];
  for (size_t i = 1; i < operands.size(); ++i) {
    std::string needed = parts.output;
    for (size_t later = i + 1; later < operands.size(); ++later) needed += operands[later].letters;
    result = product(result, operands[i], needed);
  }
  return with_axes(summed(result, parts.output), parts.output);
}

}  // namespace heed

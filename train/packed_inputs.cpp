#include <algorithm>
#include <bit>
#include <numeric>
#include <span>

#include <heed/core/base/int_math.h>
#include <heed/core/creation.h>
#include <heed/core/runtime/backend.h>
#include <heed/kernels/embedding.h>
#include <heed/train/packed_inputs.h>

namespace heed::train {
namespace {

// The smallest sizes of a bucket.
constexpr int64_t kRows = 64, kSequences = 8, kLongest = 8;

int64_t bucket_of(int64_t size, int64_t least) {
  if (size <= least) return least;
  const auto step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(size - 1)) / 4);
  return round_up(size, step);
}

template <class Values>
Tensor filled_up(const Values& values, int64_t size, typename Values::value_type rest) {
  const Tensor x = empty({size}, {dtype_of<typename Values::value_type>(), kCpu});
  auto* const first = x.data<typename Values::value_type>();
  std::fill(std::copy(values.begin(), values.end(), first), first + size, rest);
  return x;
}

Tensor positions_of(const data::Sequences& sequences, int64_t rows) {
  const Tensor positions = zeros({rows}, {DType::i64, kCpu});
  for (size_t i = 0; i < sequences.first.size(); ++i) {
    int64_t* const first = positions.data<int64_t>() + sequences.first[i];
    std::iota(first, first + sequences.length[i], int64_t{0});
  }
  return positions;
}

Segments segments_of(const Tensor& first, const Tensor& length, int64_t rows, int64_t longest) {
  if (!backend(first.device()).host_memory)
    return Segments::on_device(first, length, rows, static_cast<int32_t>(longest));
  const std::span<const int64_t> firsts(first.data<int64_t>(), static_cast<size_t>(first.numel()));
  const std::span<const int32_t> lengths(length.data<int32_t>(), static_cast<size_t>(length.numel()));
  return Segments(firsts, lengths, firsts, lengths);
}

}  // namespace

void append_tokens(StepInputs& inputs, const data::TokenIds& ids, const data::Sequences& sequences,
                   Device device) {
  const bool padded = !backend(device).host_memory;
  const auto count = static_cast<int64_t>(sequences.first.size());
  const int64_t rows = padded ? bucket_of(sequences.rows, kRows) : sequences.rows;
  const int64_t places = padded ? bucket_of(count, kSequences) : count;
  inputs.tensors.push_back(filled_up(ids, rows, kNoToken));
  inputs.tensors.push_back(positions_of(sequences, rows));
  inputs.tensors.push_back(filled_up(sequences.first, places, sequences.rows));
  inputs.tensors.push_back(filled_up(sequences.length, places, 0));
  inputs.constants.push_back(padded ? bucket_of(sequences.max_length, kLongest) : sequences.max_length);
  inputs.constants.push_back(0);
}

void append_labels(StepInputs& inputs, const data::TokenIds& labels, int64_t rest) {
  const int64_t rows = inputs.tensors[inputs.tensors.size() - kTokenTensors].numel();
  inputs.tensors.push_back(filled_up(labels, rows, rest));
}

nn::Tokens tokens_of(const StepInputs& inputs, size_t tensor, size_t constant) {
  const Tensor* const x = &inputs.tensors[tensor];
  return {x[0], segments_of(x[2], x[3], x[0].numel(), inputs.constants[constant]), x[1],
          inputs.constants[constant + 1]};
}

}  // namespace heed::train

#include <algorithm>
#include <mutex>
#include <numeric>
#include <vector>

#include <heed/core/block_pattern.h>
#include <heed/core/creation.h>
#include <heed/core/runtime/backend.h>

namespace heed {
namespace {

constexpr int64_t kBlock = BlockPattern::kBlock;

// A line of bits for each of `lines`, where seen(line, i) says whether bit i is set.
template <class F>
int32_t* write_lines(int32_t* to, int64_t lines, int64_t bits, const F& seen) {
  const int64_t words = BlockPatternView::words(static_cast<int32_t>(bits));
  for (int64_t line = 0; line < lines; ++line, to += words)
    for (int64_t i = 0; i < bits; ++i)
      if (seen(line, i))
        to[i / 32] = static_cast<int32_t>(static_cast<uint32_t>(to[i / 32]) | 1u << (i % 32));
  return to;
}

bool* empty_blocks(int64_t blocks, Tensor& seen) {
  seen = zeros({blocks, blocks}, {.dtype = DType::boolean});
  return seen.data<bool>();
}

// Whether a block has a pair at some distance that the rule shows: the first such pair stands for all of its
// distance, as only global tokens tell them apart.
bool shows_some(const Visibility& rule, int64_t q0, int64_t q1, int64_t k0, int64_t k1, int64_t length) {
  if (rule.block(q0, q1, k0, k1, length, length) == BlockVisibility::none) return false;
  for (int64_t distance = k0 - (q1 - 1); distance <= k1 - 1 - q0; ++distance) {
    const int64_t q = std::max(q0, k0 - distance);
    if (rule.visible(q, q + distance, length, length)) return true;
  }
  return false;
}

}  // namespace

struct BlockPattern::State {
  int32_t query_blocks, key_blocks;
  Tensor bits;  // i32: the lines of queries, then those of keys
  std::mutex mutex;
  std::vector<Tensor> copies;  // one for each device that asked

  const Tensor& on(Device device) {
    if (backend(device).host_memory) return bits;
    const std::lock_guard<std::mutex> lock(mutex);
    for (const Tensor& copy : copies)
      if (copy.device() == device) return copy;
    return copies.emplace_back(bits.to(device));
  }
};

BlockPattern::BlockPattern(const Tensor& seen) {
  HEED_CHECK(seen.dtype() == DType::boolean, DTypeError, "BlockPattern: the blocks are ", seen.dtype(),
             "; they must be bool");
  constexpr int64_t kMax = int64_t{1} << 24;  // 2^30 positions
  HEED_CHECK(seen.rank() == 2 && seen.size(0) <= kMax && seen.size(1) <= kMax, ShapeError,
             "BlockPattern: the blocks are ", seen.shape(), ", expected [query blocks, key blocks], at most ",
             kMax, " each");
  const Tensor host = seen.detach().to(kCpu).contiguous();
  const int64_t queries = host.size(0), keys = host.size(1);
  const bool* block = host.data<bool>();
  state_ = std::make_shared<State>();
  state_->query_blocks = static_cast<int32_t>(queries);
  state_->key_blocks = static_cast<int32_t>(keys);
  const int64_t words = queries * BlockPatternView::words(state_->key_blocks) +
                        keys * BlockPatternView::words(state_->query_blocks);
  state_->bits = zeros({std::max<int64_t>(words, 1)}, {.dtype = DType::i32});
  int32_t* const of_keys = write_lines(state_->bits.data<int32_t>(), queries, keys,
                                       [&](int64_t q, int64_t k) { return block[q * keys + k]; });
  write_lines(of_keys, keys, queries, [&](int64_t k, int64_t q) { return block[q * keys + k]; });
}

int64_t BlockPattern::query_blocks() const { return state_ ? state_->query_blocks : 0; }
int64_t BlockPattern::key_blocks() const { return state_ ? state_->key_blocks : 0; }

BlockPatternView BlockPattern::view(Device device) const {
  if (!state_) return {};
  const auto* const bits = reinterpret_cast<const uint32_t*>(state_->on(device).data<int32_t>());
  return {.of_queries = bits,
          .of_keys = bits + int64_t{state_->query_blocks} * BlockPatternView::words(state_->key_blocks),
          .query_blocks = state_->query_blocks,
          .key_blocks = state_->key_blocks};
}

Tensor visible_blocks(const Visibility& rule, int64_t length) {
  HEED_CHECK(length >= 0, ConfigError, "visible_blocks: length is ", length);
  const int64_t blocks = pattern_blocks(length);
  Tensor seen;
  bool* next = empty_blocks(blocks, seen);
  for (int64_t i = 0; i < blocks; ++i)
    for (int64_t j = 0; j < blocks; ++j)
      *next++ = shows_some(rule, i * kBlock, std::min((i + 1) * kBlock, length), j * kBlock,
                           std::min((j + 1) * kBlock, length), length);
  return seen;
}

Tensor random_blocks(int64_t blocks, int64_t count, bool causal, Generator& generator) {
  HEED_CHECK(blocks >= 0 && count >= 0, ConfigError, "random_blocks: ", count, " of ", blocks, " blocks");
  Tensor seen;
  bool* const to = empty_blocks(blocks, seen);
  const Tensor draws = rand({blocks, blocks}, {}, generator);
  std::vector<int64_t> order(static_cast<size_t>(blocks));
  for (int64_t i = 0; i < blocks; ++i) {
    const float* draw = draws.data<float>() + i * blocks;
    const int64_t from = causal ? i + 1 : blocks, some = std::min(count, from);
    std::iota(order.begin(), order.end(), int64_t{0});
    std::partial_sort(order.begin(), order.begin() + some, order.begin() + from,
                      [&](int64_t a, int64_t b) { return draw[a] != draw[b] ? draw[a] < draw[b] : a < b; });
    for (int64_t j = 0; j < some; ++j) to[i * blocks + order[static_cast<size_t>(j)]] = true;
  }
  return seen;
}

Tensor strided_blocks(int64_t blocks, int64_t stride) {
  HEED_CHECK(blocks >= 0 && stride >= 1, ConfigError, "strided_blocks: a stride of ", stride, " in ", blocks,
             " blocks");
  Tensor seen;
  bool* next = empty_blocks(blocks, seen);
  for (int64_t i = 0; i < blocks; ++i)
    for (int64_t j = 0; j < blocks; ++j) *next++ = (i - j) % stride == 0;
  return seen;
}

}  // namespace heed

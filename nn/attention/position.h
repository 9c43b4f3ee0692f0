// Where a token stands in its sequence.
#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include <heed/core/generator.h>
#include <heed/core/tensor.h>
#include <heed/nn/attention/rotary.h>
#include <heed/nn/module.h>

namespace heed::nn {

/// sinusoidal: sines and cosines of geometrically spaced frequencies, added to the embeddings (arXiv
/// 1706.03762); learned: a table of parameters, added; alibi: a penalty on the scores that grows with
/// distance (arXiv 2108.12409); relative: a learned bias on the scores for each distance up to a limit;
/// rotary: queries and keys turned by angles that grow with the position (arXiv 2104.09864); t5: a learned
/// bias for each of a few ranges of distances, which grow with the distance (arXiv 1910.10683).
enum class PositionKind { none, sinusoidal, learned, alibi, relative, rotary, t5 };

/// Whether positions are numbers that a row may choose (Tokens::positions): not where only distances count.
constexpr bool takes_position_ids(PositionKind kind) {
  return kind == PositionKind::sinusoidal || kind == PositionKind::learned || kind == PositionKind::rotary;
}

/// "none", "sinusoidal", …; ConfigError on anything else.
PositionKind parse_position(const std::string& name);
const char* name(PositionKind kind);

/// Which columns of the sinusoidal table are sines: the even ones, as the paper has it, or the first half
/// (Marian).
enum class SinusoidColumns { interleaved, halves };

/// Rows 0 .. length - 1 of the sinusoidal table, [length, d_model], f64 on the CPU: sin and cos of position /
/// 10000^(2i / d_model). Any width, odd ones too.
Tensor sinusoidal_table(int64_t length, int64_t d_model,
                        SinusoidColumns columns = SinusoidColumns::interleaved);

/// ALiBi's slope of each head, f32 [heads]: 2^(-8 (h + 1) / heads) where heads is a power of two. Else, as in
/// the paper's code, those of the next lower power P, and then every second one of 2 P heads, from the first
/// on.
Tensor alibi_slopes(int64_t heads);

/// T5's bucket of each distance key - query from -limit to limit, i64 [2 limit + 1]: near distances have one
/// of their own, farther ones share wider and wider buckets, the last beginning below `limit`. Half of them
/// are of keys behind the query, half of keys before it; with `causal` all are of keys before it. The numbers
/// are those of `transformers`. ConfigError for too few buckets, or a limit that the buckets of one distance
/// reach.
Tensor t5_buckets(int64_t limit, int64_t buckets, bool causal);

/// A table with a row for each position, not saved, that grows on demand.
class GrowingTable {
 public:
  /// make(length): rows 0 … length - 1, f64 on the CPU.
  explicit GrowingTable(std::function<Tensor(int64_t)> make) : make_(std::move(make)) {}
  /// At least `length` rows in that dtype on that device.
  Tensor rows(int64_t length, DType dtype, Device device);

 private:
  std::function<Tensor(int64_t)> make_;
  std::mutex mutex_;
  Tensor cached_;
  std::vector<Tensor> outgrown_;  // captured steps know their addresses; all together smaller than cached_
};

struct PositionOptions {
  int64_t max_length = 0;    // of a learned table, which needs one
  RotaryConfig rotary = {};  // of rotary positions, which need the width of a head
  int64_t head_width = 0;
  SinusoidColumns sinusoids = SinusoidColumns::interleaved;
};

/// What a model knows of positions outside its attention: a table that is added to the embeddings, or one
/// that turns queries and keys. A learned table is the parameter `weight`, N(0, 0.02) at first.
class PositionTable : public Module {
 public:
  PositionTable(PositionKind kind, int64_t d_model, const PositionOptions& options = {},
                Generator& generator = default_generator());

  /// Added to embeddings: at least `length` rows in that dtype on that device; undefined for kinds that add
  /// nothing. ShapeError past the end of a learned table.
  Tensor table(int64_t length, DType dtype, Device device) const;
  /// For the calls of attention with rows at these positions, all less than `length`; none for other kinds
  /// than rotary.
  Rotation rotation(const Tensor& positions, int64_t length, DType dtype, Device device) const;

  void visit(Visitor& v) override;
  std::string describe() const override;

  PositionKind kind;
  Tensor weight;  // [max_length, d_model] if learned

 private:
  RotaryPairing pairing_;
  mutable GrowingTable made_;  // sinusoidal or rotary
};

}  // namespace heed::nn

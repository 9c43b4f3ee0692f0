// Where a token stands in its sequence.
#pragma once

#include <mutex>

#include <heed/core/generator.h>
#include <heed/core/tensor.h>
#include <heed/nn/module.h>

namespace heed::nn {

/// sinusoidal: sines and cosines of geometrically spaced frequencies, added to the embeddings (arXiv
/// 1706.03762); learned: a table of parameters, added; alibi: a penalty on the scores that grows with
/// distance (arXiv 2108.12409); relative: a learned bias on the scores for each distance up to a limit.
enum class PositionKind { none, sinusoidal, learned, alibi, relative };

/// "none", "sinusoidal", …; ConfigError on anything else.
PositionKind parse_position(const std::string& name);
const char* name(PositionKind kind);

/// Rows 0 .. length - 1 of the sinusoidal table, [length, d_model], f64 on the CPU: sin on even columns, cos
/// on odd ones, of position / 10000^(2i / d_model). Any width, odd ones too.
Tensor sinusoidal_table(int64_t length, int64_t d_model);

/// ALiBi's slope of each head, f32 [heads]: 2^(-8 (h + 1) / heads) where heads is a power of two. Else, as in
/// the paper's code, those of the next lower power P, and then every second one of 2 P heads, from the first
/// on.
Tensor alibi_slopes(int64_t heads);

/// The table added to embeddings. A sinusoidal one grows on demand and is not saved; a learned one is the
/// parameter `weight`, N(0, 0.02) at first.
class PositionTable : public Module {
 public:
  /// max_length is needed for a learned table only.
  PositionTable(PositionKind kind, int64_t d_model, int64_t max_length,
                Generator& generator = default_generator());

  /// At least `length` rows in that dtype on that device; undefined for kinds that add nothing. ShapeError
  /// past the end of a learned table.
  Tensor table(int64_t length, DType dtype, Device device) const;

  void visit(Visitor& v) override;
  std::string describe() const override;

  PositionKind kind;
  Tensor weight;  // [max_length, d_model] if learned

 private:
  int64_t d_model_;
  mutable std::mutex mutex_;
  mutable Tensor cached_;
  mutable std::vector<Tensor>
      outgrown_;  // captured steps know their addresses; all together smaller than cached_
};

}  // namespace heed::nn

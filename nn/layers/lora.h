// Low-rank adapters: fine-tuning a model by a few parameters beside its frozen ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <heed/core/generator.h>
#include <heed/nn/module.h>

namespace heed::nn {

/// Rows of a matrix of a model that get an adapter of their own: all, or those of attention's stacked
/// projection that make queries, keys or values.
struct LoraTarget {
  std::string name;   // of the adapter's parameters: NAME.lora_A.weight, NAME.lora_B.weight
  Tensor* weight;     // the model's handle, [out, in]
  int64_t first = 0;  // row
  int64_t rows = 0;   // 0: all
};

struct LoraOptions {
  int64_t rank = 8;
  double alpha = 16;
};

/// Adds alpha / rank · B A to each target, A [rank, in], B [rows, rank] (Hu et al., arXiv 2106.09685). A
/// begins uniform in ±1/√in and B with zeros: the model is what it was. Its own parameters are frozen, in
/// which it costs neither gradients nor moments; this module's are the adapters alone.
///
/// The model computes with the adapters while a LoraScope lives. As its matrices are made from theirs, once
/// in each step, all that it does (caches, fused operations) stays as it is.
class Lora : public Module {
 public:
  /// The model, whose parameters are f32, must outlive it, and is put into evaluation mode. ConfigError for
  /// no target, a rank below 1, rows that a weight has not, or a weight that is no f32 matrix.
  Lora(Module& model, std::vector<LoraTarget> targets, const LoraOptions& options = {},
       Generator& generator = default_generator());

  /// Adds the adapters to the model's own weights, once and for all, and makes them zero.
  void merge();

  const LoraOptions& options() const { return options_; }
  const std::vector<LoraTarget>& targets() const { return targets_; }
  void visit(Visitor& v) override;
  std::string describe() const override;

 private:
  friend class LoraScope;

  struct Adapter {
    Tensor a, b;
  };
  // Targets [first, last) of one weight, by row.
  struct Weight {
    Tensor* handle;
    size_t first, last;
  };

  Tensor difference(const Weight& weight) const;

  LoraOptions options_;
  std::vector<LoraTarget> targets_;
  std::vector<Adapter> adapters_;  // of the targets
  std::vector<Weight> weights_;
};

/// While one lives, the model computes with the adapters, and what is recorded reaches them. Then it has its
/// own weights again. Not to be nested.
class [[nodiscard]] LoraScope {
 public:
  explicit LoraScope(const Lora& lora);
  ~LoraScope();
  LoraScope(const LoraScope&) = delete;
  LoraScope& operator=(const LoraScope&) = delete;

 private:
  const Lora& lora_;
  std::vector<Tensor> own_;
};

}  // namespace heed::nn

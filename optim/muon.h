// Muon.
#pragma once

#include <string>
#include <vector>

#include <heed/optim/optimizer.h>

namespace heed::optim {

/// By what the orthogonal step of a matrix of R rows and C columns is multiplied, besides the rate.
enum class MuonScale {
  match_adam,  // 0.2 √max(R, C): as long as Adam's steps usually are, so that one rate suits both
               // (2502.16982)
  original     // √max(1, R / C)
};

struct MuonOptions {
  double lr = 1e-3;
  double momentum = 0.95;
  bool nesterov = true;
  int64_t iterations = 5;  // of Newton and Schulz
  MuonScale scale = MuonScale::match_adam;
  double weight_decay = 0.1;           // of the default group
  std::vector<Group> groups = {};      // tried before the default group, which takes the rest
  std::vector<std::string> adam = {};  // patterns of matrices that AdamW steps all the same
  double beta1 = 0.9, beta2 = 0.95;    // of AdamW
  double eps = 1e-8;                   // of AdamW
};

/// Muon (Jordan et al., https://kellerjordan.github.io/posts/muon/, 2024; Liu et al., arXiv 2502.16982): what
/// SGD with momentum would add to a matrix is first replaced by the orthogonal matrix next to it. Weight
/// decay is decoupled. Parameters that are no matrices are stepped by AdamW with the same rate, and so are
/// those that `adam` names: embeddings and output layers, "*embedding*". Stacked projections count as one
/// matrix.
///
/// Its state is "momentum" for a matrix, "m" and "v" for the rest. The products are those of the parameters'
/// gradients' dtype, f32 for bf16.
class Muon : public Optimizer {
 public:
  /// ConfigError for a value out of range or a pattern that fits no parameter.
  explicit Muon(const Parameters& parameters, const MuonOptions& options = {});

 private:
  void step_slice(const Slice& slice) override;
  template <class T>
  void step_matrix(const Slice& slice, const Slice::Entry& entry);

  MuonOptions options_;
  Tensor one_;  // the bits of a rate of 1, i64 [1]
};

/// An approximation of U Vᵀ where U S Vᵀ is the singular value decomposition of a matrix: each singular value
/// ends between about 0.7 and 1.2, those far below the largest still on their way. 0 stays 0. ShapeError for
/// other than a matrix.
Tensor orthogonalize(const Tensor& matrix, int64_t iterations = 5);

}  // namespace heed::optim

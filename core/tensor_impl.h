// What a Tensor points to. Private to core: not installed.
#pragma once

#include <heed/core/autograd/autograd.h>
#include <heed/core/tensor.h>

namespace heed {

class TensorImpl : public TensorLayout {
 public:
  using TensorLayout::TensorLayout;

  // The gradient's place: output `output` of `node`. A leaf that requires grad has a LeafNode; a tensor that
  // does not require grad has none.
  RefPtr<Node> node;
  int output = 0;
};

/// A tensor over existing storage.
Tensor make_tensor(RefPtr<Storage> storage, const Shape& shape, const Shape& strides, int64_t offset,
                   DType dtype);

/// A tensor of `numel` elements over all of its storage, without gaps.
Tensor make_contiguous(RefPtr<Storage> storage, const Shape& shape, int64_t numel, DType dtype);

/// The same elements seen with other sizes and strides, not recorded.
Tensor make_view(const Tensor& source, const Shape& shape, const Shape& strides, int64_t offset);

/// Where the gradient of x goes; nowhere if it is undefined or needs none.
Node::Edge edge_of(const Tensor& x);

/// x outside its graph, with its gradient going to `edge`.
Tensor with_edge(const Tensor& x, const Node::Edge& edge);

/// Throws where an in-place write into `target` is not allowed; `operation` names the caller.
void check_in_place(const Tensor& target, const char* operation);

}  // namespace heed

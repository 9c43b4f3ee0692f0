// What a running backward puts off until it comes to the leaves. Private to core: not installed.
#pragma once

#include <utility>

#include <heed/core/autograd/leaf_node.h>

namespace heed {

/// Two things: the gradients of small weights, which one kernel computes for many where the device has one
/// (kernels::WeightProducts), and zeros where no operation wrote to a leaf's gradient.
class BackwardRun {
 public:
  BackwardRun();
  /// Does what is left to be done, after an error too.
  ~BackwardRun();
  BackwardRun(const BackwardRun&) = delete;
  BackwardRun& operator=(const BackwardRun&) = delete;

  /// That of this thread; null if it runs none.
  static BackwardRun* current() { return current_; }

  /// gweight (+)= gᵀ x and gbias (+)= the sums of g [rows, out] over its rows. All on one CUDA device; gbias
  /// may be undefined.
  struct Product {
    Tensor g, x;
    GradSlot gweight, gbias;
    int64_t rows, in, out;
  };
  /// To be computed later; it is a small one (kernels::is_small_weight), whose slots may wait.
  void put_off(Product product);
  /// `leaf` has elements that nothing has been written to yet.
  void note_parts_of(LeafNode& leaf);

  /// To be called before something is added to memory that may be a part of a gradient.
  static void before_adding_to(const Tensor& gradient);

  /// Does all that was put off: mostly nothing.
  void settle() {
    if (!products_.empty() || !begun_.empty() || !parts_.empty()) do_all();
  }

 private:
  void do_all();
  void compute();  // begins with all products
  template <class T>
  void compute_products() const;
  void wait();  // for those that have been begun

  static inline constinit thread_local BackwardRun* current_ = nullptr;
  BackwardRun* outer_;
  PooledVector<Product> products_;    // not begun yet, all of one device and dtype
  PooledVector<Product> begun_;       // beside what goes on, which may not have their memory yet
  int64_t tiles_ = 0;                 // of products_
  int64_t bytes_ = 0;                 // that both keep in memory
  PooledVector<RefPtr<Node>> parts_;  // leaves
};

}  // namespace heed

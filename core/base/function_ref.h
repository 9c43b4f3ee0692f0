// FunctionRef: a callable passed by reference.
#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace heed {

template <class Signature>
class FunctionRef;

/// Refers to a callable that outlives it: two pointers, no allocation. May be empty.
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  FunctionRef() = default;
  FunctionRef(std::nullptr_t) {}
  /// An lvalue, so that no member can refer to a temporary.
  template <class F>
  requires(!std::is_same_v<std::remove_const_t<F>, FunctionRef> && std::is_invocable_r_v<R, F&, Args...>)
      FunctionRef(F& f)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<F*>(object))(std::forward<Args>(args)...);
        }) {}

  explicit operator bool() const { return call_ != nullptr; }
  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_ = nullptr;
  R (*call_)(void*, Args...) = nullptr;
};

}  // namespace heed

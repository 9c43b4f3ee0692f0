// Typed errors and the two checks that raise them: HEED_CHECK for the caller's mistake, HEED_ASSERT for ours.
#pragma once

#include <stdexcept>
#include <string>

#include <heed/core/base/text.h>

namespace heed {

/// Base of every exception heed throws. The text names the operation, the offending value, what was
/// expected and, where one helps, a hint.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Sizes, ranks or element counts that do not fit each other.
class ShapeError : public Error {
  using Error::Error;
};
/// An element type the operation does not take.
class DTypeError : public Error {
  using Error::Error;
};
/// A device that is missing, or operands on different devices.
class DeviceError : public Error {
  using Error::Error;
};
/// An axis, position or id outside its range.
class IndexError : public Error {
  using Error::Error;
};
/// An option with an impossible value, or options that contradict each other.
class ConfigError : public Error {
  using Error::Error;
};
/// A gradient that cannot be computed as asked.
class AutogradError : public Error {
  using Error::Error;
};
/// Writing through overlapping memory.
class AliasError : public Error {
  using Error::Error;
};
/// A call that the object's present state does not allow.
class StateError : public Error {
  using Error::Error;
};
/// Training or input data that cannot be read or used.
class DataError : public Error {
  using Error::Error;
};
/// A weight or checkpoint file that is damaged, hostile or does not fit the model.
class CheckpointError : public Error {
  using Error::Error;
};
/// A value that became NaN or infinite.
class NumericError : public Error {
  using Error::Error;
};
/// Memory that could not be had; the call can be repeated after freeing some.
class OutOfMemory : public Error {
  using Error::Error;
};
/// The operating system refused to read or write.
class IoError : public Error {
  using Error::Error;
};
/// A broken invariant inside heed: a bug of ours.
class InternalError : public Error {
  using Error::Error;
};

namespace detail {
/// Takes its arguments by value: a reference to a local would keep it in memory in all that leads here.
template <class ErrorType, class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail(Parts... parts) {
  throw ErrorType(concat(parts...));
}
[[noreturn]] void fail_assert(const char* condition, const char* file, int line, const std::string& message);
}  // namespace detail

}  // namespace heed

/// Throws ErrorType with the joined parts unless condition holds.
#define HEED_CHECK(condition, ErrorType, ...)               \
  do {                                                      \
    if (!(condition)) [[unlikely]]                          \
      ::heed::detail::fail<::heed::ErrorType>(__VA_ARGS__); \
  } while (false)

/// Throws InternalError with file and line unless condition holds.
#define HEED_ASSERT(condition, ...)                                                             \
  do {                                                                                          \
    if (!(condition)) [[unlikely]]                                                              \
      ::heed::detail::fail_assert(#condition, __FILE__, __LINE__, ::heed::concat(__VA_ARGS__)); \
  } while (false)

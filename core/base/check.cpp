#include <heed/core/base/check.h>

namespace heed::detail {

void fail_assert(const char* condition, const char* file, int line, const std::string& message) {
  throw InternalError(concat("internal error at ", file, ":", line, ": ", condition,
                             message.empty() ? "" : ": ", message, " (please report this as a bug in heed)"));
}

}  // namespace heed::detail

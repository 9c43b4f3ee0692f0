#include "apps/common/json_lines.h"

#include <cerrno>
#include <cstring>

#include <heed/core/base/check.h>

#include "apps/common/console.h"
#include "apps/common/text.h"

namespace heed::apps {

std::string json_line(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

JsonLines::JsonLines(const std::filesystem::path& file, Mode mode)
    : stream_(std::fopen(file.c_str(), mode == Mode::append ? "ae" : "we"), &std::fclose),
      name_(printable(file.string())) {
  HEED_CHECK(stream_, IoError, "cannot write ", name_, ": ", std::strerror(errno));
}

void JsonLines::write(const Json& object) { write_all(stream_.get(), json_line(object) + "\n", name_); }

}  // namespace heed::apps

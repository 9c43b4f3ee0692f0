#include "apps/common/json_lines.h"

#include <algorithm>

#include <heed/core/io/atomic_file.h>

#include "apps/common/console.h"

namespace heed::apps {

std::string json_line(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<Json> parse_json_line(std::string_view line) {
  // Values are left out as they end, so that none grows deep: destroying and printing one recurses.
  const auto flat = [](int depth, Json::parse_event_t event, Json&) {
    return depth == 0 ||
           (event != Json::parse_event_t::object_start && event != Json::parse_event_t::array_start);
  };
  Json object = Json::parse(line, flat, false);
  if (!object.is_object()) return std::nullopt;
  Json values = Json::object();
  for (auto& [key, value] : object.items())
    if (!value.is_discarded()) values[key] = std::move(value);
  return values;
}

void JsonLines::write(const Json& object) {
  const std::string line = json_line(object) + "\n";
  if (file_)
    file_->append(line);
  else
    write_out(line);
}

std::vector<Json> repair_json_lines(const std::filesystem::path& file,
                                    const std::function<bool(const Json&)>& keep) {
  std::vector<Json> kept;
  std::error_code missing;
  if (!std::filesystem::exists(std::filesystem::symlink_status(file, missing))) return kept;
  const std::string text = read_whole_file(file.string(), kMaxJsonLinesBytes);
  std::string lines;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    std::optional<Json> object = parse_json_line(line);
    if (!object || !keep(*object)) continue;
    kept.push_back(std::move(*object));
    lines.append(line).append(1, '\n');
  }
  if (text.starts_with(lines))
    AppendFile(file.string()).cut(lines.size());
  else
    write_whole_file(file.string(), lines);
  return kept;
}

}  // namespace heed::apps

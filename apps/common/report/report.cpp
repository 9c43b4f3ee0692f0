#include "apps/common/report/report.h"

#include <string>
#include <string_view>

#include <heed/core/base/check.h>
#include <heed/core/io/atomic_file.h>

namespace heed::apps {

extern const char* const kReportTemplate;  // report_template.cpp.in

namespace {

// In a script element nothing but "<" can end the data, and in JSON it stands in strings alone.
std::string without_tags(const std::string& json) {
  std::string text;
  text.reserve(json.size());
  for (const char c : json) {
    if (c == '<')
      text += "\\u003c";
    else
      text += c;
  }
  return text;
}

}  // namespace

void write_report(const std::filesystem::path& file, const Json& data) {
  const std::string_view page = kReportTemplate, place = "%data%";
  const size_t at = page.find(place);
  HEED_ASSERT(at != std::string_view::npos, "report.html has no place for its data");
  AtomicFile out(file);
  out.write(page.substr(0, at));
  out.write(without_tags(json_line(data)));
  out.write(page.substr(at + place.size()));
  out.commit();
}

}  // namespace heed::apps

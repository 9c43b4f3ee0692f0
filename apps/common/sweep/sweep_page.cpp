#include <fmt/format.h>

#include <heed/core/io/atomic_file.h>
#include <heed/core/io/file.h>

#include "apps/common/sweep/sweep_results.h"
#include "apps/common/text.h"

namespace heed::apps {
namespace {

constexpr const char* kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{0}: {1}</title>
<style>
:root {{ color-scheme: light dark; --text: #1f2328; --back: #fff; --soft: #656d76; --line: #d0d7de; }}
@media (prefers-color-scheme: dark) {{ :root {{ --text: #e6edf3; --back: #0d1117; --soft: #8d96a0; --line: #30363d; }} }}
body {{ font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); margin: 0 auto;
  max-width: 60rem; padding: 1rem; }}
p {{ color: var(--soft); overflow-wrap: anywhere; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .3rem .8rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }}
th {{ text-align: right; }}
figure {{ margin: 1.5rem 0; }}
img {{ max-width: 100%; height: auto; background: #fff; border-radius: 6px; }}
</style></head><body><h1>{0}</h1>
<p>{1}</p>
)";

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

// The file as an address that holds it.
std::string data_address(const std::filesystem::path& svg) {
  constexpr uint64_t kMaxBytes = 64 << 20;
  std::string out = "data:image/svg+xml;charset=utf-8,";
  for (const char c : read_whole_file(svg, kMaxBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= ' ' || byte >= 0x7f || std::string_view("%#\"<>&?'").find(c) != std::string_view::npos)
      out += fmt::format("%{:02X}", byte);
    else
      out += c;
  }
  return out;
}

}  // namespace

void write_sweep_page(const std::filesystem::path& file, const std::string& title, const std::string& varied,
                      const SweepResults& results, const std::vector<std::filesystem::path>& figures) {
  const Table table = results.table();
  std::string page = fmt::format(kHead, escaped(title), escaped(varied)) +
                     "<div class=\"scroll\" tabindex=\"0\"><table><thead><tr>";
  for (const Table::Column& column : table.columns)
    page += "<th scope=\"col\">" + escaped(column.name) + "</th>";
  page += "</tr></thead><tbody>\n";
  for (const auto& row : table.rows) {
    page += "<tr>";
    for (const Json& cell : row) page += "<td>" + escaped(cell.get<std::string>()) + "</td>";
    page += "</tr>\n";
  }
  page += "</tbody></table></div>\n<p>Means over seeds, ± their standard deviation.</p>\n";
  for (const std::string& law : results.laws()) page += "<p>" + escaped(law) + "</p>\n";
  for (const auto& figure : figures) {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(figure, ignored)) continue;
    page += fmt::format("<figure><img alt=\"{}\" src=\"{}\"></figure>\n", escaped(figure.stem().string()),
                        data_address(figure));
  }
  write_whole_file(file, page + "</body></html>\n");
}

}  // namespace heed::apps

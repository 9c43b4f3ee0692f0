// The file of a report: its data come back as they went in, whatever texts are in them, and it refers to
// nothing.
#include "apps/common/report/report.h"

#include <string>

#include <gtest/gtest.h>

#include <heed/core/base/check.h>

#include "temporary_folder.h"

namespace heed::apps {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++found;
  return found;
}

Json data_with(const std::string& text) {
  const Json wrong = {
      {"source", {text}}, {"target", {text}}, {"output", {text}}, {"finished", true}, {"right", false}};
  return {{"title", text},
          {"settings", {{text, text}}},
          {"attention", {{{"title", text}, {"kinds", Json::array()}}}},
          {"failures", {wrong}}};
}

class Report : public ::testing::Test {
 protected:
  std::string write(const Json& data) const {
    write_report(folder_.file("report.html"), data);
    return folder_.get("report.html");
  }
  // What a browser takes as the data: up to the first end of a script element.
  static Json data_of(const std::string& page) {
    const std::string begin = R"(<script type="application/json" id="data">)";
    const size_t at = page.find(begin) + begin.size();
    return Json::parse(page.substr(at, page.find("</script", at) - at));
  }
  const test::TemporaryFolder folder_;
};

TEST_F(Report, HostileTextsStayTexts) {
  const std::string plain = write(data_with("plain"));
  for (const std::string text :
       {"</script><script>alert(1)</script>", "<!--<script>", "<img src=x onerror=alert(1)>",
        "\"'&<>\\u003c%data%", "a\xE2\x80\xA8line", "\x01\x7F"}) {
    const Json data = data_with(text);
    const std::string page = write(data);
    EXPECT_EQ(data_of(page), data) << text;
    for (const char* tag : {"<script", "</script", "<img", "<!--"})
      EXPECT_EQ(count(page, tag), count(plain, tag)) << text;
  }
}

TEST_F(Report, TextsThatAreNoUtf8AreMended) {
  EXPECT_EQ(data_of(write(data_with("a\xFF"))).at("title"), "a\xEF\xBF\xBD");
}

TEST_F(Report, RefersToNothing) {
  const std::string page = write(data_with("plain"));
  for (const char* reference :
       {"http:", "https:", "src=", "href", "url(", "@import", "fetch(", "innerHTML", "eval("})
    EXPECT_EQ(count(page, reference), 0u) << reference;
  EXPECT_EQ(count(page, "default-src 'none'"), 1u);
}

TEST_F(Report, AFolderThatIsMissing) {
  EXPECT_THROW(write_report(folder_.file("none/report.html"), data_with("x")), IoError);
}

}  // namespace
}  // namespace heed::apps

// A program that takes over its user's locale: what machines read stays as it is.
#include <filesystem>
#include <functional>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/core/runtime/profile.h>
#include <heed/core/serialize.h>

#include "foreign_locale.h"
#include "temporary_folder.h"

namespace heed::test {
namespace {

std::string printed(const Tensor& x) {
  std::ostringstream out;
  out << x << ' ' << x.shape();
  return out.str();
}

/// Each text as it is in the C locale.
void check_texts() {
  const TemporaryFolder folder;
  // Offsets and sizes beyond a thousand, whose separators would end a JSON number.
  const Tensor large = full({1500, 1000}, 0.5);
  save_tensors(folder.file("f"), {{"a", large}, {"b", ones({1000})}});
  EXPECT_EQ(folder.entries(), 1u);
  const std::string header = folder.get("f").substr(0, 500);
  EXPECT_NE(header.find(R"("shape":[1500,1000],"data_offsets":[0,6000000])"), std::string::npos) << header;
  const NamedTensors loaded = load_tensors(folder.file("f"));
  ASSERT_EQ(loaded.size(), 2u);
  EXPECT_TRUE(array_equal(loaded[0].second, large));

  start_profile(folder.file("profile.json"));
  matmul(ones({64, 64}), ones({64, 64}));
  stop_profile();
  const std::string profile = folder.get("profile.json");
  EXPECT_NE(profile.find("\"operations\":524288"), std::string::npos) << profile;
  EXPECT_EQ(profile.find("\"dur\":") == std::string::npos, false);
  for (const char* key : {"\"ts\":", "\"dur\":"}) {
    const size_t number = profile.find(key) + std::string(key).size();
    EXPECT_EQ(profile.find_first_not_of("0123456789", number), profile.find('.', number)) << profile;
  }

  EXPECT_EQ(printed(tensor({1234.5, 0.25})), "[1234.5000,    0.2500] ([2] f64 cpu) [2]");
  EXPECT_EQ(printed(zeros({0, 12345})).substr(0, 2), "[]");
  EXPECT_EQ(concat(Shape{12345, 6}), "[12345, 6]");
  try {
    zeros({12345, 2}).reshape({7});
    ADD_FAILURE();
  } catch (const ShapeError& error) {
    EXPECT_NE(std::string(error.what()).find("[12345, 2]"), std::string::npos) << error.what();
  }
}

TEST(Locale, OfCxxStreamsChangesNothing) {
  const ForeignLocale locale;
  std::ostringstream foreign;
  foreign << 1234.5;
  ASSERT_EQ(foreign.str(), "1.234,5") << "the locale is in force";
  check_texts();
}

TEST(Locale, OfCChangesNothing) {
  const ForeignCLocale locale;
  if (!locale.found()) GTEST_SKIP() << "no locale with a decimal comma is installed";
  check_texts();
}

}  // namespace
}  // namespace heed::test

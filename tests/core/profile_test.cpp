// What is recorded of the kernels that are called.
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include <heed/core/attention.h>
#include <heed/core/autograd/autograd.h>
#include <heed/core/base/check.h>
#include <heed/core/creation.h>
#include <heed/core/ops.h>
#include <heed/core/runtime/profile.h>

namespace {

using namespace heed;

std::vector<ProfileEvent> events_of(const std::function<void()>& work) {
  start_profile();
  work();
  stop_profile();
  return profile_events();
}

/// The only event with that name.
ProfileEvent only(const std::vector<ProfileEvent>& events, const std::string& name) {
  ProfileEvent found{};
  int times = 0;
  for (const ProfileEvent& event : events) {
    if (event.name == name) ++times, found = event;
  }
  EXPECT_EQ(times, 1) << name;
  return found;
}

TEST(Profile, CallsInOrderWithTheirTimes) {
  const Tensor x = zeros({4, 8}), w = zeros({16, 8});
  const auto events = events_of([&] { softmax(linear(x, w)); });
  ASSERT_EQ(events.size(), 2u);
  EXPECT_STREQ(events[0].name, "linear_forward");
  EXPECT_STREQ(events[1].name, "softmax_forward");
  EXPECT_GE(events[0].begin, 0);
  EXPECT_GT(events[0].duration, 0);
  EXPECT_GE(events[1].begin, events[0].begin + events[0].duration);
  EXPECT_EQ(events[0].thread, events[1].thread);
}

TEST(Profile, NothingIsRecordedBeforeAndAfter) {
  const Tensor x = zeros({4});
  events_of([] {});
  relu(x);
  EXPECT_TRUE(profile_events().empty());
  EXPECT_EQ(events_of([&] { relu(x); }).size(), 1u);
  EXPECT_EQ(events_of([&] { relu(x); }).size(), 1u);  // a start forgets what was before
}

TEST(Profile, CostOfLinearLayersAndTheirGradients) {
  const Tensor x = zeros({4, 8}), w = zeros({16, 8}), b = zeros({16});
  for (const Tensor& t : {x, w, b}) t.set_requires_grad();
  Tensor y;
  const ProfileEvent forward = only(events_of([&] { y = linear(x, w, b); }), "linear_forward");
  EXPECT_EQ(forward.cost.flops, 2 * 4 * 8 * 16);
  EXPECT_EQ(forward.cost.bytes, 4 * (4 * 8 + 8 * 16 + 4 * 16));
  double products = 0;
  for (const ProfileEvent& event : events_of([&] { y.backward(zeros({4, 16})); }))
    products += event.cost.flops;
  EXPECT_EQ(products, 2 * 2 * 4 * 8 * 16);
}

TEST(Profile, CostOfAttentionIsThatOfVisiblePairs) {
  const Tensor x = zeros({5, 8});
  x.set_requires_grad();
  const Segments segments = Segments::packed(std::vector<int32_t>{3, 2});
  AttentionOptions options{.heads = 2};
  options.visibility.causal = Causal::top_left;
  const double pairs = 6 + 3;  // of three queries, and of two
  Tensor y;
  const ProfileEvent forward =
      only(events_of([&] { y = attention(x, x, x, segments, options); }), "attention_forward");
  EXPECT_EQ(forward.cost.flops, 2 * 2 * pairs * 8);
  EXPECT_EQ(forward.cost.bytes, 4 * 4 * 5 * 8);
  const ProfileEvent backward = only(events_of([&] { y.backward(zeros({5, 8})); }), "attention_backward");
  EXPECT_EQ(backward.cost.flops, 5 * 2 * pairs * 8);
  EXPECT_EQ(backward.cost.bytes, 4 * 8 * 5 * 8);
}

TEST(Profile, CostOfElementsCountsWhatIsRepeatedOnce) {
  const Tensor a = zeros({6, 4}), b = zeros({4}), half = zeros({6, 4}, {.dtype = DType::bf16});
  EXPECT_EQ(only(events_of([&] { a + b; }), "binary").cost.bytes, 4 * (24 + 24 + 4));
  EXPECT_EQ(only(events_of([&] { a * 2.0; }), "binary").cost.bytes, 4 * (24 + 24));
  EXPECT_EQ(only(events_of([&] { exp(half); }), "unary").cost.bytes, 2 * (24 + 24));
  EXPECT_EQ(only(events_of([&] { static_cast<void>(half.to(DType::f32)); }), "copy").cost.bytes,
            24 * (4 + 2));
  EXPECT_EQ(only(events_of([&] { layer_norm(a, {}, {}); }), "layer_norm_forward").cost.bytes, 4 * (24 + 24));
}

TEST(Profile, TheFileIsATraceOfEvents) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() /
      ("heed_profile_" + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) +
       std::to_string(::getpid()) + ".json");
  start_profile(file.string());
  linear(zeros({4, 8}), zeros({16, 8}));
  stop_profile();
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  std::filesystem::remove(file);
  EXPECT_EQ(text.str().rfind("{\"traceEvents\":[\n{\"name\":\"", 0), 0u) << text.str();
  EXPECT_NE(text.str().find("\"name\":\"linear_forward\",\"ph\":\"X\",\"pid\":1,"), std::string::npos)
      << text.str();
  EXPECT_NE(text.str().find("\"args\":{\"operations\":1024,\"bytes\":896}}"), std::string::npos)
      << text.str();
}

TEST(Profile, AFileThatCannotBeWrittenIsAnError) {
  start_profile("/no/such/folder/trace.json");
  EXPECT_THROW(stop_profile(), IoError);
  EXPECT_FALSE(profiling());
}

}  // namespace

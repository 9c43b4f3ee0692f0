// Weights of element types that other programs write.
#include <string>

#include <gtest/gtest.h>

#include <heed/core/io/safetensors.h>
#include <heed/core/ops.h>
#include <heed/nn/layers/linear.h>
#include <heed/nn/weights.h>

#include "temporary_folder.h"

namespace heed::nn {
namespace {

std::string file_of(const std::string& json, const std::string& data) {
  std::string length;
  for (int i = 0; i < 8; ++i) length += static_cast<char>(json.size() >> (8 * i));
  return length + json + data;
}

// 0.5, -2 and 65504 in 16 bits.
constexpr char kHalves[] = "\x00\x38\x00\xc0\xff\x7b";

TEST(WeightsTypes, HalvesAreRead) {
  const test::TemporaryFolder folder;
  const std::string json =
      R"({"weight":{"dtype":"F16","shape":[1,2],"data_offsets":[0,4]},"bias":{"dtype":"F16","shape":[1],"data_offsets":[4,6]}})";
  Linear linear(2, 1);
  load_weights(linear, folder.put("f", file_of(json, {kHalves, 6})));
  EXPECT_EQ(linear.weight.to_vector<float>(), (std::vector<float>{0.5f, -2}));
  EXPECT_EQ(linear.bias.to_vector<float>(), (std::vector<float>{65504}));
}

TEST(WeightsTypes, AForeignTensorMattersOnlyToWhoNeedsIt) {
  const test::TemporaryFolder folder;
  const auto file = [&](const std::string& bias) {
    return folder.put("f", file_of(R"({"weight":{"dtype":"F16","shape":[1,2],"data_offsets":[0,4]},")" +
                                       bias + R"(":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[4,5]}})",
                                   {kHalves, 5}));
  };
  Linear linear(2, 1);
  const float bias = linear.bias.item<float>();
  const LoadReport report = load_weights(linear, file("scale"), {.strict = false});
  EXPECT_EQ(report.unexpected, std::vector<std::string>{"scale"});
  EXPECT_EQ(report.missing, std::vector<std::string>{"bias"});
  EXPECT_EQ(linear.weight.to_vector<float>(), (std::vector<float>{0.5f, -2}));
  linear.weight.detach().fill_(7);
  for (const bool strict : {true, false}) {
    try {
      load_weights(linear, file("bias"), {.strict = strict});
      ADD_FAILURE() << "nothing was thrown";
    } catch (const CheckpointError& error) {
      EXPECT_NE(std::string(error.what()).find("F8_E4M3"), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(linear.weight.to_vector<float>(), (std::vector<float>{7, 7})) << "nothing was loaded";
  EXPECT_EQ(linear.bias.item<float>(), bias);
}

}  // namespace
}  // namespace heed::nn

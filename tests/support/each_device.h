// A suite of tests that run on each device of the build.
#pragma once

#include <gtest/gtest.h>

#include "op_check.h"

namespace heed::test {

/// The base of such a suite, whose tests are made by TEST_P.
class EachDevice : public testing::TestWithParam<Device> {
 protected:
  static Device device() { return GetParam(); }
};

}  // namespace heed::test

/// Names its tests Suite.Test/cpu and Suite.Test/cuda.
#define HEED_ON_EACH_DEVICE(Suite)                                                    \
  INSTANTIATE_TEST_SUITE_P(, Suite, testing::ValuesIn(::heed::test::devices()),       \
                           [](const testing::TestParamInfo<::heed::Device>& device) { \
                             return device.param.is_cpu() ? "cpu" : "cuda";           \
                           })

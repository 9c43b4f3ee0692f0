// JSON that others read.
#pragma once

#include <nlohmann/json.hpp>

namespace heed::nn::detail {

/// An object that keeps its keys in the order in which they were set.
using Json = nlohmann::ordered_json;

}  // namespace heed::nn::detail

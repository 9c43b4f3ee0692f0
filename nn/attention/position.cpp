#include <algorithm>
#include <bit>
#include <cmath>

#include <heed/core/creation.h>
#include <heed/nn/attention/position.h>
#include <heed/nn/parameter.h>

namespace heed::nn {
namespace {

constexpr std::pair<const char*, PositionKind> kNames[] = {{"none", PositionKind::none},
                                                           {"sinusoidal", PositionKind::sinusoidal},
                                                           {"learned", PositionKind::learned},
                                                           {"alibi", PositionKind::alibi},
                                                           {"relative", PositionKind::relative},
                                                           {"rotary", PositionKind::rotary},
                                                           {"t5", PositionKind::t5}};

}  // namespace

PositionKind parse_position(const std::string& text) {
  for (const auto& entry : kNames)
    if (text == entry.first) return entry.second;
  throw ConfigError(concat("unknown position '", text,
                           "'; expected none, sinusoidal, learned, alibi, relative, rotary or t5"));
}

const char* name(PositionKind kind) { return kNames[static_cast<size_t>(kind)].first; }

Tensor sinusoidal_table(int64_t length, int64_t d_model, SinusoidColumns columns) {
  HEED_CHECK(length >= 0 && d_model > 0, ConfigError, "sinusoidal_table: length ", length, ", d_model ",
             d_model);
  const Tensor table = empty({length, d_model}, {.dtype = DType::f64});
  const bool halves = columns == SinusoidColumns::halves;
  const int64_t sines = (d_model + 1) / 2;
  double* value = table.data<double>();
  for (int64_t position = 0; position < length; ++position)
    for (int64_t column = 0; column < d_model; ++column) {
      const bool cosine = halves ? column >= sines : column % 2 == 1;
      const auto pair = static_cast<double>(2 * (halves ? column - (cosine ? sines : 0) : column / 2));
      const double angle =
          static_cast<double>(position) * std::exp(-std::log(10000.0) * pair / static_cast<double>(d_model));
      *value++ = cosine ? std::cos(angle) : std::sin(angle);
    }
  return table;
}

Tensor alibi_slopes(int64_t heads) {
  HEED_CHECK(heads > 0, ConfigError, "alibi_slopes: heads is ", heads, "; it must be positive");
  const Tensor slopes = empty({heads});
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  for (int64_t h = 0; h < heads; ++h) {
    const double exponent = h < power ? static_cast<double>(h + 1) / static_cast<double>(power)
                                      : (static_cast<double>(h - power) + 0.5) / static_cast<double>(power);
    slopes.data<float>()[h] = static_cast<float>(std::exp2(-8 * exponent));
  }
  return slopes;
}

Tensor t5_buckets(int64_t limit, int64_t buckets, bool causal) {
  const int64_t sides = causal ? 1 : 2, of_side = buckets / sides, exact = of_side / 2;
  HEED_CHECK(exact > 0, ConfigError, "t5_buckets: ", buckets, " buckets are too few; ", 2 * sides,
             " are the least");
  HEED_CHECK(limit > exact, ConfigError, "t5_buckets: the limit ", limit, " must exceed ", exact,
             ", the distances with a bucket of their own");
  // In f32, as the original: at the edges of buckets rounding decides.
  const auto wide = static_cast<float>(std::log(static_cast<double>(limit) / static_cast<double>(exact)));
  const Tensor result = empty({2 * limit + 1}, {.dtype = DType::i64});
  for (int64_t distance = -limit; distance <= limit; ++distance) {
    const int64_t size = causal ? std::max<int64_t>(-distance, 0) : std::abs(distance);
    int64_t bucket = size;
    if (size >= exact) {
      const float share = std::log(static_cast<float>(size) / static_cast<float>(exact)) / wide;
      bucket = exact + static_cast<int64_t>(share * static_cast<float>(of_side - exact));
      bucket = std::min(bucket, of_side - 1);
    }
    result.data<int64_t>()[distance + limit] = bucket + (!causal && distance > 0 ? of_side : 0);
  }
  return result;
}

Tensor GrowingTable::rows(int64_t length, DType dtype, Device device) {
  std::lock_guard lock(mutex_);
  const bool fits = cached_.defined() && cached_.dtype() == dtype && cached_.device() == device;
  if (!fits || cached_.size(0) < length) {
    const int64_t rows = std::max<int64_t>(length, fits ? 2 * cached_.size(0) : 64);
    if (fits)
      outgrown_.push_back(cached_);
    else
      outgrown_.clear();
    cached_ = make_(rows).to(dtype).to(device);
  }
  return cached_;
}

PositionTable::PositionTable(PositionKind kind, int64_t d_model, const PositionOptions& options,
                             Generator& generator)
    : kind(kind), pairing_(options.rotary.pairing), made_([kind, d_model, options](int64_t length) {
        return kind == PositionKind::rotary ? rotary_table(length, options.rotary, options.head_width)
                                            : sinusoidal_table(length, d_model, options.sinusoids);
      }) {
  if (kind == PositionKind::rotary) options.rotary.check(options.head_width);
  if (kind != PositionKind::learned) return;
  HEED_CHECK(options.max_length > 0, ConfigError, "PositionTable: a learned table needs max_length > 0, got ",
             options.max_length);
  weight =
      make_parameter({options.max_length, d_model}, [&](const Tensor& x) { normal_(x, 0, 0.02, generator); });
}

Tensor PositionTable::table(int64_t length, DType dtype, Device device) const {
  if (kind == PositionKind::learned) {
    HEED_CHECK(length <= weight.size(0), ShapeError, "a sequence of ", length, " tokens is longer than the ",
               weight.size(0), " learned positions");
    return weight;
  }
  return kind == PositionKind::sinusoidal ? made_.rows(length, dtype, device) : Tensor();
}

Rotation PositionTable::rotation(const Tensor& positions, int64_t length, DType dtype, Device device) const {
  if (kind != PositionKind::rotary) return {};
  const DType factors = dtype == DType::f64 ? DType::f64 : DType::f32;
  return {made_.rows(length, factors, device), positions, pairing_};
}

void PositionTable::visit(Visitor& v) { v("weight", weight); }

std::string PositionTable::describe() const {
  return concat("PositionTable(", name(kind), weight.defined() ? concat(", ", weight.size(0)) : "", ")");
}

}  // namespace heed::nn

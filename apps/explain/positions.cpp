// Sinusoidal positions, and the causal mask.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <heed/core/ops.h>
#include <heed/nn/attention/position.h>

#include "apps/explain/common.h"

namespace heed::apps {
namespace {

// The smallest distance between the codes of any two positions, and which two.
struct Closest {
  double distance;
  int64_t first, second;
};

Closest closest_codes(const Tensor& products) {
  const int64_t length = products.size(0);
  const double* values = products.data<double>();
  const auto product = [&](int64_t i, int64_t j) { return values[i * length + j]; };
  Closest closest{INFINITY, 0, 0};
  for (int64_t i = 0; i < length; ++i) {
    for (int64_t j = i + 1; j < length; ++j) {
      const double square = product(i, i) + product(j, j) - 2 * product(i, j);
      const double distance = std::sqrt(std::max(square, 0.0));
      if (distance < closest.distance) closest = {distance, i, j};
    }
  }
  return closest;
}

// The largest spread of the products of positions that lie equally far apart.
double spread_at_equal_distance(const Tensor& products) {
  const int64_t length = products.size(0);
  double spread = 0;
  for (int64_t distance = 0; distance < length; ++distance) {
    double low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i + distance < length; ++i) {
      const double value = products.data<double>()[i * length + i + distance];
      low = std::min(low, value);
      high = std::max(high, value);
    }
    spread = std::max(spread, high - low);
  }
  return spread;
}

Heatmap map_of(const Tensor& x, const std::string& title, const std::string& rows, const std::string& columns,
               ColorMap colors, const std::string& color_label) {
  Heatmap map;
  map.title = title;
  map.values = to_matrix(x);
  map.row_axis = rows;
  map.column_axis = columns;
  map.color_label = color_label;
  map.colors = colors;
  map.square = false;
  return map;
}

Line line_of(const std::string& name, const Tensor& values) {
  Line line{name, {}, values.contiguous().to_vector<double>()};
  for (size_t i = 0; i < line.y.size(); ++i) line.x.push_back(static_cast<double>(i));
  return line;
}

// Four dimensions as lines over the positions, `step` apart.
LinePlot dimensions_plot(const std::string& title, const Tensor& table, int64_t step) {
  LinePlot plot{title, "Position", "Value", {}};
  for (int64_t d = 0; d < std::min(4 * step, table.size(1)); d += step)
    plot.lines.push_back(line_of(concat("dimension ", d), table.select(1, d)));
  return plot;
}

void draw(Presentation& p, const Tensor& table, const Tensor& products) {
  const int64_t length = table.size(0), width = table.size(1);
  p.figure(map_of(table, "Positional encoding", "Position", "Dimension", ColorMap::rdbu, "Value"),
           "positions");
  p.figure(map_of(table.transpose(0, 1), "Positional encoding", "Dimension", "Position", ColorMap::rdylbu,
                  "Value"),
           "positions-transposed");

  p.figure(dimensions_plot("The first four dimensions over positions", table, 1), "positions-dimensions");
  p.figure(dimensions_plot("Every 16th dimension over positions", table, 16), "positions-every-16th");

  LinePlot codes{"Positions over dimensions", "Dimension", "Value", {}};
  for (int64_t position = 0; position < std::min<int64_t>(50, length); position += 10)
    codes.lines.push_back(line_of(concat("position ", position),
                                  table.select(0, position).slice(0, 0, std::min<int64_t>(50, width))));
  p.figure(codes, "positions-codes");

  p.figure(
      map_of(products, "Dot products of positions", "Position", "Position", ColorMap::viridis, "Dot product"),
      "positions-products");
  LinePlot over_distance{"Dot product over distance", "Distance", "Dot product", {}};
  over_distance.lines.push_back(line_of("", products.select(0, 0)));
  p.figure(over_distance, "positions-distance");

  Heatmap mask =
      map_of(tril(ones({10, 10})), "Causal mask", "Query", "Key", ColorMap::blues, "1 allowed, 0 blocked");
  mask.square = true;
  mask.range = std::pair(0.0, 1.0);
  p.figure(mask, "causal-mask");
}

}  // namespace

void explain_positions(const PositionsSettings& settings) {
  Presentation p = present(settings);
  const Tensor table = nn::sinusoidal_table(settings.length, settings.d_model);
  const Tensor products = matmul(table, table.transpose(0, 1));
  p.heading(fmt::format("Sinusoidal positions {}", concat(table.shape())));
  const int64_t shown = std::min<int64_t>(4, settings.d_model);
  p.matrix("first", "the first positions, dimensions 0 to 3",
           table.slice(0, 0, std::min<int64_t>(3, settings.length)).slice(1, 0, shown),
           numbers_as_text(std::min<int64_t>(3, settings.length)));
  const double total = sum(table).item<double>();
  p.line(fmt::format("sum of all values {:.4f}", total));
  p.value("sum", total);

  const Closest closest = closest_codes(products);
  p.line(fmt::format("each code is unique: the two closest, {} and {}, are {:.4f} apart", closest.first,
                     closest.second, closest.distance));
  p.value("closest", {{"first", closest.first}, {"second", closest.second}, {"distance", closest.distance}});

  const double spread = spread_at_equal_distance(products);
  p.heading("Dot products of two positions");
  Table by_distance{{{"distance", "{}"}, {"dot product"}}, {}};
  for (const int64_t distance : {0, 1, 2, 5, 10, 20, 50})
    if (distance < settings.length)
      by_distance.rows.push_back({distance, products.select(0, 0).select(0, distance).item<double>()});
  p.table("products", by_distance);
  p.line(fmt::format("largest spread among pairs equally far apart: {}", difference_text(spread)));
  p.line(settings.d_model % 2 == 0
             ? "they depend on the distance alone: sin a sin b + cos a cos b = cos(a - b), for each frequency"
             : "an odd width has one sine without its cosine, so they depend a little on the place too");
  p.value("spread", spread);
  draw(p, table, products);
  p.finish();
}

}  // namespace heed::apps

// What the first weights make of a signal that passes through blocks.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <heed/core/ops.h>
#include <heed/nn/init.h>
#include <heed/nn/inspection.h>
#include <heed/nn/models/transformer_layer.h>

#include "apps/common/program.h"
#include "apps/explain/common.h"

namespace heed::apps {
namespace {

struct Strategy {
  const char* name;
  nn::Initializer initializer;
};

constexpr Strategy kStrategies[] = {{"Xavier", nn::Initializer::xavier_uniform},
                                    {"Kaiming", nn::Initializer::kaiming_uniform},
                                    {"normal 0.02", nn::Initializer::normal}};

// Of one block on one input of normal numbers.
struct Measured {
  nn::Statistics output;
  double attention = 0, feed_forward = 0;  // standard deviations of the branches alone
};

Measured measure(const nn::EncoderLayer& block, const Tensor& x) {
  const NoGrad no_grad;
  const Segments segments = Segments::dense(1, x.size(0));
  const bool pre = block.placement == nn::NormPlacement::pre;
  const Tensor attention = block.self_attn.self(pre ? block.norm1(x) : x, segments);
  const Tensor after = pre ? block.norm2(x + attention) : block.norm1(x + attention);
  return {nn::statistics(block(x, segments)), nn::statistics(attention).deviation,
          nn::statistics(block.feed_forward(after)).deviation};
}

// Drawn anew, q, k and v as three matrices; every bias 0, norm weights 1.
void draw_again(nn::EncoderLayer& block, nn::Initializer initializer, Generator& generator) {
  nn::initialize(block, nn::matrix_rules(initializer), generator);
  const Tensor& stacked = block.self_attn.in_proj_weight;
  for (const Tensor& part : chunk(stacked.detach(), 3, 0)) nn::initialize(part, initializer, generator);
}

void show_weights(Presentation& p, nn::EncoderLayer& block, Generator& generator) {
  Table table{{{"initializer"}, {"matrix"}, {"mean"}, {"deviation"}, {"min"}, {"max"}}, {}};
  for (const Strategy& strategy : kStrategies) {
    draw_again(block, strategy.initializer, generator);
    for (const auto& [name, weight] : {std::pair("out_proj", block.self_attn.out_proj.weight),
                                       std::pair("linear1", block.feed_forward.linear1.weight)}) {
      const nn::Statistics s = nn::statistics(weight);
      table.rows.push_back({strategy.name, name, s.mean, s.deviation, s.minimum, s.maximum});
    }
  }
  p.heading("The weights themselves");
  p.table("weights", table);
}

void show_block(Presentation& p, const InitializationSettings& s, nn::EncoderLayer& block,
                Generator& generator) {
  Table table{{{"initializer"}, {"mean"}, {"deviation"}, {"min"}, {"max"}, {"attention"}, {"feed-forward"}},
              {}};
  for (const Strategy& strategy : kStrategies) {
    Measured total{{0, 0, INFINITY, -INFINITY}};
    for (int64_t i = 0; i < s.draws; ++i) {
      throw_if_stopped();
      draw_again(block, strategy.initializer, generator);
      const Measured one = measure(block, normal_numbers({s.length, s.d_model}, generator));
      const double part = 1 / static_cast<double>(s.draws);
      total.output.mean += part * one.output.mean;
      total.output.deviation += part * one.output.deviation;
      total.output.minimum = std::min(total.output.minimum, one.output.minimum);
      total.output.maximum = std::max(total.output.maximum, one.output.maximum);
      total.attention += part * one.attention;
      total.feed_forward += part * one.feed_forward;
    }
    table.rows.push_back({strategy.name, total.output.mean, total.output.deviation, total.output.minimum,
                          total.output.maximum, total.attention, total.feed_forward});
  }
  p.heading(fmt::format("The output of one {}-norm block for an input N(0, 1); mean of {} draws",
                        nn::name(s.norm), s.draws));
  p.table("block", table);
  p.line("attention, feed-forward: the deviations of what the branches add, alone");
}

void show_depth(Presentation& p, const InitializationSettings& s, Generator& generator) {
  const NoGrad no_grad;
  nn::LayerConfig config = s.layer();
  config.d_model = s.stack_d_model;
  config.d_ff = 4 * s.stack_d_model;
  nn::EncoderLayer block(config, generator);
  block.to(DType::f64);
  block.eval();
  const Segments segments = Segments::dense(1, s.length);
  Table table{{{"blocks", "{}"}}, {}};
  LinePlot plot{"The signal after so many blocks", "Blocks", "Standard deviation", {}, false, true};
  for (const Strategy& strategy : kStrategies) {
    table.columns.push_back({strategy.name, "{:.3f}"});
    Line line{strategy.name, {}, {}};
    Tensor x = normal_numbers({s.length, config.d_model}, generator);
    size_t row = 0;
    for (int64_t depth = 1; depth <= s.deepest; ++depth) {
      throw_if_stopped();
      draw_again(block, strategy.initializer, generator);
      x = block(x, segments);
      const double deviation = nn::statistics(x).deviation;
      line.x.push_back(static_cast<double>(depth));
      line.y.push_back(deviation);
      const bool listed = (depth & (depth - 1)) == 0 || depth == s.deepest;
      if (!listed) continue;
      if (row == table.rows.size()) table.rows.push_back({depth});
      table.rows[row++].push_back(deviation);
    }
    plot.lines.push_back(std::move(line));
  }
  p.heading(fmt::format("The deviation of the signal in a stack of 1 to {} blocks of width {}", s.deepest,
                        config.d_model));
  p.table("depth", table);
  p.figure(plot, "initialization-depth");
}

}  // namespace

void explain_initialization(const InitializationSettings& settings) {
  Presentation p = present(settings);
  Generator generator(static_cast<uint64_t>(settings.seed));
  nn::EncoderLayer block(settings.layer(), generator);
  block.to(DType::f64);
  block.eval();
  show_weights(p, block, generator);
  show_block(p, settings, block, generator);
  show_depth(p, settings, generator);
  p.finish();
}

}  // namespace heed::apps

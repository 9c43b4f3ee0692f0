// How gradients flow: by parameter, over depth, and over training.
#include <cmath>
#include <memory>

#include <fmt/format.h>

#include <heed/core/ops.h>
#include <heed/nn/attention/position.h>
#include <heed/nn/inspection.h>
#include <heed/nn/models/transformer.h>
#include <heed/optim/adam.h>

#include "apps/common/program.h"
#include "apps/explain/common.h"

namespace heed::apps {
namespace {

constexpr double kRounding = 1e-9;  // gradients below this are zero but for rounding

struct Probe {
  std::vector<nn::GradientNorm> norms;  // of the parameters, then of the input "x"
};

// Gradients of <y, r>, y being what the block makes of x.
Probe probe(nn::EncoderLayer& block, const Tensor& x, const Tensor& r) {
  block.parameters().zero_grad();
  const Tensor input = x.clone();
  input.set_requires_grad();
  sum(block(input, Segments::dense(1, x.size(0))) * r).backward();
  Probe result{nn::gradient_norms(block)};
  result.norms.push_back({"x", norm(input.grad()).item<double>(), norm(x).item<double>()});
  return result;
}

std::unique_ptr<nn::EncoderLayer> make_block(const nn::LayerConfig& config, int64_t seed) {
  Generator generator(static_cast<uint64_t>(seed));
  auto block = std::make_unique<nn::EncoderLayer>(config, generator);
  block->to(DType::f64);
  block->eval();
  return block;
}

BarChart bars(const std::string& title, const Probe& shown) {
  BarChart chart;
  chart.title = title;
  chart.value_axis = "Norm of the gradient";
  chart.log_scale = true;
  for (const nn::GradientNorm& n : shown.norms) {
    chart.names.push_back(n.name);
    chart.values.push_back(n.gradient < kRounding ? 0 : n.gradient);
  }
  return chart;
}

void show_parameters(Presentation& p, const GradientsSettings& s) {
  Generator generator(static_cast<uint64_t>(s.seed), uint64_t{1} << 32);
  const Tensor x = normal_numbers({s.length, s.d_model}, generator);
  const Tensor r = normal_numbers({s.length, s.d_model}, generator);
  Table table{{{"parameter"},
               {"pre-norm, sum", "{:.4g}", kRounding},
               {"pre-norm, <y,r>", "{:.4g}", kRounding},
               {"post-norm, sum", "{:.4g}", kRounding},
               {"post-norm, <y,r>", "{:.4g}", kRounding}},
              {}};
  for (const auto placement : {nn::NormPlacement::pre, nn::NormPlacement::post}) {
    nn::LayerConfig config = s.layer();
    config.norm = placement;
    const auto block = make_block(config, s.seed);
    if (placement == nn::NormPlacement::pre) {
      p.heading(
          fmt::format("Gradient norms of a block of {} parameters, by probe", block->parameters().numel()));
      p.value("parameters", block->parameters().numel());
    }
    const Probe of_sum = probe(*block, x, ones(x.shape(), x.options())), of_projection = probe(*block, x, r);
    for (size_t i = 0; i < of_sum.norms.size(); ++i) {
      if (placement == nn::NormPlacement::pre) table.rows.push_back({of_sum.norms[i].name});
      table.rows[i].push_back(of_sum.norms[i].gradient);
      table.rows[i].push_back(of_projection.norms[i].gradient);
    }
    const std::string name = nn::name(placement);
    p.figure(bars(concat("Gradients of a ", name, "-norm block, loss <y, r>"), of_projection),
             "gradients-" + name);
    if (placement == nn::NormPlacement::post)
      p.figure(bars("Gradients of a post-norm block, loss = sum of y", of_sum), "gradients-post-sum");
  }
  p.table("gradients", table);
  p.line(
      "~0: zero but for rounding. A norm's outputs sum to that of its biases whatever comes in, so behind");
  p.line("a last norm the sum tells nothing; a random projection r does.");
}

void show_biases(Presentation& p, const GradientsSettings& s) {
  nn::LayerConfig config = s.layer();
  config.qkv_bias = true;
  const auto block = make_block(config, s.seed);
  Generator generator(static_cast<uint64_t>(s.seed), uint64_t{1} << 33);
  const Tensor x = normal_numbers({s.length, s.d_model}, generator);
  Table table{{{"parameter"}, {"gradient", "{:.4g}", kRounding}}, {}};
  for (const nn::GradientNorm& n : probe(*block, x, normal_numbers(x.shape(), generator)).norms)
    if (n.name.find("in_proj_bias") != std::string::npos) table.rows.push_back({n.name, n.gradient});
  p.heading("With biases on q, k and v");
  p.table("biases", table);
  p.line("a bias on all keys shifts each row of scores by one number, which the softmax ignores");
}

// The norm of the gradients of each layer's parameters together.
std::vector<double> layer_norms(nn::Encoder& stack) {
  std::vector<double> norms;
  for (const nn::GradientNorm& n : nn::join_norms(nn::gradient_norms(stack), 2))
    if (n.name.compare(0, 7, "layers.") == 0) norms.push_back(n.gradient);
  return norms;
}

nn::LayerConfig small_layer(nn::NormPlacement placement) {
  nn::LayerConfig config;
  config.d_model = 64;
  config.heads = 4;
  config.d_ff = 256;
  config.norm = placement;
  config.activation = nn::FeedForwardKind::gelu;
  config.attention_dropout = config.activation_dropout = config.residual_dropout = 0;
  config.position = nn::PositionKind::none;
  return config;
}

void show_depth(Presentation& p, const GradientsSettings& s) {
  Table table{{{"block", "{}"}, {"pre-norm", "{:.4g}"}, {"post-norm", "{:.4g}"}}, {}};
  LinePlot plot{fmt::format("Gradients in a stack of {} blocks", s.deepest),
                "Block",
                "Norm of the gradients",
                {},
                false,
                true};
  for (const auto placement : {nn::NormPlacement::pre, nn::NormPlacement::post}) {
    const nn::LayerConfig config = small_layer(placement);
    Generator generator(static_cast<uint64_t>(s.seed));
    nn::Encoder stack(config, s.deepest, placement == nn::NormPlacement::pre, generator);
    stack.to(DType::f64);
    stack.eval();
    const Tensor x = normal_numbers({s.length, config.d_model}, generator);
    sum(stack(x, Segments::dense(1, s.length)) * normal_numbers(x.shape(), generator)).backward();
    Line line{concat(nn::name(placement), "-norm"), {}, {}};
    for (const double norm : layer_norms(stack)) {
      const size_t block = line.y.size();
      line.x.push_back(static_cast<double>(block + 1));
      line.y.push_back(norm);
      if (placement == nn::NormPlacement::pre) table.rows.push_back({block + 1});
      table.rows[block].push_back(norm);
    }
    plot.lines.push_back(std::move(line));
  }
  p.heading(fmt::format("Over depth: {} blocks of width 64 as they begin, loss <y, r>", s.deepest));
  p.table("depth", table);
  p.figure(plot, "gradients-depth");
}

// Sequences of random vectors with positions; the target is the sequence backwards.
void show_training(Presentation& p, const GradientsSettings& s) {
  constexpr int64_t kBlocks = 4, kBatch = 8, kLength = 6;
  const nn::LayerConfig config = small_layer(nn::NormPlacement::pre);
  Generator generator(static_cast<uint64_t>(s.seed));
  nn::Encoder stack(config, kBlocks, true, generator);
  stack.to(DType::f64);
  optim::Adam adam(stack.parameters(), {.lr = 1e-3});
  const Tensor positions = nn::sinusoidal_table(kLength, config.d_model);
  LinePlot plot{
      "Gradients while a stack learns to reverse", "Step", "Norm of the gradients", {}, false, true};
  for (int64_t i = 0; i < kBlocks; ++i) plot.lines.push_back({concat("block ", i + 1), {}, {}});
  Table table{{{"step", "{}"}, {"loss"}}, {}};
  for (int64_t i = 0; i < kBlocks; ++i) table.columns.push_back({concat("block ", i + 1)});
  for (int64_t step = 1; step <= s.steps; ++step) {
    throw_if_stopped();
    const Tensor vectors = normal_numbers({kBatch, kLength, config.d_model}, generator);
    const Tensor y =
        stack((vectors + positions).reshape({kBatch * kLength, -1}), Segments::dense(kBatch, kLength));
    const Tensor loss = mean(square(y - flip(vectors, 1).reshape(y.shape())));
    loss.backward();
    const std::vector<double> norms = layer_norms(stack);
    for (size_t i = 0; i < norms.size(); ++i) {
      plot.lines[i].x.push_back(static_cast<double>(step));
      plot.lines[i].y.push_back(norms[i]);
    }
    if (step == 1 || step == s.steps || step % 50 == 0) {
      table.rows.push_back({step, loss.item<double>()});
      for (const double norm : norms) table.rows.back().push_back(norm);
    }
    adam.step();
  }
  p.heading("Over training: 4 pre-norm blocks of width 64 learn to reverse sequences of random vectors");
  p.table("training", table);
  p.figure(plot, "gradients-training");
}

}  // namespace

void explain_gradients(const GradientsSettings& settings) {
  Presentation p = present(settings);
  show_parameters(p, settings);
  show_biases(p, settings);
  show_depth(p, settings);
  show_training(p, settings);
  p.finish();
}

}  // namespace heed::apps

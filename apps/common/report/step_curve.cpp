#include "apps/common/report/step_curve.h"

#include <algorithm>

#include <heed/core/io/atomic_file.h>

namespace heed::apps {
namespace {

Json to_json(const StepPoint& p) {
  return {{"step", p.step}, {"steps", p.steps}, {"loss", p.loss}, {"lr", p.lr}, {"grad_norm", p.grad_norm}};
}

// The mean of both, each step of the same weight.
StepPoint joined(const StepPoint& a, const StepPoint& b) {
  const double steps = static_cast<double>(a.steps + b.steps), share = static_cast<double>(b.steps) / steps;
  return {.step = b.step,
          .steps = a.steps + b.steps,
          .loss = a.loss + share * (b.loss - a.loss),
          .lr = b.lr,
          .grad_norm = a.grad_norm + share * (b.grad_norm - a.grad_norm)};
}

}  // namespace

StepCurve::StepCurve(const std::filesystem::path& folder, int64_t done) : file_(folder / "steps.jsonl") {
  const Json form = to_json({});
  int64_t last = 0;
  const auto is_point = [&](const Json& line) {
    for (const auto& [key, value] : form.items())
      if (!line.contains(key) || !line[key].is_number()) return false;
    if (!line["step"].is_number_integer() || !line["steps"].is_number_integer()) return false;
    const auto step = line["step"].get<int64_t>(), steps = line["steps"].get<int64_t>();
    if (step <= last || step > done || steps < 1 || steps > step - last) return false;
    last = step;
    return true;
  };
  for (const Json& line : repair_json_lines(file_, is_point)) {
    points_.push_back({.step = line["step"],
                       .steps = line["steps"],
                       .loss = line["loss"],
                       .lr = line["lr"],
                       .grad_norm = line["grad_norm"]});
    every_ = std::max(every_, points_.back().steps);
  }
  lines_.emplace(file_);
  while (std::ssize(points_) > kMaxPoints) halve();
}

void StepCurve::add(const train::StepReport& r) {
  const StepPoint one{.step = r.step, .steps = 1, .loss = r.loss, .lr = r.lr, .grad_norm = r.grad_norm};
  next_ = next_.steps == 0 ? one : joined(next_, one);
  if (next_.steps < every_) return;
  if (std::ssize(points_) == kMaxPoints) return halve();  // the next point has as many steps again to come
  points_.push_back(next_);
  next_ = {};
  lines_->write(to_json(points_.back()));
}

void StepCurve::halve() {
  std::vector<StepPoint> pairs;
  std::string lines;
  for (size_t i = 0; i < points_.size(); i += 2) {
    pairs.push_back(i + 1 < points_.size() ? joined(points_[i], points_[i + 1]) : points_[i]);
    lines += json_line(to_json(pairs.back())) + "\n";
  }
  points_ = std::move(pairs);
  every_ *= 2;
  lines_.reset();
  write_whole_file(file_.string(), lines);
  lines_.emplace(file_);
}

}  // namespace heed::apps

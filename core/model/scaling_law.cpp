#include "core/model/scaling_law.h"

#include <cmath>

namespace mfu {
namespace {

/// G of arXiv:2203.15556 equation 4.
double balance(const ScalingConstants& c) noexcept {
  return std::pow(c.alpha * c.a / (c.beta * c.b), 1 / (c.alpha + c.beta));
}

}  // namespace

double predicted_loss(const ScalingConstants& c, double params, double tokens) noexcept {
  return c.e + c.a / std::pow(params, c.alpha) + c.b / std::pow(tokens, c.beta);
}

TrainingPlan plan_as_given(const ScalingConstants& c, double params, double tokens) noexcept {
  return {params, tokens, 6 * params * tokens, predicted_loss(c, params, tokens)};
}

TrainingPlan plan_for_flop(const ScalingConstants& c, double flop) noexcept {
  const double product = flop / 6;  // N * D
  const double params = balance(c) * std::pow(product, c.beta / (c.alpha + c.beta));
  TrainingPlan plan = plan_as_given(c, params, product / params);
  plan.flop = flop;
  return plan;
}

TrainingPlan plan_for_params(const ScalingConstants& c, double params) noexcept {
  const double product = std::pow(params / balance(c), (c.alpha + c.beta) / c.beta);
  return plan_as_given(c, params, product / params);
}

TrainingPlan plan_for_tokens(const ScalingConstants& c, double tokens) noexcept {
  const double product = std::pow(tokens * balance(c), (c.alpha + c.beta) / c.alpha);
  return plan_as_given(c, product / tokens, tokens);
}

double training_days(double flop, double peak_flop_per_s, double gpus, double mfu) noexcept {
  return flop / (peak_flop_per_s * gpus * mfu) / 86400;
}

}  // namespace mfu

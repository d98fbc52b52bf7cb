// Compute-optimal training by the Chinchilla scaling law.
#pragma once

namespace mfu {

/// L(N, D) = E + A / N^alpha + B / D^beta, the loss in nats per token.
/// Default: Hoffmann et al., arXiv:2203.15556, section 3.3 equation 10 (approach 3).
struct ScalingConstants {
  double e = 1.69;
  double a = 406.4;
  double b = 410.7;
  double alpha = 0.34;
  double beta = 0.28;
};

/// The refit of the same data by Besiroglu et al., arXiv:2404.10102, table 1: about 20 tokens per parameter at the
/// budgets of the original paper.
inline constexpr ScalingConstants kRefitConstants{1.8172, 482.01, 2085.43, 0.3478, 0.3658};

/// A model size and a number of training tokens, with C = 6 N D.
struct TrainingPlan {
  double params = 0;  ///< N
  double tokens = 0;  ///< D
  double flop = 0;    ///< C = 6ND [FLOP]
  double loss = 0;    ///< predicted, nats per token
};

/// Predicted loss of N parameters trained on D tokens. Both > 0.
[[nodiscard]] double predicted_loss(const ScalingConstants& c, double params, double tokens) noexcept;

/// The N and D that minimise the loss at C = 6ND: N = G (C/6)^(beta/(alpha+beta)), D = (C/6)/N,
/// G = (alpha A / (beta B))^(1/(alpha+beta)); arXiv:2203.15556 equation 4.
[[nodiscard]] TrainingPlan plan_for_flop(const ScalingConstants& c, double flop) noexcept;
/// The budget for which `params` is optimal.
[[nodiscard]] TrainingPlan plan_for_params(const ScalingConstants& c, double params) noexcept;
/// The budget for which `tokens` is optimal.
[[nodiscard]] TrainingPlan plan_for_tokens(const ScalingConstants& c, double tokens) noexcept;
/// N and D as given, optimal or not.
[[nodiscard]] TrainingPlan plan_as_given(const ScalingConstants& c, double params, double tokens) noexcept;

/// Days that `flop` take on `gpus` devices of `peak_flop_per_s` at `mfu` (0..1). All > 0.
[[nodiscard]] double training_days(double flop, double peak_flop_per_s, double gpus, double mfu) noexcept;

}  // namespace mfu

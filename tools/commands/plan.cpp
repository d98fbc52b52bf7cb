// `mfu plan`: Chinchilla-optimal parameters and tokens, the predicted loss, and the days it takes at an MFU.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "core/base/number_text.h"
#include "core/base/say.h"
#include "core/config/config.h"
#include "core/model/scaling_law.h"
#include "core/peak/peak.h"
#include "tools/commands/commands.h"

namespace mfu {
namespace {

struct PlanCall {
  std::string flop, params, tokens;  ///< plain numbers, or with K, M, B, T: `70B`, `1.4T`
  std::string gpu, dtype = "bf16", constants = "refit", mfu;
  std::optional<std::int64_t> gpus;
  std::optional<double> e, a, b, alpha, beta;
  bool json = false;
};

/// `7e9`, `7B`, `1.4T`. The Error names the expected form.
Result<double> quantity(const std::string& option, const std::string& text) {
  const std::optional<double> value = parse_count(text);
  if (!value) return Error{option + ": expected a number such as 7e9, 7B or 1.4T, got \"" + text + "\""};
  // Above 1e40 the powers below leave the range where a plan means anything.
  if (*value < 1 || *value > 1e40) return Error{option + ": expected a number of 1 or more, got \"" + text + "\""};
  return *value;
}

/// `0.4`, `40%`. The Error names the expected form.
Result<double> share(const std::string& option, const std::string& text) {
  char* end = nullptr;
  double value = std::strtod(text.c_str(), &end);
  const std::string suffix = end;
  if (suffix == "%" || suffix == " %")
    value /= 100;
  else if (!suffix.empty())
    value = 0;
  if (end == text.c_str() || !(value >= 1e-6 && value <= 1))
    return Error{option + ": expected a share above 0 and at most 1, such as 0.4 or 40%, got \"" + text + "\""};
  return value;
}

/// `95.9 B`, `1.74 T`; three digits.
std::string short_number(double value) {
  constexpr std::pair<double, const char*> kUnits[] = {
      {1e15, " P"}, {1e12, " T"}, {1e9, " B"}, {1e6, " M"}, {1e3, " K"}};
  for (const auto& [unit, word] : kUnits) {
    if (value >= unit * 0.9995)
      return value / unit < 999.5 ? fmt::format("{:.3g}", value / unit) + word : fmt::format("{:.3e}", value);
  }
  return fmt::format("{:.3g}", value);
}

/// `57 days`, `3.2 hours`, `12.4 years`.
std::string time_of(double days) {
  if (days < 2) return fmt::format("{:.3g} hours", days * 24);
  if (days < 10) return fmt::format("{:.2g} days", days);
  if (days < 3650) return fmt::format("{:.0f} days", days);
  return fmt::format("{:.4g} years", days / 365.25);
}

/// The peak of the GPU that the days are for; none: no days are asked for. An Error names the option.
Result<std::optional<Peak>> asked_peak(const PlanCall& call, double& mfu) {
  const auto dtype = parse_dtype(call.dtype);
  if (!dtype) return Error{"--dtype: expected a number format such as bf16 or fp8, got \"" + call.dtype + "\""};
  if (!call.mfu.empty()) {
    const Result<double> read = share("--mfu", call.mfu);
    if (!read) return read.error();
    mfu = *read;
  }
  if (call.gpu.empty() && call.mfu.empty() && !call.gpus) return std::optional<Peak>();
  if (call.gpu.empty()) return Error{"--gpu: expected the GPU that the days are for, such as H100"};
  if (call.mfu.empty()) return Error{"--mfu: expected the MFU that the days are for, such as 0.4 or 40%"};
  const Config environment = load_config(
      [](const char* variable) -> const char* {
        return std::string_view(variable) == "MFU_MODEL_CONFIG" ? nullptr : std::getenv(variable);
      },
      nullptr);
  const Result<Peak> peak = find_peak_of_name(call.gpu, *dtype, environment.peak);
  if (!peak) return Error{"--gpu: " + peak.error().message + "; or set MFU_PEAK_TFLOPS"};
  return std::optional(*peak);
}

/// \param failed set where the command line is right and there is no such plan
Result<void> make_plan(const PlanCall& call, bool& failed) {
  ScalingConstants constants = call.constants == "hoffmann" ? ScalingConstants{} : kRefitConstants;
  const std::pair<const std::optional<double>&, double*> overrides[] = {{call.e, &constants.e},
                                                                        {call.a, &constants.a},
                                                                        {call.b, &constants.b},
                                                                        {call.alpha, &constants.alpha},
                                                                        {call.beta, &constants.beta}};
  for (const auto& [given, value] : overrides)
    if (given) *value = *given;
  std::optional<double> flop, params, tokens;
  for (const auto& [option, text, value] :
       {std::tuple{"--flop", &call.flop, &flop}, std::tuple{"--params", &call.params, &params},
        std::tuple{"--tokens", &call.tokens, &tokens}}) {
    if (text->empty()) continue;
    const Result<double> read = quantity(option, *text);
    if (!read) return read.error();
    *value = *read;
  }
  if (flop && params && tokens) return Error{"expected at most two of --flop, --params and --tokens"};
  TrainingPlan plan;
  if (params && tokens)
    plan = plan_as_given(constants, *params, *tokens);
  else if (flop && params)
    plan = plan_as_given(constants, *params, *flop / 6 / *params);
  else if (flop && tokens)
    plan = plan_as_given(constants, *flop / 6 / *tokens, *tokens);
  else if (flop)
    plan = plan_for_flop(constants, *flop);
  else if (params)
    plan = plan_for_params(constants, *params);
  else if (tokens)
    plan = plan_for_tokens(constants, *tokens);
  else
    return Error{"expected --flop, --params or --tokens"};

  double mfu = 0;
  const Result<std::optional<Peak>> peak = asked_peak(call, mfu);
  if (!peak) return peak.error();
  const auto gpus = static_cast<double>(call.gpus.value_or(1));
  std::optional<double> days;
  if (*peak) days = training_days(plan.flop, *(*peak)->flop_per_s, gpus, mfu);
  failed = !std::isfinite(plan.flop) || !std::isfinite(plan.params) || !std::isfinite(plan.tokens) || plan.params < 1 ||
           plan.tokens < 1;
  if (failed) return Error{"no plan: parameters or tokens come to less than one, or to no number"};
  if (call.json) {
    nlohmann::ordered_json j = {{"params", plan.params},
                                {"tokens", plan.tokens},
                                {"flop", plan.flop},
                                {"loss", plan.loss},
                                {"days", days ? nlohmann::ordered_json(*days) : nlohmann::ordered_json(nullptr)},
                                {"constants",
                                 {{"E", constants.e},
                                  {"A", constants.a},
                                  {"B", constants.b},
                                  {"alpha", constants.alpha},
                                  {"beta", constants.beta}}}};
    say("{}\n", Lines{j.dump(2)});
    return {};
  }
  say("parameters  {}\ntokens      {}  ({:.1f} per parameter)\nFLOP        {:.4g}  (6ND)\nloss        {:.4f}  "
      "nats per token\n",
      short_number(plan.params), short_number(plan.tokens), plan.tokens / plan.params, plan.flop, plan.loss);
  if (days)
    say("time        {}  on {:.0f} x {} at MFU {:.1f} %, {:.4g} TFLOP/s {} each\n", time_of(*days), gpus, call.gpu,
        100 * mfu, *(*peak)->flop_per_s / 1e12, name((*peak)->dtype));
  say("constants   {}: E {} A {} B {} alpha {} beta {}\n", call.constants, constants.e, constants.a, constants.b,
      constants.alpha, constants.beta);
  if (call.constants == "hoffmann")
    say("note        the rounded constants of arXiv:2203.15556 do not give that paper's own 20 tokens per parameter; "
        "refit does\n");
  return {};
}

}  // namespace

void add_plan(CommandLine& line) {
  Command command =
      line.command("plan", "Chinchilla-optimal model size and tokens for a compute budget, and the days they take");
  const auto call = std::make_shared<PlanCall>();
  command.option("--flop", call->flop, "compute budget [FLOP]", {.type = "NUMBER"});
  command.option("--params", call->params, "parameters: 7e9, 7B", {.type = "NUMBER"});
  command.option("--tokens", call->tokens, "training tokens: 1.4e12, 1.4T", {.type = "NUMBER"});
  command.option("--gpu", call->gpu, "device for the days", {.type = "GPU"});
  command.option("--gpus", call->gpus, "how many of them", {.between = kFromOne});
  command.option("--mfu", call->mfu, "MFU: 0.4 or 40%", {.type = "NUMBER"});
  command.option("--dtype", call->dtype, "dtype of the matmul operands", {.type = "DTYPE"});
  command.option("--constants", call->constants,
                 "refit (arXiv:2404.10102, the default) or hoffmann (arXiv:2203.15556, as rounded in print)",
                 {.one_of = {"hoffmann", "refit"}});
  command.option("--e", call->e, "irreducible loss E", {.between = {0.0, 100.0}});
  command.option("--a", call->a, "A", {.between = kAboveZero});
  command.option("--b", call->b, "B", {.between = kAboveZero});
  command.option("--alpha", call->alpha, "alpha", {.between = {0.01, 10.0}});
  command.option("--beta", call->beta, "beta", {.between = {0.01, 10.0}});
  command.flag("--json", call->json, "JSON, a contract");
  command.footer({"mfu plan --flop 1e24 --gpu H100 --gpus 512 --mfu 0.4", "mfu plan --params 7B --json",
                  "mfu plan --params 8B --tokens 15T --constants hoffmann"},
                 "0; 1 when there is no such plan");
  command.action([call] {
    bool failed = false;
    const Result<void> done = make_plan(*call, failed);
    return done ? 0 : say_error("plan", done.error().message, failed ? 1 : kUsageError);
  });
}

}  // namespace mfu

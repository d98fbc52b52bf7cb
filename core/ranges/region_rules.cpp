#include "core/ranges/region_rules.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "core/ranges/digit_dependence.h"

namespace mfu {
namespace {

struct KeyName {
  std::string_view name;
  std::size_t key;
};

/// Words of a range name and group names of a rule. The short forms are part of the documented grammar.
constexpr KeyName kKeyNames[] = {
    {"batch", ShapeWords::kBatch},
    {"b", ShapeWords::kBatch},
    {"bs", ShapeWords::kBatch},
    {"seq_len", ShapeWords::kSeqLen},
    {"s", ShapeWords::kSeqLen},
    {"context", ShapeWords::kContext},
    {"ctx", ShapeWords::kContext},
    {"new_tokens", ShapeWords::kNewTokens},
    {"n", ShapeWords::kNewTokens},
    {"tokens", ShapeWords::kTokens},
    {"tok", ShapeWords::kTokens},
    {"gen_batch", ShapeWords::kGenBatch},
    {"gen_tokens", ShapeWords::kGenTokens},
    {"ctx_context", ShapeWords::kCtxContext},
};

std::array<RegionId, 6> passes_with_layers(const RegionRules::DetectedIds& ids) noexcept {
  return {ids.forward, ids.backward, ids.eval, ids.prefill, ids.decode, ids.mixed};
}

bool find_key(std::string_view word, std::size_t& key) noexcept {
  for (const KeyName& k : kKeyNames) {
    if (k.name.size() == word.size() && k.name.front() == word.front() && k.name == word) {
      key = k.key;
      return true;
    }
  }
  return false;
}

constexpr auto kWordChars = [] {
  std::array<bool, 256> is{};
  for (const char c : std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"))
    is[static_cast<unsigned char>(c)] = true;
  return is;
}();
bool is_word_char(char c) noexcept { return kWordChars[static_cast<unsigned char>(c)]; }

/// Reads a non-negative integer at the start of `text`. False when there is none or it does not fit.
bool read_integer(std::string_view text, std::int64_t& value) noexcept {
  std::size_t digits = 0;
  value = 0;
  for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9' && digits < 18; ++digits)
    value = value * 10 + (text[digits] - '0');
  if (digits != 0 && digits < 18) return true;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end != text.data() && value >= 0;
}

/// `key=value` words anywhere in the name.
void read_words(std::string_view name, ShapeWords& shape) noexcept {
  for (std::size_t at = name.find('='); at != std::string_view::npos; at = name.find('=', at + 1)) {
    std::size_t begin = at;
    while (begin > 0 && is_word_char(name[begin - 1])) --begin;
    std::size_t key = 0;
    std::int64_t value = 0;
    if (find_key(name.substr(begin, at - begin), key) && read_integer(name.substr(at + 1), value))
      shape.set(key, value);
  }
}

struct BuiltIn {
  const char* pack;
  const char* region;
  const char* match;
};

/// The pack that has to be named: where DeepSpeed runs, whole steps are known without its ranges.
constexpr const char* kOnlyAsked = "deepspeed";

// The names that frameworks emit (README.md: which version which), and those of hand-written annotations. A rule comes
// before a more general one. A plain character follows each number, so that digits do not matter (digit_dependence).
#define MFU_TAIL R"((?:[ ,;:\[\(\{].*)?)"
#define MFU_XLA R"((?:TSL:)?XlaModule:#(?:prefix=.*,)?hlo_module=p?(?:jit|map)_)"
constexpr BuiltIn kBuiltIn[] = {
    // torch.profiler.
    {"pytorch", "step", R"(ProfilerStep#\d+)" MFU_TAIL},
    // vLLM's worker: requests that are new (their prefill), and those that are not (their decode) ...
    {"vllm", "mixed", R"(execute_new_(?P<ctx_batch>\d+)_cached_(?P<gen_batch>\d+))"},
    // ... requests and tokens of both; some builds add the sum of their squares ...
    {"vllm", "mixed",
     R"(execute_context_(?P<ctx_batch>\d+)\((?P<ctx_tokens>\d+)\)_generation_(?P<gen_batch>\d+)\((?P<gen_tokens>\d+)\).*)"},
    {"vllm", "mixed",
     R"(execute_context_(?P<ctx_batch>\d+)\((?P<ctx_tokens>\d+)_\d+\)_generation_(?P<gen_batch>\d+)\((?P<gen_tokens>\d+).*)"},
    // ... with `detailed_trace_annotation`: sq new tokens and sk keys, summed over the sequences.
    {"vllm", "mixed",
     R"(execute_\d+_context_(?P<ctx_batch>\d+)\(sq(?P<ctx_tokens>\d+)sk(?P<ctx_keys>\d+)sqsq\d+sqsk\d+\)_generation_(?P<gen_batch>\d+)\(sq(?P<gen_tokens>\d+)sk(?P<gen_keys>\d+).*)"},
    // SGLang's model runner: the mode of the batch, its requests and new tokens; with `roofline_annotations` the keys.
    {"sglang", "decode", R"(decode\[bs=(?P<batch>\d+)\].*)"},
    {"sglang", "mixed",
     R"(step\[(?:(?:decode|DECODE) bs=(?P<gen_batch>\d+)\]|DECODE bs=(?P<gen_batch>\d+) g_sqsq=\d+ g_sqsk=\d+ g_sk=(?P<gen_keys>\d+)\]|(?:prefill|EXTEND) bs=(?P<ctx_batch>\d+) toks=(?P<ctx_tokens>\d+)\]|EXTEND bs=(?P<ctx_batch>\d+) toks=(?P<ctx_tokens>\d+) c_sqsq=\d+ c_sqsk=\d+ c_sk=(?P<ctx_keys>\d+)\]|mixed bs=(?P<batch>\d+) ext=(?P<ctx_tokens>\d+) dec=(?P<gen_batch>\d+)\]|MIXED bs=\d+ c=(?P<ctx_batch>\d+) g=(?P<gen_batch>\d+) c_sq=(?P<ctx_tokens>\d+) c_sk=(?P<ctx_keys>\d+) .* g_sq=(?P<gen_tokens>\d+) g_sk=(?P<gen_keys>\d+) .*))"},
    {"sglang", "prefill", R"(step\[(?:EXTEND|SPLIT_PREFILL) .*)"},
    {"sglang", "mixed", R"(step\[MIXED .*)"},
    {"sglang", "verification", R"(step\[TARGET_VERIFY .*)"},
    {"sglang", "draft", R"(step\[DRAFT_EXTEND.*)"},
    {"sglang", "idle_pass", R"(step\[(?:idle|IDLE|PREBUILT).*)"},
    // TensorRT-LLM's executors, in Python and in C++.
    {"tensorrt_llm", "mixed",
     R"((?:\[Executor\] )?(?:_forward_step \d+: |executeStep: )(?P<ctx_batch>\d+) ctx reqs, (?:(?P<ctx_tokens>\d+) ctx tokens, )?(?P<gen_batch>\d+) gen reqs(?:, (?P<ctx_tokens>\d+) ctx tokens)?.*)"},
    // Megatron-LM's dynamic engine.
    {"megatron", "prefill", R"(Prefill)"},
    {"megatron", "decode", R"(Decode)"},
    // DeepSpeed's engine, for each micro-step (deepspeed/utils/nvtx.py names a range by its function).
    {kOnlyAsked, "forward", R"(DeepSpeedEngine\.forward)"},
    {kOnlyAsked, "backward", R"(DeepSpeedEngine\.backward)"},
    {kOnlyAsked, "optimizer", R"(DeepSpeedEngine\.step)"},
    // XLA's executables, as jax.jit and pmap name them by the function. While it tunes, a module has no program_id.
    {"jax", "eval", MFU_XLA R"((?:.*_)?eval.*,program_id=.*)"},
    {"jax", "prefill", MFU_XLA R"((?:.*_)?prefill.*,program_id=.*)"},
    {"jax", "decode", MFU_XLA R"((?:.*_)?decode.*,program_id=.*)"},
    {"jax", "step", MFU_XLA R"((?:(?:.*_)?(?:train|step).*|_?update(?:_fn|_params)?),program_id=.*)"},
    {"generic", "step",
     R"((?:(?:(?:train|training|global)_)?step|(?:train_|training_)?iter(?:ation)?)(?:[ _#:]*\d+)?)" MFU_TAIL},
    {"generic", "prefill", R"((?:LLM@)?prefill(?:_batch|_step|_all)?(?:[ _#:]*\d+)?)" MFU_TAIL},
    {"generic", "decode", R"((?:LLM@)?decode(?:_batch|_step|_all)?(?:[ _#:]*\d+)?)" MFU_TAIL},
    {"generic", "mixed", R"(mixed_batch)" MFU_TAIL},
};
#undef MFU_TAIL
#undef MFU_XLA

/// The expressions of kBuiltIn, compiled once: a program that replays a trace makes rules for each of its processes.
/// nullptr: there was no memory to.
const Regex* built_in_regex(std::size_t i) noexcept {
  static const std::vector<Regex>* const all = []() noexcept -> const std::vector<Regex>* {
    try {
      auto made = std::make_unique<std::vector<Regex>>();
      for (const BuiltIn& b : kBuiltIn) {
        Result<Regex> regex = Regex::compile(b.match, Regex::Where::kWhole);
        if (!regex) return nullptr;
        made->push_back(std::move(*regex));
      }
      return made.release();  // never destroyed: rules may still be asked while the process exits
    } catch (...) {
      return nullptr;
    }
  }();
  return all == nullptr ? nullptr : &(*all)[i];
}

}  // namespace

struct RegionRules::Rule {
  explicit Rule(Regex r) : regex(std::move(r)) {}

  Regex regex;
  /// Names on which the expression gave up; kStrikes of them and the rule is asked no more. [any thread]
  mutable std::atomic<std::uint32_t> strikes{0};
  bool said = false;  ///< take_dropped reported it
  std::string match;  ///< the expression, for messages
  RegionId region = RegionId::kNone;
  std::string domain;
  bool any_domain = true;
  std::size_t payload_key = ShapeWords::kTokens;
  Shape constants;
  struct Group {
    std::uint32_t number;
    std::size_t key;
  };
  std::vector<Group> groups;
  std::vector<std::uint32_t> ctx_batch, ctx_tokens, ctx_keys,
      gen_keys;  ///< group numbers; several when a name may stand in two places
  bool of_framework = false;
  /// Group numbers, 0: none. The tokens that all sequences attend to, new ones included.
  bool by_counts = false;  ///< ctx_batch and gen_batch choose among the three below
  RegionId prefill = RegionId::kNone, decode = RegionId::kNone, mixed = RegionId::kNone;
};

ShapeWords shape_of_words(std::string_view name) noexcept {
  ShapeWords shape;
  read_words(name, shape);
  return shape;
}

Phase phase_of_region(std::string_view region) noexcept {
  if (region == "step") return Phase::kTrain;
  if (region == "prefill") return Phase::kPrefill;
  if (region == "decode") return Phase::kDecode;
  if (region == "mixed") return Phase::kMixed;
  if (region == "vision") return Phase::kVision;
  return Phase::kNone;
}

RegionId RegionRules::region_named(const std::string& name, Phase phase) {
  for (std::size_t i = 0; i < regions_.size(); ++i) {
    if (regions_[i].name != name) continue;
    // A forward or backward of the user's own has times only, unless its rule says more.
    if (regions_[i].phase == Phase::kNone && phase != Phase::kForward && phase != Phase::kBackward)
      regions_[i].phase = phase;
    return static_cast<RegionId>(i);
  }
  regions_.push_back({name, phase});
  return static_cast<RegionId>(regions_.size() - 1);
}

bool RegionRules::add(const RegionRule& config, const Regex* compiled, std::string* why) {
  constexpr std::size_t kMaxRules = 256;  // of the config
  if (compiled == nullptr && rules_.size() >= kMaxRules) {
    *why = "more than 256 rules";
    return false;
  }
  Result<Regex> regex = compiled != nullptr ? *compiled : Regex::compile(config.match, Regex::Where::kWhole);
  if (!regex) {
    *why = regex.error().message;
    return false;
  }
  auto made = std::make_unique<Rule>(std::move(*regex));
  Rule& rule = *made;
  rule.match = config.match;
  rule.any_domain = !config.domain.has_value();
  rule.domain = config.domain.value_or("");
  rule.constants = config.constants;
  if (config.payload && !find_key(*config.payload, rule.payload_key)) {
    *why = "payload: expected batch, seq_len, context, new_tokens or tokens, got \"" + *config.payload + "\"";
    return false;
  }
  rule.region = region_named(config.region, config.phase.value_or(phase_of_region(config.region)));

  bool gen_batch = false;
  for (const auto& [name, number] : rule.regex.groups()) {
    std::size_t key = 0;
    if (name == "ctx_batch") {
      rule.ctx_batch.push_back(number);
    } else if (name == "ctx_tokens") {
      rule.ctx_tokens.push_back(number);
    } else if (name == "ctx_keys") {
      rule.ctx_keys.push_back(number);
    } else if (name == "gen_keys") {
      rule.gen_keys.push_back(number);
    } else if (find_key(name, key)) {
      rule.groups.push_back({number, key});
      gen_batch = gen_batch || key == ShapeWords::kGenBatch;
    }
  }
  rule.by_counts = !rule.ctx_batch.empty() && gen_batch;
  if (rule.by_counts) {
    rule.prefill = region_named("prefill", Phase::kPrefill);
    rule.decode = region_named("decode", Phase::kDecode);
    rule.mixed = rule.region;
  }
  digits_do_not_matter_ = digits_do_not_matter_ && !depends_on_digits(config.match);
  region_of_rule_.push_back(rule.region);
  rules_.push_back(std::move(made));
  return true;
}

RegionRules::RegionRules(const std::vector<RegionRule>& rules, const std::vector<std::string>& presets,
                         std::vector<std::string>& warnings, bool layers) {
  for (std::size_t i = 0; i < rules.size(); ++i) {
    std::string why;
    if (!add(rules[i], nullptr, &why))
      warnings.push_back("regions[" + std::to_string(i) + "]: " + why + "; this rule is left out");
  }
  configured_ = rules_.size();
  for (const std::string& preset : presets) {
    bool known = preset == "generic";
    for (const BuiltIn& b : kBuiltIn) known = known || preset == b.pack;
    if (!known)
      warnings.push_back(
          "presets: expected generic, pytorch, vllm, sglang, tensorrt_llm, megatron, deepspeed or jax, got \"" +
          preset + "\"; ignored");
  }
  for (std::size_t i = 0; i < std::size(kBuiltIn); ++i) {
    const BuiltIn& b = kBuiltIn[i];
    bool wanted = (presets.empty() && std::string_view(b.pack) != kOnlyAsked) || std::string_view(b.pack) == "generic";
    for (const std::string& preset : presets) wanted = wanted || preset == b.pack;
    if (!wanted) continue;
    RegionRule config;
    config.region = b.region;
    config.match = b.match;
    if (config.region == "backward") config.phase = Phase::kBackward;
    if (config.region == "eval" || config.region == "forward")
      config.phase = Phase::kForward;  // as where an interpreter reports it
    std::string why;
    if (add(config, built_in_regex(i), &why))
      rules_.back()->of_framework = std::string_view(b.pack) != "generic";
    else
      warnings.push_back(std::string("built-in rule for ") + b.region + ": " + why);
  }
  detected_.step = region_named("step", Phase::kTrain);
  detected_.decode = region_named("decode", Phase::kDecode);
  // Their kernels are the same, and a pass with few sequences that decode is nearly all prefill.
  detected_.prefill_or_mixed = region_named("prefill_or_mixed", Phase::kPrefill);
  detected_.iteration = region_named("iteration", Phase::kNone);
  detected_.forward = region_named("forward", Phase::kForward);
  detected_.backward = region_named("backward", Phase::kBackward);
  detected_.optimizer = region_named("optimizer", Phase::kNone);
  detected_.eval = region_named("eval", Phase::kForward);
  detected_.prefill = region_named("prefill", Phase::kPrefill);
  detected_.mixed = region_named("mixed", Phase::kMixed);
  if (layers) add_layers();
}

RegionRules::~RegionRules() = default;

void RegionRules::add_layers() {
  first_of_layers_ = regions_.size();
  for (const RegionId pass : passes_with_layers(detected_))
    for (std::uint32_t layer = 0; layer <= kMostLayers; ++layer)
      regions_.push_back({(layer == 0 ? "outside of layers" : "layer " + std::to_string(layer - 1)) +
                          (pass == detected_.forward ? "" : " " + regions_[raw(pass)].name)});
}

RegionId RegionRules::layer_in(RegionId pass, std::uint32_t layer) const noexcept {
  const auto passes = passes_with_layers(detected_);
  const auto at = static_cast<std::size_t>(std::find(passes.begin(), passes.end(), pass) - passes.begin());
  if (first_of_layers_ == 0 || layer > kMostLayers || at == passes.size()) return RegionId::kNone;
  return static_cast<RegionId>(first_of_layers_ + at * (kMostLayers + 1) + layer);
}

RuleId RegionRules::rule_of_region(RegionId region) const noexcept {
  for (std::size_t i = 0; i < configured_; ++i)
    if (rules_[i]->region == region) return static_cast<RuleId>(i);
  return RuleId::kNone;
}

bool RegionRules::is_of_framework(RuleId rule) const noexcept {
  return raw(rule) < rules_.size() && rules_[raw(rule)]->of_framework;
}

/// The rest of the steps that one name may take. Most matches end within kFirst steps, which are not counted; an
/// expression that needs more gets them from what is left for the name, in growing portions, and gives up when there is
/// nothing left.
class RegionRules::Budget {
 public:
  [[nodiscard]] Regex::Outcome match(const Regex& regex, std::string_view name,
                                     Regex::Groups* groups = nullptr) noexcept {
    for (std::uint32_t steps = kFirst;; steps *= 8) {
      const Regex::Outcome outcome = regex.match(name, steps, groups);
      if (outcome != Regex::Outcome::kGaveUp || steps * 8 > left_) return outcome;
      left_ -= steps * 8;
    }
  }

 private:
  static constexpr std::uint32_t kFirst = 256;
  std::uint32_t left_ = kStepsPerName;
};

RuleId RegionRules::match(std::string_view domain, std::string_view name) const noexcept {
  Budget budget;
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    const Rule& rule = *rules_[i];
    if (!rule.any_domain && rule.domain != domain) continue;
    if (rule.strikes.load(std::memory_order_relaxed) >= kStrikes) continue;
    const Regex::Outcome outcome = budget.match(rule.regex, name);
    if (outcome == Regex::Outcome::kMatch) return static_cast<RuleId>(i);
    if (outcome == Regex::Outcome::kGaveUp && rule.strikes.fetch_add(1, std::memory_order_relaxed) + 1 == kStrikes)
      dropped_.fetch_add(1, std::memory_order_release);  // pairs with take_dropped
  }
  return RuleId::kNone;
}

std::vector<std::string> RegionRules::take_dropped() {
  std::vector<std::string> lines;
  if (dropped_.load(std::memory_order_acquire) == dropped_said_) return lines;
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    Rule& rule = *rules_[i];
    if (rule.said || rule.strikes.load(std::memory_order_relaxed) < kStrikes) continue;
    rule.said = true;
    ++dropped_said_;
    lines.push_back("regions[" + std::to_string(i) + "]: \"" + rule.match.substr(0, 100) +
                    "\" takes too many steps on the names it meets; this rule is dropped");
  }
  return lines;
}

bool RegionRules::gives_shape(RuleId id, std::string_view name) const noexcept {
  const Rule& rule = *rules_[raw(id)];
  return rule.by_counts || !rule.groups.empty() || name.find('=') != std::string_view::npos;
}

RegionOpening RegionRules::open(RuleId id, std::string_view name, const double* payload) const noexcept {
  const Rule& rule = *rules_[raw(id)];
  RegionOpening opening;
  opening.region = rule.region;
  opening.rule = id;
  if (!rule.by_counts) read_words(name, opening.shape);  // there the numbers of one kind are not those of all
  if (!rule.groups.empty() || rule.by_counts) {
    Regex::Groups texts;
    if (Budget().match(rule.regex, name, &texts) == Regex::Outcome::kMatch) {
      const auto value_of = [&texts](std::uint32_t group, std::int64_t& value) {
        return read_integer(texts[group], value);
      };
      std::int64_t value = 0;
      if (rule.by_counts) {
        std::int64_t all = 0, ctx_batch = -1, gen_batch = 0, gen_tokens = -1, ctx_tokens = -1;
        for (const std::uint32_t g : rule.ctx_batch)
          if (value_of(g, value)) ctx_batch = value;
        for (const std::uint32_t g : rule.ctx_tokens)
          if (value_of(g, value)) ctx_tokens = value;
        for (const Rule::Group& g : rule.groups) {
          if (!value_of(g.number, value)) continue;
          if (g.key == ShapeWords::kBatch) all = value;
          if (g.key == ShapeWords::kGenBatch) gen_batch = value;
          if (g.key == ShapeWords::kGenTokens) gen_tokens = value;
        }
        if (ctx_batch < 0) ctx_batch = std::max<std::int64_t>(0, all - gen_batch);
        opening.region = ctx_batch == 0 ? rule.decode : gen_batch == 0 ? rule.prefill : rule.mixed;
        // The mean context of the sequences of each kind, since FLOP of attention add up with it.
        const std::int64_t gen_fed = gen_tokens >= 0 ? gen_tokens : gen_batch;
        const auto set_context = [&](std::size_t key, const std::vector<std::uint32_t>& groups, std::int64_t sequences,
                                     std::int64_t fed) {
          for (const std::uint32_t keys : groups)
            if (sequences > 0 && fed >= 0 && value_of(keys, value) && value >= fed)
              opening.shape.set(key, (value - fed + sequences / 2) / sequences);
        };
        set_context(gen_batch > 0 ? ShapeWords::kCtxContext : ShapeWords::kContext, rule.ctx_keys, ctx_batch,
                    ctx_tokens);
        set_context(ShapeWords::kContext, rule.gen_keys, gen_batch, gen_fed);
        if (ctx_batch == 0) {
          opening.shape.set(ShapeWords::kBatch, gen_batch);
          if (gen_tokens >= 0)
            opening.shape.set(gen_tokens == gen_batch ? ShapeWords::kTokens : ShapeWords::kGenTokens, gen_tokens);
        } else {
          opening.shape.set(ShapeWords::kBatch, ctx_batch);
          if (ctx_tokens >= 0) opening.shape.set(ShapeWords::kTokens, ctx_tokens);
          if (gen_batch > 0) opening.shape.set(ShapeWords::kGenBatch, gen_batch);
          if (gen_batch > 0 && gen_tokens >= 0) opening.shape.set(ShapeWords::kGenTokens, gen_tokens);
        }
      } else {
        for (const Rule::Group& g : rule.groups)
          if (value_of(g.number, value)) opening.shape.set(g.key, value);
      }
    }
  }
  if (rule.by_counts) read_words(name, opening.shape);
  if (payload != nullptr && std::isfinite(*payload) && *payload >= 0 && *payload < 9.0e18)
    opening.shape.set(rule.payload_key, static_cast<std::int64_t>(*payload));
  return opening;
}

const Shape& RegionRules::constants(RuleId rule) const noexcept {
  static const Shape kNoConstants;
  return raw(rule) < rules_.size() ? rules_[raw(rule)]->constants : kNoConstants;
}

}  // namespace mfu

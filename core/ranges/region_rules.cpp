#include "core/ranges/region_rules.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <charconv>
#include <cmath>
#include <limits>

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
};

bool find_key(std::string_view word, std::size_t& key) noexcept {
  for (const KeyName& k : kKeyNames) {
    if (k.name == word) {
      key = k.key;
      return true;
    }
  }
  return false;
}

constexpr bool is_word_char(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// Reads a non-negative integer at the start of `text`. False when there is none or it does not fit.
bool read_integer(std::string_view text, std::int64_t& value) noexcept {
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

/// Match data for pcre2_match, which may run on any host thread: taken from here, put back after. Nothing to lock.
class MatchDataPool {
 public:
  pcre2_match_data* take() noexcept {
    for (auto& slot : slots_)
      if (pcre2_match_data* data = slot.exchange(nullptr, std::memory_order_acquire)) return data;
    return pcre2_match_data_create(kPairs, nullptr);
  }
  void put(pcre2_match_data* data) noexcept {
    for (auto& slot : slots_) {
      pcre2_match_data* none = nullptr;
      if (slot.compare_exchange_strong(none, data, std::memory_order_release, std::memory_order_relaxed)) return;
    }
    pcre2_match_data_free(data);
  }
  static constexpr std::uint32_t kPairs = 32;

 private:
  std::array<std::atomic<pcre2_match_data*>, 16> slots_{};
};

MatchDataPool& pool() noexcept {
  static MatchDataPool instance;
  return instance;
}

pcre2_match_context* match_limits() noexcept {
  static pcre2_match_context* const limits = [] {
    pcre2_match_context* c = pcre2_match_context_create(nullptr);
    if (c != nullptr) {
      pcre2_set_match_limit(c, 20'000);  // about 100 us: a pathological expression gives up and does not match
      pcre2_set_heap_limit(c, 256);      // KiB
    }
    return c;
  }();
  return limits;
}

/// Whether which names an expression matches can depend on the value or the number of their digits. False only for
/// expressions simple enough to be sure: letters and punctuation, groups, alternatives, classes of neither digits nor
/// ranges, `.*`, and `\d+` or `[0-9]+` that no other `\d+` can touch. Everything else is taken to depend on them, which
/// costs a miss per name and no more.
bool depends_on_digits(std::string_view expression) noexcept {
  constexpr std::string_view kRepeats = "*+?{";
  std::size_t i = 0;
  const auto next_is = [&](std::string_view text) { return expression.substr(i, text.size()) == text; };
  bool after_digits = false;  // a `\d+` may be what stands right before
  struct Group {
    bool at_open, at_ends;  ///< after_digits where it opened, and after any of its alternatives
  };
  std::array<Group, 32> groups{};  // [0]: the expression itself
  std::size_t depth = 0;
  while (i < expression.size()) {
    const char c = expression[i];
    if (next_is("(?P<") || next_is("(?<")) {  // a named group; `(?<=` and `(?<!` look behind
      const std::size_t end = expression.find('>', i);
      if (next_is("(?<=") || next_is("(?<!") || end == std::string_view::npos) return true;
      i = end;
    } else if (next_is("(?:")) {
      i += 2;
    } else if (next_is("(?") || next_is("(*")) {
      return true;
    }
    if (c == '(') {
      ++i;
      if (++depth == groups.size()) return true;
      groups[depth] = {after_digits, false};
      continue;
    }
    Group& group = groups[depth];
    if (c == '|') {
      ++i;
      group.at_ends = group.at_ends || after_digits;
      after_digits = group.at_open;
      continue;
    }
    if (c == ')') {
      ++i;
      if (depth-- == 0) return true;
      after_digits = after_digits || group.at_ends;
      if (i < expression.size() && (expression[i] == '*' || expression[i] == '+' || expression[i] == '{')) return true;
      if (i < expression.size() && expression[i] == '?') {
        ++i;
        after_digits = after_digits || group.at_open;
        if (i < expression.size() && kRepeats.find(expression[i]) != std::string_view::npos) return true;
      }
      continue;
    }
    std::size_t width = 1;
    bool digits = false;
    if (next_is("\\d")) {
      digits = true;
      width = 2;
    } else if (next_is("[0-9]")) {
      digits = true;
      width = 5;
    } else if (next_is(".*")) {
      i += 2;
      if (i < expression.size() && kRepeats.find(expression[i]) != std::string_view::npos) return true;
      continue;
    } else if (c == '\\') {
      if (i + 1 >= expression.size() || is_word_char(expression[i + 1])) return true;  // \w, \b, \1 ...
      width = 2;
    } else if (c == '[') {
      std::size_t end = i + 1;
      for (; end < expression.size() && (expression[end] != ']' || end == i + 1); ++end) {
        const char m = expression[end];
        if ((m >= '0' && m <= '9') || m == '-' || m == '[' || m == '^') return true;
        if (m == '\\' && (++end >= expression.size() || is_word_char(expression[end]))) return true;
      }
      if (end >= expression.size()) return true;
      width = end + 1 - i;
    } else if (c == '.' || c == '^' || c == '$' || c == '{' || (c >= '0' && c <= '9')) {
      return true;
    }
    i += width;
    const char repeat = i < expression.size() ? expression[i] : '\0';
    if (repeat == '{') return true;
    const bool repeated = repeat == '*' || repeat == '+' || repeat == '?';
    if (repeated) ++i;
    if (repeated && i < expression.size() && kRepeats.find(expression[i]) != std::string_view::npos) return true;
    if (digits) {
      if (repeat != '+' || after_digits) return true;
      after_digits = true;
    } else if (repeat != '*' && repeat != '?') {
      after_digits = false;  // something that is no digit stands in between for certain
    }
  }
  return false;
}

struct BuiltIn {
  const char* pack;
  const char* region;
  const char* match;
};

// What frameworks and hand-written annotations emit. The sources are the frameworks' own code:
// torch.profiler (ProfilerStep#N), vLLM's worker annotation, SGLang's decode[bs=N], TensorRT-LLM's executor
// (_forward_step and executeStep), Megatron-LM's dynamic engine (Prefill, Decode).
#define MFU_TAIL R"((?:[ ,;:\[\(\{].*)?)"
constexpr BuiltIn kBuiltIn[] = {
    {"generic", "step",
     R"((?:(?:(?:train|training|global)_)?step|(?:train_|training_)?iter(?:ation)?)(?:[ _#:]*\d+)?)" MFU_TAIL},
    {"generic", "prefill", R"((?:LLM@)?prefill(?:_batch|_step|_all)?(?:[ _#:]*\d+)?)" MFU_TAIL},
    {"sglang", "decode", R"(decode\[bs=(?P<batch>\d+)\].*)"},
    {"generic", "decode", R"((?:LLM@)?decode(?:_batch|_step|_all)?(?:[ _#:]*\d+)?)" MFU_TAIL},
    {"generic", "mixed", R"(mixed_batch)" MFU_TAIL},
    {"pytorch", "step", R"(ProfilerStep#\d+)" MFU_TAIL},
    {"vllm", "mixed",
     R"(execute_context_(?P<ctx_batch>\d+)\((?P<ctx_tokens>\d+)\)_generation_(?P<gen_batch>\d+)\((?P<gen_tokens>\d+)\).*)"},
    {"tensorrt_llm", "mixed",
     R"((?:\[Executor\] )?(?:_forward_step \d+|executeStep): (?P<ctx_batch>\d+) ctx reqs, (?:(?P<ctx_tokens>\d+) ctx tokens, )?(?P<gen_batch>\d+) gen reqs(?:, (?P<ctx_tokens>\d+) ctx tokens)?.*)"},
    {"megatron", "prefill", R"(Prefill)"},
    {"megatron", "decode", R"(Decode)"},
};
#undef MFU_TAIL

}  // namespace

struct RegionRules::Rule {
  RegionId region = RegionId::kNone;
  pcre2_code* code = nullptr;
  std::string domain;
  bool any_domain = true;
  std::size_t payload_key = ShapeWords::kTokens;
  Shape constants;
  struct Group {
    std::uint32_t number;
    std::size_t key;
  };
  std::vector<Group> groups;
  std::vector<std::uint32_t> ctx_batch, ctx_tokens;  ///< group numbers; several when a name may stand in two places
  bool of_framework = false;
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

bool RegionRules::add(const RegionRule& config, std::string* why) {
  constexpr std::size_t kMaxRules = 256;
  if (rules_.size() >= kMaxRules) {
    *why = "more than 256 rules";
    return false;
  }
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(config.match.data()), config.match.size(),
                    PCRE2_ANCHORED | PCRE2_ENDANCHORED | PCRE2_DUPNAMES | PCRE2_DOTALL, &error, &offset, nullptr);
  if (code == nullptr) {
    std::array<unsigned char, 128> text{};
    pcre2_get_error_message(error, text.data(), text.size());
    *why = "expected a regular expression, got \"" + config.match +
           "\": " + reinterpret_cast<const char*>(text.data()) + " at character " + std::to_string(offset);
    return false;
  }
  Rule rule;
  rule.code = code;
  rule.any_domain = !config.domain.has_value();
  rule.domain = config.domain.value_or("");
  rule.constants = config.constants;
  if (config.payload && !find_key(*config.payload, rule.payload_key)) {
    *why = "payload: expected batch, seq_len, context, new_tokens or tokens, got \"" + *config.payload + "\"";
    pcre2_code_free(code);
    return false;
  }
  rule.region = region_named(config.region, config.phase.value_or(phase_of_region(config.region)));

  std::uint32_t names = 0, entry_size = 0;
  PCRE2_SPTR table = nullptr;
  pcre2_pattern_info(code, PCRE2_INFO_NAMECOUNT, &names);
  pcre2_pattern_info(code, PCRE2_INFO_NAMEENTRYSIZE, &entry_size);
  pcre2_pattern_info(code, PCRE2_INFO_NAMETABLE, &table);
  bool gen_batch = false;
  for (std::uint32_t i = 0; i < names; ++i, table += entry_size) {
    const std::uint32_t number = (static_cast<std::uint32_t>(table[0]) << 8) | table[1];
    const std::string_view name(reinterpret_cast<const char*>(table + 2));
    std::size_t key = 0;
    if (name == "ctx_batch") {
      rule.ctx_batch.push_back(number);
    } else if (name == "ctx_tokens") {
      rule.ctx_tokens.push_back(number);
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
  rules_.push_back(std::move(rule));
  return true;
}

RegionRules::RegionRules(const std::vector<RegionRule>& rules, const std::vector<std::string>& presets,
                         std::vector<std::string>& warnings) {
  (void)match_limits();  // built here, not on a host thread
  for (std::size_t i = 0; i < rules.size(); ++i) {
    std::string why;
    if (!add(rules[i], &why))
      warnings.push_back("regions[" + std::to_string(i) + "]: " + why + "; this rule is left out");
  }
  configured_ = rules_.size();
  for (const std::string& preset : presets) {
    bool known = preset == "generic";
    for (const BuiltIn& b : kBuiltIn) known = known || preset == b.pack;
    if (!known)
      warnings.push_back("presets: expected generic, pytorch, vllm, sglang, tensorrt_llm or megatron, got \"" + preset +
                         "\"; ignored");
  }
  for (const BuiltIn& b : kBuiltIn) {
    bool wanted = presets.empty() || std::string_view(b.pack) == "generic";
    for (const std::string& preset : presets) wanted = wanted || preset == b.pack;
    if (!wanted) continue;
    RegionRule config;
    config.region = b.region;
    config.match = b.match;
    // The built-in expressions use digits in \d+ only; their literal digits would be a mistake of ours.
    std::string why;
    if (add(config, &why))
      rules_.back().of_framework = std::string_view(b.pack) != "generic";
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
}

RegionRules::~RegionRules() {
  for (Rule& rule : rules_) pcre2_code_free(rule.code);
}

RuleId RegionRules::rule_of_region(RegionId region) const noexcept {
  for (std::size_t i = 0; i < configured_; ++i)
    if (rules_[i].region == region) return static_cast<RuleId>(i);
  return RuleId::kNone;
}

bool RegionRules::is_of_framework(RuleId rule) const noexcept {
  return raw(rule) < rules_.size() && rules_[raw(rule)].of_framework;
}

RuleId RegionRules::match(std::string_view domain, std::string_view name) const noexcept {
  pcre2_match_data* data = pool().take();
  if (data == nullptr) return RuleId::kNone;
  RuleId found = RuleId::kNone;
  for (std::size_t i = 0; i < rules_.size() && found == RuleId::kNone; ++i) {
    const Rule& rule = rules_[i];
    if (!rule.any_domain && rule.domain != domain) continue;
    if (pcre2_match(rule.code, reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, 0, data, match_limits()) >= 0)
      found = static_cast<RuleId>(i);
  }
  pool().put(data);
  return found;
}

RegionOpening RegionRules::open(RuleId id, std::string_view name, const double* payload) const noexcept {
  const Rule& rule = rules_[raw(id)];
  RegionOpening opening;
  opening.region = rule.region;
  opening.rule = id;
  read_words(name, opening.shape);
  if (!rule.groups.empty() || rule.by_counts) {
    if (pcre2_match_data* data = pool().take()) {
      const int pairs =
          pcre2_match(rule.code, reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, 0, data, match_limits());
      const PCRE2_SIZE* at = pcre2_get_ovector_pointer(data);
      const auto value_of = [&](std::uint32_t group, std::int64_t& value) {
        return pairs >= 0 && group < static_cast<std::uint32_t>(pairs) && at[2 * group] != PCRE2_UNSET &&
               read_integer(name.substr(at[2 * group], at[2 * group + 1] - at[2 * group]), value);
      };
      std::int64_t value = 0;
      if (rule.by_counts) {
        std::int64_t ctx_batch = 0, gen_batch = 0, gen_tokens = -1, ctx_tokens = -1;
        for (const std::uint32_t g : rule.ctx_batch)
          if (value_of(g, value)) ctx_batch = value;
        for (const std::uint32_t g : rule.ctx_tokens)
          if (value_of(g, value)) ctx_tokens = value;
        for (const Rule::Group& g : rule.groups) {
          if (!value_of(g.number, value)) continue;
          if (g.key == ShapeWords::kGenBatch) gen_batch = value;
          if (g.key == ShapeWords::kGenTokens) gen_tokens = value;
        }
        opening.region = ctx_batch == 0 ? rule.decode : gen_batch == 0 ? rule.prefill : rule.mixed;
        if (ctx_batch == 0) {
          opening.shape.set(ShapeWords::kBatch, gen_batch);
          if (gen_tokens >= 0) opening.shape.set(ShapeWords::kTokens, gen_tokens);
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
      pool().put(data);
    }
  }
  if (payload != nullptr && std::isfinite(*payload) && *payload >= 0 && *payload < 9.0e18)
    opening.shape.set(rule.payload_key, static_cast<std::int64_t>(*payload));
  return opening;
}

const Shape& RegionRules::constants(RuleId rule) const noexcept {
  static const Shape kNoConstants;
  return raw(rule) < rules_.size() ? rules_[raw(rule)].constants : kNoConstants;
}

}  // namespace mfu

// Which ranges are instances of which region: the config's rules first, then the built-in packs.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/ids.h"
#include "core/base/regex.h"
#include "core/base/shape.h"
#include "core/ranges/region_opening.h"

namespace mfu {

/// One entry of the config's `regions`: which NVTX ranges are instances of which region.
struct RegionRule {
  std::string region;  ///< `step`, `prefill`, `decode` or a name of the user's own
  /// PCRE2 regular expression over the whole range name, anchored at both ends; `(?!)`, which matches none, where the
  /// config gives none: then the rule is about detected instances only.
  std::string match;
  std::optional<std::string> domain;   ///< NVTX domain name; absent: any domain
  std::optional<std::string> payload;  ///< the shape key that the range's numeric payload sets; absent: `tokens`
  std::optional<Phase> phase;          ///< absent: by region name (step: train, prefill, decode, vision), else kNone
  Shape constants;                     ///< shape values that hold for every instance of the rule
};

/// An ordered list of rules; the first whose expression matches the whole name (and whose domain fits) decides.
/// Expressions are PCRE2. All of them together take at most kStepsPerName steps on one name (and 256 each, which are
/// not counted), so bad ones cost less than a millisecond per new name, and one that gives up on kStrikes names is
/// dropped. Named groups set shape values: batch, seq_len, context, new_tokens, tokens (or b, s, ctx, n, tok),
/// gen_batch and gen_tokens. A rule that names ctx_batch and gen_batch decides by them whether a pass was prefill,
/// decode or mixed; where the name has no ctx_batch, it is batch - gen_batch.
class RegionRules {
 public:
  static constexpr std::uint32_t kStepsPerName = 40'000;  ///< some 200 us
  static constexpr std::uint32_t kStrikes = 3;
  static constexpr std::uint32_t kMostLayers = 256;

  struct Region {
    std::string name;
    Phase phase = Phase::kNone;
  };

  /// Regions that the step detector names where no range does.
  struct DetectedIds {
    RegionId step, decode, prefill_or_mixed, iteration;
    RegionId forward, backward, optimizer;  ///< inside a step
    RegionId eval, prefill, mixed;          ///< where an interpreter reports passes
  };

  /// Compiles `rules` and the built-in packs named in `presets` (empty: all; `generic` is always among them). A rule
  /// that cannot be used is left out, with one line in `warnings` that says why. `layers`: regions for the layers of a
  /// model, `layer 3`, `layer 3 backward`, `layer 3 decode`, and for the rest of a pass.
  RegionRules(const std::vector<RegionRule>& rules, const std::vector<std::string>& presets,
              std::vector<std::string>& warnings, bool layers = false);
  ~RegionRules();
  RegionRules(const RegionRules&) = delete;
  RegionRules& operator=(const RegionRules&) = delete;

  /// [any thread] The first rule that matches; kNone when none does. Microseconds: cache the answer (RuleCache).
  [[nodiscard]] RuleId match(std::string_view domain, std::string_view name) const noexcept;
  /// [any thread] Region and shape of a range whose name matched `rule`: `key=value` words of the name, then named
  /// groups; of a rule with counts the other way round. `payload` is the range's numeric payload, nullptr without one.
  [[nodiscard]] RegionOpening open(RuleId rule, std::string_view name, const double* payload) const noexcept;
  /// [mfu-drain] A line for each rule that was dropped since the last call.
  [[nodiscard]] std::vector<std::string> take_dropped();
  /// True when the digits of a name can never decide which rule matches, so that names which differ in them only may
  /// share an answer.
  /// Whether the name of such a range can say a shape. A payload can in any case.
  [[nodiscard]] bool gives_shape(RuleId rule, std::string_view name) const noexcept;
  [[nodiscard]] RegionId region_of(RuleId rule) const noexcept { return region_of_rule_[raw(rule)]; }
  [[nodiscard]] bool digits_do_not_matter() const noexcept { return digits_do_not_matter_; }

  [[nodiscard]] const std::vector<Region>& regions() const noexcept { return regions_; }
  [[nodiscard]] const DetectedIds& detected() const noexcept { return detected_; }
  /// The region of a layer, from 1 on, in passes of the region `pass`; 0: outside of layers. kNone: there is none.
  [[nodiscard]] RegionId layer_in(RegionId pass, std::uint32_t layer) const noexcept;
  /// The first of the config's rules for a region, whose constants hold for it without a range too; kNone: no rule.
  [[nodiscard]] RuleId rule_of_region(RegionId region) const noexcept;
  /// One of the config's own.
  [[nodiscard]] bool is_of_config(RuleId rule) const noexcept {
    return static_cast<std::size_t>(raw(rule)) < configured_;
  }
  /// A built-in rule for what one framework emits by itself, not for what people write.
  [[nodiscard]] bool is_of_framework(RuleId rule) const noexcept;
  /// Constants of a rule: shape values for every instance that does not say itself.
  [[nodiscard]] const Shape& constants(RuleId rule) const noexcept;

 private:
  struct Rule;
  class Budget;
  void add_layers();
  RegionId region_named(const std::string& name, Phase phase);
  /// \param compiled the expression, where it was compiled before; else nullptr
  bool add(const RegionRule& config, const Regex* compiled, std::string* why);

  std::vector<std::unique_ptr<Rule>> rules_;
  std::vector<RegionId> region_of_rule_;
  mutable std::atomic<std::uint32_t> dropped_{0};  ///< rules that reached kStrikes
  std::uint32_t dropped_said_ = 0;
  std::vector<Region> regions_;
  DetectedIds detected_{};
  std::size_t configured_ = 0;       ///< rules_ before this one are the config's
  std::size_t first_of_layers_ = 0;  ///< in regions_; 0: there are none
  bool digits_do_not_matter_ = true;
};

/// Shape values of the `key=value` words in a range's name.
[[nodiscard]] ShapeWords shape_of_words(std::string_view name) noexcept;

/// Phase of a region by its name, where its rule says none: step > train, prefill, decode, mixed, vision; else kNone.
[[nodiscard]] Phase phase_of_region(std::string_view region) noexcept;

}  // namespace mfu

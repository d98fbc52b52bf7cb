// Any lines as rules and names: the first half of the lines are rules (`region<TAB>expression`), the others names that
// they are asked about. No crash, no endless search, and a shape within its bounds.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/ranges/region_rules.h"
#include "core/ranges/rule_cache.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> lines;
  while (!text.empty() && lines.size() < 40) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    lines.emplace_back(line);
  }
  std::vector<mfu::RegionRule> rules;
  for (std::size_t i = 0; i < lines.size() / 2; ++i) {
    const std::size_t tab = lines[i].find('\t');
    mfu::RegionRule rule;
    rule.region = tab == std::string::npos ? "step" : lines[i].substr(0, tab);
    rule.match = tab == std::string::npos ? lines[i] : lines[i].substr(tab + 1);
    rules.push_back(std::move(rule));
  }
  std::vector<std::string> warnings;
  const mfu::RegionRules compiled(rules, {}, warnings);
  const auto cache = std::make_unique<mfu::RuleCache>(compiled);
  for (std::size_t i = lines.size() / 2; i < lines.size(); ++i) {
    const std::string_view name = mfu::RuleCache::cut(lines[i].c_str());
    const mfu::RuleId rule = cache->kind_of(mfu::DomainId{}, "", name).rule;
    if (rule == mfu::RuleId::kNone) continue;
    const double payload = 1e300;
    const mfu::RegionOpening opening = compiled.open(rule, name, i % 2 != 0 ? &payload : nullptr);
    require(raw(opening.region) < compiled.regions().size());
  }
  return 0;
}

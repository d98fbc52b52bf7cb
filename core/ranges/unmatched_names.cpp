#include "core/ranges/unmatched_names.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "core/base/printable.h"

namespace mfu {
namespace {

/// Domains of ranges that no program chose to emit.
constexpr std::string_view kLibraryDomains[] = {"NCCL",    "NVSHMEM", "CCCL", "CUB",    "cub",   "thrust",
                                                "libcudf", "librmm",  "DALI", "cuFile", "cuDNN", "cuBLAS",
                                                "nvJPEG",  "nvCOMP",  "cuVS", "RAFT"};

/// Names that frameworks open by themselves around parts of a step, or while they compile.
constexpr std::string_view kFrameworkNames[] = {
    "nccl:",          "Optimizer.", "## ",     "FSDP::",
    "autograd::",     "TSL:",       "Thunk:#", "PyTorch Profiler",
    "Torch-Compiled", "DeepSpeed",  "Init.",   "PartitionedParameterCoordinator."};
constexpr std::string_view kXla = "Xla", kXlaRuns = "XlaModule:#";  ///< passes of its compiler; executables that run

/// A region that the FLOP counts know, where a name says one; else nothing.
std::string_view known_region(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {{"prefill", "prefill"}, {"decode", "decode"},
                                                                      {"generat", "decode"},  {"step", "step"},
                                                                      {"iter", "step"},       {"train", "step"}};
  const std::string small = lower_case(name);
  for (const auto& [word, region] : kWords)
    if (small.find(word) != std::string::npos) return region;
  return "";
}

/// The words that a name begins with, up to what may differ from range to range.
std::string_view stem(std::string_view name) {
  std::size_t end = 0;
  while (end < name.size() && (std::isalpha(static_cast<unsigned char>(name[end])) != 0 ||
                               std::string_view("_.:@-/").find(name[end]) != std::string_view::npos))
    ++end;
  return name.substr(0, end);
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    // Twice: once for the expression, once for JSON.
    if (std::string_view("\\^$.|?*+()[]{}").find(c) != std::string_view::npos) out += "\\\\";
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

void UnmatchedNames::add(std::string_view domain, std::string_view name) noexcept {
  if (name.empty() || taken_.load(std::memory_order_relaxed) >= kKept) return;
  if (std::find(std::begin(kLibraryDomains), std::end(kLibraryDomains), domain) != std::end(kLibraryDomains)) return;
  for (const std::string_view begin : kFrameworkNames)
    if (name.starts_with(begin)) return;
  if (name.starts_with(kXla) && !name.starts_with(kXlaRuns)) return;
  const std::size_t at = taken_.fetch_add(1, std::memory_order_relaxed);
  if (at >= kKept) return;
  Slot& slot = slots_[at];
  slot.length = std::min(name.size(), kLength);
  std::memcpy(slot.text.data(), name.data(), slot.length);
  slot.ready.store(true, std::memory_order_release);
}

std::vector<std::string> UnmatchedNames::names() const {
  std::vector<std::string> names;
  for (const Slot& slot : slots_) {
    if (!slot.ready.load(std::memory_order_acquire)) continue;
    std::string name(slot.text.data(), slot.length);
    for (char& c : name)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
  }
  return names;
}

std::string proposed_rule(std::string_view name) {
  // An executable of XLA: by the function that was compiled.
  constexpr std::string_view kModule = "hlo_module=jit_";
  if (const std::size_t at = name.find(kModule); name.starts_with(kXlaRuns) && at != std::string_view::npos) {
    const std::string_view rest = name.substr(at + kModule.size());
    const std::string function(rest.substr(0, rest.find(',')));
    return "{\"region\": \"" + function + "\", \"match\": \".*hlo_module=jit_" + escaped(function) + ",.*\"}";
  }
  const std::string_view begins = stem(name);
  std::string region(known_region(name));
  for (const char c : region.empty() ? lower_case(begins) : std::string())
    region += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  while (region.ends_with('_')) region.pop_back();
  if (region.empty()) region = "step";
  const std::string match = begins.size() == name.size() ? escaped(name) : escaped(begins) + ".*";
  return "{\"region\": \"" + region + "\", \"match\": \"" + match + "\"}";
}

std::string no_ranges_notice(bool any_seen, const std::vector<RegionRule>& rules) {
  std::string waiting;
  std::size_t shown = 0;
  for (const RegionRule& rule : rules) {
    if (rule.match == "(?!)" || ++shown > 2) continue;
    waiting += (waiting.empty() ? "\"" : ", \"") + rule.match.substr(0, 24) + (rule.match.size() > 24 ? "...\"" : "\"");
  }
  if (any_seen || shown == 0) return "";
  return "no NVTX range came so far, and rules of the config wait for " + waiting + (shown > 2 ? ", ..." : "");
}

std::string unmatched_notice(const UnmatchedNames& seen, const std::vector<RegionRule>& rules) {
  std::vector<const RegionRule*> own;
  for (const RegionRule& rule : rules)
    if (rule.match != "(?!)") own.push_back(&rule);
  const std::vector<std::string> names = seen.names();
  if (names.empty() || (own.empty() ? seen.any_matched() : seen.own_matched())) return "";
  constexpr std::size_t kShown = 3;
  std::string text =
      own.empty() ? "no NVTX range is a region; seen: " : "no rule of the config matches a range; seen: ";
  for (std::size_t i = 0; i < std::min(kShown, names.size()); ++i)
    text += (i == 0 ? "\"" : ", \"") + names[i].substr(0, 48) + (names[i].size() > 48 ? "...\"" : "\"");
  if (names.size() > kShown) text += ", ...";
  for (std::size_t i = 0; i < std::min(kShown, own.size()); ++i)
    text += (i == 0 ? "; not matched by \"" : ", \"") + own[i]->match.substr(0, 48) + "\"";
  // The likeliest: one that says a phase of the model.
  const auto best = std::find_if(names.begin(), names.end(), [](const auto& n) { return !known_region(n).empty(); });
  return text + "; try this in \"regions\": " + proposed_rule(best != names.end() ? *best : names.front());
}

}  // namespace mfu

#include "injection/cupti_ladder.h"

namespace mfu {

CuptiRung climb_cupti_ladder(const Config& config, const CuptiParts& parts) {
  CuptiRung rung;
  std::string tried;
  const auto note = [&tried](const std::string& why) { tried += (tried.empty() ? "" : "; ") + why; };
  const auto stay = [&rung](const char* level, std::string text) {
    rung.level = level;
    rung.event_kind = level;
    rung.text = std::move(text);
    return rung;
  };
  bool slot_taken = false, no_driver = false;
  for (const CuptiCandidate& candidate : cupti_candidates(config.cupti_path)) {
    auto api = open_cupti(candidate);
    if (!api) {
      // The system's names are tried one after another; only the first says something new.
      if (candidate.path.find('/') != std::string::npos || tried.empty()) note(api.error().message);
      continue;
    }
    const CuptiLevel level = config.profiler == ProfilerPolicy::kShare ? CuptiLevel::kShare : CuptiLevel::kFull;
    auto* session = new CuptiSession(*api, parts.live, parts.names, parts.contexts, parts.queue, parts.counters,
                                     parts.on_first_use, parts.on_buffer);
    std::string why;
    const CuptiSession::Failure failure = session->start(level, why);
    if (failure == CuptiSession::Failure::kNone) {
      rung.session = session;
      rung.level = level == CuptiLevel::kFull ? "full" : "share";
      rung.path = api->path;
      rung.version = api->version;
      return rung;
    }
    note(api->path + " (" + cupti_version_text(api->version) + "): " + why);
    if (failure == CuptiSession::Failure::kForbidden) return stay("inert", "CUPTI may not be used here: " + tried);
    if (failure == CuptiSession::Failure::kSlotTaken) {
      slot_taken = true;
      break;
    }
    no_driver = failure == CuptiSession::Failure::kNoDriver;
    // If the host mapped this copy, no other is tried. A copy that accepted part of our setup stays loaded, so trying a
    // second would leave two CUPTIs in the process.
    if (candidate.host_mapped || !no_driver) break;
  }
  if (no_driver) return stay("inert", "CUPTI finds no driver that it can use: " + tried);
  if (slot_taken)
    return stay("ranges", "another tool holds CUPTI (" + tried + "): it keeps it; measuring the ranges' times only");
  return stay("ranges", "no CUPTI to work with (" + tried +
                            "): measuring the ranges' times only; set MFU_CUPTI to a libcupti.so");
}

}  // namespace mfu

#include "injection/entry/cupti_ladder.h"

#include <sys/stat.h>

#include "cuda/coexistence.h"
#include "cuda/cupti_versions.h"
#include "cuda/device.h"

namespace mfu {
namespace {

/// Level `share` leaves CUPTI's settings to another profiler, which may want a graph's nodes, and sees no graph built.
bool whole_graphs(GraphTracing wanted, CuptiLevel level) {
  return wanted == GraphTracing::kGraph || (wanted == GraphTracing::kAuto && level == CuptiLevel::kFull);
}

}  // namespace

bool uses_mps(const EnvironmentCopy& environment) {
  if (environment.find("MFU_PROFILER") != nullptr) return false;  // traced all the same
  if (const char* pipes = environment.find("CUDA_MPS_PIPE_DIRECTORY"); pipes != nullptr) return *pipes != '\0';
  struct ::stat info {};
  return ::stat("/tmp/nvidia-mps/control", &info) == 0;
}

CuptiRung climb_cupti_ladder(const Config& config, const CuptiParts& parts) {
  CuptiRung rung;
  std::string tried, absent;
  const auto note = [&tried](const std::string& why) { tried += (tried.empty() ? "" : "; ") + why; };
  const auto stay = [&rung](const char* level, std::string text) {
    rung.level = level;
    rung.event_kind = level;
    rung.text = std::move(text);
    return rung;
  };
  bool slot_taken = false;
  std::vector<CuptiCandidate> candidates = cupti_candidates(config.cupti_path);
  const std::size_t known = candidates.size();  // known to be bad, so the next one is tried first
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const CuptiCandidate candidate = candidates[i];
    CuptiOpening opening = CuptiOpening::kUnusable;
    auto api = open_cupti(candidate, &opening);
    if (!api) {
      rung.no_driver = rung.no_driver || opening == CuptiOpening::kNoDriver;
      if (opening != CuptiOpening::kAbsent || candidate.path.find('/') != std::string::npos)
        note(api.error().message);
      else if (absent.empty())  // the system's names are tried one after another: one of them is enough to say
        absent = api.error().message;
      continue;
    }
    const CuptiDefect* defect = cupti_defect(api->version, CuptiRemedy::kOtherCopy);
    if (defect != nullptr && !candidate.host_mapped && i < known && known > 1) {
      candidates.push_back(candidate);
      continue;
    }
    if (parts.mps && (api->version < 130000 || mapped_driver_version() < 13000))
      return stay(
          coexistence_with(OtherProfiler::kMps).level,
          "MPS is in use: with CUPTI or a driver older than CUDA 13.0 cooperative kernels can hang while they are "
          "traced; measuring the ranges' times only (MFU_PROFILER=own traces all the same)");
    const CuptiLevel level = config.profiler == ProfilerPolicy::kShare ? CuptiLevel::kShare : CuptiLevel::kFull;
    auto* session = new CuptiSession(*api, parts.live, parts.names, parts.contexts, parts.queue, parts.counters,
                                     parts.on_first_use, parts.on_buffer);
    std::string why;
    const CuptiSession::Failure failure =
        session->start(level, whole_graphs(config.graphs, level), config.cupti_v2, why);
    if (failure == CuptiSession::Failure::kNone) {
      if (config.graphs == GraphTracing::kAuto && session->whole_graphs()) session->follow_graphs();
      rung.session = session;
      rung.level = level == CuptiLevel::kFull ? "full" : coexistence_with(OtherProfiler::kShared).level;
      rung.path = api->path;
      rung.version = api->version;
      if (defect != nullptr) {
        rung.event_kind = "cupti";
        rung.text = std::string(defect->what) + " (" + api->path + "): use a newer one if you can";
      } else if (config.cupti_v2 && !session->own_forms()) {
        rung.event_kind = "cupti";
        rung.text =
            "MFU_CUPTI_V2=1: this CUPTI cannot have several subscribers here (13.3 or newer can): we are its only one";
      } else if (config.graphs == GraphTracing::kGraph && !session->whole_graphs()) {
        rung.event_kind = "cupti";
        rung.text = "MFU_GRAPHS=graph: this CUPTI cannot (11.7 or newer can): every node of a graph is traced";
      }
      return rung;
    }
    note(api->path + " (" + cupti_version_text(api->version) + "): " + why);
    if (failure == CuptiSession::Failure::kForbidden) return stay("inert", "CUPTI may not be used here: " + tried);
    if (failure == CuptiSession::Failure::kSlotTaken) {
      slot_taken = true;
      break;
    }
    const bool refused = failure != CuptiSession::Failure::kNoDriver;
    rung.no_driver = !refused;
    // If the host mapped this copy, no other is tried. A copy that accepted part of our setup stays loaded, so trying a
    // second would leave two CUPTIs in the process.
    if (candidate.host_mapped || refused) break;
  }
  if (tried.empty()) tried = absent;
  if (rung.no_driver) return stay("inert", "CUPTI finds no driver that it can use: " + tried);
  if (slot_taken)
    return stay(coexistence_with(OtherProfiler::kSlotHolder).level,
                "another tool holds CUPTI (" + tried + "): it keeps it; measuring the ranges' times only");
  return stay("ranges", "no CUPTI to work with (" + tried +
                            "): measuring the ranges' times only; set MFU_CUPTI to a libcupti.so");
}

}  // namespace mfu

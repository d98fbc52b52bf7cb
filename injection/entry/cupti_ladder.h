// From everything that CUPTI can give down to nothing: the first rung that holds.
#pragma once

#include <string>

#include "core/base/environment.h"
#include "core/config/config.h"
#include "cuda/cupti_session.h"

namespace mfu {

/// Arguments of CuptiSession.
struct CuptiParts {
  const HostLinks& live;
  KernelNames& names;
  ContextDevices& contexts;
  RecordQueue& queue;
  Counters& counters;
  void (*on_first_use)();
  void (*on_buffer)();
  bool mps;  ///< uses_mps()
};

/// The level at which the library works for the rest of the process.
struct CuptiRung {
  CuptiSession* session = nullptr;  ///< leaked: callbacks may come until the process is gone
  std::string level = "ranges";     ///< `full`, `share`, `ranges` or `inert`
  std::string path;                 ///< of libcupti
  std::uint32_t version = 0;        ///< cuptiGetVersion()
  std::string event_kind, text;     ///< one line of why there is less than everything; empty: nothing to say
  bool no_driver = false;           ///< CUPTI finds no driver that it can use; the level is inert
};

/// Whether this process is a client of MPS, by what its clients look for themselves; false where MFU_PROFILER says to
/// trace all the same.
[[nodiscard]] bool uses_mps(const EnvironmentCopy& environment);

/// [inside cuInit] Tries the candidates for libcupti one after the other. No thread, no driver call but
/// cuDriverGetVersion, and no call to a libcupti whose version is not known to be safe with this driver.
[[nodiscard]] CuptiRung climb_cupti_ladder(const Config& config, const CuptiParts& parts);

}  // namespace mfu

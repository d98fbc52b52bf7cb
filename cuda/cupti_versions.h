// Known defects of CUPTI versions, as data, and which version may be called at all.
#pragma once

#include <cstdint>
#include <string>

namespace mfu {

/// The library's answer to a defect.
enum class CuptiRemedy : std::uint8_t {
  kOtherCopy,       ///< another candidate is taken where there is one; the host's own copy is used all the same
  kSayIfNoRecords,  ///< named when launches are made and no record ever comes
  kSayIfUntimed,    ///< named when records come without times
};

struct CuptiDefect {
  std::uint32_t first, last;  ///< cuptiGetVersion(), both included
  CuptiRemedy remedy;
  const char* what;  ///< one clause
};

/// Source: NVIDIA's release notes of CUPTI 12.5 Update 1, 13.1, 13.3 and 13.0 Update 1; that 13.2 overflows the stack
/// was seen with 13.2.23, 13.2.75 and 13.2.86 without a driver.
inline constexpr CuptiDefect kCuptiDefects[] = {
    {22, 22, CuptiRemedy::kSayIfNoRecords, "CUPTI 12.4 Update 1 traces no kernels"},
    {24, 130099, CuptiRemedy::kSayIfUntimed,
     "CUPTI 12.6 Update 2 to 13.0 writes no times once any client has registered a clock of its own, as Kineto does"},
    {0, 130299, CuptiRemedy::kSayIfUntimed,
     "CUPTI before 13.3 does not give back the device buffers of CUDA graphs: use 13.3 or newer"},
    {130000, 130000, CuptiRemedy::kOtherCopy,
     "CUPTI 13.0 (before Update 1) can crash in cuptiActivityFlushAll and in long runs of CUDA graphs"},
    {130200, 130202, CuptiRemedy::kOtherCopy,
     "CUPTI 13.2 overflows the stack when it cannot initialise, and becomes slower with the number of calls"},
};

/// The first defect of `version` with this remedy; nullptr: none is known.
[[nodiscard]] constexpr const CuptiDefect* cupti_defect(std::uint32_t version, CuptiRemedy remedy) noexcept {
  for (const CuptiDefect& defect : kCuptiDefects)
    if (defect.remedy == remedy && version >= defect.first && version <= defect.last) return &defect;
  return nullptr;
}

/// Facts about a libcupti that need no call of it.
struct CuptiTraits {
  bool is_13_2 = false;  ///< exports what came with 13.2 and not what came with 13.3
  int cuda_major = 0;    ///< from its SONAME or file name; 0: not known
  bool host_mapped = false;
};

/// Why this libcupti must not be called with a driver of this version (cuDriverGetVersion, 13000 for 13.0; 0: unknown);
/// empty: it may be. 13.2 dies inside any call, cuptiGetVersion too, when it cannot initialise: it needs a driver of
/// its own release, or one of CUDA 13 where the host itself has chosen this copy.
[[nodiscard]] std::string unfit_cupti(const CuptiTraits& cupti, int driver_version);

}  // namespace mfu

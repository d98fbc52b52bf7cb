#include "cuda/cupti_versions.h"

namespace mfu {

std::string unfit_cupti(const CuptiTraits& cupti, int driver_version) {
  const std::string driver = driver_version == 0 ? std::string("there is no driver")
                                                 : "the driver is for CUDA " + std::to_string(driver_version / 1000) +
                                                       "." + std::to_string(driver_version % 1000 / 10);
  if (cupti.is_13_2) {
    const int needed = cupti.host_mapped ? 13000 : 13020;
    if (driver_version < needed)
      return "is CUPTI 13.2, which overflows the stack where it cannot initialise, and " + driver;
  }
  if (driver_version != 0 && cupti.cuda_major > driver_version / 1000)
    return "is CUPTI for CUDA " + std::to_string(cupti.cuda_major) + ", and " + driver;
  return "";
}

}  // namespace mfu

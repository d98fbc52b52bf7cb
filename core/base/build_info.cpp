#include "core/base/build_info.h"

namespace mfu {

std::string_view build_commit() noexcept { return MFU_COMMIT; }

}  // namespace mfu

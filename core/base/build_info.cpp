#include "core/base/build_info.h"

namespace mfu {

std::string_view build_commit() noexcept { return MFU_COMMIT; }

std::string_view build_kind() noexcept { return MFU_BUILD_KIND; }

}  // namespace mfu

// Finished runs as TensorBoard event files.
#pragma once

#include <string>
#include <vector>

#include "core/base/result.h"
#include "tools/run_dir/run_history.h"

namespace mfu {

/// The files that MFU_TB_DIR would have made: `<dir>/<host>-<rank>-<pid>/events.out.tfevents.*` per history; one that
/// is there already is made anew. \return the paths written; histories without a window give none. The Error names what
/// cannot be written, and why.
[[nodiscard]] Result<std::vector<std::string>> write_tensorboard(const std::vector<RunHistory>& histories,
                                                                 const std::string& directory);

}  // namespace mfu

// The blocks of a config file, read into a Config.
#pragma once

#include <vector>

#include "core/config/config.h"
#include "core/config/config_document.h"
#include "core/config/overrides.h"
#include "core/config/problem.h"

namespace mfu {

/// Reads every block of the document. A mistake becomes a problem and leaves its default; a model that cannot be
/// read becomes a kNoModel. \param overrides those that were written into the document: messages name them instead of
/// the file
void read_config_file(const ConfigDocument& document, const std::vector<Override>& overrides, Config& config,
                      FlopsOptions& options, std::vector<Problem>* problems);

}  // namespace mfu

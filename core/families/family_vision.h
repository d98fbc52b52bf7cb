// Vision towers by the rows of the family table. The names that they define: bases.families.
#pragma once

#include "core/families/row_values.h"
#include "core/model/architecture.h"

namespace mfu {

/// The tower that the definitions describe; a key that is missing becomes a problem of the fields.
VisionSpec tower_of(RowValues& definitions);

/// Adds the matrices that turn a tower's output into tokens, and their parameters.
void add_projector(RowValues& definitions, VisionSpec& tower);

}  // namespace mfu

// What the rows of the family table say of a vision tower. The names that they define: family_bases.h.
#pragma once

#include "core/families/expression.h"
#include "core/model/architecture.h"

namespace mfu {

/// The tower that the definitions describe; a key that is missing becomes a problem of the fields.
VisionSpec tower_of(Expressions& definitions);

/// Adds the matrices that turn a tower's output into tokens, and their parameters.
void add_projector(Expressions& definitions, VisionSpec& tower);

}  // namespace mfu

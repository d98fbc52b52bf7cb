// Families that no row of the table can say: each is built by code of its own. Internal to the readers of core/model.
#pragma once

#include <string_view>
#include <vector>

#include "core/base/json_fields.h"
#include "core/families/family_rows.h"
#include "core/model/architecture.h"

namespace mfu {

/// True if `model_type` is built here.
[[nodiscard]] bool is_special(std::string_view model_type) noexcept;
[[nodiscard]] std::vector<std::string_view> special_types();

void build_special(std::string_view model_type, const Fields& f, ModelHead head, Architecture& spec);

/// EAGLE-3's draft head: one layer that sees the hidden state beside the embedding, three of the target's states in, an
/// output matrix of its own vocabulary (arXiv:2503.01840 and its published code). The embedding is the target's.
void read_eagle3(const Fields& f, Architecture& spec);

}  // namespace mfu

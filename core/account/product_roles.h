// What each distinct product of the process is of the model; what each attention kernel's name says.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/attribution/product_table.h"
#include "core/base/ids.h"
#include "core/base/product.h"
#include "core/kernels/attention_grid.h"
#include "core/kernels/kernel_names.h"
#include "core/model/component_names.h"
#include "core/model/flops_model.h"

namespace mfu {

/// [mfu-drain] Worked out once for each product and each name. 64 B per product that ran.
class ProductRoles {
 public:
  struct Role {
    Product product;
    ComponentNames::Match match;
    bool is_attention = false;  ///< a batch of products for the heads of attention, and not for experts
  };

  /// \param model nullptr: products have no names.
  ProductRoles(const FlopsModel* model, KernelNames& kernels) : model_(model), kernels_(kernels) {
    if (model != nullptr) names_ = ComponentNames::of(model->spec(), model->options().parallel.tp);
  }
  void watch(const ProductTable& products) noexcept { products_ = &products; }
  [[nodiscard]] bool watched() const noexcept { return products_ != nullptr; }

  [[nodiscard]] Role of(ProductId id);
  [[nodiscard]] const AttentionKernel& attention(KernelNameId id);
  [[nodiscard]] const ComponentNames& names() const noexcept { return names_; }
  [[nodiscard]] bool has_model() const noexcept { return model_ != nullptr; }

 private:
  const FlopsModel* model_;
  KernelNames& kernels_;
  const ProductTable* products_ = nullptr;
  ComponentNames names_;
  WeightLayout layout_ = WeightLayout::kOutByIn;
  std::unordered_map<std::uint32_t, Role> roles_;          ///< by ProductId, which are spread over their whole range
  std::vector<std::optional<AttentionKernel>> attention_;  ///< by KernelNameId
};

}  // namespace mfu

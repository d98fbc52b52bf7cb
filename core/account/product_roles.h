// The role of each distinct product of the process in the model, and the reading of each attention kernel's name.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/account/attention_launch.h"
#include "core/attribution/product_table.h"
#include "core/base/ids.h"
#include "core/base/product.h"
#include "core/kernels/attention_grid.h"
#include "core/kernels/kernel_names.h"
#include "core/kernels/tile.h"
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
  ProductRoles(const FlopsModel* model, KernelNames& kernels) : kernels_(kernels) {
    if (model != nullptr) names_ = ComponentNames::of(model->spec(), model->options().parallel.tp);
  }
  void watch(const ProductTable& products) noexcept { products_ = &products; }
  [[nodiscard]] bool watched() const noexcept { return products_ != nullptr; }

  /// Good until the next call.
  [[nodiscard]] const Role& of(ProductId id) {
    const Recent& recent = recent_[raw(id) % kRecent];
    return recent.role != nullptr && recent.id == id ? *recent.role : look_up(id);
  }
  [[nodiscard]] const AttentionKernel& attention(KernelNameId id);
  /// A launch of the attention kernel `id`, numbered. \param extent pack(Grid). Good until the next call.
  [[nodiscard]] const AttentionLaunch& attention(KernelNameId id, std::uint64_t extent) {
    const RecentLaunch& recent = recent_launches_[slot_of(id, extent)];
    return recent.launch.number != 0 && recent.id == id && recent.extent == extent ? recent.launch
                                                                                   : look_up(id, extent);
  }
  /// A number for a matmul kernel of this name and pack(Grid). kNone: there are more than kMostForms.
  [[nodiscard]] KernelForm form_of(KernelNameId kernel, std::uint64_t extent) {
    const RecentForm& recent = recent_forms_[slot_of(kernel, extent)];
    return recent.form != KernelForm::kNone && recent.kernel == kernel && recent.extent == extent
               ? recent.form
               : look_up_form(kernel, extent);
  }
  /// How the kernel cuts the work of the product. None: its name does not say it, or it was not noted.
  [[nodiscard]] const std::optional<Tiling>& tiling_of(ProductId id, KernelForm form);
  [[nodiscard]] const ComponentNames& names() const noexcept { return names_; }

 private:
  struct Recent {
    ProductId id = ProductId::kNone;
    const Role* role = nullptr;
  };
  struct RecentLaunch {
    std::uint64_t extent = 0;
    AttentionLaunch launch;
    KernelNameId id{};
  };
  struct RecentForm {
    std::uint64_t extent = 0;
    KernelNameId kernel{};
    KernelForm form = KernelForm::kNone;
  };
  static constexpr std::uint32_t kRecent = 64;
  static constexpr std::size_t kMostForms = 4096;  ///< of 16 B each, and 64 B per product that one of them did
  static constexpr std::size_t kMostNumbered = 64;

  [[nodiscard]] static std::size_t slot_of(KernelNameId id, std::uint64_t extent) noexcept {
    constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;  // 2^64 / golden ratio: Knuth, TAOCP volume 3, section 6.4
    return static_cast<std::size_t>(((extent + raw(id)) * kGolden) >> 58);
  }
  static_assert(kRecent == 1u << (64 - 58));
  [[nodiscard]] const Role& look_up(ProductId id);
  [[nodiscard]] const AttentionLaunch& look_up(KernelNameId id, std::uint64_t extent);
  [[nodiscard]] KernelForm look_up_form(KernelNameId kernel, std::uint64_t extent);

  KernelNames& kernels_;
  const ProductTable* products_ = nullptr;
  ComponentNames names_;
  WeightLayout layout_ = WeightLayout::kOutByIn;
  std::unordered_map<std::uint32_t, Role> roles_;          ///< by ProductId, which are spread over their whole range
  std::array<Recent, kRecent> recent_{};                   ///< into roles_
  std::vector<std::optional<AttentionKernel>> attention_;  ///< by KernelNameId
  std::array<RecentLaunch, kRecent> recent_launches_{};
  std::vector<AttentionLaunch> numbered_;  ///< the latest ones
  std::uint32_t last_number_ = 0;
  std::array<RecentForm, kRecent> recent_forms_{};
  std::vector<std::pair<KernelNameId, std::uint64_t>> forms_;                   ///< by KernelForm, from 1
  std::map<std::pair<std::uint64_t, std::uint16_t>, KernelForm> form_numbers_;  ///< by extent and name
  std::unordered_map<std::uint64_t, std::optional<Tiling>> tilings_;            ///< by product and form
};

}  // namespace mfu

#include "core/account/product_roles.h"

#include <algorithm>
#include <string>

namespace mfu {

const ProductRoles::Role& ProductRoles::look_up(ProductId id) {
  static const Role unknown = [] {
    Role role;
    role.product.kind = Product::Kind::kUnsized;
    return role;
  }();
  if (products_ == nullptr || id == ProductId::kNone || raw(id) > ProductTable::kCapacity) return unknown;
  if (const auto known = roles_.find(raw(id)); known != roles_.end()) {
    recent_[raw(id) % kRecent] = {id, &known->second};
    return known->second;
  }
  const std::optional<Product> product = products_->find(id);
  if (!product) return unknown;
  if (layout_ == WeightLayout::kOutByIn && names_.shows_in_by_out(*product)) {
    layout_ = WeightLayout::kInByOut;
    roles_.clear();
    recent_ = {};
  }
  Role role;
  role.product = *product;
  role.match = names_.match(*product, layout_);
  role.is_attention = role.match.weights == ComponentNames::kAttention;
  return roles_.emplace(raw(id), role).first->second;
}

const AttentionKernel& ProductRoles::attention(KernelNameId id) {
  if (attention_.size() <= raw(id)) attention_.resize(raw(id) + 16u);
  std::optional<AttentionKernel>& known = attention_[raw(id)];
  if (!known) known = attention_kernel_of(demangle(std::string(kernels_.raw_name(id))));
  return *known;
}

const AttentionLaunch& ProductRoles::look_up(KernelNameId id, std::uint64_t extent) {
  AttentionLaunch launch(attention(id), unpack_grid(extent));
  const auto same = std::find(numbered_.begin(), numbered_.end(), launch);
  if (same != numbered_.end()) {
    launch.number = same->number;
  } else {
    launch.number = ++last_number_ != 0 ? last_number_ : ++last_number_;
    if (numbered_.size() == kMostNumbered) numbered_.erase(numbered_.begin());
    numbered_.push_back(launch);
  }
  RecentLaunch& recent = recent_launches_[slot_of(id, extent)];
  recent = {extent, launch, id};
  return recent.launch;
}

KernelForm ProductRoles::look_up_form(KernelNameId kernel, std::uint64_t extent) {
  const auto [known, inserted] = form_numbers_.try_emplace({extent, raw(kernel)});
  if (inserted && forms_.size() < kMostForms) {
    forms_.emplace_back(kernel, extent);
    known->second = static_cast<KernelForm>(forms_.size());
  } else if (inserted) {
    form_numbers_.erase(known);
    return KernelForm::kNone;
  }
  recent_forms_[slot_of(kernel, extent)] = {extent, kernel, known->second};
  return known->second;
}

const std::optional<Tiling>& ProductRoles::tiling_of(ProductId id, KernelForm form) {
  static const std::optional<Tiling> unknown;
  const Product& p = of(id).product;
  if (form == KernelForm::kNone || p.kind != Product::Kind::kSized) return unknown;
  const std::uint64_t key = std::uint64_t{raw(id)} << 32 | static_cast<std::uint64_t>(form);
  const auto [known, inserted] = tilings_.try_emplace(key);
  if (inserted) {
    const auto& [kernel, extent] = forms_[static_cast<std::size_t>(form) - 1];
    const ProblemSize problem{static_cast<std::int64_t>(p.m), static_cast<std::int64_t>(p.n),
                              static_cast<std::int64_t>(p.k), p.batch};
    known->second = mfu::tiling_of(demangle(std::string(kernels_.raw_name(kernel))), unpack_grid(extent), problem);
  }
  return known->second;
}

}  // namespace mfu

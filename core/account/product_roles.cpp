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

}  // namespace mfu

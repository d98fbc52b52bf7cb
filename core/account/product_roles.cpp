#include "core/account/product_roles.h"

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

}  // namespace mfu

// How much work an instance is: its shape, FLOP, bytes and tokens.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/account/attention_lengths.h"
#include "core/account/instance.h"
#include "core/account/instance_products.h"
#include "core/account/product_roles.h"
#include "core/account/shape_resolver.h"
#include "core/base/activity_record.h"
#include "core/kernels/kernel_names.h"
#include "core/model/flops_model.h"
#include "core/model/workload.h"
#include "core/ranges/region_rules.h"

namespace mfu {

/// [mfu-drain] Shapes come from ranges, rules, the config and kernels, in that order. Call open and close in the order
/// in which ranges opened and closed: a decode pass takes its context from those before it.
class WorkResolver {
 public:
  /// \param model nullptr: none, so that there are tokens, and no FLOP.
  WorkResolver(const RegionRules& rules, const FlopsModel* model, const Workload& workload, KernelNames& names);

  [[nodiscard]] ProductRoles& roles() noexcept { return roles_; }

  /// Notes in the instance, and in those around it, what a matmul kernel says of its work.
  /// \param instance nullptr: none.
  /// \param fused it is a kernel of attention by its name.
  /// \return the flags of ActivityTraits that the kernel has on account of its product.
  [[nodiscard]] unsigned note_product(const ActivityRecord& record, Instance* instance, bool fused);
  /// The same into `into`, for a kernel that no instance owns yet. No effect without a model.
  void note_matmul(const ActivityRecord& record, InstanceProducts& into);
  /// Their evidence. None without a model.
  [[nodiscard]] SeenShape seen_shape(const InstanceProducts& products, Phase phase) const;

  /// \param detected nullptr: a range opened.
  void open(Instance& instance, const DetectedWork* detected) const;
  /// Its range closed. Where it was detected, or is a part, all of its records have come.
  void close(Instance& instance);
  /// All of its records have come: the values that its range and the config left open, a step's passes, and the FLOP
  /// of its attention kernels. After those inside it.
  void complete(Instance& instance);

  /// A line for the user, once each: regions whose FLOP are unknown and what is missing.
  [[nodiscard]] std::vector<std::string> take_notices() { return std::exchange(notices_, {}); }

 private:
  void resolve(Instance& instance, bool complete);
  void count_work(Instance& instance, Phase phase, const ResolvedShape& resolved, const Shape& from_kernels,
                  bool complete);
  [[nodiscard]] const char* missing_in(const Instance& instance, Phase phase, const ResolvedShape& resolved) const;
  [[nodiscard]] SeenShape seen_shape(const Instance& instance) const;
  [[nodiscard]] Phase phase_that_ran(const Instance& instance);
  void scale_to_passes(Instance& instance, const SeenShape& seen) const;
  void count_attention(Instance& instance);
  void notice_missing(const Instance& instance);
  [[nodiscard]] const FlopsModel* model_of(const Instance& instance) const noexcept {
    return instance.detected().model != nullptr ? instance.detected().model : model_;
  }

  const RegionRules& rules_;
  const FlopsModel* model_;
  const Workload workload_;
  KernelNames& names_;
  ShapeResolver shapes_;
  ProductRoles roles_;
  AttentionLengths attention_lengths_;
  std::vector<std::string> notices_;
  std::vector<bool> noticed_;  ///< by region
  bool forward_only_noticed_ = false;
};

}  // namespace mfu

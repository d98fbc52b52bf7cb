// Layers of a pass by the order of its matrix products, where no interpreter reports them: the i-th product of one size
// is of layer i. In graphs and in compiled code, too. [mfu-drain]
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/account/live_instances.h"
#include "core/base/activity_record.h"
#include "core/ranges/region_rules.h"

namespace mfu {

class Ledger;

/// Where the layers of a pass begin, as indices into its products. The i-th occurrence of a product of one size is of
/// layer i; of one that each layer has n times, number n x i. Empty: most products do not repeat, or layers so found
/// would repeat themselves, as where they are passes.
[[nodiscard]] std::vector<std::size_t> find_layers(std::span<const ProductId> products);

/// Keeps the records of each pass until it is over; then its layers are instances inside it.
class LayerSplitter {
 public:
  static constexpr std::size_t kMostHeld = 1u << 17;  ///< records: 8 MiB

  LayerSplitter(Ledger& ledger, const RegionRules& rules) : ledger_(ledger), rules_(rules) {}

  /// \return it is of a pass and waits
  bool take(const ActivityRecord& record, const Instance& instance, bool first_of_launch);
  /// Gives the Ledger those that are over, or `all`. \return up to where time may go on
  [[nodiscard]] TimeNs release(LiveInstances& live, TimeNs watermark, bool all);

 private:
  struct Held {
    ActivityRecord record;
    bool first_of_launch;
  };
  struct Pass {
    std::vector<Held> held;
    TimeNs begin_ns = 0;    ///< of the earliest
    bool given_up = false;  ///< it lasts too long
  };

  void split(const Instance& pass, std::vector<Held>& held);
  void give(InstanceId owner, std::span<const Held> held);

  Ledger& ledger_;
  const RegionRules& rules_;
  std::map<InstanceId, Pass> passes_;
  std::size_t held_ = 0;
  std::uint32_t next_id_ = 0;
  bool releasing_ = false;
};

}  // namespace mfu

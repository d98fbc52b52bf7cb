// Passes in a program's own ranges, and the backward passes that belong to them. Pure: no clock, no interpreter.
#pragma once

#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include "core/program/program_steps.h"

namespace mfu {

/// Facts in, passes out, as marks of their work with the range that they ran in; a pass comes when it ends. A backward
/// pass (region kBackward) is that of each pass before it that records
/// gradients of parameters, since the last update, whose modules it reached. [one thread]
class RangePasses {
 public:
  static constexpr std::size_t kMost = 1u << 12;  ///< passes without an update that are remembered

  void add(const ProgramFact& fact);
  [[nodiscard]] std::vector<ProgramMark> take() { return std::exchange(found_, {}); }
  void put_back(const ProgramMark& pass) { found_.push_back(pass); }

 private:
  void begin(const ProgramFact& fact);
  void end(const ProgramFact& begin);
  void find(const ProgramFact& pass, ProgramRegion region, InstanceId range);

  std::vector<ProgramFact> begun_;      ///< inner ones last
  std::vector<ProgramFact> untrained_;  ///< their gradients may be computed yet
  std::set<std::uint64_t> not_reached_;
  std::vector<ProgramMark> found_;
};

}  // namespace mfu

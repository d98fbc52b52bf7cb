// Which lines of a process were read, by their `seq`.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace mfu {

/// A set of numbers as ranges: the lines of a file without gaps are one. Beyond kMostRanges, which our writers
/// never make, numbers are taken as new.
class SeqSet {
 public:
  static constexpr std::size_t kMostRanges = 65536;

  /// \return false: it was there.
  bool insert(std::uint64_t seq);
  /// Numbers between the smallest and the largest that are not there.
  [[nodiscard]] std::uint64_t missing() const noexcept;
  /// `5, 8-12`, at most a few; empty: none.
  [[nodiscard]] std::string missing_text() const;

 private:
  std::map<std::uint64_t, std::uint64_t> ranges_;  ///< first > last
};

}  // namespace mfu

// Records of a CSV file (RFC 4180), one at a time.
#pragma once

#include <istream>
#include <string>
#include <vector>

namespace mfu {

class CsvRecords {
 public:
  explicit CsvRecords(std::istream& in) : in_(in) {}
  /// \return false at the end of the file. Quotes may hold line ends; a byte-order mark and empty lines are left out.
  bool next(std::vector<std::string>* fields);

 private:
  std::istream& in_;
};

}  // namespace mfu

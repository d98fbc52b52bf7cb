#include "tools/counters/csv_records.h"

namespace mfu {
namespace {

/// Takes the fields of `line`. \return whether it ends inside quotes; then `fields->back()` is not whole.
bool split(const std::string& line, bool quoted, std::vector<std::string>* fields) {
  if (!quoted) fields->emplace_back();
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"')
      fields->back() += line[++i];
    else if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      fields->emplace_back();
    else
      fields->back() += c;
  }
  return quoted;
}

}  // namespace

bool CsvRecords::next(std::vector<std::string>* fields) {
  fields->clear();
  bool quoted = false;
  for (std::string line; std::getline(in_, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
    if (!quoted && line.empty()) continue;
    if (quoted) fields->back() += '\n';
    quoted = split(line, quoted, fields);
    if (!quoted) return true;
  }
  return !fields->empty();
}

}  // namespace mfu

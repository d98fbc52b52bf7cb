// Any bytes as a file of a run directory: every line an Error or a line, and what is made of the file a job, a live
// rank and each output, whose text no terminal obeys and no spreadsheet takes for a formula.
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tools/job/job_report.h"
#include "tools/job/rank.h"
#include "tools/job/totals.h"
#include "tools/report/escape.h"
#include "tools/report/outputs/csv.h"
#include "tools/report/outputs/markdown.h"
#include "tools/report/outputs/table.h"
#include "tools/run_dir/run_history.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

/// No cell begins as a formula does, unless it is a number.
void require_no_formula(const std::string& csv) {
  for (std::size_t i = 0; i < csv.size(); ++i) {
    bool quoted = csv[i] == '"';
    i += quoted ? 1 : 0;
    std::string cell;
    for (; i < csv.size() && (quoted || (csv[i] != ',' && csv[i] != '\r' && csv[i] != '\n')); ++i) {
      if (csv[i] == '"' && (!quoted || i + 1 == csv.size() || csv[i + 1] != '"')) {
        quoted = false;  // the closing quote
      } else {
        i += csv[i] == '"' ? 1 : 0;  // two stand for one
        cell += csv[i];
      }
    }
    if (cell.empty() || std::string_view("=+-@").find(cell.front()) == std::string_view::npos) continue;
    char* end = nullptr;
    std::strtod(cell.c_str(), &end);
    require(end == cell.c_str() + cell.size());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  mfu::HistoryBuilder builder("fuzz.jsonl");
  mfu::Rank rank;
  mfu::RunLineReader reader;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    mfu::Result<mfu::RunLine> read = reader.read(line);
    if (!read) {
      require(!read.error().message.empty());
      continue;
    }
    mfu::RunLine copy = *read;
    builder.take(std::move(copy));
    rank.take(std::move(*read));
  }
  rank.state = rank.end ? mfu::RankState::kEnded : mfu::RankState::kLive;
  if (rank.run) (void)mfu::job_totals({&rank});
  if (!builder.any()) return 0;
  const mfu::RunHistory history = builder.finish();
  std::ostringstream table;
  mfu::CsvWriter csv(table);
  csv.process(history);
  mfu::JobBuilder job("fuzz", false);
  job.add(history);
  const mfu::Job whole = job.finish();
  csv.finish(whole);
  const std::string cells = table.str();
  for (const char c : cells) require(static_cast<unsigned char>(c) >= 0x20 || c == '\r' || c == '\n');
  require_no_formula(cells);
  const std::string markdown = mfu::job_markdown(whole);
  for (const char c : markdown) require(static_cast<unsigned char>(c) >= 0x20 || c == '\n');
  return mfu::job_text(whole).empty() ? 1 : 0;
}

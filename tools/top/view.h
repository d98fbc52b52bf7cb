// The screen of `mfu top` as text with styles: no terminal is needed to make it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "tools/job/live_job.h"
#include "tools/job/straggler.h"
#include "tools/job/totals.h"

namespace mfu {

enum class Style : std::uint8_t {
  kPlain,
  kBold,
  kDim,
  kHeader,
  kSelected,
  kWarning,
  kMfu,  ///< the six parts of the waterfall, in its order
  kMatmul,
  kOther,
  kComm,
  kMemcpy,
  kIdle,
};

struct Span {
  std::string text;  ///< printable, no control character
  Style style = Style::kPlain;
};
using ScreenLine = std::vector<Span>;

/// One row of the table: a rank's device.
struct TopRow {
  const Rank* rank = nullptr;
  std::optional<std::uint32_t> device;
  const RegionSummary* region =
      nullptr;            ///< the outermost region with the most time in the window; `total` where there is none
  double lost_share = 0;  ///< as a straggler, 0..1

  [[nodiscard]] std::optional<double> step_s() const;  ///< median instance, else mean [s]
  [[nodiscard]] std::optional<double> busy() const;    ///< busy / elapsed
  [[nodiscard]] std::optional<double> comm() const;    ///< exposed communication / elapsed
  [[nodiscard]] std::optional<double> clock() const;
};

/// A job at one moment.
struct TopSnapshot {
  JobTotals totals;
  std::vector<Straggler> stragglers;
  std::vector<TopRow> rows;
  std::vector<std::string> problems;
  std::string title;     ///< the directories
  std::string gpu_name;  ///< of the devices; `mixed` where they differ
  double silent_s = 0;
};

/// Valid until the job is refreshed.
[[nodiscard]] TopSnapshot take_snapshot(const LiveJob& job);

/// `rank`, `mfu`, `mbu`, `step`, `busy`, `comm`, `clock`, `dropped`, `cost`, `late`: what is worst comes first, ranks
/// ascend.
inline constexpr std::array<std::string_view, 10> kSortKeys{"rank", "mfu",   "mbu",     "step", "busy",
                                                            "comm", "clock", "dropped", "cost", "late"};

/// Rows that match every word of `filter`, sorted. A word is part of a host, region, GPU name, UUID or state; or
/// KEY=VALUE, KEY<VALUE, KEY>VALUE with a sort key, `gpu` or `host` (ratios in %, steps in ms).
[[nodiscard]] std::vector<TopRow> select_rows(const std::vector<TopRow>& rows, std::string_view sort,
                                              std::string_view filter);

struct TopView {
  enum class Mode : std::uint8_t { kTable, kDetail, kHelp };
  Mode mode = Mode::kTable;
  std::string sort = "rank";
  std::string filter;
  bool editing_filter = false;
  std::size_t selected = 0;  ///< index among the rows shown
  std::size_t scroll = 0;    ///< first row shown; kept so that the selected one is
};

/// The whole screen: at most `height` lines of at most `width` columns. Clamps selected and scroll of `view`.
[[nodiscard]] std::vector<ScreenLine> render(const TopSnapshot& snapshot, TopView& view, int width, int height);

/// Everything, for a file or a pipe: as many lines as it takes, plain.
[[nodiscard]] std::string render_plain(const TopSnapshot& snapshot, const TopView& view, int width);

/// The snapshot as a JSON object: `job`, `ranks[]`, `stragglers[]`, `problems[]`; ratios 0..1, times in s.
[[nodiscard]] std::string snapshot_json(const TopSnapshot& snapshot, const TopView& view);

/// `text` without control characters and broken UTF-8, at most `width` columns; cut ones end in `~`.
[[nodiscard]] std::string fit(std::string_view text, std::size_t width);
/// Columns that `text` takes (valid UTF-8; every character counts as one).
[[nodiscard]] std::size_t columns(std::string_view text) noexcept;

}  // namespace mfu

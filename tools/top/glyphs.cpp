#include "tools/top/glyphs.h"

#include <algorithm>
#include <cmath>

#include "core/base/printable.h"

namespace mfu {
namespace {

/// One cell of a bar: the part in front from its left edge on, and the one behind.
struct Cell {
  std::size_t part = kBarParts.size(), behind = kBarParts.size();  // kBarParts.size(): nothing
  unsigned eighths = 8;                                            // of the cell that `part` fills
  bool operator==(const Cell&) const = default;
};

constexpr std::array<const char*, 9> kEighths{" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};

/// A character of the block of braille patterns, by its dots: rows 0 to 3 from the top, columns 0 and 1.
std::string braille(unsigned left_dots, unsigned right_dots) {
  // Dots are filled from below: as many as asked for.
  constexpr std::array<unsigned, 5> kLeft{0, 0x40, 0x44, 0x46, 0x47}, kRight{0, 0x80, 0xA0, 0xB0, 0xB8};
  const unsigned code = 0x2800U + kLeft[left_dots] + kRight[right_dots];
  return {static_cast<char>(0xE0U | (code >> 12U)), static_cast<char>(0x80U | ((code >> 6U) & 0x3FU)),
          static_cast<char>(0x80U | (code & 0x3FU))};
}

ScreenLine letters(const BarShares& shares, std::size_t width) {
  ScreenLine line;
  double reached = 0;
  std::size_t filled = 0;
  for (std::size_t i = 0; i < kBarParts.size(); ++i) {
    reached += std::max(0.0, shares[i]);
    const auto edge = std::min(width, static_cast<std::size_t>(std::lround(reached * static_cast<double>(width))));
    if (edge > filled) line.push_back({std::string(edge - filled, kBarParts[i].letter), kBarParts[i].style});
    filled = std::max(filled, edge);
  }
  if (filled < width) line.push_back({std::string(width - filled, ' '), Style::kPlain});
  return line;
}

ScreenLine blocks(const BarShares& shares, std::size_t width) {
  constexpr std::size_t kNothing = kBarParts.size();
  // Edges in eighths of a column. A part that ends within a cell shares it with the next one only.
  std::vector<Cell> cells(width);
  double reached = 0;
  std::size_t from = 0;
  for (std::size_t i = 0; i < kBarParts.size(); ++i) {
    reached += std::max(0.0, shares[i]);
    const auto to =
        std::min(8 * width, static_cast<std::size_t>(std::lround(reached * 8 * static_cast<double>(width))));
    for (std::size_t c = from / 8; c < width && 8 * c < to; ++c) {
      const std::size_t begin = std::max(from, 8 * c) - 8 * c, end = std::min(to, 8 * c + 8) - 8 * c;
      if (end <= begin) continue;
      if (begin == 0) {
        cells[c] = {i, kNothing, static_cast<unsigned>(end)};
      } else if (cells[c].behind == kNothing) {
        cells[c].behind = i;
      }
    }
    from = std::max(from, to);
  }
  ScreenLine line;
  const auto style = [](std::size_t part) { return part == kNothing ? Style::kPlain : kBarParts[part].style; };
  for (const Cell& cell : cells) {
    Span span{cell.part == kNothing ? " " : kEighths[cell.eighths], style(cell.part), style(cell.behind)};
    if (!line.empty() && line.back().style == span.style && line.back().behind == span.behind)
      line.back().text += span.text;
    else
      line.push_back(std::move(span));
  }
  return line;
}

}  // namespace

std::optional<BarShares> bar_shares(const RegionSummary& r) {
  BarShares all{};
  if (r.mfu && r.lost) {
    all[0] = *r.mfu;
    std::copy(r.lost->begin(), r.lost->end(), all.begin() + 1);
    return all;
  }
  if (!r.classes_known || r.elapsed_ns <= 0) return std::nullopt;
  for (std::size_t c = 0; c < kTimeClasses; ++c)
    all[c + 1] = static_cast<double>(r.time_ns[c]) / static_cast<double>(r.elapsed_ns);
  return all;
}

ScreenLine bar_of(const RegionSummary& row, std::size_t width, Glyphs glyphs) {
  constexpr std::string_view kNotTimed = "not timed";
  if (row.untimed == 0 || width < kNotTimed.size()) return bar(bar_shares(row), width, glyphs);
  return {{std::string(kNotTimed) + std::string(width - kNotTimed.size(), ' '), Style::kPlain}};
}

ScreenLine bar(const std::optional<BarShares>& shares, std::size_t width, Glyphs glyphs) {
  if (!shares) return {{std::string(width, ' '), Style::kPlain}};
  return glyphs == Glyphs::kBlocks ? blocks(*shares, width) : letters(*shares, width);
}

std::vector<std::string> history_lines(const std::vector<std::optional<double>>& values, std::size_t width,
                                       std::size_t height, double top, Glyphs glyphs) {
  const bool unicode = glyphs != Glyphs::kAscii;
  const std::size_t per_column = values_per_column(values.size(), width, glyphs), per_line = unicode ? 4 : 1;
  const std::size_t shown = std::min(values.size(), width * per_column);
  // The newest value ends at the right edge.
  const auto value_at = [&](std::size_t slot) -> std::optional<double> {
    const std::size_t empty = width * per_column - shown;
    return slot < empty ? std::nullopt : values[values.size() - shown + slot - empty];
  };
  const auto dots_of = [&](const std::optional<double>& value) -> std::size_t {
    if (!value || !(top > 0)) return 0;
    const double share = std::clamp(*value / top, 0.0, 1.0);
    // Something is never nothing.
    return std::max<std::size_t>(1,
                                 static_cast<std::size_t>(std::lround(share * static_cast<double>(height * per_line))));
  };
  std::vector<std::string> lines(height);
  for (std::size_t line = 0; line < height; ++line) {
    const std::size_t below = (height - 1 - line) * per_line;  // dots under this line
    const auto here = [&](std::size_t slot) {
      const std::size_t dots = dots_of(value_at(slot));
      return std::min(per_line, dots > below ? dots - below : 0);
    };
    for (std::size_t c = 0; c < width; ++c) {
      if (unicode)
        lines[line] += braille(static_cast<unsigned>(here(per_column * c)),
                               static_cast<unsigned>(here(per_column * c + per_column - 1)));
      else if (height == 1 && value_at(c))  // a digit of tenths of the upper edge
        lines[line] += static_cast<char>('0' + static_cast<int>(std::min(9.0, 10 * std::max(0.0, *value_at(c)) / top)));
      else
        lines[line] += here(c) != 0 ? '#' : ' ';
    }
  }
  return lines;
}

std::string right(std::string_view text, std::size_t width) {
  const std::string cut = fit(text, width);
  return std::string(width - std::min(width, columns(cut)), ' ') + cut;
}

std::string left(std::string_view text, std::size_t width) {
  const std::string cut = fit(text, width);
  return cut + std::string(width - std::min(width, columns(cut)), ' ');
}

std::vector<std::string> flow(const std::vector<std::string>& words, std::size_t width, std::size_t gap) {
  std::vector<std::string> lines{""};
  for (const std::string& word : words) {
    if (word.empty()) continue;
    if (!lines.back().empty() && columns(lines.back()) + gap + columns(word) > width) lines.emplace_back();
    if (!lines.back().empty()) lines.back().append(gap, ' ');
    lines.back() += word;
  }
  return lines;
}

std::string fit(std::string_view text, std::size_t width) {
  // Names come from programs: none of their control characters may reach a terminal.
  const std::string clean = printable(text);
  if (columns(clean) <= width) return clean;
  if (width == 0) return "";
  std::size_t end = 0;
  for (std::size_t shown = 0; shown + 1 < width; ++shown) do
      ++end;
    while ((static_cast<unsigned char>(clean[end]) & 0xC0U) == 0x80U);
  return clean.substr(0, end) + "~";
}

}  // namespace mfu

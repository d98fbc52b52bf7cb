#include "tools/flops/flops_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string>
#include <vector>

#include "core/base/number_text.h"
#include "core/base/say.h"

namespace mfu {
namespace {

using Json = nlohmann::ordered_json;

std::string with_unit(double value, const char* unit) {
  constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P", "E", "Z"};
  int step = 0;
  while (std::abs(value) >= 1000 && step < 7) value /= 1000, ++step;
  return fmt::format("{:.4g} {}{}", value, kPrefixes[step], unit);
}

std::string time_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.4g} µs", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.4g} ms", seconds * 1e3);
  return fmt::format("{:.4g} s", seconds);
}

/// Rows of (what, exact, readable, share); the same for the table and for Markdown.
struct Row {
  std::string what, exact, readable, share;
};

std::vector<Row> rows_of(const FlopsReport& r) {
  std::vector<Row> rows;
  if (r.flop) {
    const double forward = r.flop->forward.to_double();
    const auto add = [&](const std::string& what, Count count, bool share) {
      rows.push_back({what, grouped(count.u64()), with_unit(count.to_double(), "FLOP"),
                      share && forward > 0 ? fmt::format("{:.2f} %", 100 * count.to_double() / forward) : ""});
    };
    for (const auto& [what, count] : named_parts(*r.flop))
      if (!count.is_zero()) add(what, count, true);
    add("forward", r.flop->forward, false);
    if (!r.flop->backward.is_zero()) add("backward", r.flop->backward, false);
    if (!r.flop->recompute.is_zero()) add("recompute (HFU only)", r.flop->recompute, false);
    add("total (" + r.convention + ")", r.flop->total, false);
  }
  if (r.bytes) {
    const auto add = [&](const char* what, Count count) {
      rows.push_back({what, grouped(count.u64()), with_unit(count.to_double(), "B"), ""});
    };
    add("weights read", r.bytes->weights_read);
    if (!(r.bytes->weights_read_min == r.bytes->weights_read_max)) {
      add("  at least", r.bytes->weights_read_min);
      add("  at most", r.bytes->weights_read_max);
    }
    add("KV read", r.bytes->kv_read);
    add("KV written", r.bytes->kv_write);
    if (!r.bytes->kv_resident_end.is_zero()) add("KV cache at the end", r.bytes->kv_resident_end);
  }
  return rows;
}

constexpr std::string_view kModuleColumns[] = {"module",     "layers",    "parameters", "forward",
                                               "of forward", "operators", "elements",   "bytes"};
using ModuleRow = std::array<std::string, std::size(kModuleColumns)>;

/// `products 92.9 %, attention 7.1 %`.
std::string operators_text(const ModuleCount& m) {
  std::string text;
  for (const auto& [what, flop] : {std::pair("products", m.products), std::pair("attention", m.attention),
                                   std::pair("convolution", m.convolution), std::pair("state", m.state)})
    if (!flop.is_zero())
      text +=
          fmt::format("{}{} {:.1f} %", text.empty() ? "" : ", ", what, 100 * flop.to_double() / m.flop().to_double());
  return text;
}

std::vector<ModuleRow> module_rows(const FlopsReport& r) {
  std::vector<ModuleRow> rows;
  for (const ModuleCount& m : r.modules) {
    ModuleRow row{m.kind.empty() ? m.name : m.name + ": " + m.kind, m.layers > 0 ? std::to_string(m.layers) : "",
                  grouped(m.params.u64())};
    if (r.flop && !m.flop().is_zero()) {
      row[3] = with_unit(m.flop().to_double(), "FLOP");
      row[4] = fmt::format("{:.2f} %", 100 * m.flop().to_double() / r.modules.back().flop().to_double());
      row[5] = operators_text(m);
    }
    if (r.flop && m.outputs && !m.outputs->is_zero()) {
      row[6] = with_unit(m.outputs->to_double(), "");
      row[7] = with_unit((*m.outputs * r.output_bytes).to_double(), "B");
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string headline(const FlopsReport& r) {
  std::string text;
  if (const Json& model = r.json["model"]; model.is_object()) {
    const Json& p = model["params"];
    const auto count = [](const Json& value) {
      return value.is_number() ? count_text(value.get<double>()) : std::string("?");
    };
    text = fmt::format("{}: {} parameters", printable(model["family"].get<std::string>()), count(p["total"]));
    if (p["active"] != p["total"] && !p["active"].is_null()) text += fmt::format(", {} active", count(p["active"]));
    text += fmt::format("; counting {}{}, attention {}, logits {}", r.convention,
                        r.formula.empty() ? "" : fmt::format(" ({})", r.formula), r.attention, r.logits);
  } else {
    text = "one matrix product";
  }
  std::string shape;
  for (const auto& item : r.json["shape"].items()) {
    shape += fmt::format("{}{}={}", shape.empty() ? "" : " ", item.key(),
                         item.value().is_string() ? item.value().get<std::string>() : item.value().dump());
  }
  return text + "\n" + shape;
}

/// Options that a call without a shape lacks.
constexpr const char* kNoShape =
    "no shape, so nothing is counted: add --seq-len (and --batch) for a training step,\n"
    "--phase prefill --seq-len, or --phase decode --context\n";

/// The same work counted otherwise, as people compare it: `palm 1.19, megatron 1.05`.
std::string other_conventions(const FlopsReport& r) {
  if (!r.flop || r.flop->total.is_zero() || r.other_conventions.empty()) return "";
  std::string text = "other conventions, as a multiple of this total: ";
  bool first = true;
  for (const auto& [convention, total] : r.other_conventions) {
    text += fmt::format("{}{} {:.3g}", first ? "" : ", ", convention, total.to_double() / r.flop->total.to_double());
    first = false;
  }
  return text + "\n";
}

std::string roofline_text(const FlopsReport& r) {
  if (!r.peak) return "";
  std::string text = "peak: ";
  text += r.peak->flop_per_s ? with_unit(*r.peak->flop_per_s, "FLOP/s") : std::string("unknown");
  text += fmt::format(" {}{}", name(r.peak->dtype), r.peak->sparse ? " 2:4 sparse" : "");
  if (r.peak->bytes_per_s) text += ", " + with_unit(*r.peak->bytes_per_s, "B/s");
  // The part's name is enough here; where its figures come from is in the JSON.
  const std::size_t cited = r.peak->source.find(';'), taken = r.peak->source.rfind("; taken for");
  const std::size_t laptop = r.peak->source.find("; laptop: ");
  text += " (" + r.peak->source.substr(0, cited);
  if (laptop != std::string::npos) text += r.peak->source.substr(laptop, r.peak->source.find(';', laptop + 1) - laptop);
  if (taken != std::string::npos) text += r.peak->source.substr(taken);
  text += "; dtype from " + r.dtype_from + ")\n";
  if (r.best.seconds) {
    text += fmt::format("roofline: {}, {}-bound", time_text(*r.best.seconds),
                        r.best.bound == Bound::kMemory ? "memory" : "compute");
    if (r.flop && r.best.bound == Bound::kMemory && *r.best.seconds > 0) {
      text += fmt::format("; MFU at that time {:.2f} %",
                          100 * r.flop->total.to_double() / *r.peak->flop_per_s / *r.best.seconds);
    }
    text += "\n";
  }
  return text;
}

std::string rank_text(const FlopsReport& r) {
  return r.share.empty() ? "" : fmt::format("this rank: {}, {}\n", r.share, with_unit(r.flop_of_rank, "FLOP"));
}

/// One line for each thing that the reader took for granted, and for each part that no count has.
std::string assumptions(const FlopsReport& r) {
  std::string text;
  if (!r.json.contains("model") || !r.json["model"].is_object()) return text;
  for (const auto& [key, word] : {std::pair("assumed", "assumed: "), std::pair("not_counted", "not counted: ")}) {
    if (!r.json["model"].contains(key)) continue;
    for (const Json& one : r.json["model"][key]) text += word + printable(one.get<std::string>()) + "\n";
  }
  return text;
}

void print_modules(const FlopsReport& r) {
  if (r.modules.empty()) return;
  const std::vector<ModuleRow> rows = module_rows(r);
  std::array<std::size_t, std::size(kModuleColumns)> width{};
  for (std::size_t c = 0; c < width.size(); ++c) {
    width[c] = kModuleColumns[c].size();
    for (const ModuleRow& row : rows) width[c] = std::max(width[c], row[c].size());
  }
  const auto line = [&width](const auto& cells) {
    std::string text;
    for (std::size_t c = 0; c < width.size(); ++c)
      text +=
          c == 0 || c == 5 ? fmt::format("{:<{}}  ", cells[c], width[c]) : fmt::format("{:>{}}  ", cells[c], width[c]);
    return text.substr(0, text.find_last_not_of(' ') + 1);
  };
  say("\n{}\n", line(kModuleColumns));
  for (const ModuleRow& row : rows) say("{}\n", line(row));
}

}  // namespace

void print_table(const FlopsReport& r) {
  say("{}\n{}\n", Lines{headline(r)}, Lines{assumptions(r)});
  if (r.kernel) {
    const Json& kernel = r.json["kernel"];
    say("kernel {}: {} FLOP per launch ({}), {} of this size per pass, {} FLOP in all\n",
        kernel["kind"].get<std::string>(), grouped(r.kernel->flop.u64()), with_unit(r.kernel->flop.to_double(), "FLOP"),
        r.kernel->launches == 1 ? "1 launch" : grouped(static_cast<std::uint64_t>(r.kernel->launches)) + " launches",
        grouped(r.kernel->all.u64()));
  } else if (const std::vector<Row> rows = rows_of(r); rows.empty()) {
    say("{}", Lines{kNoShape});
  } else {
    say("{:<24}{:>32}{:>16}{:>12}\n", "component", "exact", "readable", "of forward");
    for (const Row& row : rows) say("{:<24}{:>32}{:>16}{:>12}\n", row.what, row.exact, row.readable, row.share);
    if (!r.bytes_missing.empty()) say("{}\n", r.bytes_missing);
  }
  print_modules(r);
  const std::string tail = rank_text(r) + other_conventions(r) + roofline_text(r);
  if (!tail.empty()) say("\n{}", Lines{tail});
}

void print_markdown(const FlopsReport& r) {
  if (const std::string assumed = assumptions(r); !assumed.empty()) say("{}\n", Lines{assumed});
  std::string head = headline(r);
  head.replace(head.find('\n'), 1, "  \n`");
  say("{}`\n\n", Lines{head});
  if (r.kernel) {
    const Json& kernel = r.json["kernel"];
    say("| kernel | FLOP per launch | launches per pass | FLOP per pass |\n|---|---:|---:|---:|\n| {} | {} | {} | {} "
        "|\n",
        kernel["kind"].get<std::string>(), grouped(r.kernel->flop.u64()), r.kernel->launches,
        grouped(r.kernel->all.u64()));
  } else if (const std::vector<Row> rows = rows_of(r); rows.empty()) {
    say("{}", Lines{kNoShape});
  } else {
    say("| component | exact | readable | of forward |\n|---|---:|---:|---:|\n");
    for (const Row& row : rows) say("| {} | {} | {} | {} |\n", row.what, row.exact, row.readable, row.share);
  }
  if (!r.modules.empty()) say("\n| {} |\n|---|---:|---:|---:|---:|---|---:|---:|\n", fmt::join(kModuleColumns, " | "));
  for (const ModuleRow& row : module_rows(r)) say("| {} |\n", fmt::join(row, " | "));
  const std::string tail = rank_text(r) + other_conventions(r) + roofline_text(r);
  if (!tail.empty()) say("\n{}", Lines{tail});
}

}  // namespace mfu

#include "core/peak/peak_table.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <string>

namespace mfu {

std::string_view embedded_gpu_peaks() noexcept;  // gpu_peaks.json (cmake/MfuEmbed.cmake)

namespace {

using nlohmann::json;

struct PeakTable {
  json text;  ///< which the rows point into
  std::vector<PeakRow> rows;
  std::vector<ArchRates> archs;
};

PeakRates rates_of(const json& object, const char* key) {
  constexpr const char* kColumns[kPeakColumns] = {"fp64", "fp64_tensor", "fp32", "tf32", "fp16",
                                                  "bf16", "fp8",         "int8", "fp6",  "fp4"};
  PeakRates rates{};
  const auto given = object.find(key);
  for (std::size_t c = 0; c < kPeakColumns && given != object.end(); ++c) rates[c] = given->value(kColumns[c], 0.0);
  return rates;
}

std::vector<std::string_view> texts_of(const json& gpu, const char* key) {
  std::vector<std::string_view> texts;
  if (const auto list = gpu.find(key); list != gpu.end())
    for (const json& one : *list) texts.push_back(one.get_ref<const std::string&>());
  return texts;
}

/// `8.6`, major and minor.
void read_capability(const std::string& text, std::uint32_t& major, std::uint32_t& minor) {
  const char* const end = text.data() + text.size();
  const auto [dot, error] = std::from_chars(text.data(), end, major);
  if (error == std::errc() && dot != end) std::from_chars(dot + 1, end, minor);
}

PeakTable read_table() {
  PeakTable table{json::parse(embedded_gpu_peaks()), {}, {}};
  for (const json& gpu : table.text.at("gpus")) {
    PeakRow& row = table.rows.emplace_back();
    const auto text = [&gpu](const char* key) -> std::string_view { return gpu.at(key).get_ref<const std::string&>(); };
    row.id = text("id");
    row.name = text("name");
    row.source = text("source");
    read_capability(gpu.at("compute_capability").get<std::string>(), row.cc_major, row.cc_minor);
    row.match = texts_of(gpu, "match");
    row.not_before = texts_of(gpu, "not_before");
    row.short_names = texts_of(gpu, "short_names");
    row.sm_count = gpu.value("sm_count", 0U);
    row.tensor_clock_mhz = gpu.value("tensor_clock_mhz", 0U);
    row.mem_gb_per_s = gpu.at("mem_bandwidth_gbs").get<double>();
    row.memory_gb = gpu.at("memory_gb").get<std::uint32_t>();
    row.dense_tflops = rates_of(gpu, "dense_tflops");
    row.sparse_tflops = rates_of(gpu, "sparse_tflops");
  }
  for (const auto& [capability, arch] : table.text.at("flops_per_clk_per_sm").items()) {
    ArchRates& rates = table.archs.emplace_back(ArchRates{0, 0, rates_of(arch, "full"), rates_of(arch, "geforce")});
    read_capability(capability, rates.cc_major, rates.cc_minor);
  }
  return table;
}

/// nullptr: it cannot be read now.
const PeakTable* peak_table() noexcept {
  try {
    static const PeakTable& table = *new PeakTable(read_table());  // never destroyed: exit order does not matter
    return &table;
  } catch (...) {
    return nullptr;
  }
}

}  // namespace

std::span<const PeakRow> peak_rows() noexcept {
  const PeakTable* table = peak_table();
  return table == nullptr ? std::span<const PeakRow>() : table->rows;
}

std::span<const ArchRates> arch_rates() noexcept {
  const PeakTable* table = peak_table();
  return table == nullptr ? std::span<const ArchRates>() : table->archs;
}

}  // namespace mfu

// Peaks: every row and name of the reference table, MIG, derived and overridden peaks, formats a part lacks.
#include "core/peak/peak.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/config/config.h"
#include "core/peak/peak_table.h"

namespace mfu {
namespace {

using nlohmann::json;

const json& reference() {
  static const json& data = *new json(json::parse(std::ifstream(MFU_GPU_PEAKS)));
  return data;
}

DeviceFacts named(std::string name) {
  DeviceFacts facts;
  facts.name = std::move(name);
  return facts;
}

constexpr const char* kColumns[kPeakColumns] = {"fp64", "fp64_tensor", "fp32", "tf32", "fp16",
                                                "bf16", "fp8",         "int8", "fp6",  "fp4"};

/// The rates of `object[key]`; a part without such rates has none.
PeakRates rates_of(const json& object, const char* key) {
  PeakRates rates{};
  const json given = object.value(key, json::object());
  for (std::size_t c = 0; c < kPeakColumns; ++c) rates[c] = given.value(kColumns[c], 0.0);
  for (const auto& item : given.items())
    EXPECT_NE(std::find(std::begin(kColumns), std::end(kColumns), item.key()), std::end(kColumns)) << item.key();
  return rates;
}

const ArchRates* arch_of(std::uint32_t major, std::uint32_t minor) {
  for (const ArchRates& arch : arch_rates())
    if (arch.cc_major == major && arch.cc_minor == minor) return &arch;
  return nullptr;
}

TEST(Peak, TableEqualsReference) {
  const json& gpus = reference()["gpus"];
  ASSERT_EQ(gpus.size(), peak_rows().size());
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const PeakRow& row = peak_rows()[i];
    const json& gpu = gpus[i];
    EXPECT_EQ(row.id, gpu["id"].get<std::string>());
    EXPECT_EQ(row.mem_gb_per_s, gpu["mem_bandwidth_gbs"].get<double>()) << row.id;
    EXPECT_EQ(row.memory_gb, gpu["memory_gb"].get<std::uint32_t>()) << row.id;
    EXPECT_EQ(row.sm_count, gpu.value("sm_count", 0U)) << row.id;
    EXPECT_EQ(row.tensor_clock_mhz, gpu.value("tensor_clock_mhz", 0U)) << row.id;
    EXPECT_EQ(row.dense_tflops, rates_of(gpu, "dense_tflops")) << row.id;
    EXPECT_EQ(row.sparse_tflops, rates_of(gpu, "sparse_tflops")) << row.id;
    EXPECT_EQ(row.source, gpu["source"].get<std::string>());
  }
  for (const auto& item : reference()["flops_per_clk_per_sm"].items()) {
    const auto major = static_cast<std::uint32_t>(std::stoi(item.key()));
    const auto minor = static_cast<std::uint32_t>(std::stoi(item.key().substr(item.key().find('.') + 1)));
    const ArchRates* arch = arch_of(major, minor);
    ASSERT_NE(arch, nullptr) << item.key();
    EXPECT_EQ(arch->full, rates_of(item.value(), "full")) << item.key();
    EXPECT_EQ(arch->geforce, rates_of(item.value(), "geforce")) << item.key();
  }
}

/// What a sheet prints is what SMs, clock and FLOP per clock come to: a slip in any of the four shows.
TEST(Peak, PublishedTensorRatesAreSmsTimesClockTimesRate) {
  int compared = 0;
  for (const PeakRow& row : peak_rows()) {
    // An export-limited part, and Turing parts without tensor cores, have rates of their own.
    if (row.id == "h20" || row.id.starts_with("gtx-16") || row.sm_count == 0 || row.tensor_clock_mhz == 0) continue;
    const ArchRates* arch = arch_of(row.cc_major, row.cc_minor);
    ASSERT_NE(arch, nullptr) << row.id;
    for (const PeakColumn column :
         {PeakColumn::kTf32, PeakColumn::kFp16, PeakColumn::kBf16, PeakColumn::kFp8, PeakColumn::kFp4}) {
      const auto c = static_cast<std::size_t>(column);
      if (row.dense_tflops[c] == 0) continue;
      const double per_rate = row.sm_count * row.tensor_clock_mhz * 1e-6;
      const double full = arch->full[c] * per_rate, geforce = arch->geforce[c] * per_rate;
      const double off = std::min(std::abs(full - row.dense_tflops[c]), std::abs(geforce - row.dense_tflops[c]));
      EXPECT_LT(off, 0.03 * row.dense_tflops[c]) << row.id << " " << kColumns[c];
      ++compared;
    }
  }
  EXPECT_GT(compared, 300);
}

TEST(Peak, NamesAsDriversPrintThem) {
  for (const json& gpu : reference()["gpus"]) {
    ASSERT_FALSE(gpu["names"].empty()) << gpu["id"];
    for (const json& printed : gpu["names"]) {
      const PeakRow* row = find_peak_row(printed.get<std::string>());
      ASSERT_NE(row, nullptr) << printed;
      EXPECT_EQ(row->id, gpu["id"].get<std::string>()) << printed;
    }
  }
  for (const json& other : reference()["no_gpu"]) {
    const PeakRow* row = find_peak_row(other.get<std::string>());
    EXPECT_EQ(row, nullptr) << other << " was taken for " << (row ? row->id : "");
  }
}

TEST(Peak, LaptopPartsAreNeverTheDesktopOnesAndSayTheirClockIsOpen) {
  const Peak laptop = find_peak(named("NVIDIA GeForce RTX 4090 Laptop GPU"), DType::kBf16, {});
  EXPECT_DOUBLE_EQ(*laptop.flop_per_s, 85.8e12);
  EXPECT_NE(laptop.source.find("laptop: its clock follows its power limit"), std::string::npos) << laptop.source;
  EXPECT_EQ(find_peak(named("NVIDIA GeForce RTX 4090"), DType::kBf16, {}).source.find("laptop"), std::string::npos);
  EXPECT_DOUBLE_EQ(*find_peak(named("rtx 4090 laptop"), DType::kBf16, {}).flop_per_s, 85.8e12);
  DeviceFacts unlisted = named("NVIDIA GeForce RTX 3070 Ti Laptop GPU");
  EXPECT_FALSE(find_peak(unlisted, DType::kBf16, {}).flop_per_s);
  unlisted.sm_count = 46;
  unlisted.clock_khz = 1'485'000;
  unlisted.cc_major = 8;
  unlisted.cc_minor = 6;
  const Peak derived = find_peak(unlisted, DType::kBf16, {});
  EXPECT_DOUBLE_EQ(*derived.flop_per_s, 46 * 1.485e9 * 512);
  EXPECT_NE(derived.source.find("upper bound"), std::string::npos) << derived.source;
}

TEST(Peak, TuringWithoutTensorCores) {
  DeviceFacts mobile = named("NVIDIA GeForce GTX 1650 Ti");
  mobile.sm_count = 16;
  mobile.clock_khz = 1'485'000;
  mobile.cc_major = 7;
  mobile.cc_minor = 5;
  EXPECT_DOUBLE_EQ(*find_peak(mobile, DType::kFp16, {}).flop_per_s, 16 * 1.485e9 * 256);
  EXPECT_DOUBLE_EQ(*find_peak(mobile, DType::kInt8, {}).flop_per_s, 16 * 1.485e9 * 512);
  EXPECT_DOUBLE_EQ(*find_peak(named("NVIDIA GeForce GTX 1660"), DType::kFp16, {}).flop_per_s, 10.1e12);
}

/// One name, several boards: what the device says of itself decides.
TEST(Peak, VariantOfACardIsScaledToItsSms) {
  DeviceFacts twelve = named("NVIDIA GeForce RTX 3080");
  EXPECT_DOUBLE_EQ(*find_peak(twelve, DType::kBf16, {}).flop_per_s, 59.5e12);
  twelve.sm_count = 68;
  EXPECT_DOUBLE_EQ(*find_peak(twelve, DType::kBf16, {}).flop_per_s, 59.5e12);
  twelve.sm_count = 70;
  twelve.memory_clock_khz = 9'501'000;
  twelve.memory_bus_bits = 384;
  const Peak scaled = find_peak(twelve, DType::kBf16, {});
  EXPECT_DOUBLE_EQ(*scaled.flop_per_s, 59.5e12 * 70 / 68);
  EXPECT_NEAR(*scaled.bytes_per_s, 912.1e9, 0.1e9);
  EXPECT_NE(scaled.source.find("this one has 70 SMs"), std::string::npos) << scaled.source;
  DeviceFacts share = named("NVIDIA H100 80GB HBM3");  // under MPS the driver reports a part of the SMs
  share.sm_count = 66;
  EXPECT_DOUBLE_EQ(*find_peak(share, DType::kBf16, {}).flop_per_s, 989.4e12);
}

TEST(Peak, DenseUnlessSparseIsAskedFor) {
  PeakOptions config;
  const Peak dense = find_peak(named("NVIDIA H100 80GB HBM3"), DType::kBf16, config);
  EXPECT_DOUBLE_EQ(*dense.flop_per_s, 989.4e12);
  EXPECT_DOUBLE_EQ(*dense.bytes_per_s, 3350e9);
  EXPECT_FALSE(dense.sparse);
  EXPECT_TRUE(dense.source.starts_with("table: ")) << dense.source;
  config.sparse = true;
  const Peak sparse = find_peak(named("NVIDIA H100 80GB HBM3"), DType::kBf16, config);
  EXPECT_DOUBLE_EQ(*sparse.flop_per_s, 1978.8e12);
  EXPECT_TRUE(sparse.sparse);
  const Peak volta = find_peak(named("Tesla V100-SXM2-16GB"), DType::kFp16, config);  // no sparse rate there
  EXPECT_DOUBLE_EQ(*volta.flop_per_s, 125e12);
  EXPECT_FALSE(volta.sparse);
}

TEST(Peak, MigSliceGetsItsShare) {
  DeviceFacts slice = named("NVIDIA A100-SXM4-40GB MIG 1g.5gb");
  slice.sm_count = 14;
  const Peak peak = find_peak(slice, DType::kBf16, {});
  EXPECT_DOUBLE_EQ(*peak.flop_per_s, 312e12 * 14 / 108);
  EXPECT_DOUBLE_EQ(*peak.bytes_per_s, 1555e9 / 8);
  EXPECT_NE(peak.source.find("MIG"), std::string::npos);
  // Without a driver the profile says how many SMs: three slices of 14.
  const Peak by_profile = find_peak(named("NVIDIA A100-SXM4-40GB MIG 3g.20gb"), DType::kBf16, {});
  EXPECT_DOUBLE_EQ(*by_profile.flop_per_s, 312e12 * 42 / 108);
  EXPECT_DOUBLE_EQ(*by_profile.bytes_per_s, 1555e9 / 2);
  DeviceFacts hopper = named("NVIDIA H100 80GB HBM3 MIG 3g.40gb");
  hopper.sm_count = 60;
  EXPECT_DOUBLE_EQ(*find_peak(hopper, DType::kFp8, {}).flop_per_s, 1978.9e12 * 60 / 132);
}

TEST(Peak, FormatsThatAPartLacks) {
  const Peak volta = find_peak(named("Tesla V100-SXM2-16GB"), DType::kBf16, {});
  EXPECT_EQ(volta.dtype, DType::kFp32);  // no tensor path: FP32 vector
  EXPECT_DOUBLE_EQ(*volta.flop_per_s, 15.7e12);
  EXPECT_NE(volta.source.find("no bf16 rate"), std::string::npos) << volta.source;
  const Peak ampere = find_peak(named("NVIDIA A100-SXM4-80GB"), DType::kFp8, {});
  EXPECT_EQ(ampere.dtype, DType::kBf16);
  EXPECT_DOUBLE_EQ(*ampere.flop_per_s, 312e12);
  const Peak mxfp4 = find_peak(named("NVIDIA H100 80GB HBM3"), DType::kMxfp4, {});
  EXPECT_EQ(mxfp4.dtype, DType::kBf16);
  EXPECT_DOUBLE_EQ(*find_peak(named("NVIDIA B200"), DType::kNvfp4, {}).flop_per_s, 9000e12);
  EXPECT_DOUBLE_EQ(*find_peak(named("NVIDIA A100-SXM4-80GB"), DType::kFp64, {}).flop_per_s, 19.5e12);
  EXPECT_DOUBLE_EQ(*find_peak(named("NVIDIA A100-SXM4-80GB"), DType::kInt4, {}).flop_per_s, 312e12);  // w4a16
}

TEST(Peak, UnknownDeviceIsDerivedFromItsClock) {
  DeviceFacts facts = named("NVIDIA RTX 4000 SFF Ada Lovelace");
  facts.sm_count = 48;
  facts.clock_khz = 2'175'000;
  facts.cc_major = 8;
  facts.cc_minor = 9;
  facts.memory_clock_khz = 8'751'000;
  facts.memory_bus_bits = 160;
  const Peak peak = find_peak(facts, DType::kBf16, {});
  EXPECT_DOUBLE_EQ(*peak.flop_per_s, 48 * 2.175e9 * 1024);
  EXPECT_DOUBLE_EQ(*peak.bytes_per_s, 2 * 8.751e9 * 160 / 8);
  EXPECT_TRUE(peak.source.starts_with("derived")) << peak.source;
  facts.name = "NVIDIA GeForce RTX 4050";  // FP32 accumulation at half rate
  EXPECT_DOUBLE_EQ(*find_peak(facts, DType::kBf16, {}).flop_per_s, 48 * 2.175e9 * 512);
  facts.cc_major = 42;
  const Peak nothing = find_peak(facts, DType::kBf16, {});
  EXPECT_FALSE(nothing.flop_per_s);
  EXPECT_EQ(nothing.source, "unknown");
}

TEST(Peak, OverrideAlwaysWins) {
  PeakOptions config;
  config.tflops = 800;
  const Peak peak = find_peak(named("NVIDIA H100 80GB HBM3"), DType::kBf16, config);
  EXPECT_DOUBLE_EQ(*peak.flop_per_s, 800e12);
  EXPECT_DOUBLE_EQ(*peak.bytes_per_s, 3350e9);
  EXPECT_TRUE(peak.source.starts_with("override")) << peak.source;
  config.gbps = 3000;
  const Peak both = find_peak(named("something else"), DType::kBf16, config);
  EXPECT_DOUBLE_EQ(*both.flop_per_s, 800e12);
  EXPECT_DOUBLE_EQ(*both.bytes_per_s, 3000e9);
  EXPECT_EQ(both.source, "override");
}

TEST(Peak, ModulesThatShareAName) {
  DeviceFacts orin = named("Orin");
  orin.sm_count = 8;
  orin.clock_khz = 918'000;
  const Peak nx = find_peak(orin, DType::kFp16, {});
  EXPECT_NEAR(*nx.flop_per_s, 42.6e12 * 8 / 16 * 918 / 1300, 1e6);
  EXPECT_DOUBLE_EQ(*nx.bytes_per_s, 102.4e9);
  EXPECT_DOUBLE_EQ(*find_peak(named("NVIDIA GH200 144G HBM3e"), DType::kBf16, {}).bytes_per_s, 4900e9);
}

/// What people type. An ambiguous name takes the part that most have, and says so; an unknown one names its neighbours.
TEST(Peak, NamesAsPeopleTypeThem) {
  const std::pair<const char*, const char*> typed[] = {{"A100", "A100 SXM4 80GB"},
                                                       {"a100 40GB", "A100 SXM4 40GB"},
                                                       {"V100", "Tesla V100 SXM2"},
                                                       {"4090", "GeForce RTX 4090"},
                                                       {"3090", "GeForce RTX 3090"},
                                                       {"5090", "GeForce RTX 5090"},
                                                       {"A6000", "RTX A6000"},
                                                       {"H800", "H800 SXM5"},
                                                       {"A800", "A100 SXM4 80GB"},
                                                       {"P100", "Tesla P100 SXM2"},
                                                       {"2080 Ti", "GeForce RTX 2080 Ti"},
                                                       {"RTX PRO 6000", "RTX PRO 6000 Blackwell Workstation"},
                                                       {"rtx4090", "GeForce RTX 4090"},
                                                       {"h20", "H20"}};
  for (const auto& [name, row] : typed) {
    const Peak peak = find_peak(named(name), DType::kFp16, {});
    EXPECT_TRUE(peak.flop_per_s.has_value()) << name;
    EXPECT_NE(peak.source.find(row), std::string::npos) << name << ": " << peak.source;
  }
  EXPECT_NE(find_peak(named("A100"), DType::kBf16, {}).source.find("taken for \"A100\""), std::string::npos);
  for (const char* other : {"RTX 3050 Laptop", "A1000", "MI300X", "", "RTX"}) {
    EXPECT_FALSE(find_peak(named(other), DType::kBf16, {}).flop_per_s.has_value()) << other;
  }
  EXPECT_EQ(nearest_peak_rows("MI300X", 2).find(','), nearest_peak_rows("MI300X", 2).rfind(','));
}

TEST(Peak, SuggestionsGoByFamilyAndNumber) {
  // What was typed, and how the first suggestion begins: who mistypes a name has its family and most of its number
  // right.
  const std::pair<const char*, const char*> typed[] = {{"H1000", "h100"},
                                                       {"H100 SMX", "h100-sxm"},
                                                       {"H-100 SXMM", "h100-sxm"},
                                                       {"H101", "h100"},
                                                       {"H150", "h100"},
                                                       {"H2000", "h200"},
                                                       {"h200x", "h200"},
                                                       {"A1000", "rtx-a"},
                                                       {"A101", "a10"},
                                                       {"A10 0", "a10"},
                                                       {"A-100-SXM8", "a100-sxm"},
                                                       {"A60000", "rtx-a6000"},
                                                       {"RTXA600", "rtx-a6000"},
                                                       {"B2000", "b200"},
                                                       {"B201", "b200"},
                                                       {"GB20", "gb200"},
                                                       {"GB3000", "gb300"},
                                                       {"V1000", "v100"},
                                                       {"V100 SXM9", "v100-sxm"},
                                                       {"L400", "l40"},
                                                       {"L40SS", "l40"},
                                                       {"RTX 4091", "rtx-4090"},
                                                       {"GeForce 40900", "rtx-4090"},
                                                       {"RTX4095 Ti", "rtx-409"},
                                                       {"3090 Tie", "rtx-3090-ti"},
                                                       {"RTX 5900", "rtx-5090"},
                                                       {"RTX PRO 6001", "rtx-pro-6"},
                                                       {"Nvida H100X", "h100"},
                                                       {"GTX 1081", "gtx-1080"},
                                                       {"2080 Tii", "rtx-2080-"},
                                                       {"P1000", "p100"},
                                                       {"T44", "t4"},
                                                       {"Hopper", "gh200"},
                                                       {"Jetson Orim", "jetson"},
                                                       {"3080Ti Laptob", "rtx-3080-"},
                                                       {"A10GG", "a10"}};
  for (const auto& [name, nearest] : typed) {
    EXPECT_TRUE(nearest_peak_rows(name).starts_with(nearest)) << name << ": " << nearest_peak_rows(name);
  }
}

}  // namespace
}  // namespace mfu

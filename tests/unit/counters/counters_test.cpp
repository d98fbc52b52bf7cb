// CSV of Nsight Compute and nsys stats, with counts that were made on an RTX 5090 (public report of DeepSeek-OCR,
// bf16).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <span>
#include <sstream>

#include "tools/counters/counter_csv.h"
#include "tools/counters/counter_report.h"
#include "tools/counters/csv_records.h"

namespace mfu {
namespace {

constexpr const char* kTensor = "sm__ops_path_tensor_src_bf16_dst_fp32.sum";

struct Measured {
  const char* name;
  const char* ranges;
  const char* flop;
  double us, sm, dram, ghz;
};

// Tiles x tile x 2 k: 332 x 256 x 128 x 2 x 576, 304 x 128 x 256 x 2 x 2304, 152 x 4 x 32 x 32 x 2 x 1024.
const Measured kKernels[] = {
    {"void Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>(Params)", "prefill batch=1",
     "12,532,580,352", 111.81, 32.10, 8.87, 2.00},
    {"void Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x256_32x3_tn_align8>(Params)", "prefill batch=1",
     "45,902,462,976", 404.70, 32.46, 8.96, 2.00},
    {"void Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8>(Params)", "decode",
     "1,275,068,416", 23.42, 41.49, 8.13, 1.99},
};

std::string details(std::span<const Measured> kernels = kKernels) {
  std::string out =
      "==PROF== Connected to process 7 (/usr/bin/python3)\n"
      "\"ID\",\"Process ID\",\"thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg\",\"Kernel "
      "Name\","
      "\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n";
  int id = 0;
  for (const Measured& m : kernels) {
    const auto row = [&](const std::string& metric, const std::string& unit, const std::string& value) {
      out += "\"" + std::to_string(id) +
             "\",\"7\",\"1  \"\"<default domain>:generate:none:none:none:none:none:none\"\"  " + "\"\"LLM:" + m.ranges +
             ":none:none:none:none:none:none\"\" \",\"" + m.name + "\",\"section\",\"" + metric + "\",\"" + unit +
             "\",\"" + value + "\"\n";
    };
    row("flop_count_hp.sum", "", "n/a");
    row("gpu__time_duration.sum", "us", std::to_string(m.us));
    row(kTensor, "", m.flop);
    row("sm__throughput.avg.pct_of_peak_sustained_elapsed", "%", std::to_string(m.sm));
    row("dram__throughput.avg.pct_of_peak_sustained_elapsed", "%", std::to_string(m.dram));
    row("SM Frequency", "Ghz", std::to_string(m.ghz));
    ++id;
  }
  return out;
}

std::string raw() {
  std::string out = std::string("\xEF\xBB\xBFID,Process ID,Kernel Name,") +
                    "Id:Domain:Start/Stop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg," + kTensor +
                    ",sm__ops_path_tensor_src_bf16_dst_fp32_sparsity_off.sum,gpu__time_duration.sum,"
                    "smsp__cycles_elapsed.avg.per_second,device__attribute_display_name\r\n,,,,,,ns,Mhz,\r\n";
  int id = 0;
  for (const Measured& m : kKernels)
    out += std::to_string(id++) + ",7,\"" + m.name + "\",\"1 \"\"<default domain>:" + m.ranges +
           ":none:none:none:none:none:none\"\"\",\"" + m.flop + "\",\"" + m.flop + "\"," + std::to_string(m.us * 1e3) +
           "," + std::to_string(m.ghz * 1e3) + ",NVIDIA GeForce RTX 5090\r\n";
  return out;
}

CounterFile read(const std::string& text) {
  std::istringstream in(text);
  auto file = read_counters(in, "x.csv");
  EXPECT_TRUE(file) << file.error().message;
  return file ? *file : CounterFile{};
}

CounterReport report(const std::vector<CounterFile>& files, const std::string& gpu = "") {
  auto made = report_counters(files, gpu, {});
  EXPECT_TRUE(made) << made.error().message;
  return made ? *made : CounterReport{};
}

const CounterRow& row(const CounterReport& report, const std::string& range) {
  for (const CounterRow& row : report.rows)
    if (row.range == range) return row;
  ADD_FAILURE() << range << "\n" << counter_text(report);
  static const CounterRow none;
  return none;
}

TEST(CsvRecords, QuotesHoldCommasQuotesAndLineEnds) {
  std::istringstream in("a,\"b,c\",\"d\"\"e\"\r\n\n\"f\ng\",,h");
  CsvRecords records(in);
  std::vector<std::string> fields;
  ASSERT_TRUE(records.next(&fields));
  EXPECT_EQ(fields, (std::vector<std::string>{"a", "b,c", "d\"e"}));
  ASSERT_TRUE(records.next(&fields));
  EXPECT_EQ(fields, (std::vector<std::string>{"f\ng", "", "h"}));
  EXPECT_FALSE(records.next(&fields));
}

TEST(Counters, BothPagesSayTheSame) {
  const CounterFile one = read(details()), two = read(raw());
  ASSERT_EQ(one.counted.size(), std::size(kKernels));
  ASSERT_EQ(two.counted.size(), std::size(kKernels));
  for (std::size_t i = 0; i < std::size(kKernels); ++i) {
    EXPECT_EQ(one.counted[i].tensor_flop, two.counted[i].tensor_flop) << i;
    EXPECT_NEAR(one.counted[i].seconds.value_or(0), kKernels[i].us * 1e-6, 1e-12);
    EXPECT_NEAR(two.counted[i].seconds.value_or(0), kKernels[i].us * 1e-6, 1e-12);
    EXPECT_NEAR(two.counted[i].sm_hz.value_or(0), kKernels[i].ghz * 1e9, 1);
  }
  EXPECT_EQ(one.counted[0].tensor_flop.at(DType::kBf16), 332.0 * 256 * 128 * 2 * 576);
  EXPECT_EQ(one.counted[1].tensor_flop.at(DType::kBf16), 304.0 * 128 * 256 * 2 * 2304);
  EXPECT_EQ(one.counted[2].tensor_flop.at(DType::kBf16), 152.0 * 4 * 32 * 32 * 2 * 1024);
  EXPECT_EQ(one.counted[0].ranges, (std::vector<std::string>{"generate", "prefill batch=1"}));
  EXPECT_EQ(two.device, "NVIDIA GeForce RTX 5090");
}

TEST(Counters, RangesAreRegionsWhereARuleKnowsThem) {
  const CounterReport made = report({read(details())}, "RTX 5090");
  const CounterRow& prefill = row(made, "prefill");
  EXPECT_EQ(prefill.launches, 2U);
  EXPECT_NEAR(prefill.seconds, 516.51e-6, 1e-9);
  // The data sheet has 209.5 dense TFLOP/s of bf16 with FP32 accumulation at 2.407 GHz; kernels ran at 2.0 GHz.
  ASSERT_TRUE(prefill.peak);
  EXPECT_NEAR(*prefill.peak, 209.5e12, 0.1e12);
  EXPECT_NEAR(prefill.hfu.value_or(0), 58'435'043'328.0 / (516.51e-6 * *prefill.peak), 1e-9);
  EXPECT_NEAR(prefill.hfu_at_clock.value_or(0), 0.65, 0.01) << "65 % of the peak at its clock was published";
  EXPECT_NEAR(prefill.sm.value_or(0), 0.324, 0.001);
  EXPECT_EQ(prefill.bound, "latency");
  EXPECT_EQ(row(made, "decode").launches, 1U);
  EXPECT_EQ(row(made, "generate").launches, 3U);
  EXPECT_EQ(row(made, "all").launches, 3U);
}

/// Kernels of one decode step that Nsight Compute counted on an RTX 5090 (tests/data/counted/ncu_rtx5090.tsv).
TEST(Counters, KnownDifferencesFromTheModelAreExplained) {
  const Measured decode[] = {
      {"enable_if<!T7, void>::type kernel<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, 0, 1, 1, 0, 6, "
       "0, cublasGemvParamsEx<int, cublasGemvTensorStridedBatched<const __nv_bfloat16>, "
       "cublasGemvTensorStridedBatched<const __nv_bfloat16>, cublasGemvTensorStridedBatched<__nv_bfloat16>, "
       "float>>(T13)",
       "decode", "0", 18.34, 22.47, 54.36, 1.97},
      {"void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, 0, 0, bfloat16_t, "
       "Flash_kernel_traits<128, 64, 128, 4, bfloat16_t>>, 0, 0, 0, 0, 1, 0, 1, 0>(Flash_fwd_params)",
       "decode", "335,544,320", 10.34, 8.77, 26.00, 2.01},
      {"void splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float>(cublasSplitKParams<float>)", "prefill", "0",
       10.0, 5.0, 40.00, 2.0},  // adds up a product of the tensor cores
  };
  const auto remarks = [](const CounterReport& made) {
    std::string all;
    for (const std::string& remark : made.remarks) all += remark + "\n";
    return all;
  };
  const std::string of_decode = remarks(report({read(details(decode))}, "RTX 5090"));
  EXPECT_NE(of_decode.find("decode: 63.9 % of the time is of products on CUDA cores (gemv)"), std::string::npos)
      << of_decode;
  EXPECT_NE(of_decode.find("decode: 36.1 % of the time is of attention with split keys, which computes 64 rows"),
            std::string::npos)
      << of_decode;
  // Products on tensor cores at 63.5 % of the peak at their clock, of which SM % says 32.8: said once.
  const std::string of_prefill = remarks(report({read(details())}, "RTX 5090"));
  EXPECT_NE(of_prefill.find("all: SM 32.8 % of the kernels on tensor cores is half of their 63.5 % of the peak"),
            std::string::npos)
      << of_prefill;
  EXPECT_EQ(of_prefill.find("gemv"), std::string::npos);
  // On a GPU whose peak is another one, nothing is half of anything.
  EXPECT_EQ(remarks(report({read(details())}, "H100 SXM")), "");
}

TEST(Counters, ASumOfNsysGivesTimesAndLaunches) {
  const std::string sum =
      "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
      "50.0,2000000,20,100000.0,1,1,1,1,void "
      "cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>"
      "(T1::Params)\n"
      "50.0,2000000,5,400000.0,1,1,1,1,\"void at::native::elementwise_kernel<(int)128, (int)4, X>(int, T3)\"\n";
  const CounterReport made = report({read(details()), read(sum)}, "RTX 5090");
  const CounterRow& all = row(made, "all");
  EXPECT_EQ(all.launches, 25U);
  EXPECT_NEAR(all.seconds, 4e-3, 1e-12);
  EXPECT_NEAR(all.counted_seconds, 2e-3, 1e-12);
  EXPECT_NEAR(all.flop, 20 * 12'532'580'352.0, 1);
  EXPECT_NE(counter_text(made).find("all: counters cover 50.0 % of the time"), std::string::npos);
}

TEST(Counters, ASumByRangeGivesRowsByRange) {
  const std::string sum =
      "NVTX Range,Style,PID,TID,NVTX Inst,Kern Inst,Total Time (us),Avg (us),Med (us),Min (us),Max (us),StdDev "
      "(us),Kernel Name\n"
      ":prefill batch=1,PushPop,1,1,2,4,400.0,1,1,1,1,1,void "
      "cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>(T1::Params)\n"
      ":decode,PushPop,1,1,9,90,900.0,1,1,1,1,1,gemv(int)\n";
  const CounterReport made = report({read(sum), read(details())}, "RTX 5090");
  EXPECT_NEAR(row(made, "prefill").flop, 4 * 12'532'580'352.0, 1);
  EXPECT_NEAR(row(made, "prefill").seconds, 400e-6, 1e-12);
  EXPECT_EQ(row(made, "decode").launches, 90U);
  EXPECT_FALSE(row(made, "decode").hfu) << "nothing of it was counted";
}

TEST(Counters, CudaCoresCountWhereTheirInstructionsDo) {
  const std::string text =
      "ID,Kernel "
      "Name,smsp__sass_thread_inst_executed_op_ffma_pred_on.sum,smsp__sass_thread_inst_executed_op_fadd_pred_on.sum,"
      "gpu__time_duration.sum\n,,Kinst,inst,us\n0,gemv,\"1,000\",500,10\n";
  const CounterReport made = report({read(text)}, "RTX 5090");
  EXPECT_EQ(row(made, "all").flop, 2 * 1e6 + 500);
  EXPECT_EQ(row(made, "all").dtype, DType::kFp32);
}

TEST(Counters, WhatIsMissingIsSaid) {
  std::istringstream other("a,b,c\n1,2,3\n");
  const auto wrong = read_counters(other, "x.csv");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().message.find("x.csv: expected CSV of Nsight Compute"), 0U);
  const CounterReport none =
      report({read("ID,Kernel Name,gpu__time_duration.sum,flop_count_hp.sum\n,,us,\n0,k,10,n/a\n")});
  EXPECT_FALSE(row(none, "all").hfu);
  const std::string text = counter_text(none);
  EXPECT_NE(text.find("no FLOP were counted"), std::string::npos);
  EXPECT_NE(text.find("name it by --gpu"), std::string::npos);
  EXPECT_TRUE(counter_json(none)["counters"][0]["hfu"].is_null());
  EXPECT_FALSE(report_counters({read(details())}, "no such GPU", {}));
}

TEST(Counters, NamesOfBothToolsMeet) {
  EXPECT_EQ(plain_kernel_name("void cutlass::Kernel2<cutlass_80_x>(T1::Params)"), "Kernel2<cutlass_80_x>");
  EXPECT_EQ(plain_kernel_name("void Kernel2<cutlass_80_x>(Params)"), "Kernel2<cutlass_80_x>");
  EXPECT_EQ(plain_kernel_name("void a::k<(int)4, (bool)1, b::T>(int)"), "k<4, 1, T>");
  EXPECT_EQ(plain_kernel_name("gemv"), "gemv");
}

}  // namespace
}  // namespace mfu

// Executed FLOP of stored traces. The numbers of the real ones were counted by a script of a few lines that shares
// nothing with the code under test: for each GEMM kernel, the operator of the same thread that was open at its launch
// and began last, 2 m n k of its `Input Dims`, each operator once.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "core/account/executed.h"
#include "core/config/config.h"
#include "core/recording/recording_ring.h"
#include "core/recording/recording_writer.h"
#include "tools/replay/process_replay.h"
#include "tools/trace/kineto.h"
#include "tools/trace/open_trace.h"
#include "tools/trace/operator_products.h"

namespace mfu {
namespace {

RegionSummary total_of(const Trace& trace) {
  const auto processes = trace_regions(trace, Config{});
  for (const RegionSummary& r : processes.at(0).whole.regions)
    if (r.region == "total") return r;
  return {};
}

TEST(ExecutedTraces, RealTracesAsAScriptCountsThem) {
  struct Known {
    const char* file;
    double flop;
    DurationNs covered_ns, matmul_ns;  ///< of GEMM kernels; with attention the latter is more
  };
  for (const Known& known : {Known{"tracelens_qwen05b_h100.json.gz", 5514536717248.0, 8'858'227, 12'793'438},
                             Known{"tracelens_bert_small_h100.json.gz", 8029194240.0, 197'598, 197'598}}) {
    SCOPED_TRACE(known.file);
    const auto trace = open_trace(std::string(MFU_TEST_DATA "/traces/") + known.file);
    ASSERT_TRUE(trace.ok()) << trace.error().message;
    const RegionSummary total = total_of(*trace);
    ASSERT_TRUE(total.executed);
    EXPECT_DOUBLE_EQ(total.executed->flop, known.flop);
    EXPECT_NEAR(static_cast<double>(total.executed->covered_ns), static_cast<double>(known.covered_ns), 2000);
    EXPECT_GE(total.executed->matmul_ns + 2000, known.matmul_ns);
    EXPECT_FALSE(total.components.empty());
  }
}

TEST(ExecutedTraces, OperatorsBecomeProducts) {
  const auto of = [](const char* name, const char* dims, const char* strides) {
    return product_of_operator(name, dims, strides, R"(["c10::BFloat16", "c10::BFloat16", "c10::BFloat16"])");
  };
  // y = x W^T of x (8944 x 1024) and W (2816 x 1024): W^T lies by columns.
  auto p = of("aten::mm", "[[8944, 1024], [1024, 2816]]", "[[1024, 1], [1, 1024]]");
  ASSERT_TRUE(p);
  EXPECT_EQ(*p, (Product{2816, 8944, 1024, 1, DType::kBf16, DType::kBf16, true, false, false, Product::Kind::kSized}));
  // The gradient of x, then of W.
  p = of("aten::mm", "[[8944, 2816], [2816, 1024]]", "[[2816, 1], [1024, 1]]");
  EXPECT_EQ(*p, (Product{1024, 8944, 2816, 1, DType::kBf16, DType::kBf16, false, false, false, Product::Kind::kSized}));
  p = of("aten::mm", "[[2816, 8944], [8944, 1024]]", "[[1, 2816], [1024, 1]]");
  EXPECT_EQ(*p, (Product{1024, 2816, 8944, 1, DType::kBf16, DType::kBf16, false, true, false, Product::Kind::kSized}));
  p = of("aten::addmm", "[[2816], [8944, 1024], [1024, 2816], [], []]", "[[1], [1024, 1], [1, 1024], [], []]");
  EXPECT_EQ(p->flop(), 2.0 * 2816 * 8944 * 1024);
  p = of("aten::bmm", "[[16, 559, 64], [16, 64, 559]]", "[[35776, 64, 1], [35776, 1, 64]]");
  EXPECT_EQ(*p, (Product{559, 559, 64, 16, DType::kBf16, DType::kBf16, true, false, false, Product::Kind::kSized}));
  p = of("aten::linear", "[[4, 128, 1024], [2816, 1024]]", "");
  EXPECT_EQ(*p, (Product{2816, 512, 1024, 1, DType::kBf16, DType::kBf16, true, false, false, Product::Kind::kSized}));
  p = of("aten::_grouped_mm", "[[700, 1024], [8, 1024, 2816]]", "");
  EXPECT_EQ(p->flop(), 2.0 * 700 * 1024 * 2816);
  p = of("aten::mv", "[[300, 200], [200]]", "");
  EXPECT_EQ(p->flop(), 2.0 * 300 * 200);
  for (const char* dims : {"", "[]", "[[]]", "[[1, 2]]", "[[2, 3], [4, 5]]", "[[2, 3], [3, 0]]", "[[2, -3], [-3, 4]]",
                           "x", "[[2, 3.5], [3.5, 4]]", "[[9223372036854775807, 3, 2], [2, 2]]", "{\"a\": 1}"})
    EXPECT_FALSE(of("aten::mm", dims, "")) << dims;
  EXPECT_FALSE(of("aten::linear", "[[9223372036854775807, 9223372036854775807, 2], [2, 2]]", ""));
  EXPECT_FALSE(of("aten::add", "[[2, 3], [3, 4]]", ""));
}

/// The nearest operator that is a product; one around it asked for nothing itself; a kernel outside has none.
TEST(ExecutedTraces, TheNearestOperatorCountsOnce) {
  const std::string text = R"({"traceEvents": [
    {"ph":"X","cat":"cpu_op","name":"aten::linear","pid":1,"tid":1,"ts":0,"dur":50,
     "args":{"Input Dims":[[10,20],[30,20]],"Input type":["float","float"]}},
    {"ph":"X","cat":"cpu_op","name":"aten::addmm","pid":1,"tid":1,"ts":5,"dur":40,
     "args":{"Input Dims":[[30],[10,20],[20,30]],"Input type":["float","float","float"]}},
    {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":10,"dur":2,"args":{"correlation":1}},
    {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":20,"dur":2,"args":{"correlation":2}},
    {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":30,"dur":2,"args":{"correlation":3}},
    {"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":60,"dur":2,"args":{"correlation":4}},
    {"ph":"X","cat":"kernel","name":"ampere_sgemm_128x64_tn","pid":0,"tid":7,"ts":100,"dur":10,"args":{"device":0,"stream":7,"correlation":1}},
    {"ph":"X","cat":"kernel","name":"splitKreduce_gemm_kernel","pid":0,"tid":7,"ts":110,"dur":5,"args":{"device":0,"stream":7,"correlation":2}},
    {"ph":"X","cat":"kernel","name":"elementwise_kernel","pid":0,"tid":7,"ts":115,"dur":5,"args":{"device":0,"stream":7,"correlation":3}},
    {"ph":"X","cat":"kernel","name":"ampere_sgemm_128x64_tn","pid":0,"tid":7,"ts":120,"dur":30,"args":{"device":0,"stream":7,"correlation":4}}
  ]})";
  const auto trace = read_kineto_text(text, "t.json");
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  const RegionSummary total = total_of(*trace);
  ASSERT_TRUE(total.executed);
  EXPECT_DOUBLE_EQ(total.executed->flop, 2.0 * 10 * 20 * 30);
  EXPECT_EQ(total.executed->covered_ns, 15'000);
  EXPECT_EQ(total.executed->matmul_ns, 45'000);
}

/// What the library records it reads again; a trace without products says nothing of them.
TEST(ExecutedTraces, RecordingsCarryProducts) {
  Counters counters;
  std::vector<std::string> warnings;
  const RegionRules rules({}, {}, warnings);
  KernelNames names(counters);
  ProductTable products;
  Product p;
  p.m = 300;
  p.n = 200;
  p.k = 100;
  p.batch = 3;
  p.transpose_b = true;
  p.operands = DType::kFp8;
  p.result = DType::kBf16;
  for (const bool with : {true, false}) {
    RecordingRing ring(60 * kNsPerSecond);
    constexpr TimeNs kStart = 1'700'000'000'000'000'000;
    ring.set_origin(kStart);
    for (int i = 0; i < 3; ++i) {
      ActivityRecord record;
      record.begin_ns = kStart + 1000 * (i + 1);
      record.end_ns = record.begin_ns + 500;
      record.correlation = CorrelationId{static_cast<std::uint32_t>(i + 1)};
      record.name = names.intern("sm90_xmma_gemm_e4m3bf16");
      if (i < 2) record.product = products.number_of(p);
      record.first_of_product = i == 0;
      ring.on_record(record, InstanceId::kNone, true);
    }
    TraceHeader header;
    header.devices.emplace_back(DeviceFacts{}, Peak{});
    header.products = with ? &products : nullptr;
    const std::string path = (std::filesystem::temp_directory_path() / "mfu_executed_traces_test.json").string();
    const auto done = write_trace(path, ring.snapshot(kStart + 10'000), header, rules, names, 60 * kNsPerSecond);
    ASSERT_TRUE(done.ok()) << done.error().message;
    const auto trace = open_trace(path);
    ASSERT_TRUE(trace.ok()) << trace.error().message;
    const RegionSummary total = total_of(*trace);
    EXPECT_EQ(total.executed.has_value(), with);
    if (with) {
      EXPECT_DOUBLE_EQ(total.executed->flop, 2.0 * 300 * 200 * 100 * 3);
      EXPECT_EQ(total.executed->covered_ns, 1000);
      EXPECT_EQ(total.executed->matmul_ns, 1500);
      std::size_t of_it = 0;
      for (const TraceProduct& product : trace->product_of_activity) of_it += product.product == p ? 1 : 0;
      EXPECT_EQ(of_it, 2u);
    }
    std::filesystem::remove(path);
  }
}

}  // namespace
}  // namespace mfu

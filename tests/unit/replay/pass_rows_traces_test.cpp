// Rows of passes in recorded traces, against the shapes that the program's own operators were recorded with.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>

#include "core/detect/pass_rows.h"
#include "core/kernels/kernel_names.h"
#include "tools/trace/byte_source.h"
#include "tools/trace/open_trace.h"

namespace mfu {
namespace {

std::string path_of(const std::string& name) {
  return (std::filesystem::path(MFU_TEST_DATA) / "traces" / name).string();
}

/// Over every kernel of a trace; its steps are all alike.
std::optional<Rows> rows_of(const std::string& name) {
  const auto trace = open_trace(path_of(name));
  if (!trace.ok()) {
    ADD_FAILURE() << trace.error().message;
    return std::nullopt;
  }
  std::unordered_map<std::uint32_t, KernelTraits> traits;
  PassRows rows;
  for (const TraceActivity& activity : trace->activities) {
    if (activity.kind != ActivityKind::kKernel) continue;
    const auto [known, fresh] = traits.try_emplace(activity.name);
    if (fresh) known->second = role_of_kernel(demangle(trace->strings.at(activity.name)));
    rows.add(known->second, to_kernel_record(*trace, activity).grid());
  }
  return rows.rows();
}

/// How often `op` was recorded with so many rows: the product of its first input's sides but the last.
std::map<std::int64_t, int> rows_of_operator(const std::string& name, const std::string& op) {
  auto source = ByteSource::open(path_of(name));
  if (!source.ok()) {
    ADD_FAILURE() << source.error().message;
    return {};
  }
  std::string text;
  for (std::size_t got = 1; got != 0;) {
    constexpr std::size_t kPiece = 1 << 20;
    text.resize(text.size() + kPiece);
    got = source.value().read({text.data() + text.size() - kPiece, kPiece}).value();
    text.resize(text.size() - kPiece + got);
  }
  std::map<std::int64_t, int> counts;
  const auto document = nlohmann::json::parse(text);
  for (const auto& event : document.at("traceEvents")) {
    if (event.value("name", "") != op || !event.contains("args")) continue;
    const auto& args = event["args"];
    const auto dims = args.contains("Input Dims") ? args["Input Dims"] : args.value("Input dims", nlohmann::json());
    if (!dims.is_array() || dims.empty() || dims[0].size() < 2) continue;
    std::int64_t rows = 1;
    for (std::size_t i = 0; i + 1 < dims[0].size(); ++i) rows *= dims[0][i].get<std::int64_t>();
    ++counts[rows];
  }
  return counts;
}

TEST(PassRowsOfTraces, BertEagerOnH100) {
  const char* trace = "tracelens_bert_small_h100.json.gz";
  const auto rows = rows_of(trace);
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows_of_operator(trace, "aten::layer_norm"), (std::map<std::int64_t, int>{{rows->rows, 10}}));
  EXPECT_EQ(rows->rows, 141);
  EXPECT_EQ(rows->from, KernelRole::kNorm);
  EXPECT_EQ(rows->launches, 10u);
}

TEST(PassRowsOfTraces, VllmPrefillOnB200) {
  const char* trace = "tracelens_vllm_eager_b200_rank0.json.gz";
  const auto rows = rows_of(trace);
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows_of_operator(trace, "aten::addmm").size(), 0u);  // its first input is the bias
  const auto of_linear = rows_of_operator(trace, "aten::linear");
  EXPECT_EQ(of_linear, (std::map<std::int64_t, int>{{888, 108}, {1, 1}}));  // the head runs over the last row alone
  EXPECT_EQ(rows->rows, 888);
  EXPECT_EQ(rows->from, KernelRole::kCacheWrite);
  EXPECT_EQ(rows->launches, 36u);
}

TEST(PassRowsOfTraces, ARecommenderWithLayerNorms) {
  const char* trace = "hta_torchrec2_v100_rank1.json.gz";
  const auto rows = rows_of(trace);
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->rows, 1024);
  const auto of_norms = rows_of_operator(trace, "aten::layer_norm");
  ASSERT_EQ(of_norms.size(), 1u);
  EXPECT_EQ(of_norms.begin()->first, 1024);
}

/// No shapes are recorded: its activations are 1536 wide, and copies of whole ones take 23,400 blocks of 1,024
/// elements.
TEST(PassRowsOfTraces, VideoDiffusionTrainingOnTwoH100) {
  const auto rows = rows_of("nsysai_wan_train_2xh100_before.sqlite.gz");
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->rows, 23'400 * 1'024 / 1'536);
  EXPECT_EQ(rows->from, KernelRole::kNorm);
}

/// Without a norm, rope or cache kernel of known grid: convolutions, recommenders without norms, RMS norms written as
/// elementwise operators, a trace without grids.
TEST(PassRowsOfTraces, NothingWhereNothingIsReliable) {
  for (const char* trace :
       {"param_dlrm8_v100_rank0.json.gz", "param_dlrm8_v100_rank1.json.gz", "param_dlrm8_v100_rank2.json.gz",
        "param_dlrm8_v100_rank3.json.gz", "kineto_resnet50_v100_w0.json.gz", "hta_resnet_ddp2_a100_rank0.json.gz",
        "hta_resnet_ddp_v100_ns.json.gz", "hta_alexnet_fwd_a100.json.gz", "tracelens_qwen05b_h100.json.gz",
        "tracelens_sglang_decode_graph_mi300x.json.gz", "fuser_h200_2025.sqlite.gz"})
    EXPECT_FALSE(rows_of(trace)) << trace;
}

}  // namespace
}  // namespace mfu

// `mfu flops` and `mfu plan` as a script calls them: the keys of the JSON contract, the golden workloads, the
// complaints.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tools/commands/commands.h"

namespace mfu {
namespace {

using nlohmann::json;

struct Output {
  int code = 0;
  std::string out, err;
};

Output mfu(const std::vector<std::string>& arguments) {
  CommandLine line("mfu", "");
  add_flops(line);
  add_plan(line);
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Output result;
  result.code = line.run(arguments);
  std::fflush(stdout);
  result.out = testing::internal::GetCapturedStdout();
  result.err = testing::internal::GetCapturedStderr();
  return result;
}

std::string config(const std::string& name) { return MFU_TEST_DATA "/reference/configs/" + name + ".json"; }

json flops(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "flops");
  arguments.push_back("--json");
  const Output result = mfu(arguments);
  EXPECT_EQ(result.code, 0) << result.err;
  return json::parse(result.out, nullptr, false);
}

/// Figures of public reports: pytorch/torchtitan pull request 4300 (FLOP per token before and since), and fms-fsdp
/// issue 67
/// ("192 TFLOP per sequence" of Llama 2 7B at 4,096 tokens, by PaLM's formula).
TEST(FlopsCommand, FiguresOfPublicReports) {
  const auto total = [](const std::string& model, const char* convention) {
    return flops({config(model), "--phase", "train", "--batch", "1", "--seq-len", "4096", "--convention",
                  convention})["flop"]["total"]
        .get<std::uint64_t>();
  };
  EXPECT_EQ(total("gpt-oss-20b", "torchtitan"), 26'481'681'792u * 4096);
  EXPECT_EQ(total("gpt-oss-20b", "torchtitan-2026"), 24'141'260'160u * 4096);
  EXPECT_EQ(total("llama-3-8b", "torchtitan-2026"), total("llama-3-8b", "torchtitan")) << "no window";
  // delta_rule_flops_per_token: 18 x heads x width of a key x width of a value, in 36 of 48 layers.
  const auto next = [](const char* convention) {
    return flops({MFU_TEST_DATA "/formats/qwen3_next.json", "--phase", "train", "--seq-len", "4096", "--convention",
                  convention})["flop"]["total"]
        .get<std::uint64_t>();
  };
  EXPECT_EQ(next("torchtitan-2026") - next("torchtitan"), std::uint64_t{36} * 18 * 32 * 128 * 128 * 4096);
  EXPECT_NEAR(static_cast<double>(total("llama-2-7b", "palm")), 192e12, 0.05e12);
  const json megatron = flops({config("gpt2"), "--convention", "megatron"});
  EXPECT_EQ(megatron["convention_of"], "Megatron-LM of August 2026");
  EXPECT_FALSE(flops({config("gpt2")}).contains("convention_of"));
}

/// Utilizations and counts that people worked out or corrected in public, from the same numbers.
TEST(FlopsCommand, UtilizationsOfPublicReports) {
  const auto per_token = [](const std::string& model, int seq_len, const char* convention) {
    return flops({model, "--phase", "train", "--seq-len", std::to_string(seq_len), "--convention",
                  convention})["flop"]["total"]
               .get<double>() /
           seq_len;
  };
  const auto peak = [](const char* gpu, const char* dtype) {
    return flops({"--kernel", "gemm", "--m", "64", "--n", "64", "--k", "64", "--gpu", gpu, "--dtype",
                  dtype})["peak"]["flop_per_s"]
        .get<double>();
  };
  // fms-fsdp issue 89: 9,600 tokens/s of Llama 2 7B are 46 % of an H100, not 24 % of its sparse rate.
  EXPECT_NEAR(9600 * per_token(config("llama-2-7b"), 4096, "palm") / peak("H100", "bf16"), 0.46, 0.006);
  // nanochat pull request 147: 529,882 tokens/s of its 20 layers on eight A100 are 74.13 %.
  const std::string nanochat = R"({"sequence_len": 2048, "vocab_size": 65536, "n_layer": 20, "n_head": 10,
                                   "n_kv_head": 10, "n_embd": 1280})";
  EXPECT_NEAR(529'882 * per_token(nanochat, 2048, "torchtitan") / (8 * peak("A100 SXM", "bf16")), 0.7413, 0.0005);
  // Megatron-LM issue 1565: 420 TFLOP/s are 42.45 % of an H200. torchtitan pull request 4604: 182.5 are 8.1 % of a
  // B200.
  EXPECT_NEAR(420e12 / peak("H200", "bf16"), 0.4245, 0.0002);
  EXPECT_NEAR(182.5e12 / peak("B200", "bf16"), 0.081, 0.0002);
  // llm.c pull request 621, nanochat issue 60, InferenceX issue 144: dense rates [1e12 FLOP/s].
  const std::tuple<const char*, const char*, double> rates[] = {
      {"A10", "bf16", 125},        {"RTX 3090", "bf16", 71},     {"RTX 4090", "bf16", 165.2},
      {"RTX 5090", "bf16", 209.5}, {"RTX A6000", "bf16", 154.8}, {"RTX 6000 Ada", "bf16", 364},
      {"H100", "fp8", 1979},       {"H200", "fp8", 1979},        {"B200", "fp8", 4500},
      {"B200", "fp4", 9000},       {"GB200", "fp4", 10000},      {"B300", "fp4", 13500},
      {"GB300", "fp4", 15000}};
  for (const auto& [gpu, dtype, rate] : rates) EXPECT_NEAR(peak(gpu, dtype) / 1e12 / rate, 1, 0.004) << gpu << dtype;
  // pytorch issue 195460 and xformers pull request 1404: attention alone, by query heads.
  const auto attention = [](const char* model, const char* seq_len) {
    return flops({model, "--phase", "prefill", "--seq-len", seq_len, "--attention", "full", "--kernel",
                  "flash_fwd"})["kernel"]["flop"]
        .get<std::uint64_t>();
  };
  EXPECT_EQ(attention(R"({"model_type": "gpt2", "n_layer": 1, "n_head": 12, "n_embd": 768,
                          "n_positions": 64, "vocab_size": 1000})",
                      "64"),
            12'582'912u);
  EXPECT_EQ(attention(R"({"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 1, "num_attention_heads": 8,
                          "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 1000})",
                      "256"),
            134'217'728u);
}

/// Attention stays within each document: as many sequences of their length, counted one by one.
TEST(FlopsCommand, PackedDocumentsAttendWithinThemselves) {
  const auto train = [](std::vector<std::string> shape) {
    shape.insert(shape.begin(), {config("llama-3-8b"), "--phase", "train"});
    return flops(shape);
  };
  const json packed = train({"--batch", "2", "--seq-len", "32768", "--documents", "32"});
  EXPECT_EQ(packed["flop"]["total"], train({"--batch", "64", "--seq-len", "1024"})["flop"]["total"]);
  const json plain = train({"--batch", "2", "--seq-len", "32768"});
  EXPECT_EQ(packed["flop"]["mlp"], plain["flop"]["mlp"]) << "as many tokens";
  EXPECT_LT(packed["flop"]["attn_scores"].get<double>(), plain["flop"]["attn_scores"].get<double>() / 31);
  EXPECT_EQ(train({"--seq-len", "1000", "--documents", "3"})["flop"]["total"],
            train({"--seq-lens", "334,333,333"})["flop"]["total"]);
  EXPECT_EQ(train({"--seq-len", "2", "--documents", "3"})["flop"]["total"],
            train({"--batch", "2", "--seq-len", "1"})["flop"]["total"]);
}

TEST(FlopsCommand, TheShareOfOneRank) {
  const std::vector<std::string> shape = {"--phase", "train", "--batch", "2", "--seq-len", "512"};
  const auto with = [&shape](const std::string& model, std::vector<std::string> more) {
    more.insert(more.begin(), shape.begin(), shape.end());
    more.insert(more.begin(), config(model));
    return more;
  };
  const json whole = flops(with("mixtral-8x7b", {}));
  EXPECT_FALSE(whole.contains("parallel"));
  const json j = flops(with("mixtral-8x7b", {"--tp", "2", "--pp", "4", "--ep", "2"}));
  EXPECT_EQ(j["flop"]["total"], whole["flop"]["total"]) << "the whole model, as before";
  EXPECT_EQ(j["parallel"]["this_rank"], "1/8 of the model (tp 2, pp 4, ep 2; stages taken as equal)");
  EXPECT_EQ(j["parallel"]["flop_of_rank"].get<std::uint64_t>() * 8, whole["flop"]["total"].get<std::uint64_t>());
  const json uneven = flops(with("mixtral-8x7b", {"--pp", "3"}));
  EXPECT_EQ(uneven["parallel"]["this_rank"],
            "1/3 of the model (pp 3; stages taken as equal, but 32 layers do not divide by 3)");

  std::vector<std::string> words = with("mixtral-8x7b", {"--tp", "8"});
  words.insert(words.begin(), "flops");
  EXPECT_NE(mfu(words).out.find("this rank: 1/8 of the model (tp 8), "), std::string::npos) << mfu(words).out;
  words = with("llama-3-8b", {"--ep", "8"});
  words.insert(words.begin(), "flops");
  const Output refused = mfu(words);
  EXPECT_NE(refused.code, 0);
  EXPECT_NE(refused.err.find("--ep: parallel.ep: expected 1: the model has no experts, got 8"), std::string::npos)
      << refused.err;
}

TEST(FlopsCommand, JsonContract) {
  const json j = flops({config("mixtral-8x7b"), "--phase", "decode", "--batch", "32", "--context", "2047", "--gpu",
                        "NVIDIA H100 80GB HBM3", "--dtype", "bf16"});
  for (const char* key : {"model", "shape", "convention", "attention", "attention_counted", "logits", "flop", "bytes",
                          "peak", "roofline_s", "bound"})
    EXPECT_TRUE(j.contains(key)) << key;
  for (const char* key : {"family", "params", "gqa_group_size", "attention_to_ffn_ratio"})
    EXPECT_TRUE(j["model"].contains(key)) << key;
  for (const char* key : {"total", "active", "embedding"})
    EXPECT_TRUE(j["model"]["params"][key].is_number_integer()) << key;
  for (const char* key : {"qkv", "attn_scores", "attn_av", "o_proj", "mlp", "router", "logits", "forward", "backward",
                          "recompute", "total"}) {
    EXPECT_TRUE(j["flop"][key].is_number_integer()) << key;
  }
  for (const char* key : {"weights_read", "weights_read_min", "weights_read_max", "kv_read", "kv_write"})
    EXPECT_TRUE(j["bytes"][key].is_number_integer()) << key;
  for (const char* key : {"flop_per_s", "bytes_per_s", "dtype", "sparse", "source"})
    EXPECT_TRUE(j["peak"].contains(key)) << key;
  EXPECT_EQ(j["peak"]["flop_per_s"], 989400000000000);
  const double bytes = j["bytes"]["weights_read"].get<double>() + j["bytes"]["kv_read"].get<double>() +
                       j["bytes"]["kv_write"].get<double>();
  EXPECT_NEAR(j["roofline_s"].get<double>(), bytes / 3350e9, 1e-12);
  EXPECT_EQ(j["bound"], "memory");
}

TEST(FlopsCommand, GoldenWorkloadsAsCalls) {
  const json golden = json::parse(std::ifstream(MFU_TEST_DATA "/reference/golden.json"));
  for (const json& model : golden["models"]) {
    for (const json& w : model["workloads"]) {
      const std::string where = model["model"].get<std::string>() + " " + w["id"].get<std::string>();
      const std::int64_t past = w["first_pass"]["past"], fed = w["first_pass"]["new"], passes = w["passes"];
      const std::string region = w["region"];
      std::vector<std::string> call = {config(model["model"]),
                                       "--phase",
                                       region == "step" ? "train" : region,
                                       "--logits",
                                       "all",
                                       "--weight-dtype",
                                       "bf16",
                                       "--kv-dtype",
                                       "bf16"};
      const auto add = [&call](const char* option, const std::string& value) {
        call.insert(call.end(), {option, value});
      };
      if (w["id"] == "prefill_mixed") {
        add("--seq-lens", std::to_string(fed) + "," + std::to_string(fed / 2) + "," + std::to_string(fed / 8) + ",1");
        add("--contexts", "0,0," + std::to_string(fed / 4) + ",0");
      } else {
        add("--batch", std::to_string(w["batch"].get<std::int64_t>()));
        if (region != "step") add("--context", std::to_string(past));
        if (passes > 1) {
          add("--new-tokens", std::to_string(passes));
        } else {
          add("--seq-len", std::to_string(fed));
        }
      }
      if (w.contains("encoder_len")) {
        add("--encoder-len", std::to_string(w["encoder_len"].get<std::int64_t>()));
        add("--encoder-runs", w["encoder_runs"].get<bool>() ? "yes" : "no");
      }
      const json j = flops(call);
      ASSERT_TRUE(j.is_object()) << where;
      EXPECT_EQ(j["flop"]["forward"], w["flops"]["forward"]["causal"]["all"]) << where;
      if (w["flops"].contains("train")) {
        EXPECT_EQ(j["flop"]["total"], w["flops"]["train"]["causal"]) << where;
      }
      if (w.contains("bytes_bf16")) {
        EXPECT_EQ(j["bytes"]["weights_read_max"], w["bytes_bf16"]["weights_read"]["max"]) << where;
      }
      if (w.contains("bytes_bf16") && w["bytes_bf16"].contains("kv_read")) {
        EXPECT_EQ(j["bytes"]["kv_read"], w["bytes_bf16"]["kv_read"]) << where;
      }
    }
    for (const json& v : model.value("vision", json::array())) {
      int height = 0, width = 0;
      ASSERT_EQ(std::sscanf(v["case"].get<std::string>().c_str(), "one %dx%d", &height, &width), 2);
      const json j = flops({config(model["model"]), "--phase", "prefill", "--seq-len", "8", "--images",
                            std::to_string(height) + "x" + std::to_string(width)});
      EXPECT_EQ(j["flop"]["vision"], v["forward"]);
    }
  }
}

TEST(FlopsCommand, OneKernel) {
  const json flash =
      flops({config("llama-3-8b"), "--phase", "prefill", "--batch", "2", "--seq-len", "100", "--kernel", "flash_fwd"});
  EXPECT_EQ(flash["flop"]["total"], 2 * 2 * 32 * 256 * (100 * 101 / 2));
  EXPECT_EQ(flash["kernel"]["launches"], 32);
  const json back =
      flops({config("llama-3-8b"), "--phase", "train", "--batch", "2", "--seq-len", "100", "--kernel", "flash_bwd"});
  EXPECT_EQ(back["flop"]["total"], 2 * flash["flop"]["total"].get<std::int64_t>());
  EXPECT_EQ(flops({"--kernel", "gemm", "--m", "3", "--n", "5", "--k", "7"})["flop"]["total"], 2 * 3 * 5 * 7);
}

/// 2: the command line is wrong; 1: it is right, and what it names cannot be used or worked out.
TEST(FlopsCommand, ComplaintsAreOneLineAndAnExitCode) {
  struct Case {
    int code;
    std::vector<std::string> call;
    std::string expected;
  };
  const Case cases[] = {
      {1, {"flops", "/none.json"}, "/none.json: expected a config file"},
      {1, {"flops", "[1]"}, "[1]: expected a config file"},
      {1,
       {"flops", config("gpt2"), "--batch", "1000000000000", "--seq-len", "1000000000000"},
       "the product is beyond 2^64"},
      {2, {"flops"}, "CONFIG: expected a config file"},
      {2, {"flops", config("gpt2"), "--json", "--markdown"}, "one of --json and --markdown"},
      {2, {"flops", config("gpt2"), "--phase", "decode"}, "--context: expected"},
      {2, {"flops", config("gpt2"), "--phase", "prefill"}, "--seq-len: expected"},
      {2,
       {"flops", config("gpt2"), "--seq-len", "8", "--gpu", "Riva TNT"},
       "--gpu: expected a known GPU, got \"Riva TNT\""},
      {2,
       {"flops", config("gpt2"), "--phase", "prefill", "--seq-lens", "1,2", "--contexts", "1"},
       "--contexts: expected 2 values"},
      {2, {"flops", config("t5-large"), "--phase", "decode", "--context", "3"}, "--encoder-len: expected"},
      {2, {"flops", config("gpt2"), "--kernel", "gemm"}, "--kernel gemm: expected --m"},
      {2, {"flops", config("gpt2"), "--kernel", "qkv"}, "--kernel qkv: expected a shape"},
      {1, {"plan", "--flop", "10"}, "no plan: "},
      {2, {"plan"}, "expected --flop, --params or --tokens"},
      {2, {"plan", "--flop", "x"}, "--flop: expected a number"},
      {2, {"plan", "--flop", "1e24", "--dtype", "bf17"}, "--dtype: expected a number format"},
      {2, {"plan", "--flop", "1e24", "--gpus", "8"}, "--gpu: expected the GPU that the days are for"},
  };
  for (const auto& [code, call, expected] : cases) {
    const Output result = mfu(call);
    EXPECT_EQ(result.code, code) << expected;
    EXPECT_NE(result.err.find(expected), std::string::npos) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_EQ(result.out, "");
  }
}

TEST(FlopsCommand, TablesForPeople) {
  const Output table = mfu({"flops", config("gemma-3-4b"), "--phase", "prefill", "--seq-len", "2048", "--images",
                            "896x896", "--gpu", "h100-sxm"});
  EXPECT_NE(table.out.find("5,461,902,360,576"), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("compute-bound"), std::string::npos) << table.out;
  const Output markdown = mfu({"flops", config("gpt2"), "--seq-len", "1024", "--markdown"});
  EXPECT_NE(markdown.out.find("| logits | 79,047,426,048 |"), std::string::npos) << markdown.out;
}

/// The headline says which pairs are in the total, not which mode was asked for.
TEST(FlopsCommand, HeadlineNamesThePairsThatCount) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"flops", config("bert-base"), "--seq-len", "8"}, "attention bidirectional,"},
      {{"flops", config("gpt2"), "--seq-len", "8"}, "attention causal,"},
      {{"flops", config("gpt2"), "--seq-len", "8", "--attention", "full"}, "attention full,"},
      {{"flops", config("t5-large"), "--seq-len", "8", "--encoder-len", "8"},
       "attention causal, bidirectional in the encoder,"},
      {{"flops", R"({"model_type": "mamba", "hidden_size": 8, "num_hidden_layers": 1, "vocab_size": 9})", "--seq-len",
        "8"},
       "attention none,"},
      {{"flops", R"({"params": "7B"})", "--seq-len", "8"}, "attention not counted,"}};
  for (const auto& [call, expected] : cases) {
    const Output result = mfu(call);
    EXPECT_NE(result.out.find(expected), std::string::npos) << result.out << result.err;
  }
}

TEST(PlanCommand, JsonContract) {
  const Output result =
      mfu({"plan", "--flop", "5.76e23", "--gpu", "h100-sxm", "--gpus", "1024", "--mfu", "0.4", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  const json j = json::parse(result.out);
  for (const char* key : {"params", "tokens", "flop", "loss", "days", "constants"}) EXPECT_TRUE(j.contains(key)) << key;
  EXPECT_NEAR(j["days"].get<double>(), 5.76e23 / (989.4e12 * 1024 * 0.4) / 86400, 1e-9);
  const Output percent =
      mfu({"plan", "--flop", "5.76e23", "--gpu", "h100-sxm", "--gpus", "1024", "--mfu", "40%", "--json"});
  EXPECT_EQ(percent.out, result.out) << percent.err;
  for (const char* wrong : {"40", "0", "-1", "fast", "140%", "nan"}) {
    const Output refused = mfu({"plan", "--flop", "5.76e23", "--gpu", "h100-sxm", "--mfu", wrong});
    EXPECT_EQ(refused.code, 2) << wrong;
    EXPECT_NE(refused.err.find("such as 0.4 or 40%, got \"" + std::string(wrong) + "\""), std::string::npos)
        << refused.err;
  }
}

}  // namespace
}  // namespace mfu

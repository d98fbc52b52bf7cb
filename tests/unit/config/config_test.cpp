// Settings: environment, config file, overrides, launchers, model look-up, and the words of every complaint.
#include "core/config/config.h"
#include "core/config/launcher.h"
#include "core/families/architecture_json.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/config/variables.h"

namespace mfu {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

using Variables = std::map<std::string, std::string>;

Getenv lookup(const Variables& variables) {
  return [variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

/// A folder of the test's own, removed at its end.
class ConfigTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("mfu_config_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path.string();
  }

  fs::path folder_;
};

constexpr const char* kLlama =
    R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 100, "torch_dtype": "bfloat16"})";

bool mentions(const std::vector<std::string>& lines, const std::string& piece) {
  for (const std::string& line : lines) {
    if (line.find(piece) != std::string::npos) return true;
  }
  return false;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return all;
}

TEST_F(ConfigTest, NothingSetGivesDefaults) {
  const Config config = load_config(lookup({}), nullptr);
  EXPECT_FALSE(config.model);
  EXPECT_EQ(config.interval_s, 10);
  EXPECT_EQ(config.log.target, "stderr");
  EXPECT_EQ(config.run_dir, "");
  EXPECT_EQ(config.rank, 0);
  EXPECT_EQ(config.world_size, 1);
  EXPECT_EQ(config.profiler, ProfilerPolicy::kOwn);
  EXPECT_FALSE(config.disabled);
  EXPECT_TRUE(config.warnings.empty()) << joined(config.warnings);
  EXPECT_FALSE(config.host.empty());
}

TEST_F(ConfigTest, HuggingFaceConfigAsItIs) {
  const std::string path = write("config.json", kLlama);
  for (const std::string& source : {path, folder_.string(), std::string(kLlama)}) {
    const Config config = load_config(lookup({{"MFU_MODEL_CONFIG", source}}), nullptr);
    ASSERT_TRUE(config.model) << source << joined(config.warnings);
    EXPECT_TRUE(config.warnings.empty()) << joined(config.warnings);
    EXPECT_EQ(config.model->dtype(), DType::kBf16);
    EXPECT_EQ(config.model->convention(), "exact");
    const json model = json::parse(model_json(config.model->spec()));
    EXPECT_EQ(model["family"], "llama");
    EXPECT_EQ(model["gqa_group_size"], 2);
    EXPECT_TRUE(json::parse(config.resolved_json).is_object());
  }
}

TEST_F(ConfigTest, ModelIdInTheHubCache) {
  write("hub/models--Org--Name/snapshots/aaa/config.json", R"({"params": 1000})");
  write("hub/models--Org--Name/snapshots/bbb/config.json", kLlama);
  write("hub/models--Org--Name/refs/main", "bbb\n");
  for (const Variables& cache :
       {Variables{{"HF_HUB_CACHE", (folder_ / "hub").string()}}, Variables{{"HF_HOME", folder_.string()}}}) {
    const Result<Config> config = load_config_file("Org/Name", lookup(cache));
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_NE(config->model_source.find("bbb/config.json"), std::string::npos) << config->model_source;
  }
  write(".cache/huggingface/hub/models--gpt2/snapshots/x/config.json", kLlama);
  EXPECT_TRUE(load_config_file("gpt2", lookup({{"HOME", folder_.string()}})).ok());
  const Result<Config> missing = load_config_file("Org/Other", lookup({{"HF_HOME", folder_.string()}}));
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find("Org/Other"), std::string::npos);
  EXPECT_NE(missing.error().message.find((folder_ / "hub").string()), std::string::npos) << missing.error().message;
}

TEST_F(ConfigTest, WrapperWithEverything) {
  write("model/config.json", kLlama);
  const std::string path = write("job.json", R"({
    // comments are allowed
    "model": "model",
    "workload": {"phase": "train", "batch": 8, "seq_len": 4096, "grad_accum": 4, "recompute": "full", "trainable": "all"},
    "parallel": {"tp": 2, "pp": 1, "cp": 1, "ep": 1, "dp": 1},
    "peak": {"dtype": "fp8_e4m3", "sparse": false, "tflops": 1000, "gbps": null},
    "counting": {"convention": "palm", "attention": "full"},
    "regions": [{"region": "decode", "match": "LLM@decode.*", "domain": "LLM", "payload": "context", "phase": "decode", "batch": 4}],
    "presets": ["pytorch"]
  })");
  const Result<Config> config = load_config_file(path, lookup({}));
  ASSERT_TRUE(config.ok()) << config.error().message;
  ASSERT_TRUE(config->model);
  EXPECT_TRUE(config->warnings.empty()) << joined(config->warnings);
  EXPECT_EQ(config->workload.phase, Phase::kTrain);
  EXPECT_EQ(config->workload.shape.batch, 8);
  EXPECT_EQ(config->workload.shape.seq_len, 4096);
  EXPECT_EQ(config->workload.grad_accum, 4);
  EXPECT_EQ(config->peak.dtype, DType::kFp8);
  EXPECT_EQ(config->peak.tflops, 1000);
  EXPECT_FALSE(config->peak.gbps);
  EXPECT_EQ(config->model->convention(), "palm");
  ASSERT_EQ(config->regions.size(), 1u);
  EXPECT_EQ(config->regions[0].domain, "LLM");
  EXPECT_EQ(config->regions[0].payload, "context");
  EXPECT_EQ(config->regions[0].phase, Phase::kDecode);
  EXPECT_EQ(config->regions[0].constants.batch, 4);
  EXPECT_EQ(config->presets, std::vector<std::string>{"pytorch"});
}

TEST_F(ConfigTest, NanoGptAndParamsAndOwnSchema) {
  for (const char* text :
       {R"({"n_layer": 12, "n_head": 12, "n_embd": 768, "block_size": 1024, "vocab_size": 50304, "bias": false})",
        R"({"model": {"n_layer": 12, "n_head": 12, "n_embd": 768}})", R"({"params": 7e9})",
        R"({"model": {"params": 7e9}})",
        R"({"d_model": 64, "vocab_size": 100, "layers": [{"repeat": 2, "attention": {"heads": 4, "head_dim": 16},
                               "mlp": {"width": 256, "matrices": 2}}]})"}) {
    const Result<Config> config = load_config_file(text, lookup({}));
    ASSERT_TRUE(config.ok()) << text << ": " << config.error().message;
    EXPECT_TRUE(config->model) << text;
  }
}

TEST_F(ConfigTest, WrongValuesNameFileKeyValueAndExpectation) {
  const std::string path = write("job.json", R"({"model": {"model_type": "llama", "hidden_size": "32x"}})");
  const Config live = load_config(lookup({{"MFU_MODEL_CONFIG", path}}), nullptr);
  EXPECT_FALSE(live.model);
  ASSERT_EQ(live.warnings.size(), 1u) << joined(live.warnings);
  EXPECT_EQ(live.warnings[0],
            "MFU_MODEL_CONFIG " + path +
                ": model.hidden_size: expected an integer > 0, at most 2^31, got \"32x\"; measuring time only");
  const Result<Config> strict = load_config_file(path, lookup({}));
  ASSERT_FALSE(strict.ok());
  EXPECT_EQ(strict.error().message, path + ": model.hidden_size: expected an integer > 0, at most 2^31, got \"32x\"");
}

TEST_F(ConfigTest, EachComplaint) {
  const std::pair<std::string, std::string> cases[] = {
      {R"({"model_type": "no_such"})",
       "inline: model_type: expected a supported model type, got \"no_such\"; nearest: "},
      {R"({"model_type": 7})", "model_type: expected a supported model type, got 7"},
      {R"({"hidden_size": 7})", "model_type: expected a model type, but it is missing"},
      {R"({"model_type": "llama"})", "hidden_size: expected an integer > 0, but it is missing"},
      {R"({"model_type": "llama", "hidden_size": -4})", "hidden_size: expected an integer > 0, at most 2^31, got -4"},
      {R"({"model_type": "llama", "hidden_size": 99999999999})", "got 99999999999"},
      {R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 5, "intermediate_size": 1, "vocab_size": 1})",
       "num_attention_heads: expected a divisor of 64, got 5"},
      {R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 3, "intermediate_size": 1, "vocab_size": 1})",
       "num_key_value_heads: expected a divisor of the 4 query heads, got 3"},
      {R"({"model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 1, "vocab_size": 1, "num_local_experts": 8})",
       "num_experts_per_tok: expected an integer > 0, but it is missing"},
      {R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 1, "vocab_size": 1, "layer_types": ["full_attention", "magic"]})",
       "layer_types: expected layer types that this family has, such as full_attention, got \"magic\""},
      {R"({"model": {"params": 5}, "workload": {"batch": 0}})",
       "inline: workload.batch: expected an integer from 1 to 1099511627776, got 0"},
      {R"({"params": "many"})",
       "inline: params: expected a number of parameters such as 7e9, 7B or 1.4T, got \"many\""},
      {R"({"params": "0B"})", "inline: params: expected a number of parameters such as 7e9, 7B or 1.4T, got \"0B\""},
      {R"({"model": {"params": 5}, "workload": {"batch": "eight"}})",
       "inline: workload.batch: expected an integer from 1 to 1099511627776, got \"eight\""},
      {R"({"model": {"params": 5}, "peak": {"dtype": "bf17"}})", "peak.dtype: expected a number format"},
      {R"({"model": {"params": 5}, "counting": {"convention": "mine"}})", "counting.convention: expected exact"},
      {R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 1, "vocab_size": 1, "index_topk": 8})",
       "index_topk: sparse attention, which llama has not"},
      {R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 9, "n_positions": 8, "add_cross_attention": true})",
       "add_cross_attention: attention to the encoder"},
      {R"({"model_type": "nemotron_h", "hidden_size": 64, "num_hidden_layers": 2, "hybrid_override_pattern": "MZ", "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128, "vocab_size": 9, "mamba_num_heads": 4, "mamba_head_dim": 32, "ssm_state_size": 16, "n_groups": 1})",
       "model_type: this variant of nemotron_h is not known"},
      {R"({"model": {"params": 5}, "workload": 3})", "workload: expected an object, got 3"},
      {R"({"model": {"params": 5}, "regions": [{"region": "x", "match": 3}]})",
       "regions[0].match: expected text, got 3"},
      {R"({"model": {"params": 5}, "regions": [{"match": "x"}]})",
       "regions[0].region: expected text, but it is missing"},
      {R"({"model": {"params": 5}, "workload": {"trainable": "some"}})", "workload.trainable: expected \"all\""},
      {R"({"model": [1]})", "model: expected a path, a model id or an object, got a list"},
      {R"({"model": {}})", "model_type"},
      {R"({"model_type": )", "not valid JSON near line 1"},
      {R"(  )", "got nothing"},
      {"/nonexistent/config.json", "/nonexistent/config.json: expected a config file"},
  };
  for (const auto& [text, expected] : cases) {
    const Result<Config> config = load_config_file(text, lookup({}));
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_NE(config.error().message.find(expected), std::string::npos) << text << "\n" << config.error().message;
    EXPECT_EQ(config.error().message.find('\n'), std::string::npos);
    // The same while a host runs: a line, and everything else works.
    const Config live = load_config(lookup({{"MFU_MODEL_CONFIG", text}, {"MFU_INTERVAL", "5"}}), nullptr);
    EXPECT_EQ(live.interval_s, 5);
    EXPECT_FALSE(live.warnings.empty()) << text;
  }
}

TEST_F(ConfigTest, UnknownKeysGetTheNearestRightOne) {
  const Result<Config> config =
      load_config_file(R"({"model": {"params": 5}, "wrokload": {}, "peak": {"dtyp": "bf16"}})", lookup({}));
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_TRUE(mentions(config->warnings, "inline: wrokload: unknown key with value an object; did you mean workload?"))
      << joined(config->warnings);
  EXPECT_TRUE(mentions(config->warnings, "inline: peak.dtyp: unknown key with value \"bf16\"; did you mean dtype?"))
      << joined(config->warnings);
}

TEST_F(ConfigTest, ForAnEndlessKeyNoNearestOneIsLookedFor) {
  // As long as a config may be: its distance to each name would take seconds, inside the host's cuInit.
  const std::string endless = "workload" + std::string(15u << 20, 'd');
  const Result<Config> config = load_config_file(R"({"model": {"params": 5}, ")" + endless + R"(": {}})", lookup({}));
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_TRUE(mentions(config->warnings, "unknown key")) << joined(config->warnings);
  EXPECT_FALSE(mentions(config->warnings, "did you mean")) << joined(config->warnings);
}

TEST_F(ConfigTest, ComplaintsStayOnOneLine) {
  const Config config = load_config(
      lookup({{"MFU_MODEL_CONFIG", R"({"model": {"params": 5}, "a\nb\u0007": 1})"}, {"MFU_SET", "x\ny"}}), nullptr);
  ASSERT_EQ(config.warnings.size(), 2u) << joined(config.warnings);
  for (const std::string& line : config.warnings) EXPECT_EQ(line.find_first_of("\n\a"), std::string::npos) << line;
  const Result<Config> strict = load_config_file("/no\nsuch/file", lookup({}));
  ASSERT_FALSE(strict.ok());
  EXPECT_EQ(strict.error().message.find('\n'), std::string::npos);
}

TEST_F(ConfigTest, MisspeltVariablesGetTheNearestRightOne) {
  const char* environment[] = {"PATH=/bin",    "MFU_MODEL_CONFG=x", "MFU_RUNDIR=y", "MFU_TRACE=1", "MFU_DETECT=1",
                               "MFU_LOG=none", "MFU_PEAK_TFLOP=3",  "MFU_FOO=1",    nullptr};
  const Config config = load_config(lookup({{"MFU_LOG", "none"}}), environment);
  ASSERT_EQ(config.warnings.size(), 4u) << joined(config.warnings);
  EXPECT_EQ(config.warnings[3], "MFU_FOO: unknown variable");  // nothing is near
  EXPECT_EQ(config.warnings[0], "MFU_MODEL_CONFG: unknown variable; did you mean MFU_MODEL_CONFIG?");
  EXPECT_EQ(config.warnings[1], "MFU_RUNDIR: unknown variable; did you mean MFU_RUN_DIR?");
  EXPECT_EQ(config.warnings[2], "MFU_PEAK_TFLOP: unknown variable; did you mean MFU_PEAK_TFLOPS?");
}

TEST_F(ConfigTest, Overrides) {
  const Variables variables{{"MFU_MODEL_CONFIG", kLlama},
                            {"MFU_SET",
                             "workload.batch=8,peak.dtype=fp8,model.num_hidden_layers=4,workload.images=[\"10x20\","
                             "\"30x40\"],peak.tflops=500"},
                            {"MFU_PEAK_TFLOPS", "600"}};
  const Config config = load_config(lookup(variables), nullptr);
  EXPECT_TRUE(config.warnings.empty()) << joined(config.warnings);
  EXPECT_EQ(config.workload.shape.batch, 8);
  EXPECT_EQ(config.peak.dtype, DType::kFp8);
  EXPECT_EQ(config.peak.tflops, 600);  // the variable made for it has the last word
  ASSERT_TRUE(config.model);
  EXPECT_EQ(config.model->spec().layers[0].repeat, 4);
  EXPECT_EQ(config.model->options().images.size(), 2u);
  const Config odd =
      load_config(lookup({{"MFU_SET", "workload,peak..x=3,.a=1,workload.batch=2,workload.batch.x=1"}}), nullptr);
  EXPECT_EQ(odd.warnings.size(), 4u) << joined(odd.warnings);
  EXPECT_EQ(odd.workload.shape.batch, 2);
}

TEST_F(ConfigTest, EnvironmentValues) {
  const Config config = load_config(lookup({{"MFU_INTERVAL", "2.5"},
                                            {"MFU_PROFILER", "share"},
                                            {"MFU_CUPTI", "/x/libcupti.so"},
                                            {"MFU_LOG_RANKS", "all"},
                                            {"MFU_RUN_DIR", "/runs/%h/%r-%p-%q{JOB}-%%"},
                                            {"JOB", "42"},
                                            {"RANK", "3"},
                                            {"LOCAL_RANK", "1"},
                                            {"WORLD_SIZE", "8"},
                                            {"MFU_PEAK_GBPS", "2000"}}),
                                    nullptr);
  EXPECT_TRUE(config.warnings.empty()) << joined(config.warnings);
  EXPECT_EQ(config.interval_s, 2.5);
  EXPECT_EQ(config.profiler, ProfilerPolicy::kShare);
  EXPECT_EQ(config.cupti_path, "/x/libcupti.so");
  EXPECT_TRUE(config.log.all_ranks);
  EXPECT_EQ(config.run_dir, "/runs/" + config.host + "/3-" + std::to_string(::getpid()) + "-42-%");
  EXPECT_EQ(config.peak.gbps, 2000);
  const Config bad = load_config(lookup({{"MFU_INTERVAL", "-1"},
                                         {"MFU_PROFILER", "mine"},
                                         {"MFU_LOG_RANKS", "some"},
                                         {"MFU_PEAK_TFLOPS", "many"},
                                         {"MFU_DISABLE", "perhaps"}}),
                                 nullptr);
  EXPECT_EQ(bad.warnings.size(), 5u) << joined(bad.warnings);
  EXPECT_EQ(bad.interval_s, 10);
  EXPECT_TRUE(load_config(lookup({{"MFU_DISABLE", "1"}}), nullptr).disabled);
}

TEST_F(ConfigTest, Launchers) {
  const std::pair<Variables, std::array<std::optional<std::int64_t>, 3>> cases[] = {
      {{{"RANK", "5"}, {"LOCAL_RANK", "1"}, {"WORLD_SIZE", "8"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}},
       {5, 1, 8}},
      {{{"SLURM_PROCID", "2"}, {"SLURM_LOCALID", "2"}, {"SLURM_NTASKS", "16"}}, {2, 2, 16}},
      {{{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "4"}}, {3, 0, 4}},
      {{{"PMIX_RANK", "6"}}, {6, std::nullopt, 1}},
      {{{"PMI_RANK", "7"}, {"PMI_SIZE", "9"}}, {7, std::nullopt, 9}},
      {{{"FLUX_TASK_RANK", "1"}, {"FLUX_TASK_LOCAL_ID", "1"}, {"FLUX_JOB_SIZE", "2"}}, {1, 1, 2}},
      // mpirun in a batch script of Slurm: every process inherits the script's variables.
      {{{"SLURM_JOB_ID", "12"},
        {"SLURM_PROCID", "0"},
        {"SLURM_LOCALID", "0"},
        {"SLURM_NTASKS", "16"},
        {"OMPI_COMM_WORLD_RANK", "3"},
        {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
        {"OMPI_COMM_WORLD_SIZE", "4"}},
       {3, 3, 4}},
      // mpiexec of MPICH there, whose processes on other hosts are below a task of srun.
      {{{"SLURM_JOB_ID", "12"},
        {"SLURM_STEP_ID", "0"},
        {"SLURM_PROCID", "1"},
        {"SLURM_NTASKS", "2"},
        {"PMI_RANK", "5"},
        {"PMI_SIZE", "8"},
        {"MPI_LOCALRANKID", "1"}},
       {5, 1, 8}},
      // srun --mpi=pmi2.
      {{{"SLURM_JOB_ID", "12"},
        {"SLURM_STEP_ID", "0"},
        {"SLURM_PROCID", "5"},
        {"SLURM_LOCALID", "1"},
        {"SLURM_STEP_NUM_TASKS", "8"},
        {"PMI_RANK", "5"},
        {"PMI_SIZE", "8"}},
       {5, 1, 8}},
      // srun --preserve-env -n 4 in an allocation of 16.
      {{{"SLURM_JOB_ID", "12"},
        {"SLURM_STEP_ID", "0"},
        {"SLURM_PROCID", "2"},
        {"SLURM_LOCALID", "2"},
        {"SLURM_NTASKS", "16"},
        {"SLURM_STEP_NUM_TASKS", "4"}},
       {2, 2, 4}},
      // The batch script itself, and what Lightning starts there.
      {{{"SLURM_JOB_ID", "12"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "16"}}, {0, std::nullopt, 1}},
      {{{"SLURM_JOB_ID", "12"},
        {"SLURM_PROCID", "0"},
        {"SLURM_NTASKS", "16"},
        {"NODE_RANK", "0"},
        {"LOCAL_RANK", "2"},
        {"WORLD_SIZE", "4"}},
       {2, 2, 4}},
      {{{"NODE_RANK", "1"}, {"LOCAL_RANK", "2"}, {"WORLD_SIZE", "8"}}, {0, 2, 8}},  // how many on each host nobody says
      // Flux has the variables of PMI as well.
      {{{"FLUX_TASK_RANK", "3"},
        {"FLUX_TASK_LOCAL_ID", "1"},
        {"FLUX_JOB_SIZE", "4"},
        {"PMI_RANK", "3"},
        {"PMI_SIZE", "4"}},
       {3, 1, 4}},
      {{{"JOB_COMPLETION_INDEX", "3"}, {"WORLD_SIZE", "4"}}, {3, std::nullopt, 4}},
      {{{"JOB_COMPLETION_INDEX", "3"}}, {0, std::nullopt, 1}},  // a task of its own
      {{{"JOB_COMPLETION_INDEX", "3"}, {"RANK", "1"}, {"WORLD_SIZE", "4"}}, {1, std::nullopt, 4}},
      {{{"MV2_COMM_WORLD_RANK", "4"}, {"MV2_COMM_WORLD_LOCAL_RANK", "0"}, {"MV2_COMM_WORLD_SIZE", "8"}}, {4, 0, 8}},
      {{{"RANK", "x"}}, {0, std::nullopt, 1}},
  };
  for (const auto& [variables, expected] : cases) {
    const Config config = load_config(lookup(variables), nullptr);
    EXPECT_EQ(config.rank, expected[0]);
    EXPECT_EQ(config.local_rank, expected[1]);
    EXPECT_EQ(config.world_size, expected[2]);
  }
  const std::tuple<Variables, std::string, std::int64_t> starts[] = {
      {{}, "", 0},
      {{{"SLURM_JOB_ID", "12"}}, "slurm-12", 0},
      {{{"SLURM_JOB_ID", "12"}, {"SLURM_RESTART_COUNT", "2"}, {"TORCHELASTIC_RUN_ID", "x"}}, "slurm-12", 2},
      {{{"TORCHELASTIC_RUN_ID", "x"}, {"TORCHELASTIC_RESTART_COUNT", "1"}}, "elastic-x", 1},
      {{{"TORCHELASTIC_RUN_ID", "none"}, {"TORCHELASTIC_RESTART_COUNT", "3"}}, "", 3},  // its default
      {{{"HOSTNAME", "train-3"}, {"JOB_COMPLETION_INDEX", "3"}}, "kubernetes-train", 0},
      {{{"HOSTNAME", "train-3"}, {"JOB_COMPLETION_INDEX", "2"}}, "", 0},
      {{{"RAY_JOB_ID", "01000000"}, {"SLURM_RESTART_COUNT", "x"}}, "ray-01000000", 0},
  };
  for (const auto& [variables, id, restart] : starts) {
    const Config config = load_config(lookup(variables), nullptr);
    EXPECT_EQ(config.job_id, id);
    EXPECT_EQ(config.restart, restart);
  }
  const std::pair<Variables, std::string> jobs[] = {
      {{{"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "3"}, {"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "4"}}, "slurm-12.3"},
      {{{"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "3"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}, ""},
      {{{"SLURM_JOB_ID", "12"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}, ""},
      // A script that gives each task its RANK; torchrun below a task.
      {{{"SLURM_JOB_ID", "12"},
        {"SLURM_STEP_ID", "3"},
        {"SLURM_PROCID", "2"},
        {"SLURM_NTASKS", "4"},
        {"RANK", "2"},
        {"WORLD_SIZE", "4"}},
       "slurm-12.3"},
      {{{"SLURM_JOB_ID", "12"},
        {"SLURM_STEP_ID", "3"},
        {"SLURM_PROCID", "0"},
        {"SLURM_NTASKS", "1"},
        {"RANK", "0"},
        {"WORLD_SIZE", "4"}},
       ""},
      {{{"SLURM_JOB_ID", "12"},
        {"SLURM_PROCID", "0"},
        {"SLURM_NTASKS", "4"},
        {"PMIX_NAMESPACE", "prterun/host-1@1"},
        {"OMPI_COMM_WORLD_RANK", "3"},
        {"OMPI_COMM_WORLD_SIZE", "4"}},
       "mpi-prterun_host-1@1"},
      {{{"PMIX_NAMESPACE", "7"}, {"PMIX_RANK", "0"}}, "mpi-7"},  // how many there are is not said
      {{{"FLUX_JOB_ID", "f2Vd"}, {"FLUX_TASK_RANK", "1"}, {"FLUX_JOB_SIZE", "4"}, {"PMI_RANK", "1"}}, "flux-f2Vd"},
      {{{"RANK", "1"}, {"WORLD_SIZE", "4"}}, ""},
  };
  for (const auto& [variables, job] : jobs) EXPECT_EQ(read_launcher(lookup(variables)).job, job);
  const Config bad = load_config(lookup({{"RANK", "abc"}, {"WORLD_SIZE", "2"}}), nullptr);
  EXPECT_TRUE(mentions(bad.warnings, "RANK: expected a whole number, got \"abc\"; ignored")) << joined(bad.warnings);
}

TEST_F(ConfigTest, ProblemsHaveKinds) {
  const char* environment[] = {"MFU_RUNDIR=y", nullptr};
  const Config config = load_config(
      lookup({{"MFU_MODEL_CONFIG", R"({"model": {"model_type": "rwkv"}, "pek": {}, "workload": {"batch": "x"}})"},
              {"MFU_SET", "peak.tflops=-1"},
              {"MFU_INTERVAL", "soon"}}),
      environment);
  std::map<Problem::Kind, std::string> seen;
  for (const Problem& p : config.problems) seen[p.kind] += "[" + p.place + "|" + p.key + "|" + p.instead + "]";
  EXPECT_EQ(seen[Problem::Kind::kUnknownVariable], "[|MFU_RUNDIR|]");
  EXPECT_EQ(seen[Problem::Kind::kUnknownKey], "[MFU_MODEL_CONFIG inline: |pek|]");
  EXPECT_EQ(seen[Problem::Kind::kNoModel], "[||measuring time only]");
  EXPECT_EQ(seen[Problem::Kind::kValue],
            "[|MFU_INTERVAL|using 10][MFU_MODEL_CONFIG inline: |workload.batch|ignored]"
            "[MFU_SET: |peak.tflops|using the default]");
  ASSERT_EQ(config.warnings.size(), config.problems.size());
  for (std::size_t i = 0; i < config.warnings.size(); ++i) EXPECT_EQ(config.warnings[i], config.problems[i].line());
}

TEST_F(ConfigTest, ParametersAsPeopleWriteThem) {
  const Result<Config> config = load_config_file(R"({"params": "8.19 B"})", lookup({}));
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->model->spec().flat_params, 8'190'000'000);
}

TEST_F(ConfigTest, AKeyThatStandsTwiceIsTold) {
  const Config config = load_config(
      lookup({{"MFU_MODEL_CONFIG", R"({"model": {"params": 5}, "workload": {"batch": 1, "batch": 2}})"}}), nullptr);
  EXPECT_EQ(config.workload.shape.batch, 2);
  ASSERT_EQ(config.problems.size(), 1u);
  EXPECT_NE(config.problems[0].line().find("batch: given more than once; using the last"), std::string::npos)
      << config.problems[0].line();
  EXPECT_FALSE(config.problems[0].stands_in_the_way());
}

TEST_F(ConfigTest, OptionsOfTheCommandLineOverruleFileAndVariable) {
  const char* source = R"({"model": {"params": 5}, "workload": {"batch": 1, "seq_len": 2}})";
  const Result<Config> config = load_config_file(source, lookup({{"MFU_SET", "workload.batch=3,workload.seq_len=4"}}),
                                                 {{"workload.batch", "8", "--batch"}});
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->workload.shape.batch, 8);
  EXPECT_EQ(config->workload.shape.seq_len, 4);
  const Result<Config> wrong = load_config_file(source, lookup({}), {{"workload.batch", "many", "--batch"}});
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().message, "--batch: expected an integer from 1 to 1099511627776, got \"many\"");
}

TEST_F(ConfigTest, DeeplyNestedIsOneLine) {
  const std::string lists = std::string(75'000, '[') + std::string(75'000, ']');
  std::string objects;
  for (int i = 0; i < 75'000; ++i) objects += R"({"a":)";
  for (const std::string& text :
       {R"({"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 8, "x": )" + lists + "}",
        R"({"model": {"params": 5}, "workload": {"batch": )" + lists + "}}", objects}) {
    const Config config = load_config(lookup({{"MFU_MODEL_CONFIG", text}}), nullptr);
    ASSERT_EQ(config.warnings.size(), 1u) << joined(config.warnings);
    EXPECT_NE(config.warnings[0].find("nested at most 64 deep"), std::string::npos) << config.warnings[0];
  }
  const Config odd =
      load_config(lookup({{"MFU_MODEL_CONFIG", R"({"params": 5})"}, {"MFU_SET", "workload.batch=" + lists}}), nullptr);
  EXPECT_EQ(odd.warnings.size(), 1u) << joined(odd.warnings);
}

TEST_F(ConfigTest, PathsAreThoseOfTheStart) {
  const Config config = load_config(
      lookup({{"MFU_RUN_DIR", "run/%r"}, {"MFU_TRACE", "t.json"}, {"MFU_LOG", "log"}, {"MFU_TB_DIR", "/tb"}}), nullptr);
  const std::string here = std::filesystem::current_path().string();
  EXPECT_EQ(config.run_dir, here + "/run/0");
  EXPECT_EQ(config.trace, here + "/t.json");
  EXPECT_EQ(config.log.target, here + "/log");
  EXPECT_EQ(config.tb_dir, "/tb");
}

TEST_F(ConfigTest, EveryVariableIsDocumented) {
  std::ifstream file(MFU_TEST_DATA "/../../docs/reference.md");
  std::stringstream text;
  text << file.rdbuf();
  ASSERT_GT(variables().size(), 10u);
  for (const Variable& variable : variables())
    EXPECT_NE(text.str().find("`" + std::string(variable.name) + "`"), std::string::npos) << variable.name;
}

TEST_F(ConfigTest, StartCostsLittle) {
  const Variables variables{{"MFU_MODEL_CONFIG", MFU_TEST_DATA "/reference/configs/deepseek-v2-lite.json"}};
  const auto getenv = lookup(variables);
  const auto begin = std::chrono::steady_clock::now();
  constexpr int kRounds = 20;
  for (int i = 0; i < kRounds; ++i) ASSERT_TRUE(load_config(getenv, nullptr).model);
  const double each_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count() / kRounds;
  RecordProperty("load_ms", std::to_string(each_ms));
  EXPECT_LT(each_ms, 300);  // 3 ms at most where nothing else runs; sanitizers and loaded machines are slower
}

}  // namespace
}  // namespace mfu

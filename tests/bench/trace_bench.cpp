// How fast stored traces are read, as ratios taken in one run: a Kineto file end to end against parsing its text with
// the JSON library alone, and kernel rows per second of an Nsight Systems export. The inputs are made here.
#include <benchmark/benchmark.h>
#include <simdjson.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "tools/replay/trace_figures.h"
#include "tools/trace/open_trace.h"

namespace {

constexpr int kSteps = 100;
constexpr int kLaunchesPerStep = 600;  // 100 x 600 launches: 120 MB of text
constexpr int kNsysKernels = 1'000'000;

/// A folder for the inputs that goes with the process.
class Inputs {
 public:
  Inputs() {
    const char* base = std::getenv("TMPDIR");
    folder_ = std::string(base != nullptr ? base : "/tmp") + "/mfu-bench-XXXXXX";
    if (::mkdtemp(folder_.data()) == nullptr) std::abort();
    write_kineto();
    write_nsys();
  }
  ~Inputs() {
    std::remove(kineto().c_str());
    std::remove(nsys().c_str());
    ::rmdir(folder_.c_str());
  }
  [[nodiscard]] std::string kineto() const { return folder_ + "/kineto.json"; }
  [[nodiscard]] std::string nsys() const { return folder_ + "/nsys.sqlite"; }

 private:
  /// What the profiler writes for a training step, one launch at a time: operator, call, kernel, the two ends of its
  /// arrow, and three Python frames.
  void write_kineto() const {
    std::FILE* out = std::fopen(kineto().c_str(), "w");
    std::fputs(
        "{\n  \"schemaVersion\": 1,\n  \"deviceProperties\": [{\"id\": 0, \"name\": \"NVIDIA H100 80GB HBM3\"}],\n"
        "  \"displayTimeUnit\": \"ms\",\n  \"baseTimeNanoseconds\": 1719600000000000000,\n  \"traceEvents\": [\n",
        out);
    long long ns = 1'419'247'332'972'313;
    int id = 1000;
    const auto us = [](long long t) {
      static char text[4][40];
      static int next = 0;
      char* to = text[next++ % 4];
      std::snprintf(to, sizeof text[0], "%lld.%03lld", t / 1000, t % 1000);
      return to;
    };
    for (int step = 0; step < kSteps; ++step) {
      const long long begin = ns;
      for (int i = 0; i < kLaunchesPerStep; ++i, ns += 20'000, ++id) {
        for (int frame = 0; frame < 3; ++frame) {
          std::fprintf(
              out,
              "  {\n    \"ph\": \"X\", \"cat\": \"python_function\", \"name\": \"torch/nn/modules/module.py(%d): "
              "_call_impl\", \"pid\": 19392, \"tid\": 19392,\n    \"ts\": %s, \"dur\": %s,\n    \"args\": {\n      "
              "\"Python parent id\": %d, \"Python id\": %d, \"Ev Idx\": %d\n    }\n  },\n",
              1500 + frame, us(ns), us(19'000 - frame), id, id + 1, id);
        }
        std::fprintf(
            out,
            "  {\n    \"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::addmm\", \"pid\": 19392, \"tid\": 19392,\n"
            "    \"ts\": %s, \"dur\": %s,\n    \"args\": {\n      \"External id\": %d,\"Record function id\": 0, "
            "\"Concrete Inputs\": [\"\", \"\", \"\", \"1\", \"1\"], \"Input type\": [\"float\", \"float\", "
            "\"float\", \"Scalar\", \"Scalar\"], \"Input Strides\": [[1], [512, 1], [1, 512], [], []], \"Input "
            "Dims\": [[512], [1024, 512], [512, 512], [], []], \"Ev Idx\": %d\n    }\n  },\n",
            us(ns), us(15'000), id, id);
        std::fprintf(
            out,
            "  {\n    \"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 19392, "
            "\"tid\": 19392,\n    \"ts\": %s, \"dur\": %s,\n    \"args\": {\n      \"External id\": %d, \"cbid\": 211, "
            "\"correlation\": %d\n    }\n  },\n  {\n    \"ph\": \"s\", \"id\": %d, \"pid\": 19392, \"tid\": 19392, "
            "\"ts\": %s,\n    \"cat\": \"ac2g\", \"name\": \"ac2g\"\n  },\n",
            us(ns + 3'000), us(6'215), id, id, id, us(ns + 3'000));
        std::fprintf(
            out,
            "  {\n    \"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_"
            "tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas_%d\", \"pid\": 0, "
            "\"tid\": 7,\n    \"ts\": %s, \"dur\": %s,\n    \"args\": {\n      \"External id\": %d, \"queued\": 0, "
            "\"device\": 0, \"context\": 1,\n      \"stream\": 7, \"correlation\": %d,\n      \"registers per "
            "thread\": 168, \"shared memory\": 213016,\n      \"blocks per SM\": 1.0, \"warps per SM\": 12.0,\n      "
            "\"grid\": [33, 4, 1], \"block\": [384, 1, 1],\n      \"est. achieved occupancy %%\": 19\n    }\n  },\n"
            "  {\n    \"ph\": \"f\", \"id\": %d, \"pid\": 0, \"tid\": 7, \"ts\": %s,\n    \"cat\": \"ac2g\", "
            "\"name\": \"ac2g\", \"bp\": \"e\"\n  },\n",
            i % 40, us(ns + 12'000), us(18'047), id, id, id, us(ns + 12'000));
      }
      std::fprintf(
          out,
          "  {\n    \"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"ProfilerStep#%d\", \"pid\": 19392, "
          "\"tid\": 19392,\n    \"ts\": %s, \"dur\": %s\n  },\n",
          step, us(begin), us(ns - begin));
    }
    std::fputs(
        "  {\n    \"ph\": \"i\", \"s\": \"g\", \"name\": \"Record Window End\", \"pid\": \"\", \"tid\": \"\", \"ts\": "
        "0\n  }\n"
        "  ],\n  \"traceName\": \"bench.json\"\n}\n",
        out);
    std::fclose(out);
  }

  /// Kernels and their launches with the columns that a 2025 export has for them, and a range around every thousand.
  void write_nsys() const {
    sqlite3* db = nullptr;
    if (sqlite3_open(nsys().c_str(), &db) != SQLITE_OK) std::abort();
    const std::string sql =
        "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;"
        "CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, "
        "greenContextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, "
        "shortName INTEGER, mangledName INTEGER, launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER, "
        "gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER, "
        "staticSharedMemory INTEGER, dynamicSharedMemory INTEGER, localMemoryPerThread INTEGER, localMemoryTotal "
        "INTEGER, "
        "gridId INTEGER, sharedMemoryExecuted INTEGER, graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, "
        "correlationId INTEGER, nameId INTEGER, returnValue INTEGER, callchainId INTEGER);"
        "CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, rangeId INTEGER, category INTEGER, "
        "color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER);"
        "BEGIN;"
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99) "
        "INSERT INTO StringIds SELECT i, 'kernel_' || i FROM n;"
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < " +
        std::to_string(kNsysKernels - 1) +
        ") "
        "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT 5000000000 + i * 9000, 5000008000 + i * 9000, 0, 1, 0, 7, i + "
        "1, "
        "282323165642752, i % 100, i % 100, i % 100, 1, 0, 168, 33, 4, 1, 384, 1, 1, 0, 213016, 0, 0, i, 233472, NULL, "
        "0 "
        "FROM n;"
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < " +
        std::to_string(kNsysKernels - 1) +
        ") "
        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME SELECT 4999990000 + i * 9000, 4999995000 + i * 9000, 0, "
        "282323165693308, "
        "i + 1, 0, 0, NULL FROM n;"
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < " +
        std::to_string(kNsysKernels / 1000 - 1) +
        ") "
        "INSERT INTO NVTX_EVENTS SELECT 4999990000 + i * 9000000, 4999990000 + (i + 1) * 9000000, 59, NULL, NULL, "
        "NULL, "
        "'step', 282323165693308, NULL, NULL, 0 FROM n;"
        "COMMIT;";
    char* problem = nullptr;
    if (sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &problem) != SQLITE_OK) {
      std::fprintf(stderr, "%s\n", problem);
      std::abort();
    }
    sqlite3_close(db);
  }

  std::string folder_;
};

const Inputs& inputs() {
  static const Inputs made;
  return made;
}

mfu::TraceReport replay(const std::string& path) {
  const auto trace = mfu::open_trace(path);
  if (!trace) {
    std::fprintf(stderr, "%s\n", trace.error().message.c_str());
    std::abort();
  }
  return mfu::make_report(trace.value());
}

void kineto_parse_only(benchmark::State& state) {
  const simdjson::padded_string text = simdjson::padded_string::load(inputs().kineto());
  simdjson::dom::parser parser;
  for (auto _ : state) {
    simdjson::dom::element document;
    if (parser.parse(text).get(document) != simdjson::SUCCESS) std::abort();
    benchmark::DoNotOptimize(document);
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * text.size()));
}
BENCHMARK(kineto_parse_only)->Unit(benchmark::kMillisecond)->UseRealTime();

/// File to figures, and to their JSON text.
void kineto_end_to_end(benchmark::State& state) {
  const std::string path = inputs().kineto();
  std::ifstream file(path, std::ios::ate | std::ios::binary);
  for (auto _ : state) {
    const std::string json = mfu::report_json({replay(path)});
    benchmark::DoNotOptimize(json.data());
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations()) * file.tellg());
}
BENCHMARK(kineto_end_to_end)->Unit(benchmark::kMillisecond)->UseRealTime();

void nsys_end_to_end(benchmark::State& state) {
  const std::string path = inputs().nsys();  // made before the clock starts
  for (auto _ : state) {
    const mfu::TraceReport report = replay(path);
    if (report.processes.at(0).totals[mfu::Figure::kKernels] != kNsysKernels) std::abort();
  }
  state.counters["kernel_rows/s"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * kNsysKernels, benchmark::Counter::kIsRate);
}
BENCHMARK(nsys_end_to_end)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace

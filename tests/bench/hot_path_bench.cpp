// What runs on the host's own threads: NVTX ranges through the real headers and the real library, and our part of
// CUPTI's launch callback.
//
// Ranges are measured as a difference within one run: the same client module attached to libmfuinject.so and, in
// another copy, to an injection library whose callbacks return at once. Both are timed in turns, in CPU time of the
// thread; the median of the differences is `extra_ns` per push and pop.
#include <benchmark/benchmark.h>
#include <cupti.h>
#include <dlfcn.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/attribution/attribution.h"
#include "core/attribution/record_queue.h"
#include "core/drain/drain.h"
#include "core/kernels/kernel_names.h"
#include "core/ranges/region_rules.h"
#include "core/ranges/rule_cache.h"
#include "cuda/cupti_session.h"
#include "cuda/host_thread.h"
#include "tests/bench/cpu_time.h"

namespace mfu {
namespace {

// --- ranges ---------------------------------------------------------------------------------------------------------

/// One copy of the client module, attached to one injection library.
struct Client {
  void (*push_pop)(const char*, int) = nullptr;
  void (*push_pop_names)(const char* const*, int) = nullptr;
  void (*push_pop_registered)(const char*, int) = nullptr;

  Client(const char* module, const char* injection) {
    ::setenv("NVTX_INJECTION64_PATH", injection, 1);
    void* handle = ::dlopen(module, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return;
    const auto find = [handle](const char* name, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(handle, name));
    };
    void (*attach)() = nullptr;
    find("attach", attach);
    find("push_pop", push_pop);
    find("push_pop_names", push_pop_names);
    find("push_pop_registered", push_pop_registered);
    attach();
  }
};

struct Clients {
  Client returns{MFU_NVTX_CLIENT_A, MFU_NVTX_RETURNS};
  Client ours{MFU_NVTX_CLIENT_B, MFU_INJECT_LIBRARY};

  Clients() {
    // Live without CUPTI: ranges are followed as ever, and the drain runs.
    ::setenv("MFU_CUPTI", "/nonexistent/libcupti.so", 1);
    ::setenv("MFU_LOG", "none", 1);
    ::setenv("MFU_INTERVAL", "0.08", 1);
    if (void* library = ::dlopen(MFU_INJECT_LIBRARY, RTLD_NOW | RTLD_NOLOAD)) {
      const auto start = reinterpret_cast<int (*)()>(::dlsym(library, "InitializeInjection"));
      if (start != nullptr) start();
    }
  }
};

Clients& clients() {
  static Clients all;
  return all;
}

/// \param calls makes `pairs` push/pop pairs through a client.
/// \param pause_ms between rounds, for the drain to take what was opened.
template <typename Calls>
void measure_ranges(benchmark::State& state, int pairs, int pause_ms, Calls&& calls) {
  Clients& c = clients();
  std::vector<double> extra, ours, returns;
  for (auto _ : state) {
    const double begin = thread_cpu_ns();
    calls(c.returns, pairs);
    const double middle = thread_cpu_ns();
    calls(c.ours, pairs);
    const double end = thread_cpu_ns();
    returns.push_back((middle - begin) / pairs);
    ours.push_back((end - middle) / pairs);
    extra.push_back(ours.back() - returns.back());
    state.SetIterationTime((end - middle) * 1e-9);
    if (pause_ms != 0) {
      const ::timespec pause{0, pause_ms * 1'000'000L};
      ::nanosleep(&pause, nullptr);
    }
  }
  state.counters["extra_ns"] = median(extra);
  state.counters["ours_ns"] = median(ours);
  state.counters["returns_ns"] = median(returns);
}

constexpr int kRounds = 41;

void BM_RangePlain(benchmark::State& state) {
  measure_ranges(state, 20'000, 0, [](Client& c, int n) { c.push_pop("aten::native_layer_norm", n); });
}
BENCHMARK(BM_RangePlain)->UseManualTime()->Iterations(kRounds);

void BM_RangePlainLong(benchmark::State& state) {
  static const std::string kName =
      "model.layers.17.self_attn.q_proj, op_id = 123456, sizes = [[4096, 4096], [1, 4096]]";
  measure_ranges(state, 20'000, 0, [](Client& c, int n) { c.push_pop(kName.c_str(), n); });
}
BENCHMARK(BM_RangePlainLong)->UseManualTime()->Iterations(kRounds);

void BM_RangeRegistered(benchmark::State& state) {
  measure_ranges(state, 20'000, 0, [](Client& c, int n) { c.push_pop_registered("layer forward", n); });
}
BENCHMARK(BM_RangeRegistered)->UseManualTime()->Iterations(kRounds);

/// A thousand names that differ in their number.
void BM_RangeNumbered(benchmark::State& state) {
  static std::vector<std::string> texts;
  static std::vector<const char*> names;
  if (names.empty()) {
    for (int i = 0; i < 1000; ++i) texts.push_back("layer." + std::to_string(i) + ".mlp");
    for (int i = 0; i < 20'000; ++i) names.push_back(texts[static_cast<std::size_t>(i * 7 % 1000)].c_str());
  }
  measure_ranges(state, 20'000, 0, [](Client& c, int n) { c.push_pop_names(names.data(), n); });
}
BENCHMARK(BM_RangeNumbered)->UseManualTime()->Iterations(kRounds);

/// A name never seen before, each time: the worst case, bounded by one look at the rules per name without its digits.
void BM_RangeNumberedNew(benchmark::State& state) {
  static std::vector<std::string> texts;
  static std::vector<const char*> names;
  static int next = 0;
  texts.clear();
  names.clear();
  for (int i = 0; i < kRounds * 2000; ++i) texts.push_back("batch " + std::to_string(next++) + " of the epoch");
  for (const std::string& text : texts) names.push_back(text.c_str());
  const char* const* at = names.data();
  bool second = false;
  measure_ranges(state, 2000, 0, [&](Client& c, int n) {
    c.push_pop_names(at, n);
    if (second) at += n;
    second = !second;
  });
}
BENCHMARK(BM_RangeNumberedNew)->UseManualTime()->Iterations(kRounds);

/// Ranges that are regions: each opens an instance. As many as a run of an hour has, between two ticks of the drain.
void BM_RangeRegion(benchmark::State& state) {
  measure_ranges(state, 4000, 60, [](Client& c, int n) { c.push_pop("decode", n); });
}
BENCHMARK(BM_RangeRegion)->UseManualTime()->Iterations(kRounds);

void BM_RangeRegionWithShape(benchmark::State& state) {
  measure_ranges(state, 4000, 60, [](Client& c, int n) { c.push_pop("decode batch=8 context=4096", n); });
}
BENCHMARK(BM_RangeRegionWithShape)->UseManualTime()->Iterations(kRounds);

// --- launches -------------------------------------------------------------------------------------------------------

CUpti_CallbackFunc g_callback = nullptr;
void* g_user_data = nullptr;

/// A session over a CUPTI that only remembers whom to call.
class LaunchBench {
 public:
  LaunchBench() : rules_({}, {}, warnings_), range_names_(rules_), attribution_(counters_), names_(counters_) {
    CuptiApi api;
    api.version = 130001;
    api.subscribe = [](CUpti_SubscriberHandle*, CUpti_CallbackFunc callback, void* data) {
      g_callback = callback;
      g_user_data = data;
      return CUPTI_SUCCESS;
    };
    api.enable_callback = [](std::uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain, CUpti_CallbackId) {
      return CUPTI_SUCCESS;
    };
    api.register_callbacks = [](CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc) {
      return CUPTI_SUCCESS;
    };
    api.activity_enable = [](CUpti_ActivityKind) { return CUPTI_SUCCESS; };
    live_ = {&attribution_, &rules_, &range_names_};
    session_ = std::make_unique<CuptiSession>(
        api, live_, names_, contexts_, queue_, counters_, [] {}, [] {});
    std::string why;
    (void)session_->start(CuptiLevel::kFull, false, false, why);
    host_switches().live.store(&live_, std::memory_order_release);
    step_ = rules_.open(rules_.match("", "step"), "step", nullptr);
  }
  void open_region() { attribution_.push_region(*live_thread(live_)->state, DomainId::kDefault, step_, ticks_now()); }
  void close_region() {
    attribution_.pop(*live_thread(live_)->state, DomainId::kDefault, [] { return ticks_now(); });
  }
  void follow_kernel_products() { session_->follow_kernel_products(); }
  [[nodiscard]] std::uint64_t seen() const { return attribution_.launches_seen(); }

 private:
  std::vector<std::string> warnings_;
  Counters counters_;
  RegionRules rules_;
  RuleCache range_names_;
  Attribution attribution_;
  KernelNames names_;
  ContextDevices contexts_;
  RecordQueue queue_;
  HostLinks live_;
  std::unique_ptr<CuptiSession> session_;
  RegionOpening step_;
};

LaunchBench& launch_bench() {
  static auto* bench = new LaunchBench;  // as in a host: never destroyed
  return *bench;
}

/// Mangled names of kernels, as CUPTI gives them to a launch: each where an allocation put it, as a driver's are.
std::vector<std::unique_ptr<std::string>> kernel_symbols(std::size_t count) {
  std::vector<std::unique_ptr<std::string>> symbols;
  std::vector<std::unique_ptr<char[]>> between;  // other objects of the driver
  for (std::size_t i = 0; i < count; ++i) {
    symbols.push_back(std::make_unique<std::string>(
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm" + std::to_string(i) +
        "EEEEviT0_T1_"));
    between.push_back(std::make_unique<char[]>(700));
  }
  return symbols;
}

/// Enter and exit of cuLaunchKernel. CUPTI gives ids from one counter; the threads take theirs far apart here, since a
/// shared counter would be what is measured.
/// \param names of the kernels, in turns
void launch_loop(benchmark::State& state, std::size_t names = 1) {
  constexpr std::uint32_t kLaunchKernel = 307;
  int status = 0;
  void* parameters[8] = {};
  CUpti_CallbackData data{};
  data.functionReturnValue = &status;
  data.functionParams = parameters;
  data.contextUid = 1;
  static std::atomic<std::uint32_t> next_part{0};
  data.correlationId =
      next_part.fetch_add(0x0400'0000u) + static_cast<std::uint32_t>(state.thread_index()) * 0x2'0000u;  // per thread
  const auto symbols = kernel_symbols(names);
  std::size_t next = 0;
  for (auto _ : state) {
    ++data.correlationId;
    if (!symbols.empty()) {
      data.symbolName = symbols[next]->c_str();
      next = next + 1 == symbols.size() ? 0 : next + 1;
    }
    data.callbackSite = CUPTI_API_ENTER;
    g_callback(g_user_data, CUPTI_CB_DOMAIN_DRIVER_API, kLaunchKernel, &data);
    data.callbackSite = CUPTI_API_EXIT;
    g_callback(g_user_data, CUPTI_CB_DOMAIN_DRIVER_API, kLaunchKernel, &data);
  }
}

void BM_LaunchOwnRegion(benchmark::State& state) {
  LaunchBench& b = launch_bench();
  b.open_region();
  const std::uint64_t before = b.seen();
  launch_loop(state);
  if (b.seen() < before + static_cast<std::uint64_t>(state.iterations())) state.SkipWithError("launches were lost");
  b.close_region();
}
BENCHMARK(BM_LaunchOwnRegion)->Threads(1)->Threads(2)->Threads(8);

/// By the number of different kernels that it launches: 0 gives no name, which CUPTI never does.
void BM_LaunchNames(benchmark::State& state) {
  (void)launch_bench();
  launch_loop(state, static_cast<std::size_t>(state.range(0)));
}
BENCHMARK(BM_LaunchNames)->ArgName("names")->Arg(0)->Arg(1)->Arg(200)->Arg(4000);

/// Threads that only keep a region open.
class RegionsElsewhere {
 public:
  explicit RegionsElsewhere(int threads) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this] {
        launch_bench().open_region();
        open_.fetch_add(1);
        while (!done_.load()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        launch_bench().close_region();
      });
    }
    while (open_.load() != threads) std::this_thread::yield();
  }
  ~RegionsElsewhere() {
    done_ = true;
    for (std::thread& t : threads_) t.join();
  }
  RegionsElsewhere(const RegionsElsewhere&) = delete;
  RegionsElsewhere& operator=(const RegionsElsewhere&) = delete;

 private:
  std::atomic<int> open_{0};
  std::atomic<bool> done_{false};
  std::vector<std::thread> threads_;
};

/// Another thread has the region: backward.
void BM_LaunchInherited(benchmark::State& state) {
  (void)launch_bench();
  std::optional<RegionsElsewhere> elsewhere;
  if (state.thread_index() == 0) elsewhere.emplace(1);
  launch_loop(state);
}
BENCHMARK(BM_LaunchInherited)->Threads(1)->Threads(2)->Threads(8);

/// Several other threads have one, and none of them has launched here.
void BM_LaunchAmbiguous(benchmark::State& state) {
  (void)launch_bench();
  const RegionsElsewhere elsewhere(4);
  launch_loop(state);
}
BENCHMARK(BM_LaunchAmbiguous);

void BM_LaunchOutside(benchmark::State& state) {
  (void)launch_bench();
  launch_loop(state);
}
BENCHMARK(BM_LaunchOutside)->Threads(1)->Threads(2);

/// Last, since it stays so: each kernel's name is looked at, as where DeepGEMM is in the process.
void BM_LaunchNamesRead(benchmark::State& state) {
  launch_bench().follow_kernel_products();
  launch_loop(state, static_cast<std::size_t>(state.range(0)));
}
BENCHMARK(BM_LaunchNamesRead)->ArgName("names")->Arg(1)->Arg(200)->Arg(4000);

}  // namespace
}  // namespace mfu

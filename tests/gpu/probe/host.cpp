// A small CUDA program that measures one thing per run and prints it as one JSON object.
//   host hello
//   host latency FEATURES THREADS LAUNCHES
//   host graph FEATURES NODES LAUNCHES
//   host blocks FEATURES
//   host clock
//   host toggle
//   host exit return|thread|_exit|signal|inflight|term|abort|fork
//   host sessions COUNT
//   host rate PER_SECOND SECONDS
//   host runtime FEATURES LAUNCHES
// FEATURES: `none`, or words of {load,kernel,memory,callbacks,runtime,copies,api,external,graph_trace} joined by `+`:
// what CUPTI is asked for (callbacks: the driver's launches; runtime, copies: the runtime's launches, the copies of
// both). PROBE_CUPTI is the path of libcupti, PROBE_CUDART that of libcudart; PROBE_POOL_LIMIT is set as CUPTI's limit.
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <thread>

#include "driver.h"
#include "records.h"

namespace probe {
namespace {

using Clock = std::chrono::steady_clock;
double ns_since(Clock::time_point begin) {
  return static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count());
}

bool has(std::string_view features, std::string_view word) {
  while (!features.empty()) {
    const std::size_t plus = std::min(features.find('+'), features.size());
    if (features.substr(0, plus) == word) return true;
    features.remove_prefix(std::min(plus + 1, features.size()));
  }
  return false;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

std::uint64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::uint64_t pages = 0;
  std::uint64_t resident = 0;
  statm >> pages >> resident;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

std::atomic<std::uint64_t> g_callbacks{0};
std::set<std::uint32_t>* g_ids = nullptr;  // of launch callbacks, where a probe compares them

void CUPTIAPI on_launch(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void* data) {
  const auto* call = static_cast<const CUpti_CallbackData*>(data);
  if (call->callbackSite != CUPTI_API_ENTER) return;
  ++g_callbacks;
  if (g_ids != nullptr) g_ids->insert(call->correlationId);
}

// CUPTI with the asked-for features, and a thread that collects records as a tracer would.
class Tracer {
 public:
  Tracer(Driver& driver, std::string_view features, bool keep_spans) : driver_(driver) {
    if (features == "none") return;
    const char* path = std::getenv("PROBE_CUPTI");
    if (path == nullptr) die("PROBE_CUPTI is not set");
    cupti_ = std::make_unique<Cupti>(path);
    if (has(features, "load")) {
      std::uint32_t version = 0;
      check(cupti_->p_cuptiGetVersion(&version), "cuptiGetVersion");
    }
    if (has(features, "callbacks")) {
      check(cupti_->p_cuptiSubscribe(&subscriber_, on_launch, nullptr), "cuptiSubscribe");
      enable_callbacks(1);
      const auto also = [this](CUpti_CallbackDomain domain, CUpti_CallbackId id) {
        cupti_->p_cuptiEnableCallback(1, subscriber_, domain, id);
      };
      if (has(features, "runtime"))
        for (const CUpti_CallbackId id : kRuntimeLaunches) also(CUPTI_CB_DOMAIN_RUNTIME_API, id);
      if (has(features, "copies")) {
        for (const CUpti_CallbackId id : kDriverCopies) also(CUPTI_CB_DOMAIN_DRIVER_API, id);
        if (has(features, "runtime"))
          for (const CUpti_CallbackId id : kRuntimeCopies) also(CUPTI_CB_DOMAIN_RUNTIME_API, id);
      }
    }
    const bool records = has(features, "kernel") || has(features, "api") || has(features, "graph_trace");
    if (!records) return;
    Records::install(*cupti_, keep_spans);
    if (const char* limit = std::getenv("PROBE_POOL_LIMIT")) {
      std::size_t value = std::strtoull(limit, nullptr, 10);
      std::size_t size = sizeof value;
      check(cupti_->p_cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT, &size, &value),
            "CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT");
    }
    if (has(features, "graph_trace")) enable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
    if (has(features, "kernel")) enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    if (has(features, "memory")) {
      enable(CUPTI_ACTIVITY_KIND_MEMCPY);
      enable(CUPTI_ACTIVITY_KIND_MEMSET);
    }
    if (has(features, "api")) {
      enable(CUPTI_ACTIVITY_KIND_RUNTIME);
      enable(CUPTI_ACTIVITY_KIND_DRIVER);
    }
    if (has(features, "external")) {
      enable(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
      check(cupti_->p_cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, 7), "external");
    }
    flusher_ = std::thread([this] {
      while (!stop_) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        cupti_->p_cuptiActivityFlushAll(0);
      }
    });
  }

  ~Tracer() { join(); }

  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  void enable_callbacks(std::uint32_t on) {
    for (const CUpti_CallbackId id : kDriverLaunches) {
      cupti_->p_cuptiEnableCallback(on, subscriber_, CUPTI_CB_DOMAIN_DRIVER_API, id);
    }
  }

  // Everything launched so far is counted when this returns. The collecting thread ends first: it may be in the middle
  // of a buffer that a second flush would not wait for.
  void finish() {
    if (!flusher_.joinable()) return;
    join();
    check(driver_.p_cuCtxSynchronize(), "cuCtxSynchronize");
    cupti_->p_cuptiActivityFlushAll(1);
    dropped_ = Records::dropped();
  }
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }
  std::uint64_t timestamp() {
    std::uint64_t now = 0;
    check(cupti_->p_cuptiGetTimestamp(&now), "cuptiGetTimestamp");
    return now;
  }

 private:
  void join() {
    stop_ = true;
    if (flusher_.joinable()) flusher_.join();
  }
  void enable(CUpti_ActivityKind kind) { check(cupti_->p_cuptiActivityEnable(kind), "cuptiActivityEnable"); }

  Driver& driver_;
  std::unique_ptr<Cupti> cupti_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  std::uint64_t dropped_ = 0;
  std::atomic<bool> stop_{false};
  std::thread flusher_;
};

// A context with the probe's kernels on device 0.
class Device {
 public:
  explicit Device(Driver& driver) : api(driver) {
    CUdevice device = 0;
    check(api.p_cuDeviceGet(&device, 0), "cuDeviceGet");
    check(api.p_cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(api.p_cuCtxSetCurrent(context), "cuCtxSetCurrent");
    CUmodule module = nullptr;
    check(api.p_cuModuleLoadData(&module, kKernels), "cuModuleLoadData");
    check(api.p_cuModuleGetFunction(&empty, module, "empty"), "cuModuleGetFunction");
    check(api.p_cuModuleGetFunction(&spin, module, "spin"), "cuModuleGetFunction");
  }

  CUstream stream() {
    CUstream s = nullptr;
    check(api.p_cuStreamCreate(&s, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    return s;
  }
  void launch_empty(CUstream s, unsigned blocks = 1) {
    check(api.p_cuLaunchKernel(empty, blocks, 1, 1, 32, 1, 1, 0, s, nullptr, nullptr), "cuLaunchKernel");
  }
  void launch_spin(CUstream s, std::uint64_t cycles) {
    void* arguments[] = {&cycles};
    check(api.p_cuLaunchKernel(spin, 1, 1, 1, 32, 1, 1, 0, s, arguments, nullptr), "cuLaunchKernel");
  }
  CUevent event() {
    CUevent e = nullptr;
    check(api.p_cuEventCreate(&e, CU_EVENT_DEFAULT), "cuEventCreate");
    return e;
  }
  double elapsed_ns(CUevent a, CUevent b) {
    float ms = 0;
    check(api.p_cuEventSynchronize(b), "cuEventSynchronize");
    check(api.p_cuEventElapsedTime(&ms, a, b), "cuEventElapsedTime");
    return static_cast<double>(ms) * 1e6;
  }
  std::uint64_t free_bytes() {
    std::size_t free = 0;
    std::size_t total = 0;
    check(api.p_cuMemGetInfo(&free, &total), "cuMemGetInfo");
    return free;
  }

  Driver& api;
  CUcontext context = nullptr;
  CUfunction empty = nullptr;
  CUfunction spin = nullptr;
};

// CPU time of one launch: batches short of the launch queue's depth (1024), each drained before the next is timed.
int latency(Driver& driver, std::string_view features, int threads, int launches) {
  Tracer tracer(driver, features, false);
  Device device(driver);
  constexpr int kBatch = 500;
  std::vector<std::vector<double>> per_thread(static_cast<std::size_t>(threads));
  std::vector<std::thread> pool;
  for (auto& batches : per_thread) {
    pool.emplace_back([&] {
      check(driver.p_cuCtxSetCurrent(device.context), "cuCtxSetCurrent");
      CUstream stream = device.stream();
      for (int done = -4 * kBatch; done < launches; done += kBatch) {  // four batches to warm up
        const auto begin = Clock::now();
        for (int i = 0; i < kBatch; ++i) device.launch_empty(stream);
        const double each = ns_since(begin) / kBatch;
        check(driver.p_cuStreamSynchronize(stream), "cuStreamSynchronize");
        if (done >= 0) batches.push_back(each);
      }
    });
  }
  for (std::thread& t : pool) t.join();
  std::vector<double> all;
  for (const auto& batches : per_thread) all.insert(all.end(), batches.begin(), batches.end());
  std::sort(all.begin(), all.end());
  tracer.finish();
  std::printf(
      "{\"launch_ns\": %.1f, \"p95_ns\": %.1f, \"min_ns\": %.1f, \"batches\": %zu, \"callbacks\": %llu, \"kernels\": "
      "%llu, \"dropped\": %llu}\n",
      median(all), all[all.size() * 95 / 100], all.front(), all.size(),
      static_cast<unsigned long long>(g_callbacks.load()), static_cast<unsigned long long>(Records::kernels().load()),
      static_cast<unsigned long long>(tracer.dropped()));
  return 0;
}

// A graph of `nodes` empty kernels with one memset: time per launch, and what memory does over many of them.
int graph(Driver& driver, std::string_view features, int nodes, int launches) {
  Tracer tracer(driver, features, false);
  Device device(driver);
  CUstream stream = device.stream();
  CUdeviceptr scratch = 0;
  check(driver.p_cuMemAlloc(&scratch, 4096), "cuMemAlloc");
  check(driver.p_cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
  for (int i = 0; i < nodes; ++i) device.launch_empty(stream);
  check(driver.p_cuMemsetD8Async(scratch, 0, 4096, stream), "cuMemsetD8Async");
  CUgraph captured = nullptr;
  check(driver.p_cuStreamEndCapture(stream, &captured), "cuStreamEndCapture");
  CUgraphExec executable = nullptr;
  check(driver.p_cuGraphInstantiate(&executable, captured, 0), "cuGraphInstantiate");

  constexpr int kBatch = 10;
  std::vector<double> wall;
  std::vector<double> cpu;
  std::string series;
  const int every = std::max(1, launches / 10);
  int next = 0;
  for (int done = 0; done < launches; done += kBatch) {
    const auto begin = Clock::now();
    for (int i = 0; i < kBatch; ++i) check(driver.p_cuGraphLaunch(executable, stream), "cuGraphLaunch");
    const double launched = ns_since(begin) / kBatch;
    check(driver.p_cuStreamSynchronize(stream), "cuStreamSynchronize");
    if (done > 0) {
      cpu.push_back(launched);
      wall.push_back(ns_since(begin) / kBatch);
    }
    if (done >= next) {
      next += every;
      series += (series.empty() ? "" : ", ") + std::string("{\"launches\": ") + std::to_string(done + kBatch) +
                ", \"device_free\": " + std::to_string(device.free_bytes()) +
                ", \"rss\": " + std::to_string(resident_bytes()) +
                ", \"zero_times\": " + std::to_string(Records::zero_times().load()) + "}";
    }
  }
  tracer.finish();
  std::printf(
      "{\"graph_us\": %.2f, \"launch_us\": %.2f, \"kernels\": %llu, \"other_records\": %llu, \"zero_times\": %llu, "
      "\"negative\": %llu, \"dropped\": %llu, \"buffers\": %llu, \"series\": [%s]}\n",
      median(wall) * 1e-3, median(cpu) * 1e-3, static_cast<unsigned long long>(Records::kernels().load()),
      static_cast<unsigned long long>(Records::others().load()),
      static_cast<unsigned long long>(Records::zero_times().load()),
      static_cast<unsigned long long>(Records::negative().load()), static_cast<unsigned long long>(tracer.dropped()),
      static_cast<unsigned long long>(Records::buffers().load()), series.c_str());
  return 0;
}

// Does tracing slow the GPU itself? Short kernels of many blocks, timed by events.
int blocks(Driver& driver, std::string_view features) {
  Tracer tracer(driver, features, false);
  Device device(driver);
  CUstream stream = device.stream();
  std::vector<double> each;
  for (int round = 0; round < 30; ++round) {
    constexpr int kKernels = 20;
    CUevent a = device.event();
    CUevent b = device.event();
    check(driver.p_cuEventRecord(a, stream), "cuEventRecord");
    for (int i = 0; i < kKernels; ++i) device.launch_empty(stream, 200000);
    check(driver.p_cuEventRecord(b, stream), "cuEventRecord");
    if (round >= 5) each.push_back(device.elapsed_ns(a, b) / kKernels);
  }
  std::printf("{\"kernel_us\": %.3f}\n", median(each) * 1e-3);
  return 0;
}

// Records against events on the same kernels, and CUPTI's clock against the system's.
int clock_check(Driver& driver) {
  Tracer tracer(driver, "kernel", true);
  Device device(driver);
  CUstream stream = device.stream();
  const auto offset = [&] {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return static_cast<std::int64_t>(tracer.timestamp()) -
           (static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec);
  };
  const std::int64_t first_offset = offset();
  const auto begin = Clock::now();
  constexpr int kKernels = 200;
  std::vector<double> by_event;
  for (int i = 0; i < kKernels; ++i) {
    CUevent a = device.event();
    CUevent b = device.event();
    check(driver.p_cuEventRecord(a, stream), "cuEventRecord");
    device.launch_spin(stream, 2'000'000);
    check(driver.p_cuEventRecord(b, stream), "cuEventRecord");
    by_event.push_back(device.elapsed_ns(a, b));
  }
  std::this_thread::sleep_for(std::chrono::seconds(5));
  const std::int64_t drift = offset() - first_offset;
  const double seconds = ns_since(begin) * 1e-9;
  tracer.finish();
  std::vector<double> by_record;
  for (const KernelSpan& s : Records::spans()) by_record.push_back(static_cast<double>(s.end_ns - s.begin_ns));
  std::printf(
      "{\"event_us\": %.3f, \"record_us\": %.3f, \"records\": %zu, \"zero_times\": %llu, \"negative\": %llu, "
      "\"overlapping\": %llu, \"clock_offset_ns\": %lld, \"drift_ns\": %lld, \"drift_seconds\": %.2f}\n",
      median(by_event) * 1e-3, median(by_record) * 1e-3, by_record.size(),
      static_cast<unsigned long long>(Records::zero_times().load()),
      static_cast<unsigned long long>(Records::negative().load()),
      static_cast<unsigned long long>(Records::overlapping()), static_cast<long long>(first_offset),
      static_cast<long long>(drift), seconds);
  return 0;
}

// Launch callbacks switched off and on a thousand times under load: are ids and latency the same afterwards?
int toggle(Driver& driver) {
  Tracer tracer(driver, "kernel+callbacks", true);
  std::set<std::uint32_t> ids;
  g_ids = &ids;
  Device device(driver);
  CUstream stream = device.stream();
  const auto batch = [&](int n) {
    const auto begin = Clock::now();
    for (int i = 0; i < n; ++i) device.launch_empty(stream);
    const double each = ns_since(begin) / n;
    check(driver.p_cuStreamSynchronize(stream), "cuStreamSynchronize");
    return each;
  };
  const auto settled = [&] {
    std::vector<double> each;
    for (int i = 0; i < 20; ++i) each.push_back(batch(500));
    return median(each);
  };
  batch(500);
  const double before = settled();
  std::uint64_t expected = g_callbacks;
  for (int i = 0; i < 1000; ++i) {
    tracer.enable_callbacks(0);
    batch(5);
    tracer.enable_callbacks(1);
    batch(5);
    expected += 5;
  }
  const std::uint64_t seen = g_callbacks;
  const double after = settled();
  tracer.finish();
  std::uint64_t matched = 0;
  for (const KernelSpan& s : Records::spans()) matched += ids.count(s.correlation);
  std::printf(
      "{\"before_ns\": %.1f, \"after_ns\": %.1f, \"callbacks\": %llu, \"callbacks_expected\": %llu, \"ids\": %zu, "
      "\"ids_with_record\": %llu, \"kernels\": %llu}\n",
      before, after, static_cast<unsigned long long>(seen), static_cast<unsigned long long>(expected), ids.size(),
      static_cast<unsigned long long>(matched), static_cast<unsigned long long>(Records::kernels().load()));
  return 0;
}

// Work, then one way to end a process.
int end_process(Driver& driver, std::string_view how) {
  Device device(driver);
  CUstream stream = device.stream();
  for (int i = 0; i < 2000; ++i) device.launch_empty(stream);
  if (how != "inflight") check(driver.p_cuCtxSynchronize(), "cuCtxSynchronize");
  std::printf("worked\n");
  std::fflush(stdout);
  if (how == "fork") {  // a child that does nothing with CUDA, and one that ends in another way than its parent
    for (const int code : {0, 9}) {
      const pid_t child = fork();
      if (child == 0) {
        if (code == 0) std::exit(0);
        _exit(code);
      }
      int status = 0;
      waitpid(child, &status, 0);
      std::printf("child %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    }
    return 3;
  }
  // Long enough for windows to be out.
  if (how == "term" || how == "abort") {
    for (int i = 0; i < 40; ++i) {
      for (int k = 0; k < 50; ++k) device.launch_empty(stream);
      check(driver.p_cuCtxSynchronize(), "cuCtxSynchronize");
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    raise(how == "term" ? SIGTERM : SIGABRT);
  }
  if (how == "inflight") {
    for (int i = 0; i < 100; ++i) device.launch_spin(stream, 10'000'000);
    return 3;
  }
  if (how == "return") return 3;
  if (how == "thread") std::thread([] { std::exit(3); }).join();
  if (how == "_exit") _exit(3);
  if (how == "signal") raise(SIGINT);
  die("exit: how?");
}

// torch.profiler's part: `count` sessions that register buffers, switch kinds on and off as it does, beside whatever
// was injected. A graph that was captured before the first one is launched in each. What each session got.
int sessions(Driver& driver, int count) {
  const char* path = std::getenv("PROBE_CUPTI");
  if (path == nullptr) die("PROBE_CUPTI is not set");
  Device device(driver);
  CUstream stream = device.stream();
  constexpr int kNodes = 100, kEager = 50;
  check(driver.p_cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
  for (int i = 0; i < kNodes; ++i) device.launch_empty(stream);
  CUgraph captured = nullptr;
  CUgraphExec executable = nullptr;
  check(driver.p_cuStreamEndCapture(stream, &captured), "cuStreamEndCapture");
  check(driver.p_cuGraphInstantiate(&executable, captured, 0), "cuGraphInstantiate");
  const auto work = [&] {
    check(driver.p_cuGraphLaunch(executable, stream), "cuGraphLaunch");
    for (int i = 0; i < kEager; ++i) device.launch_empty(stream);
    check(driver.p_cuCtxSynchronize(), "cuCtxSynchronize");
  };
  work();
  Cupti cupti(path);
  constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                           CUPTI_ACTIVITY_KIND_MEMSET};
  std::string each;
  int refused = 0;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t before = Records::kernels();
    Records::install(cupti, false);
    for (const CUpti_ActivityKind kind : kKinds) refused += cupti.p_cuptiActivityEnable(kind) != CUPTI_SUCCESS;
    work();
    for (const CUpti_ActivityKind kind : kKinds) cupti.p_cuptiActivityDisable(kind);
    cupti.p_cuptiActivityFlushAll(1);
    std::uint8_t off = 0;  // at the end of a session Kineto takes its wish for buffers per thread back
    std::size_t size = sizeof off;
    cupti.p_cuptiActivitySetAttribute(static_cast<CUpti_ActivityAttribute>(9), &size, &off);
    each += (each.empty() ? "" : ", ") + std::to_string(Records::kernels() - before);
    for (int k = 0; k < 20; ++k) {  // the injected library's turn
      work();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  std::printf("{\"nodes\": %d, \"eager\": %d, \"refused\": %d, \"kernels\": [%s]}\n", kNodes, kEager, refused,
              each.c_str());
  return 0;
}

// CPU time [s] of this process's threads, by name.
std::map<std::string, double> thread_seconds() {
  std::map<std::string, double> seconds;
  std::error_code failed;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", failed)) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    std::ifstream stat(task.path() / "schedstat");
    double ns = 0;
    if (stat >> ns) seconds[name] += ns * 1e-9;
  }
  return seconds;
}

// Kernels at a steady rate for long. CPU time of every thread over the first and the last tenth of it.
int rate(Driver& driver, int per_second, int length) {
  Device device(driver);
  CUstream stream = device.stream();
  const auto begin = Clock::now();
  std::map<std::string, double> at_start, after_first, before_last;
  std::uint64_t launched = 0;
  const auto at_end_of = [&](double share) { return ns_since(begin) * 1e-9 >= share * length; };
  while (!at_end_of(1)) {
    const auto due = static_cast<std::uint64_t>(ns_since(begin) * 1e-9 * per_second);
    for (; launched < due; ++launched) device.launch_empty(stream);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (at_start.empty() && at_end_of(0.05)) at_start = thread_seconds();
    if (after_first.empty() && at_end_of(0.15)) after_first = thread_seconds();
    if (before_last.empty() && at_end_of(0.9)) before_last = thread_seconds();
  }
  const std::map<std::string, double> end = thread_seconds();
  check(driver.p_cuCtxSynchronize(), "cuCtxSynchronize");
  const auto text = [&](const std::map<std::string, double>& from, const std::map<std::string, double>& to) {
    std::string line;
    for (const auto& [name, seconds] : to) {
      const auto before = from.find(name);
      line += (line.empty() ? "\"" : ", \"") + name +
              "\": " + std::to_string(seconds - (before == from.end() ? 0 : before->second));
    }
    return line;
  };
  std::printf("{\"launches\": %llu, \"tenth_s\": %.3f, \"rss\": %llu, \"first\": {%s}, \"last\": {%s}}\n",
              static_cast<unsigned long long>(launched), 0.1 * length,
              static_cast<unsigned long long>(resident_bytes()), text(at_start, after_first).c_str(),
              text(before_last, end).c_str());
  return 0;
}

// What a call of the runtime costs that makes one of the driver inside: cudaMemsetAsync.
int runtime(Driver& driver, std::string_view features, int launches) {
  const char* path = std::getenv("PROBE_CUDART");
  if (path == nullptr) die("PROBE_CUDART is not set");
  Tracer tracer(driver, features, false);
  Device device(driver);
  const auto memset_async = symbol<int (*)(void*, int, std::size_t, void*)>(open_library(path), "cudaMemsetAsync");
  CUdeviceptr scratch = 0;
  check(driver.p_cuMemAlloc(&scratch, 4096), "cuMemAlloc");
  constexpr int kBatch = 500;
  std::vector<double> batches;
  for (int done = -4 * kBatch; done < launches; done += kBatch) {
    const auto begin = Clock::now();
    for (int i = 0; i < kBatch; ++i)
      if (memset_async(reinterpret_cast<void*>(scratch), 0, 4096, nullptr) != 0) die("cudaMemsetAsync");
    const double each = ns_since(begin) / kBatch;
    check(driver.p_cuCtxSynchronize(), "cuCtxSynchronize");
    if (done >= 0) batches.push_back(each);
  }
  tracer.finish();
  std::printf("{\"call_ns\": %.1f, \"callbacks\": %llu, \"records\": %llu}\n", median(batches),
              static_cast<unsigned long long>(g_callbacks.load()),
              static_cast<unsigned long long>(Records::others().load()));
  return 0;
}

int run(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  const auto text = [&](int i) -> std::string_view { return argc > i ? argv[i] : ""; };
  const auto number = [&](int i) { return argc > i ? std::max(1, std::atoi(argv[i])) : 1; };
  Driver driver;
  check(driver.p_cuInit(0), "cuInit");
  if (mode == "hello") {
    int version = 0;
    check(driver.p_cuDriverGetVersion(&version), "cuDriverGetVersion");
    Device device(driver);
    std::printf("{\"driver\": %d}\n", version);
    return 0;
  }
  if (mode == "latency") return latency(driver, text(2), number(3), number(4));
  if (mode == "graph") return graph(driver, text(2), number(3), number(4));
  if (mode == "blocks") return blocks(driver, text(2));
  if (mode == "clock") return clock_check(driver);
  if (mode == "toggle") return toggle(driver);
  if (mode == "exit") return end_process(driver, text(2));
  if (mode == "sessions") return sessions(driver, number(2));
  if (mode == "rate") return rate(driver, number(2), number(3));
  if (mode == "runtime") return runtime(driver, text(2), number(3));
  die("usage: see the head of host.cpp");
}

}  // namespace
}  // namespace probe

int main(int argc, char** argv) { return probe::run(argc, argv); }

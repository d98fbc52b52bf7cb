#include "tools/commands/known_work.h"

#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/base/clock.h"

namespace mfu {

namespace {

// A kernel that lasts as long as its argument says [ns, 32 bits], by the GPU's own clock. On the simulated GPU the
// comment line says the same.
constexpr const char* kSpin = R"(// simgpu: mfu_known_work ns_param=0
.version 6.4
.target sm_70
.address_size 64
.visible .entry mfu_known_work(.param .u32 duration)
{
  .reg .u32 %r<2>;
  .reg .u64 %rd<5>;
  .reg .pred %p<2>;
  mov.u64 %rd1, %globaltimer;
  ld.param.u32 %r1, [duration];
  cvt.u64.u32 %rd2, %r1;
  add.u64 %rd3, %rd1, %rd2;
again:
  mov.u64 %rd4, %globaltimer;
  setp.lt.u64 %p1, %rd4, %rd3;
  @%p1 bra again;
  ret;
}
)";

constexpr std::uint32_t kSingle = 50, kSingleNs = 400'000;
constexpr std::uint32_t kPairs = 100, kPairNs = 200'000;
constexpr std::uint32_t kNodes = 20, kGraphs = 10, kNodeNs = 50'000;
constexpr std::uint32_t kLoopNs = 1'000'000;
constexpr std::uint32_t kUnfinishedNs = 3'000'000'000;

/// The work that was launched, as its program knows it. Times by CUDA events, which CUPTI has no part in.
struct KnownWork {
  std::uint64_t launches = 0;      ///< calls that put work on a stream
  std::uint64_t kernels = 0;       ///< kernels that ran to their end, those inside graphs among them
  std::uint64_t unfinished = 0;    ///< launches whose kernel still runs when the process ends
  double kernel_s = 0;             ///< sum of the lengths that the kernels were given [s]
  double by_events_s = 0;          ///< of the kernels that ran alone between two events: their sum by events [s]
  double measured_alone_s = 0;     ///< the same kernels: the lengths they were given [s]
  std::int64_t loop_begin_ns = 0;  ///< the loop that never waits: CLOCK_REALTIME
  std::int64_t loop_end_ns = 0;
};

/// The driver's functions by name, and the first call that failed.
class Driver {
 public:
  Driver() : library_(::dlopen("libcuda.so.1", RTLD_NOW)) {}

  /// Calls `name` with arguments of the types given; false where it fails, and after any call that failed.
  template <typename... Parameters, typename... Arguments>
  bool call(const char* name, Arguments... arguments) {
    if (!error_.empty()) return false;
    using Function = int (*)(Parameters...);
    const auto function = library_ != nullptr ? reinterpret_cast<Function>(::dlsym(library_, name)) : nullptr;
    const int result = function != nullptr ? function(arguments...) : -1;
    if (result != 0)
      error_ = function == nullptr ? std::string("the driver has no ") + name
                                   : std::string(name) + " fails with " + std::to_string(result);
    return result == 0;
  }
  [[nodiscard]] const std::string& error() const { return error_; }

 private:
  void* library_;
  std::string error_;
};

class Work {
 public:
  explicit Work(KnownWork& done) : done_(done) {}

  bool start() {
    int device = 0;
    void *context = nullptr, *module = nullptr;
    (void)driver_.call<unsigned>("cuInit", 0u);
    (void)driver_.call<int*, int>("cuDeviceGet", &device, 0);
    (void)driver_.call<void**, int>("cuDevicePrimaryCtxRetain", &context, device);
    (void)driver_.call<void*>("cuCtxSetCurrent", context);
    (void)driver_.call<void**, const void*>("cuModuleLoadData", &module, static_cast<const void*>(kSpin));
    (void)driver_.call<void**, void*, const char*>("cuModuleGetFunction", &function_, module, "mfu_known_work");
    for (void*& stream : streams_)
      (void)driver_.call<void**, unsigned>("cuStreamCreate", &stream, unsigned{CU_STREAM_NON_BLOCKING});
    for (void*& event : events_) (void)driver_.call<void**, unsigned>("cuEventCreate", &event, 0u);
    return driver_.error().empty();
  }

  /// Each between two events: what CUPTI says of them can be held against another clock. The median counts for all,
  /// since the GPU waits for a host that is interrupted between an event and the launch.
  void singles() {
    std::vector<float> all_ms;
    for (std::uint32_t i = 0; i < kSingle; ++i) {
      record(0);
      launch(0, kSingleNs);
      record(1);
      float ms = 0;
      (void)driver_.call<void*>("cuEventSynchronize", events_[1]);
      if (driver_.call<float*, void*, void*>("cuEventElapsedTime", &ms, events_[0], events_[1])) all_ms.push_back(ms);
      done_.measured_alone_s += kSingleNs * 1e-9;
    }
    if (all_ms.empty()) return;
    const auto middle = all_ms.begin() + static_cast<std::ptrdiff_t>(all_ms.size() / 2);
    std::nth_element(all_ms.begin(), middle, all_ms.end());
    done_.by_events_s = static_cast<double>(*middle) * 1e-3 * kSingle;
  }
  void two_streams() {
    for (std::uint32_t i = 0; i < kPairs; ++i)
      for (const int stream : {0, 1}) launch(stream, kPairNs);
    synchronize();
  }
  void graph() {
    void *graph = nullptr, *exec = nullptr;
    (void)driver_.call<void*, int>("cuStreamBeginCapture_v2", streams_[0], 1);  // thread local
    const KnownWork before = done_;
    for (std::uint32_t i = 0; i < kNodes; ++i) launch(0, kNodeNs);
    done_ = before;  // those put no work on a stream
    (void)driver_.call<void*, void**>("cuStreamEndCapture", streams_[0], &graph);
    (void)driver_.call<void**, void*, unsigned long long>("cuGraphInstantiateWithFlags", &exec, graph, 0ull);
    for (std::uint32_t i = 0; i < kGraphs; ++i) {
      if (!driver_.call<void*, void*>("cuGraphLaunch", exec, streams_[0])) return;
      ++done_.launches;
      done_.kernels += kNodes;
      done_.kernel_s += kNodes * kNodeNs * 1e-9;
    }
    synchronize();
  }
  /// The host runs ahead as far as the driver lets it; nothing here waits.
  void loop(double seconds) {
    done_.loop_begin_ns = utc_now();
    const auto count = static_cast<std::uint64_t>(seconds * 1e9 / kLoopNs);
    for (std::uint64_t i = 0; i < count && driver_.error().empty(); ++i) launch(0, kLoopNs);
    synchronize();
    done_.loop_end_ns = utc_now();
  }
  void leave_one_running() {
    const KnownWork before = done_;
    launch(1, kUnfinishedNs);
    done_ = before;
    ++done_.launches;
    ++done_.unfinished;
  }
  [[nodiscard]] const std::string& error() const { return driver_.error(); }

 private:
  void launch(int stream, std::uint32_t ns) {
    std::array<void*, 1> arguments{&ns};
    using U = unsigned;
    if (!driver_.call<void*, U, U, U, U, U, U, U, void*, void**, void**>(
            "cuLaunchKernel", function_, 1u, 1u, 1u, 1u, 1u, 1u, 0u, streams_[static_cast<std::size_t>(stream)],
            arguments.data(), nullptr))
      return;
    ++done_.launches;
    ++done_.kernels;
    done_.kernel_s += ns * 1e-9;
  }
  void record(std::size_t event) { (void)driver_.call<void*, void*>("cuEventRecord", events_[event], streams_[0]); }
  void synchronize() {
    for (void* stream : streams_) (void)driver_.call<void*>("cuStreamSynchronize", stream);
  }

  KnownWork& done_;
  Driver driver_;
  void* function_ = nullptr;
  std::array<void*, 2> streams_{}, events_{};
};

}  // namespace

int run_known_work(double loop_s, const std::string& path) {
  KnownWork work;
  Work on_gpu(work);
  if (on_gpu.start()) {
    on_gpu.singles();
    on_gpu.two_streams();
    on_gpu.graph();
    on_gpu.loop(std::max(0.0, loop_s));
    on_gpu.leave_one_running();
  }
  nlohmann::json said = {{"launches", work.launches},           {"kernels", work.kernels},
                         {"unfinished", work.unfinished},       {"kernel_s", work.kernel_s},
                         {"by_events_s", work.by_events_s},     {"measured_alone_s", work.measured_alone_s},
                         {"loop_begin_ns", work.loop_begin_ns}, {"loop_end_ns", work.loop_end_ns}};
  if (!on_gpu.error().empty()) said = {{"error", on_gpu.error()}};
  std::ofstream file(path);
  file << said.dump() << '\n';
  file.close();
  return file.good() ? 0 : 1;
}

}  // namespace mfu

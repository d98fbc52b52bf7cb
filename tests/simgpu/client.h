// A tiny CUDA program and a tiny CUPTI client, for the tests of the simulated GPU. Each test runs in a child process of
// its own: the simulated libraries read their script once, from the environment.
#pragma once

#include <cuda.h>
#include <cupti.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace mfu::sim_test {

using Environment = std::map<std::string, std::string>;

/// Runs `body` in a child process with the environment set. Returns its wait status; failed expectations make it
/// exit 1.
inline int child_status(const Environment& environment, const std::function<void()>& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(60);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    body();
    std::fflush(nullptr);
    std::exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  waitpid(pid, &status, 0);
  return status;
}

inline void in_child(const Environment& environment, const std::function<void()>& body) {
  const int status = child_status(environment, body);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "child status " << status;
}

inline void aborts_in_child(const Environment& environment, const std::function<void()>& body) {
  const int status = child_status(environment, body);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT) << "child status " << status;
}

inline std::string directory() { return SIMGPU_DIR; }

/// The simulated driver, opened by path as nobody else has it yet.
class Cuda {
 public:
  explicit Cuda(bool init = true) {
    library_ = dlopen((directory() + "/libcuda.so.1").c_str(), RTLD_NOW | RTLD_GLOBAL);
    EXPECT_NE(library_, nullptr) << dlerror();
    if (init) make_current();
  }
  template <typename F>
  F* get(const char* name) const {
    auto* f = reinterpret_cast<F*>(dlsym(library_, name));
    EXPECT_NE(f, nullptr) << name;
    return f;
  }
#define MFU_CU_TEXT_OF(name) #name
#define MFU_CU_TEXT(name) MFU_CU_TEXT_OF(name)
#define CU(cuda, name) ((cuda).get<std::remove_pointer_t<decltype(&::name)>>(MFU_CU_TEXT(name)))

  void make_current(int device = 0) {
    ASSERT_EQ(CU(*this, cuInit)(0), CUDA_SUCCESS);
    CUcontext context = nullptr;
    ASSERT_EQ(CU(*this, cuDevicePrimaryCtxRetain)(&context, device), CUDA_SUCCESS);
    ASSERT_EQ(CU(*this, cuCtxSetCurrent)(context), CUDA_SUCCESS);
  }
  CUfunction kernel(const std::string& name, const std::string& cost) {
    const std::string ptx =
        ".version 7.0\n// simgpu: " + name + " " + cost + "\n.visible .entry " + name + "()\n{ ret; }\n";
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    EXPECT_EQ(CU(*this, cuModuleLoadData)(&module, ptx.c_str()), CUDA_SUCCESS);
    EXPECT_EQ(CU(*this, cuModuleGetFunction)(&function, module, name.c_str()), CUDA_SUCCESS);
    return function;
  }
  CUstream stream() {
    CUstream s = nullptr;
    EXPECT_EQ(CU(*this, cuStreamCreate)(&s, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    return s;
  }
  CUresult launch(CUfunction f, CUstream s = nullptr, unsigned grid = 1) {
    static auto* const call = CU(*this, cuLaunchKernel);
    return call(f, grid, 1, 1, 128, 1, 1, 0, s, nullptr, nullptr);
  }
  void synchronize() { EXPECT_EQ(CU(*this, cuCtxSynchronize)(), CUDA_SUCCESS); }

 private:
  void* library_ = nullptr;
};

/// One record as it came.
struct Record {
  std::uint32_t kind = 0;
  std::size_t size = 0;  ///< distance to the next one, or to the end of the valid bytes
  std::vector<std::uint8_t> bytes;
  std::thread::id thread;  ///< that the completed callback ran on
  std::string name;        ///< of a kernel
  template <typename T>
  [[nodiscard]] T at(std::size_t offset) const {
    T value{};
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
  }
  [[nodiscard]] std::uint32_t kernel_correlation() const { return at<std::uint32_t>(92); }
  [[nodiscard]] std::uint64_t kernel_begin() const { return at<std::uint64_t>(16); }
  [[nodiscard]] std::uint64_t kernel_end() const { return at<std::uint64_t>(24); }
};

struct Call {
  CUpti_CallbackDomain domain;
  CUpti_CallbackId cbid;
  CUpti_ApiCallbackSite site;
  std::uint32_t correlation;
  std::uint64_t* data;
  std::string symbol;
};

/// A CUPTI client that keeps everything it gets.
class Cupti {
 public:
  explicit Cupti(const std::string& version = "13.0") {
    const std::string soname = version == "11.8" ? "libcupti.so.11.8" : "libcupti.so." + version.substr(0, 2);
    library_ = dlopen((directory() + "/cupti-" + version + "/" + soname).c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library_, nullptr) << dlerror();
    self() = this;
  }
  template <typename F>
  F* get(const char* name) const {
    auto* f = reinterpret_cast<F*>(dlsym(library_, name));
    EXPECT_NE(f, nullptr) << name;
    return f;
  }
#define CUPTI(cupti, name) ((cupti).get<decltype(::name)>(#name))

  static Cupti*& self() {
    static Cupti* instance = nullptr;
    return instance;
  }

  void subscribe() { ASSERT_EQ(CUPTI(*this, cuptiSubscribe)(&subscriber, on_callback, this), CUPTI_SUCCESS); }
  void enable_callback(CUpti_CallbackDomain domain, CUpti_CallbackId cbid) {
    ASSERT_EQ(CUPTI(*this, cuptiEnableCallback)(1, subscriber, domain, cbid), CUPTI_SUCCESS) << domain << ' ' << cbid;
  }
  void record(std::initializer_list<CUpti_ActivityKind> kinds) {
    ASSERT_EQ(CUPTI(*this, cuptiActivityRegisterCallbacks)(on_requested, on_completed), CUPTI_SUCCESS);
    for (const CUpti_ActivityKind kind : kinds)
      ASSERT_EQ(CUPTI(*this, cuptiActivityEnable)(kind), CUPTI_SUCCESS) << kind;
  }
  void flush(std::uint32_t flag = 0) { ASSERT_EQ(CUPTI(*this, cuptiActivityFlushAll)(flag), CUPTI_SUCCESS); }

  [[nodiscard]] std::vector<Record> taken() {
    const std::lock_guard lock(mutex);
    return records;
  }
  /// The same once there are `count` of them: a worker thread delivers what a flush closed, when it gets to it.
  [[nodiscard]] std::vector<Record> taken(std::size_t count) {
    for (int i = 0; i < 400; ++i) {
      if (std::vector<Record> so_far = taken(); so_far.size() >= count) return so_far;
      usleep(5000);
    }
    return taken();
  }
  [[nodiscard]] std::vector<Record> of_kind(std::uint32_t kind) {
    std::vector<Record> some;
    for (Record& r : taken()) {
      if (r.kind == kind) some.push_back(std::move(r));
    }
    return some;
  }

  CUpti_SubscriberHandle subscriber = nullptr;
  std::size_t buffer_bytes = 64 << 10;
  bool give_null = false;
  std::mutex mutex;
  std::vector<Record> records;
  std::vector<Call> calls;
  std::vector<std::pair<std::uint32_t, CUpti_GraphData>> graph_events;
  std::vector<std::uint32_t> resource_events;
  std::vector<CUptiResult> walk_ends;
  std::vector<std::thread::id> requesters;
  std::function<void()> in_requested, in_completed, in_callback;

 private:
  static void on_requested(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
    Cupti& c = *self();
    if (c.in_requested) c.in_requested();
    {
      const std::lock_guard lock(c.mutex);
      c.requesters.push_back(std::this_thread::get_id());
    }
    *max_records = 0;
    *size = c.buffer_bytes;
    *buffer = c.give_null ? nullptr : static_cast<std::uint8_t*>(std::aligned_alloc(8, c.buffer_bytes));
  }

  static void on_completed(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t,
                           std::size_t valid) {
    Cupti& c = *self();
    EXPECT_EQ(context, nullptr);
    EXPECT_EQ(stream, 0u);
    if (c.in_completed) c.in_completed();
    std::vector<Record> found;
    std::vector<std::size_t> offsets;
    CUpti_Activity* record = nullptr;
    static auto* const next = CUPTI(c, cuptiActivityGetNextRecord);
    CUptiResult result = CUPTI_SUCCESS;
    while ((result = next(buffer, valid, &record)) == CUPTI_SUCCESS) {
      offsets.push_back(static_cast<std::size_t>(reinterpret_cast<std::uint8_t*>(record) - buffer));
    }
    offsets.push_back(valid);
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
      Record r;
      r.size = offsets[i + 1] - offsets[i];
      r.bytes.assign(buffer + offsets[i], buffer + offsets[i + 1]);
      r.kind = r.at<std::uint32_t>(0);
      r.thread = std::this_thread::get_id();
      if (r.kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL && r.at<const char*>(104) != nullptr)
        r.name = r.at<const char*>(104);
      found.push_back(std::move(r));
    }
    const std::lock_guard lock(c.mutex);
    c.walk_ends.push_back(result);
    c.records.insert(c.records.end(), found.begin(), found.end());
  }

  static void on_callback(void* userdata, CUpti_CallbackDomain domain, CUpti_CallbackId cbid, const void* data) {
    Cupti& c = *static_cast<Cupti*>(userdata);
    if (c.in_callback) c.in_callback();
    const std::lock_guard lock(c.mutex);
    if (domain == CUPTI_CB_DOMAIN_RESOURCE) {
      c.resource_events.push_back(cbid);
      const auto* resource = static_cast<const CUpti_ResourceData*>(data);
      if (cbid >= CUPTI_CBID_RESOURCE_GRAPH_CREATED && cbid <= CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED) {
        c.graph_events.emplace_back(cbid, *static_cast<const CUpti_GraphData*>(resource->resourceDescriptor));
      }
      return;
    }
    if (domain != CUPTI_CB_DOMAIN_DRIVER_API && domain != CUPTI_CB_DOMAIN_RUNTIME_API) return;
    const auto* api = static_cast<const CUpti_CallbackData*>(data);
    c.calls.push_back({domain, cbid, api->callbackSite, api->correlationId, api->correlationData,
                       api->symbolName != nullptr ? api->symbolName : ""});
  }

  void* library_ = nullptr;
};

}  // namespace mfu::sim_test

// The simulated GPU keeps the contract of the libraries it stands in for (tools/simgpu/README.md).
#include <cuda_runtime_api.h>
#include <cupti_driver_cbid.h>
#include <cupti_runtime_cbid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

#include "tests/simgpu/client.h"

namespace mfu::sim_test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kKernel = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
constexpr std::uint32_t kLaunch = CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel;

// Injection ------------------------------------------------------------------------------------------------------

TEST(Injection, RunsOnceInsideCuInit) {
  in_child({{"CUDA_INJECTION64_PATH", SIMGPU_TEST_INJECTED_LIBRARY}}, [] {
    Cuda cuda(false);
    EXPECT_EQ(std::getenv("SIMGPU_TEST_INJECTED"), nullptr);
    EXPECT_EQ(CU(cuda, cuInit)(0), CUDA_SUCCESS);
    EXPECT_STREQ(std::getenv("SIMGPU_TEST_INJECTED"), "once");
    EXPECT_EQ(CU(cuda, cuInit)(0), CUDA_SUCCESS);
    EXPECT_STREQ(std::getenv("SIMGPU_TEST_INJECTED"), "once");
  });
}

TEST(Injection, ToleratesNoneAndMissingFiles) {
  for (const char* path : {"none", "/nonexistent/lib.so", ""}) {
    in_child({{"CUDA_INJECTION64_PATH", path}}, [] { Cuda cuda; });
  }
}

TEST(Driver, ForkedChildIsRefusedButForkBeforeInitWorks) {
  in_child({}, [] {
    Cuda early(false);
    const pid_t before = fork();
    if (before == 0) _exit(CU(early, cuInit)(0) == CUDA_SUCCESS ? 0 : 1);
    int status = -1;
    waitpid(before, &status, 0);
    EXPECT_EQ(status, 0);
    Cuda cuda;
    const pid_t after = fork();
    if (after == 0) {
      int n = 0;
      _exit(CU(cuda, cuInit)(0) == CUDA_ERROR_NOT_INITIALIZED &&
                    CU(cuda, cuDeviceGetCount)(&n) == CUDA_ERROR_NOT_INITIALIZED
                ? 0
                : 1);
    }
    waitpid(after, &status, 0);
    EXPECT_EQ(status, 0);
  });
}

TEST(Driver, SaysItIsSimulated) {
  in_child({{"SIMGPU_DEVICES", "2"}, {"SIMGPU_SM_COUNT", "10;20"}}, [] {
    Cuda cuda;
    char name[64];
    EXPECT_EQ(CU(cuda, cuDeviceGetName)(name, sizeof name, 1), CUDA_SUCCESS);
    EXPECT_NE(std::string(name).find("Simulated"), std::string::npos);
    int sms = 0;
    CU(cuda, cuDeviceGetAttribute)(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 1);
    EXPECT_EQ(sms, 20);
    EXPECT_EQ(CU(cuda, cuDeviceGetName)(name, sizeof name, 2), CUDA_ERROR_INVALID_DEVICE);
  });
}

TEST(Driver, GetProcAddressChoosesByVersion) {
  in_child({}, [] {
    Cuda cuda;
    const auto address = [&](const char* name, int version, cuuint64_t flags) {
      void* f = nullptr;
      CUdriverProcAddressQueryResult status{};
      CU(cuda, cuGetProcAddress)(name, &f, version, flags, &status);
      return f;
    };
    EXPECT_EQ(address("cuMemAlloc", 12000, 0), cuda.get<void>("cuMemAlloc_v2"));
    EXPECT_EQ(address("cuGraphInstantiate", 12000, 0), cuda.get<void>("cuGraphInstantiateWithFlags"));
    EXPECT_EQ(address("cuGraphInstantiate", 11000, 0), cuda.get<void>("cuGraphInstantiate_v2"));
    EXPECT_EQ(address("cuLaunchKernel", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM),
              cuda.get<void>("cuLaunchKernel_ptsz"));
    EXPECT_EQ(address("cuNoSuchThing", 12000, 0), nullptr);
  });
}

// Timeline -------------------------------------------------------------------------------------------------------

TEST(Timeline, LaunchReturnsFirstAndSynchronizeWaits) {
  in_child({}, [] {
    Cuda cuda;
    CUfunction f = cuda.kernel("slow", "ns=50000000");
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(cuda.launch(f), CUDA_SUCCESS);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 25ms);
    cuda.synchronize();
    EXPECT_GE(std::chrono::steady_clock::now() - begin, 50ms);
  });
}

TEST(Timeline, DurationFollowsFromGridAndPeak) {
  in_child({{"SIMGPU_PEAK_TFLOPS", "100"}, {"SIMGPU_SM_COUNT", "100"}}, [] {
    Cuda cuda;
    Cupti cupti;
    cupti.record({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});
    CUfunction f = cuda.kernel("gemm", "flop_per_block=1e9 efficiency=0.5");
    cuda.launch(f, nullptr, 1000);  // 1000 x 1e9 / (100e12 x 0.5) = 20 ms
    cuda.launch(f, nullptr, 50);    // half the SMs: 50 x 1e9 / (100e12 x 0.5 x 0.5) = 2 ms
    cuda.synchronize();
    cupti.flush();
    const auto records = cupti.of_kind(kKernel);
    ASSERT_EQ(records.size(), 2u);
    EXPECT_EQ(records[0].kernel_end() - records[0].kernel_begin(), 20'000'000u);
    EXPECT_EQ(records[1].kernel_end() - records[1].kernel_begin(), 2'000'000u);
    EXPECT_EQ(records[1].kernel_begin(), records[0].kernel_end() + 800);  // the gap
  });
}

TEST(Timeline, StreamsOverlapEventsOrderAndProgrammaticLaunchesStartEarly) {
  in_child({}, [] {
    Cuda cuda;
    Cupti cupti;
    cupti.record({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});
    CUfunction f = cuda.kernel("k", "ns=200000000");  // still runs when the next is launched, on any machine
    CUstream a = cuda.stream(), b = cuda.stream(), c = cuda.stream();
    CUevent event = nullptr;
    CU(cuda, cuEventCreate)(&event, 0);
    cuda.launch(f, a);
    cuda.launch(f, b);
    CU(cuda, cuEventRecord)(event, a);
    CU(cuda, cuStreamWaitEvent)(c, event, 0);
    cuda.launch(f, c);
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config{};
    config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    config.hStream = c;
    config.attrs = &attribute;
    config.numAttrs = 1;
    EXPECT_EQ(CU(cuda, cuLaunchKernelEx)(&config, f, nullptr, nullptr), CUDA_SUCCESS);
    cuda.synchronize();
    cupti.flush();
    const auto r = cupti.of_kind(kKernel);
    ASSERT_EQ(r.size(), 4u);
    EXPECT_LT(r[1].kernel_begin(), r[0].kernel_end());
    EXPECT_GE(r[2].kernel_begin(), r[0].kernel_end());
    EXPECT_EQ(r[3].kernel_begin(), r[2].kernel_end() - 2000);
    EXPECT_EQ(
        (std::set<std::uint32_t>{r[0].at<std::uint32_t>(48), r[1].at<std::uint32_t>(48), r[2].at<std::uint32_t>(48)}),
        (std::set<std::uint32_t>{14, 15, 16}));
  });
}

// Callback API ---------------------------------------------------------------------------------------------------

TEST(Timeline, KernelsWithoutACostLastByTheirThreadsOrTheirName) {
  in_child({{"SIMGPU_PEAK_TFLOPS", "100"},
            {"SIMGPU_SM_COUNT", "100"},
            {"SIMGPU_PEAK_GBPS", "1000"},
            {"SIMGPU_BYTES_PER_THREAD", "16"},
            {"SIMGPU_FLOP_PER_BLOCK", "flash_fwd:1e9"}},
           [] {
             Cuda cuda;
             Cupti cupti;
             cupti.record({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});
             const std::uint32_t cubin[16] = {0x464C457F};  // an ELF image has every kernel name that is asked for
             CUmodule module = nullptr;
             CUfunction copy = nullptr, attention = nullptr;
             ASSERT_EQ(CU(cuda, cuModuleLoadData)(&module, cubin), CUDA_SUCCESS);
             ASSERT_EQ(CU(cuda, cuModuleGetFunction)(&copy, module, "elementwise_kernel"), CUDA_SUCCESS);
             ASSERT_EQ(CU(cuda, cuModuleGetFunction)(&attention, module, "my_flash_fwd_kernel"), CUDA_SUCCESS);
             cuda.launch(copy, nullptr, 1'000'000);  // 1e6 x 128 threads x 16 bytes / 1e12 = 2.048 ms
             cuda.launch(copy);                      // never below SIMGPU_KERNEL_NS
             cuda.launch(attention, nullptr, 1000);  // 1000 x 1e9 / 100e12 = 10 ms
             cuda.synchronize();
             cupti.flush();
             const auto records = cupti.of_kind(kKernel);
             ASSERT_EQ(records.size(), 3u);
             EXPECT_EQ(records[0].kernel_end() - records[0].kernel_begin(), 2'048'000u);
             EXPECT_EQ(records[1].kernel_end() - records[1].kernel_begin(), 2'000u);
             EXPECT_EQ(records[2].kernel_end() - records[2].kernel_begin(), 10'000'000u);
           });
}

// Memory ---------------------------------------------------------------------------------------------------------

TEST(Memory, HoldsWhatWasCopiedAndSetWhereContentsAreAskedFor) {
  in_child({{"SIMGPU_MEMORY", "contents"}}, [] {
    Cuda cuda;
    CUdeviceptr a = 0, b = 0;
    ASSERT_EQ(CU(cuda, cuMemAlloc)(&a, 4096), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuda, cuMemAlloc)(&b, 4096), CUDA_SUCCESS);
    const std::vector<std::uint32_t> sent = {1, 2, 3, 4};
    std::vector<std::uint32_t> got(4, 9);
    ASSERT_EQ(CU(cuda, cuMemcpyDtoH)(got.data(), a, 16), CUDA_SUCCESS);
    EXPECT_EQ(got, std::vector<std::uint32_t>(4, 0));  // nobody wrote there
    ASSERT_EQ(CU(cuda, cuMemcpyHtoD)(a, sent.data(), 16), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuda, cuMemcpyDtoDAsync)(b + 64, a, 16, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuda, cuMemsetD32)(b + 68, 7, 1), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuda, cuMemcpyDtoHAsync)(got.data(), b + 64, 16, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(got, (std::vector<std::uint32_t>{1, 7, 3, 4}));
    EXPECT_EQ(CU(cuda, cuMemFree)(a), CUDA_SUCCESS);
  });
}

TEST(Memory, PointersKnowWhereTheyBelong) {
  in_child({}, [] {
    Cuda cuda;
    CUdeviceptr a = 0;
    void* pinned = nullptr;
    int own = 0;
    ASSERT_EQ(CU(cuda, cuMemAlloc)(&a, 1000), CUDA_SUCCESS);
    ASSERT_EQ(CU(cuda, cuMemHostAlloc)(&pinned, 1000, 0), CUDA_SUCCESS);
    const auto type = [&](CUdeviceptr p) {
      unsigned t = 0;
      const CUresult r = CU(cuda, cuPointerGetAttribute)(&t, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p);
      return r == CUDA_SUCCESS ? t : 0;
    };
    EXPECT_EQ(type(a), CU_MEMORYTYPE_DEVICE);
    EXPECT_EQ(type(a + 999), CU_MEMORYTYPE_DEVICE);
    EXPECT_EQ(type(a + 1000), 0u);
    EXPECT_EQ(type(reinterpret_cast<CUdeviceptr>(pinned) + 1), CU_MEMORYTYPE_HOST);
    EXPECT_EQ(type(reinterpret_cast<CUdeviceptr>(&own)), 0u);
    ASSERT_EQ(CU(cuda, cuMemHostRegister)(&own, sizeof own, 0), CUDA_SUCCESS);
    EXPECT_EQ(type(reinterpret_cast<CUdeviceptr>(&own)), CU_MEMORYTYPE_HOST);
    EXPECT_EQ(CU(cuda, cuMemHostRegister)(&own, sizeof own, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    EXPECT_EQ(CU(cuda, cuMemHostUnregister)(&own), CUDA_SUCCESS);
    EXPECT_EQ(type(reinterpret_cast<CUdeviceptr>(&own)), 0u);
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    EXPECT_EQ(CU(cuda, cuMemGetAddressRange)(&base, &bytes, a + 500), CUDA_SUCCESS);
    EXPECT_EQ(base, a);
    EXPECT_EQ(bytes, 1000u);
  });
}

TEST(Callbacks, SecondSubscriberIsRefusedAndParametersAreChecked) {
  in_child({}, [] {
    Cuda cuda;
    Cupti cupti;
    cupti.subscribe();
    CUpti_SubscriberHandle second = nullptr;
    const auto nothing = [](void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {};
    EXPECT_EQ(CUPTI(cupti, cuptiSubscribe)(&second, nothing, nullptr), CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
    auto* enable = CUPTI(cupti, cuptiEnableCallback);
    EXPECT_EQ(enable(1, nullptr, CUPTI_CB_DOMAIN_DRIVER_API, kLaunch), CUPTI_ERROR_INVALID_PARAMETER);
    EXPECT_EQ(enable(1, cupti.subscriber, CUPTI_CB_DOMAIN_DRIVER_API, 1000), CUPTI_ERROR_INVALID_PARAMETER);
    EXPECT_EQ(enable(1, cupti.subscriber, CUPTI_CB_DOMAIN_RESOURCE, 99), CUPTI_ERROR_INVALID_PARAMETER);
    EXPECT_EQ(CUPTI(cupti, cuptiActivityEnable)(static_cast<CUpti_ActivityKind>(200)), CUPTI_ERROR_INVALID_KIND);
    EXPECT_EQ(CUPTI(cupti, cuptiUnsubscribe)(cupti.subscriber), CUPTI_SUCCESS);
    EXPECT_EQ(CUPTI(cupti, cuptiSubscribe)(&second, nothing, nullptr), CUPTI_SUCCESS);
  });
}

TEST(Callbacks, NewerIdsAreUnknownToOlderVersions) {
  in_child({}, [] {
    Cuda cuda;
    Cupti cupti("11.8");
    cupti.subscribe();
    cupti.enable_callback(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx);
    EXPECT_EQ(CUPTI(cupti, cuptiEnableCallback)(1, cupti.subscriber, CUPTI_CB_DOMAIN_DRIVER_API, 757),
              CUPTI_ERROR_INVALID_PARAMETER);
  });
}

TEST(Callbacks, RuntimeLaunchNestsTheDriverLaunchUnderOneId) {
  in_child({}, [] {
    Cuda cuda;
    Cupti cupti;
    cupti.subscribe();
    cupti.record({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});
    cupti.enable_callback(CUPTI_CB_DOMAIN_DRIVER_API, kLaunch);
    cupti.enable_callback(CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000);
    void* runtime = dlopen((directory() + "/libcudart.so.13").c_str(), RTLD_NOW);
    ASSERT_NE(runtime, nullptr);
    auto* launch = reinterpret_cast<cudaError_t (*)(const void*, dim3, dim3, void**, size_t, cudaStream_t)>(
        dlsym(runtime, "cudaLaunchKernel"));
    CUfunction f = cuda.kernel("k", "ns=1000");
    EXPECT_EQ(launch(f, dim3(1), dim3(32), nullptr, 0, nullptr), cudaSuccess);
    cuda.synchronize();
    cupti.flush();
    const auto& calls = cupti.calls;
    ASSERT_EQ(calls.size(), 4u);
    EXPECT_EQ(calls[0].domain, CUPTI_CB_DOMAIN_RUNTIME_API);
    EXPECT_EQ(calls[1].domain, CUPTI_CB_DOMAIN_DRIVER_API);
    EXPECT_EQ(calls[1].site, CUPTI_API_ENTER);
    EXPECT_EQ(calls[2].domain, CUPTI_CB_DOMAIN_DRIVER_API);
    EXPECT_EQ(calls[2].site, CUPTI_API_EXIT);
    EXPECT_EQ(calls[3].site, CUPTI_API_EXIT);
    EXPECT_EQ(calls[1].symbol, "k");
    for (const Call& c : calls) EXPECT_EQ(c.correlation, calls[0].correlation);
    EXPECT_EQ(calls[0].data, calls[3].data);
    EXPECT_EQ(calls[1].data, calls[2].data);
    EXPECT_NE(calls[0].data, calls[1].data);
    const auto kernels = cupti.of_kind(kKernel);
    ASSERT_EQ(kernels.size(), 1u);
    EXPECT_EQ(kernels[0].kernel_correlation(), calls[0].correlation);
  });
}

TEST(Callbacks, IdsCountEveryCallAndWrapPastZero) {
  in_child({{"SIMGPU_CORRELATION_START", "4294967280"}}, [] {
    Cuda cuda;
    Cupti cupti;
    cupti.subscribe();
    cupti.enable_callback(CUPTI_CB_DOMAIN_DRIVER_API, kLaunch);
    CUfunction f = cuda.kernel("k", "ns=1000");
    for (int i = 0; i < 40; ++i) cuda.launch(f);
    std::set<std::uint32_t> ids;
    for (const Call& c : cupti.calls) ids.insert(c.correlation);
    EXPECT_EQ(ids.size(), 40u);
    EXPECT_FALSE(ids.contains(0));
    EXPECT_LT(*ids.begin(), 40u);
    EXPECT_GT(*ids.rbegin(), 4294967280u);
  });
}

TEST(Callbacks, RecordCanBeDeliveredBeforeExit) {
  in_child({{"SIMGPU_KERNEL_BEFORE_EXIT", "1"}}, [] {
    Cuda cuda;
    Cupti cupti;
    cupti.subscribe();
    cupti.record({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});
    cupti.enable_callback(CUPTI_CB_DOMAIN_DRIVER_API, kLaunch);
    CUfunction f = cuda.kernel("k", "ns=1000");
    std::size_t at_exit = 99;
    cupti.in_callback = [&] { at_exit = cupti.taken().size(); };
    cuda.launch(f);
    EXPECT_EQ(at_exit, 1u);
  });
}

// Records --------------------------------------------------------------------------------------------------------

struct Sizes {
  const char* version;
  std::uint32_t number;
  std::size_t kernel, memcpy, memset, graph;
};

class Layouts : public testing::TestWithParam<Sizes> {};

TEST_P(Layouts, SizesAndFieldsFollowTheVersion) {
  const Sizes expected = GetParam();
  in_child({}, [&] {
    Cuda cuda;
    Cupti cupti(expected.version);
    std::uint32_t version = 0;
    CUPTI(cupti, cuptiGetVersion)(&version);
    EXPECT_EQ(version, expected.number);
    cupti.record({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET});
    CUfunction f = cuda.kernel("_Z4gemmv", "ns=10000");
    CUstream s = cuda.stream();
    CUdeviceptr memory = 0;
    CU(cuda, cuMemAlloc)(&memory, 4096);
    char host[4096] = {};
    cuda.launch(f, s, 7);
    CU(cuda, cuMemcpyHtoDAsync)(memory, host, 4096, s);
    CU(cuda, cuMemsetD8Async)(memory, 5, 100, s);
    cuda.synchronize();
    cupti.flush();
    const auto records = cupti.taken(3);
    ASSERT_EQ(records.size(), 3u);
    const Record& k = records[0];
    EXPECT_EQ(k.kind, kKernel);
    EXPECT_EQ(k.size, expected.kernel);
    EXPECT_EQ(k.kernel_end() - k.kernel_begin(), 10'000u);
    EXPECT_EQ(k.at<std::uint32_t>(40), 0u);   // device
    EXPECT_EQ(k.at<std::uint32_t>(44), 1u);   // context
    EXPECT_EQ(k.at<std::uint32_t>(48), 14u);  // stream
    EXPECT_EQ(k.at<std::int32_t>(52), 7);     // gridX
    EXPECT_EQ(k.at<std::int32_t>(64), 128);   // blockX
    EXPECT_EQ(k.name, "_Z4gemmv");
    EXPECT_EQ(records[1].size, expected.memcpy);
    EXPECT_EQ(records[1].at<std::uint8_t>(4), 1);  // host to device
    EXPECT_EQ(records[1].at<std::uint64_t>(8), 4096u);
    EXPECT_EQ(records[2].size, expected.memset);
    EXPECT_EQ(records[2].at<std::uint64_t>(8), 100u);
    EXPECT_GT(records[2].at<std::uint64_t>(24), records[2].at<std::uint64_t>(16));
    EXPECT_EQ(cupti.walk_ends.back(), CUPTI_ERROR_MAX_LIMIT_REACHED);
  });
}

INSTANTIATE_TEST_SUITE_P(Versions, Layouts,
                         testing::Values(Sizes{"11.8", 18, 200, 88, 88, 48}, Sizes{"12.4", 22, 208, 88, 88, 56},
                                         Sizes{"12.6", 24, 208, 88, 88, 56}, Sizes{"12.9", 27, 208, 96, 88, 56},
                                         Sizes{"13.0", 130001, 216, 96, 88, 56},
                                         Sizes{"13.3", 130300, 232, 96, 88, 56}));

TEST(Records, NewestHeaderStructuresAgreeWithTheLayout) {
  in_child({}, [] {
    Cuda cuda;
    Cupti cupti;
    cupti.record({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_DRIVER});
    CUfunction f = cuda.kernel("k", "ns=10000");
    cuda.launch(f, nullptr, 3);
    cuda.synchronize();
    cupti.flush();
    const auto kernels = cupti.of_kind(kKernel);
    ASSERT_EQ(kernels.size(), 1u);
    CUpti_ActivityKernel9 k{};
    std::memcpy(&k, kernels[0].bytes.data(), sizeof k);
    EXPECT_EQ(k.gridX, 3);
    EXPECT_EQ(k.streamId, 7u);  // the default stream
    EXPECT_STREQ(k.name, "k");
    EXPECT_EQ(k.correlationId, kernels[0].kernel_correlation());
    bool found = false;
    for (const Record& r : cupti.of_kind(CUPTI_ACTIVITY_KIND_DRIVER)) {
      CUpti_ActivityAPI api{};
      std::memcpy(&api, r.bytes.data(), sizeof api);
      if (api.cbid != kLaunch) continue;
      found = true;
      EXPECT_EQ(api.correlationId, k.correlationId);
      EXPECT_EQ(api.threadId, static_cast<std::uint32_t>(syscall(SYS_gettid)));
      EXPECT_LE(api.start, api.end);
    }
    EXPECT_TRUE(found);
  });
}

// Buffers --------------------------------------------------------------------------------------------------------

TEST(Buffers, UnforcedFlushKeepsUnfinishedRecordsForcedGivesThemWithoutTimes) {
  in_child({}, [] {
    Cuda cuda;
    Cupti cupti;
    cupti.record({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});
    CUfunction quick = cuda.kernel("quick", "ns=1000"), slow = cuda.kernel("slow", "ns=300000000");
    cuda.launch(quick);
    cuda.launch(slow);
    std::this_thread::sleep_for(10ms);
    cupti.flush();
    EXPECT_TRUE(cupti.taken().empty());
    cupti.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    const auto records = cupti.taken();
    ASSERT_EQ(records.size(), 2u);
    EXPECT_NE(records[0].kernel_end(), 0u);
    EXPECT_EQ(records[1].kernel_begin(), 0u);
    EXPECT_EQ(records[1].kernel_end(), 0u);
  });
}

TEST(Buffers, AForcedFlushGivesWhatRunsOnceAndNeverAgain) {
  in_child({}, [] {
    Cuda cuda;
    Cupti cupti;
    cupti.record({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});
    cuda.launch(cuda.kernel("slow", "ns=30000000"));
    cupti.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    ASSERT_EQ(cupti.taken().size(), 1u);
    EXPECT_EQ(cupti.taken()[0].kernel_end(), 0u);
    cuda.synchronize();
    cupti.flush();
    cupti.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    EXPECT_EQ(cupti.taken().size(), 1u);
  });
}

TEST(Buffers, AnUnforcedFlushLeavesABufferWithWorkInItToFillUp) {
  // The kind reading closes such a buffer, and the worker hands it back as soon as it is complete.
  for (const auto& [keeps_open, requests] : {std::pair{"", 1u}, std::pair{"0", 4u}}) {
    in_child({{"SIMGPU_FLUSH_KEEPS_OPEN", keeps_open}}, [n = requests] {
      Cuda cuda;
      Cupti cupti;
      cupti.record({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});
      CUfunction slow = cuda.kernel("slow", "ns=20000000");
      for (int i = 0; i < 4; ++i) {  // there is always one that runs
        cuda.launch(slow);
        cuda.launch(slow);
        std::this_thread::sleep_for(5ms);
        cupti.flush();
      }
      EXPECT_EQ(cupti.requesters.size(), n);
      cuda.synchronize();
      cupti.flush();
      EXPECT_EQ(cupti.taken(8).size(), 8u);
    });
  }
}

TEST(Buffers, AreZeroedOnTheThreadThatAskedUnlessTheClientDoesIt) {
  for (const std::uint8_t client_does : {0, 1}) {
    in_child({}, [client_does] {
      Cuda cuda;
      Cupti cupti;
      static std::uint8_t* given = nullptr;
      static std::vector<std::uint8_t> memory(4096, 0xCC);
      const auto requested = [](std::uint8_t** buffer, std::size_t* size, std::size_t* most) {
        *buffer = given = memory.data();
        *size = memory.size();
        *most = 0;
      };
      const auto completed = [](CUcontext, std::uint32_t, std::uint8_t*, std::size_t, std::size_t) {};
      std::uint8_t value = client_does;
      std::size_t size = sizeof value;
      EXPECT_EQ(CUPTI(cupti, cuptiActivitySetAttribute)(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER, &size, &value),
                CUPTI_SUCCESS);
      EXPECT_EQ(CUPTI(cupti, cuptiActivityRegisterCallbacks)(requested, completed), CUPTI_SUCCESS);
      EXPECT_EQ(CUPTI(cupti, cuptiActivityEnable)(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), CUPTI_SUCCESS);
      cuda.launch(cuda.kernel("k", "ns=1000"));
      ASSERT_NE(given, nullptr);
      EXPECT_EQ(given[4095], client_does != 0 ? 0xCC : 0);
    });
  }
}

TEST(Buffers, WorkerHandsBackClosedBuffersOnceComplete) {
  in_child({}, [] {
    Cuda cuda;
    Cupti cupti;
    cupti.buffer_bytes = 10 * 216;
    cupti.record({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});
    CUfunction f = cuda.kernel("k", "ns=1000");
    for (int i = 0; i < 25; ++i) cuda.launch(f);
    cuda.synchronize();
    for (int i = 0; i < 200 && cupti.taken().size() < 20; ++i) std::this_thread::sleep_for(5ms);
    EXPECT_EQ(cupti.taken().size(), 20u);  // the third buffer is not full, and nobody has flushed
    for (const Record& r : cupti.taken()) EXPECT_NE(r.thread, std::this_thread::get_id());
    for (const std::thread::id& id : cupti.requesters) EXPECT_EQ(id, std::this_thread::get_id());
    cupti.flush();
    EXPECT_EQ(cupti.taken().size(), 25u);
    cupti.flush();
    EXPECT_EQ(cupti.taken().size(), 25u);
  });
}

TEST(Buffers, PerThreadFromThirteenOn) {
  for (const auto& [version, buffers] : {std::pair{"12.6", 1u}, std::pair{"13.0", 3u}}) {
    in_child({}, [&, v = version, n = buffers] {
      Cuda cuda;
      Cupti cupti(v);
      cupti.record({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});
      CUfunction f = cuda.kernel("k", "ns=1000");
      cuda.launch(f);
      for (int i = 0; i < 2; ++i) {
        std::thread([&] {
          cuda.make_current();
          cuda.launch(f);
        }).join();
      }
      cuda.synchronize();
      cupti.flush();
      EXPECT_EQ(cupti.requesters.size(), n);
      EXPECT_EQ(cupti.taken().size(), 3u);
    });
  }
}

TEST(Buffers, NullCrashesBefore27AndDropsFromThenOn) {
  const auto body = [](const char* version) {
    return [version] {
      Cuda cuda;
      Cupti cupti(version);
      cupti.give_null = true;
      cupti.record({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});
      CUfunction f = cuda.kernel("k", "ns=1000");
      for (int i = 0; i < 5; ++i) cuda.launch(f);
      std::size_t dropped = 0;
      CUPTI(cupti, cuptiActivityGetNumDroppedRecords)(nullptr, 0, &dropped);
      EXPECT_EQ(dropped, 5u);
      CUPTI(cupti, cuptiActivityGetNumDroppedRecords)(nullptr, 0, &dropped);
      EXPECT_EQ(dropped, 0u);  // the query resets it
    };
  };
  aborts_in_child({}, body("12.6"));
  in_child({}, body("12.9"));
}

TEST(Buffers, DisabledKindStillDeliversOlderRecords) {
  in_child({}, [] {
    Cuda cuda;
    Cupti cupti;
    cupti.record({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});
    CUfunction f = cuda.kernel("k", "ns=1000");
    cuda.launch(f);
    EXPECT_EQ(CUPTI(cupti, cuptiActivityDisable)(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), CUPTI_SUCCESS);
    cuda.launch(f);
    cuda.synchronize();
    cupti.flush();
    EXPECT_EQ(cupti.taken().size(), 1u);
  });
}

TEST(Buffers, ManyThreadsAndConcurrentFlushesLoseNothing) {
  for (const char* per_thread : {"0", "1"}) {
    in_child({{"SIMGPU_PER_THREAD", per_thread}}, [] {
      Cuda cuda;
      Cupti cupti;
      cupti.buffer_bytes = 20 * 216;
      cupti.record({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});
      CUfunction f = cuda.kernel("k", "ns=1000");
      cuda.launch(f);  // the look-up of the launch function is not what is tested
      constexpr int kThreads = 8, kLaunches = 500;
      std::atomic<int> running{kThreads};
      std::vector<std::thread> threads;
      for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&] {
          cuda.make_current();
          CUstream s = cuda.stream();
          for (int i = 0; i < kLaunches; ++i) cuda.launch(f, s);
          --running;
        });
      }
      while (running.load() > 0) cupti.flush();
      for (std::thread& t : threads) t.join();
      cuda.synchronize();
      cupti.flush();
      for (int i = 0; i < 400 && cupti.taken().size() < kThreads * kLaunches + 1; ++i) std::this_thread::sleep_for(5ms);
      std::set<std::uint32_t> ids;
      for (const Record& r : cupti.taken()) ids.insert(r.kernel_correlation());
      EXPECT_EQ(cupti.taken().size(), static_cast<std::size_t>(kThreads * kLaunches + 1));
      EXPECT_EQ(ids.size(), cupti.taken().size());
    });
  }
}

// Graphs ---------------------------------------------------------------------------------------------------------

/// Two streams joined by events: 3 kernels and a memset. Instantiated, not launched.
CUgraphExec small_graph(Cuda& cuda, CUfunction f, CUstream a, CUstream b, CUdeviceptr memory) {
  CUevent fork_event = nullptr, join_event = nullptr;
  CU(cuda, cuEventCreate)(&fork_event, 0);
  CU(cuda, cuEventCreate)(&join_event, 0);
  EXPECT_EQ(CU(cuda, cuStreamBeginCapture)(a, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  cuda.launch(f, a);
  CU(cuda, cuEventRecord)(fork_event, a);
  CU(cuda, cuStreamWaitEvent)(b, fork_event, 0);
  cuda.launch(f, b);
  cuda.launch(f, a);
  CU(cuda, cuMemsetD8Async)(memory, 0, 64, b);
  CU(cuda, cuEventRecord)(join_event, b);
  CU(cuda, cuStreamWaitEvent)(a, join_event, 0);
  CUgraph graph = nullptr;
  EXPECT_EQ(CU(cuda, cuStreamEndCapture)(a, &graph), CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  EXPECT_EQ(CU(cuda, cuGraphInstantiateWithFlags)(&exec, graph, 0), CUDA_SUCCESS);
  return exec;
}

TEST(Graphs, NodesCarryTheLaunchesIdAndCapturedLaunchesLeaveNoRecord) {
  in_child({}, [] {
    Cuda cuda;
    Cupti cupti;
    cupti.subscribe();
    for (CUpti_CallbackId id = CUPTI_CBID_RESOURCE_GRAPH_CREATED; id <= CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED; ++id) {
      cupti.enable_callback(CUPTI_CB_DOMAIN_RESOURCE, id);
    }
    cupti.enable_callback(CUPTI_CB_DOMAIN_DRIVER_API, kLaunch);
    cupti.enable_callback(CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch);
    cupti.record({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMSET});
    CUfunction f = cuda.kernel("k", "ns=2000000");
    CUstream a = cuda.stream(), b = cuda.stream();
    CUdeviceptr memory = 0;
    CU(cuda, cuMemAlloc)(&memory, 4096);
    CUgraphExec exec = small_graph(cuda, f, a, b, memory);
    EXPECT_EQ(cupti.calls.size(), 6u);  // three captured launches call back
    cuda.synchronize();
    cupti.flush();
    EXPECT_TRUE(cupti.taken().empty());

    EXPECT_EQ(CU(cuda, cuGraphLaunch)(exec, a), CUDA_SUCCESS);
    cuda.synchronize();
    cupti.flush();
    const auto kernels = cupti.of_kind(kKernel);
    ASSERT_EQ(kernels.size(), 3u);
    std::uint32_t exec_id = 0;
    CUPTI(cupti, cuptiGetGraphExecId)(exec, &exec_id);
    std::set<std::uint64_t> nodes;
    for (const Record& r : kernels) {
      EXPECT_EQ(r.kernel_correlation(), cupti.calls.back().correlation);
      EXPECT_EQ(r.at<std::uint32_t>(156), exec_id);
      nodes.insert(r.at<std::uint64_t>(144));
    }
    EXPECT_EQ(nodes.size(), 3u);
    EXPECT_GE(kernels[1].kernel_begin(), kernels[0].kernel_end());  // both wait for the first
    EXPECT_LT(kernels[2].kernel_begin(), kernels[1].kernel_end());  // and run side by side
    ASSERT_EQ(cupti.of_kind(CUPTI_ACTIVITY_KIND_MEMSET).size(), 1u);

    // Clones name the node they come from, and the records carry the clones' ids.
    std::set<CUgraphNode> created;
    std::set<std::uint64_t> cloned;
    for (const auto& [cbid, data] : cupti.graph_events) {
      if (cbid == CUPTI_CBID_RESOURCE_GRAPHNODE_CREATED) created.insert(data.node);
      if (cbid != CUPTI_CBID_RESOURCE_GRAPHNODE_CLONED) continue;
      EXPECT_TRUE(created.contains(data.originalNode));
      std::uint64_t id = 0;
      CUPTI(cupti, cuptiGetGraphNodeId)(data.node, &id);
      cloned.insert(id);
    }
    EXPECT_EQ(created.size(), 4u);
    EXPECT_TRUE(std::includes(cloned.begin(), cloned.end(), nodes.begin(), nodes.end()));
    EXPECT_TRUE(std::any_of(cupti.graph_events.begin(), cupti.graph_events.end(), [&](const auto& e) {
      return e.first == CUPTI_CBID_RESOURCE_GRAPHEXEC_CREATED && e.second.graphExec == exec;
    }));
  });
}

TEST(Graphs, GraphTraceGivesOneRecordInsteadOfNodes) {
  in_child({}, [] {
    Cuda cuda;
    Cupti cupti;
    cupti.record({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_GRAPH_TRACE});
    CUfunction f = cuda.kernel("k", "ns=10000");
    CUstream a = cuda.stream(), b = cuda.stream();
    CUdeviceptr memory = 0;
    CU(cuda, cuMemAlloc)(&memory, 4096);
    CUgraphExec exec = small_graph(cuda, f, a, b, memory);
    CU(cuda, cuGraphLaunch)(exec, a);
    cuda.launch(f, a);
    cuda.synchronize();
    cupti.flush();
    EXPECT_EQ(cupti.of_kind(kKernel).size(), 1u);
    const auto graphs = cupti.of_kind(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
    ASSERT_EQ(graphs.size(), 1u);
    EXPECT_EQ(graphs[0].at<std::uint64_t>(16) - graphs[0].at<std::uint64_t>(8),
              22'800u);  // two kernels and a memset of 1.2 us, with gaps
  });
}

/// Records per launch (kernels, whole graphs) of a graph from before GRAPH_TRACE was on and of one from after: while it
/// is on, and after it was switched off.
std::array<std::pair<std::size_t, std::size_t>, 4> around_graph_trace() {
  Cuda cuda;
  Cupti cupti;
  cupti.record({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});
  CUfunction f = cuda.kernel("k", "ns=10000");
  CUstream a = cuda.stream(), b = cuda.stream();
  CUdeviceptr memory = 0;
  CU(cuda, cuMemAlloc)(&memory, 4096);
  CUgraphExec before = small_graph(cuda, f, a, b, memory);
  EXPECT_EQ(CUPTI(cupti, cuptiActivityEnable)(CUPTI_ACTIVITY_KIND_GRAPH_TRACE), CUPTI_SUCCESS);
  CUgraphExec after = small_graph(cuda, f, a, b, memory);
  const auto records_of = [&](CUgraphExec exec) {
    const auto count = [&](std::uint32_t kind) { return cupti.of_kind(kind).size(); };
    const std::size_t kernels = count(kKernel), graphs = count(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
    CU(cuda, cuGraphLaunch)(exec, a);
    cuda.synchronize();
    cupti.flush();
    return std::pair(count(kKernel) - kernels, count(CUPTI_ACTIVITY_KIND_GRAPH_TRACE) - graphs);
  };
  const auto before_on = records_of(before), after_on = records_of(after);
  EXPECT_EQ(CUPTI(cupti, cuptiActivityDisable)(CUPTI_ACTIVITY_KIND_GRAPH_TRACE), CUPTI_SUCCESS);
  return {before_on, after_on, records_of(before), records_of(after)};
}

TEST(Graphs, GraphLevelLastsAndHoldsForLaterGraphsAlone) {
  using Counts = std::array<std::pair<std::size_t, std::size_t>, 4>;
  in_child({}, [] { EXPECT_EQ(around_graph_trace(), (Counts{{{0, 0}, {0, 1}, {0, 0}, {0, 0}}})); });
  in_child({{"SIMGPU_GRAPH_LEVEL_LATE", "1"}}, [] {
    EXPECT_EQ(around_graph_trace(), (Counts{{{0, 1}, {0, 1}, {0, 0}, {0, 0}}}));
  });
  in_child({{"SIMGPU_GRAPH_LEVEL_ENDS", "1"}}, [] {
    EXPECT_EQ(around_graph_trace(), (Counts{{{0, 0}, {0, 1}, {3, 0}, {3, 0}}}));
  });
}

/// Host time of a launch of a kernel and of a graph of three kernels and a set [ns].
std::pair<std::int64_t, std::int64_t> launch_times(std::initializer_list<CUpti_ActivityKind> kinds) {
  Cuda cuda;
  Cupti cupti;
  if (kinds.size() != 0) cupti.record(kinds);
  CUfunction f = cuda.kernel("k", "ns=1000");
  CUstream a = cuda.stream(), b = cuda.stream();
  CUdeviceptr memory = 0;
  CU(cuda, cuMemAlloc)(&memory, 4096);
  CUgraphExec exec = small_graph(cuda, f, a, b, memory);
  const auto least = [](auto&& call) {
    auto shortest = std::chrono::nanoseconds::max();
    for (int i = 0; i < 20; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      call();
      shortest = std::min<std::chrono::nanoseconds>(shortest, std::chrono::steady_clock::now() - begin);
    }
    return static_cast<std::int64_t>(shortest.count());
  };
  const std::int64_t kernel = least([&] { cuda.launch(f, a); });
  return {kernel, least([&] { CU(cuda, cuGraphLaunch)(exec, a); })};
}

TEST(Graphs, TracingHasAPriceThatItsLevelDecides) {
  const Environment prices{{"SIMGPU_TRACED_LAUNCH_NS", "200000"}, {"SIMGPU_TRACED_NODE_NS", "1000000"}};
  in_child(prices, [] {
    const auto [kernel, graph] = launch_times({});
    EXPECT_LT(kernel, 200'000);
    EXPECT_LT(graph, 200'000);
  });
  in_child(prices, [] {
    const auto [kernel, graph] = launch_times({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});
    EXPECT_GE(kernel, 200'000);
    EXPECT_GE(graph, 4'200'000);
  });
  in_child(prices, [] {
    const auto [kernel, graph] = launch_times({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_GRAPH_TRACE});
    EXPECT_GE(kernel, 200'000);
    EXPECT_GE(graph, 200'000);
    EXPECT_LT(graph, 4'200'000);
  });
}

TEST(Graphs, InstantiatedBeforeTheToolShowsEveryNodeAsAKernel) {
  in_child({}, [] {
    Cuda cuda;
    CUfunction f = cuda.kernel("k", "ns=10000");
    CUstream a = cuda.stream(), b = cuda.stream();
    CUdeviceptr memory = 0;
    CU(cuda, cuMemAlloc)(&memory, 4096);
    CUgraphExec exec = small_graph(cuda, f, a, b, memory);
    Cupti cupti;
    cupti.record({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMSET});
    CU(cuda, cuGraphLaunch)(exec, a);
    cuda.synchronize();
    cupti.flush();
    EXPECT_EQ(cupti.of_kind(kKernel).size(), 4u);
    EXPECT_EQ(cupti.of_kind(CUPTI_ACTIVITY_KIND_MEMSET).size(), 0u);
  });
}

/// Begin times of the kernel nodes of 20 launches of a graph with three kernels.
std::vector<std::uint64_t> node_begins(const char* version, std::size_t pool_limit) {
  Cuda cuda;
  Cupti cupti(version);
  std::size_t size = sizeof pool_limit;
  EXPECT_EQ(CUPTI(cupti, cuptiActivitySetAttribute)(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT, &size, &pool_limit),
            CUPTI_SUCCESS);
  cupti.record({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMSET});
  CUfunction f = cuda.kernel("k", "ns=1000");
  CUstream a = cuda.stream(), b = cuda.stream();
  CUdeviceptr memory = 0;
  CU(cuda, cuMemAlloc)(&memory, 4096);
  CUgraphExec exec = small_graph(cuda, f, a, b, memory);
  for (int i = 0; i < 20; ++i) CU(cuda, cuGraphLaunch)(exec, a);
  cuda.synchronize();
  cupti.flush();
  std::vector<std::uint64_t> begins;
  for (const Record& r : cupti.of_kind(kKernel)) begins.push_back(r.kernel_begin());
  return begins;
}

TEST(Graphs, BeforeThirteenThreeDeviceBuffersOfGraphsRunOutForGood) {
  const auto untimed = [](const std::vector<std::uint64_t>& begins) {
    return static_cast<std::size_t>(std::count(begins.begin(), begins.end(), 0u));
  };
  in_child({{"SIMGPU_GRAPH_BUFFER_RECORDS", "10"}}, [&] {
    const auto begins = node_begins("13.0", 2);
    EXPECT_EQ(untimed(begins), begins.size() - 20);
    EXPECT_EQ(untimed({begins.begin(), begins.begin() + 20}), 0u);
  });
  in_child({{"SIMGPU_GRAPH_BUFFER_RECORDS", "10"}}, [&] { EXPECT_EQ(untimed(node_begins("13.3", 2)), 0u); });
  in_child({{"SIMGPU_GRAPH_BUFFER_RECORDS", "10"}, {"SIMGPU_GRAPH_BUFFERS_RECYCLED", "1"}},
           [&] { EXPECT_EQ(untimed(node_begins("13.0", 2)), 0u); });
}

TEST(Graphs, NodesOfOlderGraphsDoNotComeBackWithAKindThatWasOff) {
  in_child({}, [] {
    Cuda cuda;
    Cupti cupti;
    cupti.record({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});
    CUfunction f = cuda.kernel("k", "ns=10000");
    CUstream a = cuda.stream(), b = cuda.stream();
    CUdeviceptr memory = 0;
    CU(cuda, cuMemAlloc)(&memory, 4096);
    CUgraphExec before = small_graph(cuda, f, a, b, memory);
    const auto kernels_of = [&](CUgraphExec exec) {
      const std::size_t so_far = cupti.of_kind(kKernel).size();
      CU(cuda, cuGraphLaunch)(exec, a);
      cuda.synchronize();
      cupti.flush();
      return cupti.of_kind(kKernel).size() - so_far;
    };
    EXPECT_EQ(kernels_of(before), 3u);
    EXPECT_EQ(CUPTI(cupti, cuptiActivityDisable)(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), CUPTI_SUCCESS);
    EXPECT_EQ(kernels_of(before), 0u);
    EXPECT_EQ(CUPTI(cupti, cuptiActivityEnable)(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), CUPTI_SUCCESS);
    EXPECT_EQ(kernels_of(before), 0u);
    EXPECT_EQ(kernels_of(small_graph(cuda, f, a, b, memory)), 3u);
  });
}

TEST(Graphs, WorkThatDoesNotComeBackToTheOriginIsAnError) {
  in_child({}, [] {
    Cuda cuda;
    CUfunction f = cuda.kernel("k", "ns=10000");
    CUstream a = cuda.stream(), b = cuda.stream();
    CUevent event = nullptr;
    CU(cuda, cuEventCreate)(&event, 0);
    CU(cuda, cuStreamBeginCapture)(a, CU_STREAM_CAPTURE_MODE_GLOBAL);
    CU(cuda, cuEventRecord)(event, a);
    CU(cuda, cuStreamWaitEvent)(b, event, 0);
    cuda.launch(f, b);
    CUgraph graph = nullptr;
    EXPECT_EQ(CU(cuda, cuStreamEndCapture)(a, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  });
}

// Faults ---------------------------------------------------------------------------------------------------------

/// Launches `n` kernels with the given script and returns what arrived.
std::vector<Record> records_of(int n, Cupti& cupti, Cuda& cuda) {
  cupti.record({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});
  CUfunction f = cuda.kernel("kernel_name", "ns=1000");
  for (int i = 0; i < n; ++i) cuda.launch(f);
  cuda.synchronize();
  cupti.flush();
  return cupti.taken();
}

TEST(Faults, DropBurstsAreCountedAndLost) {
  in_child({{"SIMGPU_DROP_BURST", "100:10"}}, [] {
    Cuda cuda;
    Cupti cupti;
    EXPECT_EQ(records_of(500, cupti, cuda).size(), 450u);
    std::size_t dropped = 0;
    CUPTI(cupti, cuptiActivityGetNumDroppedRecords)(nullptr, 0, &dropped);
    EXPECT_EQ(dropped, 50u);
  });
}

TEST(Faults, TimestampsNamesAndKinds) {
  in_child({{"SIMGPU_ZERO_TIMESTAMPS", "0.2"},
            {"SIMGPU_NEGATIVE_TIMESTAMPS", "0.2"},
            {"SIMGPU_UNKNOWN_KINDS", "0.1"},
            {"SIMGPU_NULL_NAMES", "0.3"},
            {"SIMGPU_LONG_NAMES", "8192"}},
           [] {
             Cuda cuda;
             Cupti cupti;
             const auto records = records_of(1000, cupti, cuda);
             int zero = 0, negative = 0, unnamed = 0, unknown = 0;
             for (const Record& r : records) {
               if (r.kind != kKernel) {
                 ++unknown;
                 continue;
               }
               zero += r.kernel_begin() == 0 && r.kernel_end() == 0 ? 1 : 0;
               negative += r.kernel_end() < r.kernel_begin() ? 1 : 0;
               if (r.at<const char*>(104) == nullptr) {
                 ++unnamed;
               } else {
                 EXPECT_EQ(r.name.size(), 8192u);
               }
             }
             EXPECT_NEAR(zero, 200, 60);
             EXPECT_NEAR(negative, 160, 60);  // of those that are not zero
             EXPECT_NEAR(unnamed, 300, 60);
             EXPECT_NEAR(unknown, 100, 40);
           });
}

TEST(Faults, TruncatedBufferEndsTheWalkWithAnError) {
  in_child({{"SIMGPU_TRUNCATE_RATE", "1"}}, [] {
    Cuda cuda;
    Cupti cupti;
    EXPECT_EQ(records_of(10, cupti, cuda).size(), 9u);
    EXPECT_EQ(cupti.walk_ends.back(), CUPTI_ERROR_INVALID_KIND);
  });
}

TEST(Faults, StaleNamesFault) {
  const int status = child_status({{"SIMGPU_STALE_NAMES", "1"}}, [] {
    Cuda cuda;
    Cupti cupti;
    const auto records = records_of(1, cupti, cuda);
    EXPECT_EQ(records[0].name, "kernel_name");  // copied inside the callback
    std::signal(SIGSEGV, SIG_DFL);
    std::printf("%c", *records[0].at<const volatile char*>(104));
    std::exit(0);
  });
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) != 0);  // a sanitizer turns the signal into an exit code
}

TEST(Faults, FunctionsFailAreRefusedOrTakeTime) {
  in_child({{"SIMGPU_FAIL", "cuptiSubscribe:39,cuptiActivityFlushAll:8@2"},
            {"SIMGPU_REFUSE_KINDS", "1"},
            {"SIMGPU_DELAY_MS", "cuptiActivityRegisterCallbacks:80"}},
           [] {
             Cuda cuda;
             Cupti cupti;
             CUpti_SubscriberHandle handle = nullptr;
             const auto nothing = [](void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {};
             EXPECT_EQ(CUPTI(cupti, cuptiSubscribe)(&handle, nothing, nullptr),
                       CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
             EXPECT_EQ(CUPTI(cupti, cuptiActivityEnable)(CUPTI_ACTIVITY_KIND_MEMCPY), CUPTI_ERROR_INVALID_KIND);
             EXPECT_EQ(CUPTI(cupti, cuptiActivityEnable)(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_SUCCESS);
             EXPECT_EQ(CUPTI(cupti, cuptiActivityFlushAll)(0), CUPTI_SUCCESS);
             EXPECT_EQ(CUPTI(cupti, cuptiActivityFlushAll)(0), CUPTI_ERROR_OUT_OF_MEMORY);
             const auto begin = std::chrono::steady_clock::now();
             cupti.record({});
             EXPECT_GE(std::chrono::steady_clock::now() - begin, 80ms);
           });
}

TEST(Faults, WithoutADriverCallsAnswerUnknown) {
  in_child({}, [] {
    if (void* real = dlopen("libcuda.so.1", RTLD_NOW); real != nullptr) std::exit(0);  // a machine with a driver
    Cupti cupti;
    CUpti_SubscriberHandle handle = nullptr;
    const auto nothing = [](void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {};
    EXPECT_EQ(CUPTI(cupti, cuptiSubscribe)(&handle, nothing, nullptr), CUPTI_ERROR_UNKNOWN);
    EXPECT_EQ(CUPTI(cupti, cuptiActivityEnable)(CUPTI_ACTIVITY_KIND_MEMSET), CUPTI_ERROR_UNKNOWN);
    EXPECT_EQ(CUPTI(cupti, cuptiEnableCallback)(1, nullptr, CUPTI_CB_DOMAIN_DRIVER_API, 1),
              CUPTI_ERROR_INVALID_PARAMETER);
    cupti.record({});
  });
}

TEST(Faults, WithADriverThatIsTooOldEachVersionFailsInItsOwnWay) {
  const auto nothing = [](void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {};
  const auto version_and_subscribe = [&](const char* version, CUptiResult of_version, CUptiResult of_subscribe) {
    in_child({{"SIMGPU_DRIVER_VERSION", "12080"}}, [=] {
      Cuda cuda;
      Cupti cupti(version);
      std::uint32_t number = 0;
      EXPECT_EQ(CUPTI(cupti, cuptiGetVersion)(&number), of_version) << version;
      CUpti_SubscriberHandle handle = nullptr;
      EXPECT_EQ(CUPTI(cupti, cuptiSubscribe)(&handle, nothing, nullptr), of_subscribe) << version;
    });
  };
  version_and_subscribe("12.9", CUPTI_SUCCESS, CUPTI_SUCCESS);
  version_and_subscribe("13.0", CUPTI_SUCCESS, CUPTI_ERROR_UNKNOWN);
  version_and_subscribe("13.3", CUPTI_ERROR_UNKNOWN, CUPTI_ERROR_UNKNOWN);
  aborts_in_child({{"SIMGPU_DRIVER_VERSION", "12080"}}, [] {
    Cuda cuda;
    Cupti cupti("13.2");
    std::uint32_t number = 0;
    CUPTI(cupti, cuptiGetVersion)(&number);
  });
  in_child({}, [] {
    Cuda cuda;
    Cupti cupti("13.2");
    std::uint32_t number = 0;
    EXPECT_EQ(CUPTI(cupti, cuptiGetVersion)(&number), CUPTI_SUCCESS);
    EXPECT_EQ(number, 130200u);
  });
}

TEST(Faults, FailedLaunchesReturnTheErrorAndLeaveNoRecord) {
  in_child({{"SIMGPU_FAIL_LAUNCH_RATE", "0.5"}, {"SIMGPU_FAIL_LAUNCH_ERROR", "719"}}, [] {
    Cuda cuda;
    Cupti cupti;
    cupti.record({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});
    CUfunction f = cuda.kernel("k", "ns=1000");
    std::size_t ok = 0;
    for (int i = 0; i < 200; ++i) {
      const CUresult result = cuda.launch(f);
      EXPECT_TRUE(result == CUDA_SUCCESS || result == CUDA_ERROR_LAUNCH_FAILED);
      ok += result == CUDA_SUCCESS ? 1 : 0;
    }
    EXPECT_NEAR(static_cast<double>(ok), 100, 40);
    cuda.synchronize();
    cupti.flush();
    EXPECT_EQ(cupti.taken().size(), ok);
  });
}

TEST(Faults, MissingSymbolVariants) {
  for (const auto& [variant, symbol] : {std::pair{"cupti-13.0-no-subscribe", "cuptiSubscribe"},
                                        std::pair{"cupti-13.0-no-flush", "cuptiActivityFlushAll"},
                                        std::pair{"cupti-13.0-no-next-record", "cuptiActivityGetNextRecord"}}) {
    void* library = dlopen((directory() + "/" + variant + "/libcupti.so.13").c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr);
    EXPECT_EQ(dlsym(library, symbol), nullptr) << variant;
    EXPECT_NE(dlsym(library, "cuptiGetVersion"), nullptr);
    dlclose(library);
  }
}

// Rules ----------------------------------------------------------------------------------------------------------

TEST(Rules, ForbiddenCallsAbort) {
  const auto with_hook = [](void (*hook)(Cuda&, Cupti&)) {
    return [hook] {
      Cuda cuda;
      Cupti cupti;
      cupti.subscribe();
      cupti.record({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});
      cupti.enable_callback(CUPTI_CB_DOMAIN_DRIVER_API, kLaunch);
      hook(cuda, cupti);
      CUfunction f = cuda.kernel("k", "ns=1000");
      cuda.launch(f);
      cuda.synchronize();
      cupti.flush();
    };
  };
  aborts_in_child({}, with_hook([](Cuda&, Cupti& c) {
                    c.in_completed = [&c] {
                      CUPTI(c, cuptiActivityFlushAll)
                      (0);
                    };
                  }));
  aborts_in_child({}, with_hook([](Cuda&, Cupti& c) {
                    c.in_requested = [&c] {
                      CUPTI(c, cuptiActivityFlushAll)
                      (0);
                    };
                  }));
  aborts_in_child({}, with_hook([](Cuda& cuda, Cupti& c) {
                    c.in_callback = [&cuda] {
                      int n = 0;
                      CU(cuda, cuDeviceGetCount)(&n);
                    };
                  }));
  aborts_in_child({}, with_hook([](Cuda&, Cupti& c) { CUPTI(c, cuptiFinalize)(); }));
  in_child({{"SIMGPU_STRICT", "0"}}, with_hook([](Cuda&, Cupti& c) { CUPTI(c, cuptiFinalize)(); }));
}

TEST(Rules, CuptiInAForkedChildAborts) {
  in_child({}, [] {
    Cuda cuda;
    Cupti cupti;
    cupti.subscribe();
    const pid_t pid = fork();
    if (pid == 0) {
      CUPTI(cupti, cuptiActivityFlushAll)(0);
      _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  });
}

// Foreign clients ------------------------------------------------------------------------------------------------

TEST(Foreign, NewKinetoTakesTheBuffersAndLeavesTicksBehind) {
  in_child({}, [] {
    Cuda cuda;
    Cupti cupti;
    cupti.subscribe();
    cupti.record({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});
    auto* foreign = cupti.get<int(const char*, const char*)>("simgpu_foreign");
    CUfunction f = cuda.kernel("k", "ns=20000000");
    EXPECT_EQ(foreign("new_kineto", "start"), 0);
    cuda.launch(f);
    cuda.synchronize();
    EXPECT_EQ(foreign("new_kineto", "stop"), 0);
    EXPECT_TRUE(cupti.taken().empty());
    cuda.launch(f);  // kinds are off
    cuda.synchronize();
    cupti.flush();
    EXPECT_TRUE(cupti.taken().empty());
    cupti.record({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});  // what a tool does that comes back
    cuda.launch(f);
    cuda.synchronize();
    cupti.flush();
    ASSERT_EQ(cupti.taken().size(), 1u);
    const Record r = cupti.taken()[0];
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    EXPECT_LT(r.kernel_end(), static_cast<std::uint64_t>(now.tv_sec) * 500'000'000u);  // no ns since 1970
    std::uint64_t ticks_per_s = 1'000'000'000;                                         // or some more
#ifdef __aarch64__
    asm("mrs %0, cntfrq_el0" : "=r"(ticks_per_s));
#endif
    EXPECT_GT(r.kernel_end() - r.kernel_begin(), ticks_per_s / 100);  // of 20 ms
  });
}

TEST(Foreign, FirstHoldsTheSubscriber) {
  in_child({{"SIMGPU_FOREIGN", "first"}}, [] {
    Cuda cuda;
    Cupti cupti;
    CUpti_SubscriberHandle handle = nullptr;
    const auto nothing = [](void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {};
    EXPECT_EQ(CUPTI(cupti, cuptiSubscribe)(&handle, nothing, nullptr), CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
  });
}

TEST(Foreign, OldKinetoGivesUpWhenRefused) {
  in_child({}, [] {
    Cuda cuda;
    Cupti cupti;
    cupti.subscribe();
    auto* foreign = cupti.get<int(const char*, const char*)>("simgpu_foreign");
    foreign("old_kineto", "start");
    EXPECT_EQ(records_of(3, cupti, cuda).size(), 3u);
  });
}

TEST(Foreign, ResiliencyAndFreerGetOurBuffer) {
  for (const char* kind : {"resiliency", "freer"}) {
    in_child({}, [kind] {
      Cuda cuda;
      Cupti cupti;
      cupti.buffer_bytes = (8 << 20) + 4096;  // what it takes to survive the first one
      cupti.record({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});
      CUfunction f = cuda.kernel("k", "ns=1000");
      cuda.launch(f);
      auto* foreign = cupti.get<int(const char*, const char*)>("simgpu_foreign");
      foreign(kind, "start");
      cuda.launch(f);
      cuda.synchronize();
      foreign(kind, "stop");
      EXPECT_TRUE(cupti.taken().empty());
      EXPECT_EQ(cupti.requesters.size(), 1u);
    });
  }
}

// Truth ----------------------------------------------------------------------------------------------------------

TEST(Truth, HoldsEveryActivityAndWhetherItsRecordCame) {
  const std::string file =
      (std::filesystem::temp_directory_path() / ("simgpu_truth_" + std::to_string(getpid()))).string();
  in_child({{"SIMGPU_TRACE", file}, {"SIMGPU_DROP_BURST", "10:1"}}, [] {
    Cuda cuda;
    Cupti cupti;
    EXPECT_EQ(records_of(100, cupti, cuda).size(), 90u);
  });
  std::ifstream in(file);
  std::string line;
  int delivered = 0, dropped = 0, launches = 0, costs = 0;
  while (std::getline(in, line)) {
    const auto has = [&](const char* text) { return line.find(text) != std::string::npos; };
    if (has("\"type\":\"activity\"")) {
      delivered += has("\"delivered\":true") ? 1 : 0;
      dropped += has("\"fate\":\"dropped\"") ? 1 : 0;
    }
    launches += has("\"type\":\"launch\"") ? 1 : 0;
    costs += has("\"type\":\"callbacks\"") ? 1 : 0;
  }
  std::filesystem::remove(file);
  EXPECT_EQ(delivered, 90);
  EXPECT_EQ(dropped, 10);
  EXPECT_EQ(launches, 100);
  EXPECT_EQ(costs, 4);
}

// The scenario client ---

/// Runs a script and returns what it printed; its truth goes to `trace`.
std::string scenario(const std::string& script, const std::string& trace) {
  const std::string command = "LD_LIBRARY_PATH=" + directory() + " SIMGPU_TRACE=" + trace +
                              " " SIMGPU_SCENARIO " -c '" + script + "' 2>/dev/null";
  std::string printed;
  FILE* pipe = popen(command.c_str(), "r");
  for (int c = 0; pipe != nullptr && (c = std::fgetc(pipe)) != EOF;) printed += static_cast<char>(c);
  const int status = pipe == nullptr ? -1 : pclose(pipe);
  return printed + "exit " + std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

TEST(Scenario, DoesWhatTheScriptSaysAndPrintsNothingElse) {
  const std::string file =
      (std::filesystem::temp_directory_path() / ("simgpu_scenario_" + std::to_string(getpid()))).string();
  EXPECT_EQ(scenario(R"(
    kernel gemm ns=100000 ; kernel tiny ns=2000
    push "step batch=4"
    repeat 3 { launch gemm stream=s; launch tiny stream=s api=ex; launch tiny api=cooperative }
    pop; pop
    thread pt_autograd_0 { barrier b 2; launch tiny count=10 api=runtime; push a domain=D u64=3; pop domain=D }
    barrier b 2
    join pt_autograd_0
    capture s; launch tiny stream=s count=4; memset 100 stream=s; end_capture s g; instantiate g
    graph_launch g stream=s count=5
    memcpy htod 1000 sync
    start r "decode" text=wide; end r; mark m u64=1; dso_push x; dso_pop; v2_push y; v2_pop
    ext_push z domain=D tokens=4; ext_pop domain=D
    fork { print child }; wait
    print "the end"
    exit 3)",
                     file),
            "child\nthe end\nexit 3");
  std::ifstream in(file);
  int kernels = 0, graph_nodes = 0, transfers = 0, launches = 0, captured = 0;
  std::set<std::string> threads;
  for (std::string line; std::getline(in, line);) {
    const auto has = [&](const char* text) { return line.find(text) != std::string::npos; };
    if (has("\"type\":\"activity\"")) {
      const bool in_graph = !has("\"graph_id\":0,");
      kernels += has("\"kind\":\"kernel\"") && !in_graph ? 1 : 0;
      graph_nodes += in_graph ? 1 : 0;
      transfers += has("\"kind\":\"memcpy\"") ? 1 : 0;
      EXPECT_TRUE(has("\"fate\":\"unwanted\"")) << line;
      const std::size_t at = line.find("\"thread\":");
      threads.insert(line.substr(at, line.find(',', at) - at));
    } else if (has("\"type\":\"launch\"")) {
      ++launches;
      captured += has("\"capturing\":true") ? 1 : 0;
    }
  }
  std::filesystem::remove(file);
  EXPECT_EQ(kernels, 9 + 10);
  EXPECT_EQ(graph_nodes, 5 * 5);
  EXPECT_EQ(transfers, 1);
  EXPECT_EQ(launches, 9 + 10 + 5 + 5 + 1);  // plain, on the thread, captured, graphs, memcpy
  EXPECT_EQ(captured, 5);
  EXPECT_EQ(threads.size(), 2u);
}

TEST(Scenario, RefusesAScriptItDoesNotUnderstand) {
  EXPECT_EQ(scenario("print before; nonsense 3", "/dev/null"), "exit 70");
}

// Speed ----------------------------------------------------------------------------------------------------------

/// Launches per second of CPU time of the launching thread, so that a busy machine does not change it. The test asks
/// for a fraction of what was measured.
double launch_rate(bool records) {
  int pipe_ends[2];
  EXPECT_EQ(pipe(pipe_ends), 0);
  in_child({{"SIMGPU_QUEUE_DEPTH", "0"}}, [&] {  // waiting for the GPU is not what is measured
    Cuda cuda;
    static Cupti& cupti = *new Cupti;  // CUPTI's thread calls it until the process is gone
    cupti.buffer_bytes = 1 << 20;
    if (records) cupti.record({CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL});
    CUfunction f = cuda.kernel("k", "ns=100");
    CUstream s = cuda.stream();
    const auto cpu_seconds = [] {
      timespec ts{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
      return static_cast<double>(ts.tv_sec) + static_cast<double>(ts.tv_nsec) * 1e-9;
    };
    constexpr int kLaunches = 50'000;
    const double begin = cpu_seconds();
    for (int i = 0; i < kLaunches; ++i) cuda.launch(f, s);
    const double rate = kLaunches / (cpu_seconds() - begin);
    EXPECT_EQ(write(pipe_ends[1], &rate, sizeof rate), static_cast<ssize_t>(sizeof rate));
  });
  double rate = 0;
  EXPECT_EQ(read(pipe_ends[0], &rate, sizeof rate), static_cast<ssize_t>(sizeof rate));
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  return rate;
}

TEST(Speed, LaunchesPerSecond) {
  const double plain = launch_rate(false), with_records = launch_rate(true);
  std::printf("launches per CPU second: %.0f plain, %.0f with records\n", plain, with_records);
#ifndef MFU_SANITIZED
  EXPECT_GT(plain, 150'000);
  EXPECT_GT(with_records, 30'000);
#endif
}

}  // namespace
}  // namespace mfu::sim_test

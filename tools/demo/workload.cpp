// The workload side of `mfu demo`: forward on the calling thread, backward on a thread named as PyTorch names it, the
// optimizer, then a serving loop whose decode steps are launches of one CUDA graph.
#include <cuda.h>
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tools/demo/workload.h"

namespace mfu {

std::string_view embedded_demo_ptx() noexcept;  // kernels.ptx, with a NUL behind it

namespace {

#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)

// The driver functions that the workload uses, under the versioned names of cuda.h.
#define MFU_DEMO_DRIVER_FUNCTIONS(X) \
  X(cuInit)                          \
  X(cuDeviceGet)                     \
  X(cuDeviceGetName)                 \
  X(cuDevicePrimaryCtxRetain)        \
  X(cuCtxSetCurrent)                 \
  X(cuCtxSynchronize)                \
  X(cuModuleLoadData)                \
  X(cuModuleGetFunction)             \
  X(cuMemAlloc)                      \
  X(cuMemFree)                       \
  X(cuMemsetD8)                      \
  X(cuMemcpyHtoDAsync)               \
  X(cuMemcpyDtoH)                    \
  X(cuStreamCreate)                  \
  X(cuStreamSynchronize)             \
  X(cuLaunchKernel)                  \
  X(cuStreamBeginCapture)            \
  X(cuStreamEndCapture)              \
  X(cuGraphInstantiateWithFlags)     \
  X(cuGraphLaunch)                   \
  X(cuGraphExecDestroy)              \
  X(cuGraphDestroy)                  \
  X(cuGetErrorName)

struct DriverFunctions {
#define MFU_DEMO_MEMBER(name) decltype(&::name) name##_f = nullptr;
  MFU_DEMO_DRIVER_FUNCTIONS(MFU_DEMO_MEMBER)
#undef MFU_DEMO_MEMBER

  /// The name of what is missing, or nothing.
  std::optional<std::string> load() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) return dlerror();
#define MFU_DEMO_LOAD(name)                                                    \
  name##_f = reinterpret_cast<decltype(name##_f)>(dlsym(library, TEXT(name))); \
  if (name##_f == nullptr) return std::string("libcuda.so.1 has no ") + TEXT(name);
    MFU_DEMO_DRIVER_FUNCTIONS(MFU_DEMO_LOAD)
#undef MFU_DEMO_LOAD
    return std::nullopt;
  }
};

/// Ends the workload from any depth; caught in run_demo_workload.
struct WorkloadError {
  std::string message;
  CUresult code = CUDA_SUCCESS;
};

// GPT-2 124M. The vocabulary is padded to a multiple of 64 as everybody does.
constexpr std::int64_t kLayers = 12, kWidth = 768, kHeads = 12, kHeadWidth = 64, kFfn = 3072, kVocabulary = 50304;
constexpr std::int64_t kPositions = 1024;
constexpr std::int64_t kParametersPerLayer = 4 * kWidth * kWidth + 2 * kWidth * kFfn;
constexpr std::int64_t kParameters = kLayers * kParametersPerLayer + kVocabulary * kWidth + kPositions * kWidth;

enum Kernel {
  kGemm,
  kScores,
  kValues,
  kSkinny,
  kDecodeAttention,
  kSoftmax,
  kLayernorm,
  kGelu,
  kAdd,
  kEmbedding,
  kAdamw,
  kArgmax,
  kKernels
};
constexpr std::array<const char*, kKernels> kKernelNames{"demo_gemm_f16_64x64",
                                                         "demo_attention_scores",
                                                         "demo_attention_values",
                                                         "demo_gemm_skinny_f16",
                                                         "demo_attention_decode",
                                                         "demo_softmax",
                                                         "demo_layernorm",
                                                         "demo_gelu",
                                                         "demo_add",
                                                         "demo_embedding",
                                                         "demo_adamw",
                                                         "demo_argmax"};

/// An NVTX range for the life of the object, unless ranges are off.
class Range {
 public:
  Range(bool on, const std::string& name) : on_(on) {
    if (on_) nvtxRangePushA(name.c_str());
  }
  ~Range() {
    if (on_) nvtxRangePop();
  }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

 private:
  bool on_;
};

/// The thread that runs backward, as autograd keeps one per device.
class BackwardThread {
 public:
  explicit BackwardThread(std::function<void()> work) : work_(std::move(work)), thread_([this] { loop(); }) {}
  ~BackwardThread() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  BackwardThread(const BackwardThread&) = delete;
  BackwardThread& operator=(const BackwardThread&) = delete;

  /// Runs the work once on the thread and waits for it. Throws what the work threw.
  void run() {
    std::unique_lock lock(mutex_);
    pending_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !pending_; });
    if (error_) throw *error_;
  }

 private:
  void loop() {
    pthread_setname_np(pthread_self(), "pt_autograd_0");
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return pending_ || stop_; });
      if (stop_) return;
      try {
        work_();
      } catch (const WorkloadError& error) {
        error_ = error;
      }
      pending_ = false;
      changed_.notify_all();
    }
  }

  std::function<void()> work_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool pending_ = false, stop_ = false;
  std::optional<WorkloadError> error_;
  std::thread thread_;  // last: it uses the others
};

class Workload {
 public:
  explicit Workload(const DemoOptions& options) : options_(options) {}

  void run() {
    if (const std::optional<std::string> missing = cu_.load()) throw WorkloadError{*missing};
    check(cu_.cuInit_f(0), "cuInit");
    CUdevice device = 0;
    check(cu_.cuDeviceGet_f(&device, 0), "cuDeviceGet");
    check(cu_.cuDevicePrimaryCtxRetain_f(&context_, device), "cuDevicePrimaryCtxRetain");
    check(cu_.cuCtxSetCurrent_f(context_), "cuCtxSetCurrent");
    CUmodule module = nullptr;
    check(cu_.cuModuleLoadData_f(&module, embedded_demo_ptx().data()), "cuModuleLoadData");
    for (std::size_t i = 0; i < kKernels; ++i)
      check(cu_.cuModuleGetFunction_f(&functions_[i], module, kKernelNames[i]), kKernelNames[i]);
    check(cu_.cuStreamCreate_f(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    weights_ = allocate(kParameters * 2);
    train();
    serve();
    check(cu_.cuCtxSynchronize_f(), "cuCtxSynchronize");
  }

 private:
  using Clock = std::chrono::steady_clock;

  void check(CUresult result, const char* what) const {
    if (result == CUDA_SUCCESS) return;
    const char* name = nullptr;
    if (cu_.cuGetErrorName_f != nullptr) cu_.cuGetErrorName_f(result, &name);
    throw WorkloadError{std::string(what) + ": " + (name != nullptr ? name : "unknown CUDA error"), result};
  }

  CUdeviceptr allocate(std::int64_t bytes) const {
    CUdeviceptr p = 0;
    check(cu_.cuMemAlloc_f(&p, static_cast<std::size_t>(bytes)), "cuMemAlloc");
    check(cu_.cuMemsetD8_f(p, 0, static_cast<std::size_t>(bytes)), "cuMemsetD8");
    return p;
  }

  template <typename... Args>
  void launch(Kernel kernel, std::array<std::int64_t, 3> grid, unsigned threads, Args... args) const {
    void* pointers[] = {static_cast<void*>(&args)...};
    check(cu_.cuLaunchKernel_f(functions_[kernel], static_cast<unsigned>(grid[0]), static_cast<unsigned>(grid[1]),
                               static_cast<unsigned>(grid[2]), threads, 1, 1, 0, stream_, pointers, nullptr),
          kKernelNames[kernel]);
  }

  /// C[m, n] = A[m, k] * B[k, n].
  void gemm(CUdeviceptr a, CUdeviceptr b, CUdeviceptr c, std::int64_t m, std::int64_t n, std::int64_t k) const {
    launch(kGemm, {n / 64, m / 64, 1}, 128, a, b, c, static_cast<int>(n), static_cast<int>(k));
  }
  void layernorm(CUdeviceptr in, CUdeviceptr out, std::int64_t rows) const {
    launch(kLayernorm, {rows, 1, 1}, 256, in, out, static_cast<int>(kWidth));
  }
  void elementwise(Kernel kernel, CUdeviceptr x, std::int64_t elements) const {
    launch(kernel, {elements / 1024, 1, 1}, 256, x);
  }
  void add(CUdeviceptr out, CUdeviceptr in, std::int64_t elements) const {
    launch(kAdd, {elements / 1024, 1, 1}, 256, out, in);
  }
  [[nodiscard]] CUdeviceptr layer_weights(std::int64_t layer) const {
    return weights_ + static_cast<CUdeviceptr>(layer * kParametersPerLayer * 2);
  }

  /// Forward of one layer over `batch` sequences of `t` tokens. Buffers are reused: the values do not matter here.
  void layer_forward(std::int64_t layer, std::int64_t batch, std::int64_t t) const {
    const std::int64_t rows = batch * t;
    const CUdeviceptr w = layer_weights(layer);
    layernorm(hidden_, normed_, rows);
    gemm(normed_, w, wide_, rows, 3 * kWidth, kWidth);
    launch(kScores, {t / 64, t / 64, batch * kHeads}, 128, wide_, wide_, scores_, static_cast<int>(t),
           static_cast<int>(kHeadWidth));
    launch(kSoftmax, {t, batch * kHeads, 1}, 256, scores_, static_cast<int>(t));
    launch(kValues, {1, t / 64, batch * kHeads}, 128, scores_, wide_, normed_, static_cast<int>(t),
           static_cast<int>(kHeadWidth));
    gemm(normed_, w, wide_, rows, kWidth, kWidth);
    add(hidden_, wide_, rows * kWidth);
    layernorm(hidden_, normed_, rows);
    gemm(normed_, w, wide_, rows, kFfn, kWidth);
    elementwise(kGelu, wide_, rows * kFfn);
    gemm(wide_, w, normed_, rows, kWidth, kFfn);
    add(hidden_, normed_, rows * kWidth);
  }

  /// Backward of one layer: two matmuls for each of the forward's, for the gradients of the input and of the weight.
  void layer_backward(std::int64_t layer, std::int64_t batch, std::int64_t t) const {
    const std::int64_t rows = batch * t;
    const CUdeviceptr w = layer_weights(layer);
    gemm(hidden_, w, wide_, rows, kFfn, kWidth);
    gemm(wide_, hidden_, gradients_, kFfn, kWidth, rows);
    elementwise(kGelu, wide_, rows * kFfn);
    gemm(wide_, w, normed_, rows, kWidth, kFfn);
    gemm(normed_, wide_, gradients_, kWidth, kFfn, rows);
    layernorm(normed_, hidden_, rows);
    gemm(hidden_, w, normed_, rows, kWidth, kWidth);
    gemm(hidden_, normed_, gradients_, kWidth, kWidth, rows);
    for (int i = 0; i < 2; ++i) {  // gradients of V and of P, then of Q and of K
      launch(kValues, {1, t / 64, batch * kHeads}, 128, scores_, wide_, normed_, static_cast<int>(t),
             static_cast<int>(kHeadWidth));
      launch(kScores, {t / 64, t / 64, batch * kHeads}, 128, wide_, wide_, scores_, static_cast<int>(t),
             static_cast<int>(kHeadWidth));
      if (i == 0) launch(kSoftmax, {t, batch * kHeads, 1}, 256, scores_, static_cast<int>(t));
    }
    gemm(wide_, w, normed_, rows, kWidth, 3 * kWidth);
    gemm(normed_, wide_, gradients_, kWidth, 3 * kWidth, rows);
    layernorm(normed_, hidden_, rows);
    add(hidden_, normed_, rows * kWidth);
  }

  void allocate_training(std::int64_t batch, std::int64_t t) {
    const std::int64_t rows = batch * t;
    hidden_ = allocate(rows * kWidth * 2);
    normed_ = allocate(rows * kWidth * 2);
    wide_ = allocate(rows * kFfn * 2);
    scores_ = allocate(batch * kHeads * t * t * 2);
    logits_ = allocate(rows * kVocabulary * 2);
    gradients_ = allocate(kParameters * 2);
    first_moment_ = allocate(kParameters * 4);
    second_moment_ = allocate(kParameters * 4);
    tokens_ = allocate(rows * 4);
  }

  void free_training() {
    for (CUdeviceptr* p :
         {&hidden_, &normed_, &wide_, &scores_, &logits_, &gradients_, &first_moment_, &second_moment_, &tokens_}) {
      if (*p != 0) check(cu_.cuMemFree_f(*p), "cuMemFree");
      *p = 0;
    }
  }

  void train() {
    std::int64_t batch = options_.train_batch;
    const std::int64_t t = options_.train_seq_len;
    for (;;) {  // a smaller card trains with a smaller batch
      try {
        allocate_training(batch, t);
        break;
      } catch (const WorkloadError& error) {
        if (error.code != CUDA_ERROR_OUT_OF_MEMORY || batch == 1) throw;
        free_training();
        batch /= 2;
      }
    }
    const std::int64_t rows = batch * t;
    const std::string name = "step batch=" + std::to_string(batch) + " seq_len=" + std::to_string(t);
    std::vector<int> host_tokens(static_cast<std::size_t>(rows));
    const bool ranges = !options_.no_ranges;
    BackwardThread backward([&] {
      check(cu_.cuCtxSetCurrent_f(context_), "cuCtxSetCurrent");
      gemm(logits_, weights_, normed_, rows, kWidth, kVocabulary);
      gemm(normed_, logits_, gradients_, kWidth, kVocabulary, rows);
      for (std::int64_t layer = kLayers; layer-- > 0;) layer_backward(layer, batch, t);
    });
    const auto until = Clock::now() + std::chrono::duration<double>(options_.seconds / 2);
    while (Clock::now() < until) {
      const Range step(ranges, name);
      check(cu_.cuMemcpyHtoDAsync_f(tokens_, host_tokens.data(), host_tokens.size() * 4, stream_), "cuMemcpyHtoDAsync");
      {
        const Range forward(ranges, "forward");
        launch(kEmbedding, {rows, 1, 1}, 256, tokens_, weights_, hidden_, static_cast<int>(kWidth));
        for (std::int64_t layer = 0; layer < kLayers; ++layer) layer_forward(layer, batch, t);
        layernorm(hidden_, normed_, rows);
        gemm(normed_, weights_, logits_, rows, kVocabulary, kWidth);
      }
      backward.run();
      {
        const Range optimizer(ranges, "optimizer");
        constexpr std::int64_t kChunk = kParameters / 16 / 1024 * 1024;
        for (std::int64_t i = 0; i < 16; ++i) {
          const CUdeviceptr at = static_cast<CUdeviceptr>(i) * kChunk;
          launch(kAdamw, {kChunk / 1024, 1, 1}, 256, weights_ + 2 * at, gradients_ + 2 * at, first_moment_ + 4 * at,
                 second_moment_ + 4 * at);
        }
      }
      float loss = 0;  // a training loop prints it, and waits for the step here
      check(cu_.cuStreamSynchronize_f(stream_), "cuStreamSynchronize");
      check(cu_.cuMemcpyDtoH_f(&loss, logits_, sizeof loss), "cuMemcpyDtoH");
    }
    free_training();
  }

  /// The sampled tokens, for the caller.
  void fetch_tokens() const {
    std::array<int, 16> next{};
    check(cu_.cuStreamSynchronize_f(stream_), "cuStreamSynchronize");
    check(cu_.cuMemcpyDtoH_f(next.data(), tokens_, sizeof next), "cuMemcpyDtoH");
  }
  void sample(std::int64_t batch) const {
    launch(kArgmax, {batch, 1, 1}, 256, logits_, tokens_, static_cast<int>(kVocabulary));
  }

  /// One decode pass: every weight is read once for `batch` new tokens.
  void decode_pass(std::int64_t batch, std::int64_t context) const {
    const int m = static_cast<int>(batch);
    const auto project = [&](CUdeviceptr in, CUdeviceptr w, CUdeviceptr out, std::int64_t n, std::int64_t k) {
      launch(kSkinny, {n / 64, 1, 1}, 256, in, w, out, m, static_cast<int>(n), static_cast<int>(k));
    };
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      const CUdeviceptr w = layer_weights(layer);
      layernorm(hidden_, normed_, batch);
      project(normed_, w, wide_, 3 * kWidth, kWidth);
      launch(kDecodeAttention, {kHeads, batch, 1}, 128, wide_, cache_, cache_, normed_, static_cast<int>(context));
      project(normed_, w, wide_, kWidth, kWidth);
      add(hidden_, wide_, batch * kWidth);
      layernorm(hidden_, normed_, batch);
      project(normed_, w, wide_, kFfn, kWidth);
      elementwise(kGelu, wide_, batch * kFfn);
      project(wide_, w, normed_, kWidth, kFfn);
      add(hidden_, normed_, batch * kWidth);
    }
    layernorm(hidden_, normed_, batch);
    project(normed_, weights_, logits_, kVocabulary, kWidth);
    sample(batch);
  }

  void serve() {
    const std::int64_t batch = options_.serve_batch, t = options_.prompt_len, passes = options_.new_tokens;
    const std::int64_t rows = batch * t, context = t + passes;
    hidden_ = allocate(rows * kWidth * 2);
    normed_ = allocate(rows * kWidth * 2);
    wide_ = allocate(rows * kFfn * 2);
    scores_ = allocate(batch * kHeads * t * t * 2);
    logits_ = allocate(64 * kVocabulary * 2);
    cache_ = allocate(batch * kHeads * context * kHeadWidth * 2);
    tokens_ = allocate(rows * 4);
    CUgraph graph = nullptr;
    CUgraphExec decode = nullptr;
    decode_pass(batch, t + passes / 2);  // as frameworks do, which run what they capture once before
    check(cu_.cuStreamBeginCapture_f(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
    decode_pass(batch, t + passes / 2);  // one graph for all steps, at the mean context
    check(cu_.cuStreamEndCapture_f(stream_, &graph), "cuStreamEndCapture");
    check(cu_.cuGraphInstantiateWithFlags_f(&decode, graph, 0), "cuGraphInstantiate");

    std::vector<int> host_tokens(static_cast<std::size_t>(rows));
    const bool ranges = !options_.no_ranges;
    const auto until = Clock::now() + std::chrono::duration<double>(options_.seconds / 2);
    while (Clock::now() < until) {
      {
        const Range prefill(ranges, "prefill batch=" + std::to_string(batch) + " seq_len=" + std::to_string(t));
        check(cu_.cuMemcpyHtoDAsync_f(tokens_, host_tokens.data(), host_tokens.size() * 4, stream_),
              "cuMemcpyHtoDAsync");
        launch(kEmbedding, {rows, 1, 1}, 256, tokens_, weights_, hidden_, static_cast<int>(kWidth));
        for (std::int64_t layer = 0; layer < kLayers; ++layer) layer_forward(layer, batch, t);
        layernorm(hidden_, normed_, batch);
        launch(kSkinny, {kVocabulary / 64, 1, 1}, 256, normed_, weights_, logits_, static_cast<int>(batch),
               static_cast<int>(kVocabulary), static_cast<int>(kWidth));
        sample(batch);
        fetch_tokens();
      }
      for (std::int64_t i = 0; i < passes && Clock::now() < until; ++i) {
        const Range step(ranges, "decode batch=" + std::to_string(batch) + " context=" + std::to_string(t + i));
        check(cu_.cuGraphLaunch_f(decode, stream_), "cuGraphLaunch");
        fetch_tokens();
      }
    }
    check(cu_.cuGraphExecDestroy_f(decode), "cuGraphExecDestroy");
    check(cu_.cuGraphDestroy_f(graph), "cuGraphDestroy");
  }

  DemoOptions options_;
  DriverFunctions cu_;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  std::array<CUfunction, kKernels> functions_{};
  CUdeviceptr weights_ = 0, gradients_ = 0, first_moment_ = 0, second_moment_ = 0;
  CUdeviceptr hidden_ = 0, normed_ = 0, wide_ = 0, scores_ = 0, logits_ = 0, cache_ = 0, tokens_ = 0;
};

}  // namespace

int run_demo_workload(const DemoOptions& options) {
  const auto multiple_of_64 = [](std::int64_t n) { return n > 0 && n % 64 == 0; };
  if (!multiple_of_64(options.train_seq_len) || !multiple_of_64(options.prompt_len) || options.train_batch < 1 ||
      options.serve_batch < 1 || options.serve_batch > 16 || options.new_tokens < 1) {
    std::fprintf(stderr, "mfu demo: sequence lengths are multiples of 64, the serving batch is 1 to 16\n");
    return 2;
  }
  try {
    Workload(options).run();
    return 0;
  } catch (const WorkloadError& error) {
    std::fprintf(stderr, "mfu demo: %s\n", error.message.c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mfu demo: %s\n", error.what());
  }
  return 1;
}

}  // namespace mfu

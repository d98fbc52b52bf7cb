// Writes a program launch by launch, under the real names of its kernels.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/detect/launch.h"
#include "core/detect/launch_fold.h"
#include "core/detect/step_findings.h"
#include "core/detect/step_phases.h"
#include "core/kernels/kernel_traits.h"

namespace mfu::programs {

struct TrueStep {
  std::uint64_t begin = 0, end = 0;  ///< launches
  StepKind kind = StepKind::kStep;
};

/// A stream of launches, and what it is.
struct Program {
  std::string what;
  std::vector<Launch> stream;
  std::vector<TrueStep> steps;    ///< training steps or iterations of a server; foreign work lies between them
  std::vector<StepPhase> phases;  ///< of each launch, where a training step holds it
  bool trains = false;            ///< most of its steps are training steps
  bool phases_known = false;
  /// Cycles that may be reported in place of a step: turns of an alternation, an image of several denoising steps.
  std::uint32_t most_steps_of_a_cycle = 1;
  std::vector<std::uint8_t> prefill;  ///< by iteration: 1 prefill, 0 decode, 2 either
  std::vector<TrueStep> generated;    ///< stretches between training steps in which tokens are sampled
  std::vector<TrueStep> finer;        ///< what may be told in place of `steps`: the steps that an image is denoised in
};

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  std::uint32_t between(std::uint32_t low, std::uint32_t high) {
    return std::uniform_int_distribution<std::uint32_t>(low, high)(engine_);
  }
  bool chance(double p) { return std::bernoulli_distribution(p)(engine_); }
  template <typename T>
  const T& one_of(const std::vector<T>& of) {
    return of[between(0, static_cast<std::uint32_t>(of.size()) - 1)];
  }

 private:
  std::mt19937_64 engine_;
};

constexpr std::uint32_t kMain = 1, kAutograd = 2, kLoader = 3;

/// Writes one program, launch by launch.
class Writer {
 public:
  explicit Writer(std::uint64_t seed) : dice(seed) {}

  Dice dice;
  Program out;
  std::uint32_t thread = kMain;
  StepPhase phase = StepPhase::kForward;

  [[nodiscard]] std::uint64_t at() const { return out.stream.size(); }

  void kernel(std::string_view name, std::uint32_t rows = 1) {
    const auto [known, fresh] = names_.try_emplace(std::string(name));
    if (fresh) {
      known->second.name = Launch::kFirstKernel + static_cast<std::uint32_t>(names_.size());
      known->second.traits = role_of_kernel(name);
    }
    Launch launch = known->second;
    launch.grid = {rows, 1, 1};
    put(launch);
  }
  void kernels(std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) kernel(name);
  }
  void copy(KernelRole direction, std::uint32_t times = 1) {
    Launch launch;
    launch.name = static_cast<std::uint32_t>(direction);
    launch.traits = traits_of(direction);
    for (; times > 0; --times) put(launch);
  }
  void to_device(std::uint32_t times = 1) { copy(KernelRole::kCopyToDevice, times); }
  void to_host(std::uint32_t times = 1) { copy(KernelRole::kCopyToHost, times); }
  void memset(std::uint32_t times = 1) { copy(KernelRole::kMemset, times); }
  /// A graph of the launches that `body` writes: one launch.
  template <typename Body>
  void graph(std::uint32_t id, Body&& body) {
    const std::size_t begin = out.stream.size();
    body();
    Launch launch;
    launch.name = Launch::kGraphName | id;
    launch.traits = traits_of(KernelRole::kGraph);
    std::uint8_t flags = 0;
    for (std::size_t i = begin; i < out.stream.size(); ++i) flags |= out.stream[i].traits.flags;
    launch.traits.flags |= flags_of_graph(flags);
    out.stream.resize(begin);
    out.phases.resize(begin);
    put(launch);
  }

  // ---- names
  void elementwise(std::string_view functor) {
    kernel("void at::native::vectorized_elementwise_kernel<4, at::native::" + std::string(functor) +
           ", std::array<char*, 3ul> >(int, at::native::" + std::string(functor) + ", std::array<char*, 3ul>)");
  }
  void unrolled(std::string_view functor) {
    kernel("void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::" +
           std::string(functor) +
           "(at::TensorIteratorBase&)::{lambda(int)#1}>(int, at::native::" + std::string(functor) + ")");
  }
  void reduce(std::string_view op) {
    kernel("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::" + std::string(op) +
           ", unsigned int, float, 4> >(at::native::ReduceOp<float, at::native::" + std::string(op) + ">)");
  }
  void foreach (std::string_view functor, std::uint32_t times = 1) {
    const std::string name =
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
        "namespace)::TensorListMetadata<2>, at::native::(anonymous namespace)::" +
        std::string(functor) + "<float, 2, 1, 1> >(int)";
    for (; times > 0; --times) kernel(name);
  }
  /// A matmul of a shape: the library picks its kernel by it.
  void gemm(std::uint32_t shape) {
    static constexpr std::string_view kTiles[] = {"64x8",    "128x64",  "128x128", "128x256",
                                                  "192x192", "256x128", "64x64"};
    static constexpr std::string_view kTails[] = {"_TNT", "_NNT", "_NTT", "_TNN"};
    const std::uint64_t h = (shape + 1) * 0x9E37'79B9'7F4A'7C15u >> 20;
    if (h % 7 == 0)
      kernel("ampere_bf16_s16816gemm_bf16_" + std::string(kTiles[h / 7 % 7]) + "_ldg8_f2f_stages_64x3_tn");
    else if (h % 7 == 1)
      kernel("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_" + std::string(kTiles[h / 7 % 7]) +
             "_32x5_nn_align8>(cutlass_80_tensorop_bf16_s16816gemm::Params)");
    else
      kernel("nvjet_tst_" + std::string(kTiles[h / 7 % 7]) + "_64x" + std::to_string(4 + h / 49 % 4) +
             "_2x1_v_bz_coopA" + std::string(kTails[h / 343 % 4]));
    if (h % 11 == 0)
      kernel("void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float>(cublasLt::Params)");
  }

 private:
  void put(Launch launch) {
    launch.thread = thread;
    clock_ += 5'000;
    launch.begin_ns = clock_;
    launch.end_ns = clock_ + 4'000;
    out.stream.push_back(launch);
    out.phases.push_back(phase);
  }

  std::unordered_map<std::string, Launch> names_;
  TimeNs clock_ = 1'000'000;
};

}  // namespace mfu::programs

// Programs as frameworks launch them, made up at random: the operators of PyTorch, Inductor, XLA, vLLM, llama.cpp and
// others under their real kernel names, with the threads, copies, logging, evaluation and start-up around them. Unlike
// the models of step_detector_models_test.cpp, whose launches are arbitrary, nothing here is classified by hand: names
// go through role_of_kernel as those of a real program do.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/detect/launch.h"
#include "core/detect/step_findings.h"
#include "core/detect/step_phases.h"
#include "core/kernels/kernel_role.h"

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
    for (std::size_t i = begin; i < out.stream.size(); ++i)
      launch.traits.flags |= out.stream[i].traits.flags & (kFlagOptimizer | kFlagBackward | kFlagLoss | kFlagSampling);
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

// ------------------------------------------------------------------------------------------------- training

/// A decoder or encoder of transformer layers, a convolutional network, or a recommender, with its loop.
class TrainingProgram {
 public:
  enum class Body { kLlama, kGpt, kCnn, kRecommender, kExperts, kCompiled, kXla };
  enum class Update { kFused, kForeach, kLoop, kSgdLoop, kMuon, kAdafactor, kEightBit, kLion, kInductor, kXla };

  explicit TrainingProgram(Writer& writer) : w_(writer), d_(writer.dice) {
    body_ = d_.one_of<Body>({Body::kLlama, Body::kLlama, Body::kGpt, Body::kGpt, Body::kCnn, Body::kRecommender,
                             Body::kExperts, Body::kCompiled, Body::kCompiled, Body::kXla});
    layers_ = body_ == Body::kRecommender ? d_.between(3, 8) : d_.between(2, 36);
    parameters_ = layers_ * (body_ == Body::kCnn ? 3 : 9) + 3;
    update_ = d_.one_of<Update>({Update::kFused, Update::kFused, Update::kFused, Update::kForeach, Update::kForeach,
                                 Update::kLoop, Update::kSgdLoop, Update::kMuon, Update::kAdafactor, Update::kEightBit,
                                 Update::kLion});
    if (body_ == Body::kCompiled && d_.chance(0.3)) update_ = Update::kInductor;
    if (body_ == Body::kXla) update_ = Update::kXla;
    passes_ = d_.chance(0.65) ? 1 : d_.between(2, 8);
    clips_ = d_.chance(0.5);
    scales_ = d_.chance(0.15);
    recomputes_ = body_ != Body::kXla && d_.chance(0.2);
    sharded_ = d_.chance(0.2);
    reduces_ = !sharded_ && d_.chance(0.3);
    lengths_ = d_.chance(0.25) ? d_.between(2, 12) : 1;
    item_every_step_ = d_.chance(0.3);
    log_every_ = d_.chance(0.7) ? d_.one_of<std::uint32_t>({1, 5, 10, 10, 20, 25}) : 0;
    evaluate_every_ = d_.chance(0.35) ? d_.between(5, 30) : 0;
    evaluation_passes_ = d_.between(2, 12);
    argmax_in_evaluation_ = d_.chance(0.6);
    sample_every_ = evaluate_every_ == 0 && d_.chance(0.12) ? d_.between(8, 20) : 0;
    save_every_ = d_.chance(0.15) ? d_.between(10, 25) : 0;
    averages_ = d_.chance(0.12);
    loader_thread_ = d_.chance(0.2);
    strays_ = d_.chance(0.15);
    inputs_ = d_.between(1, 4);
    graphs_ = body_ == Body::kCompiled && d_.chance(0.25);
    autograd_thread_ = body_ != Body::kXla;
    salt_ = d_.between(0, 1'000'000);
  }

  void run(std::uint32_t steps) {
    w_.out.trains = true;
    w_.out.phases_known = body_ != Body::kXla && !graphs_ && update_ != Update::kInductor;
    w_.out.what = describe();
    start_up();
    for (std::uint32_t s = 0; s < steps; ++s) {
      if (s == 0) optimizer_state_is_new_ = true;
      one_step();
      optimizer_state_is_new_ = false;
      w_.phase = StepPhase::kForward;
      w_.thread = kMain;
      if (log_every_ != 0 && s % log_every_ == log_every_ - 1) log();
      if (evaluate_every_ != 0 && s % evaluate_every_ == evaluate_every_ - 1) evaluate();
      if (sample_every_ != 0 && s % sample_every_ == sample_every_ - 1) sample();
      if (save_every_ != 0 && s % save_every_ == save_every_ - 1) w_.to_host(parameters_);
    }
  }

  /// As Hugging Face's Trainer runs a small decoder: batches copied by the thread that trains, a line of the log every
  /// ten steps, an evaluation every hundred, a checkpoint every two hundred.
  void as_trainer(std::uint32_t passes) {
    as_plain_decoder();
    passes_ = passes;
    clips_ = true;
    log_every_ = 10;
    evaluate_every_ = 100;
    evaluation_passes_ = 12;
    save_every_ = 200;
  }
  /// As GRPO alternates: tokens are generated, then passes without gradients, then a few steps.
  void alternate(std::uint32_t rounds, std::uint32_t tokens, std::uint32_t steps) {
    as_plain_decoder();
    w_.out.trains = true;
    w_.out.what = "generation and training by turns: " + describe();
    start_up();
    optimizer_state_is_new_ = true;
    for (std::uint32_t round = 0; round < rounds; ++round) {
      w_.thread = kMain;
      w_.phase = StepPhase::kForward;
      const std::uint64_t begin = w_.at();
      w_.to_device(2);
      for (std::uint32_t t = 0; t < tokens; ++t) one_token();
      w_.out.generated.push_back({begin, w_.at(), StepKind::kIteration});
      for (std::uint32_t p = 0; p < 2; ++p) forward_pass(salt_ + 900'000);
      for (std::uint32_t s = 0; s < steps; ++s) {
        one_step();
        optimizer_state_is_new_ = false;
      }
    }
  }

  [[nodiscard]] std::string describe() const {
    static constexpr std::string_view kBodies[] = {"llama", "gpt", "cnn", "recommender", "experts", "compiled", "xla"};
    static constexpr std::string_view kUpdates[] = {"fused",     "foreach", "loop", "sgd loop", "muon",
                                                    "adafactor", "8-bit",   "lion", "inductor", "xla"};
    std::string text = std::string(kBodies[static_cast<int>(body_)]) + " x" + std::to_string(layers_) + ", update " +
                       std::string(kUpdates[static_cast<int>(update_)]) + ", passes " + std::to_string(passes_);
    const auto add = [&](bool is, const std::string& what) {
      if (is) text += ", " + what;
    };
    add(clips_, "clips");
    add(scales_, "scales");
    add(recomputes_, "recomputes");
    add(sharded_, "sharded");
    add(reduces_, "ddp");
    add(lengths_ > 1, std::to_string(lengths_) + " lengths");
    add(item_every_step_, "item");
    add(log_every_ != 0, "log/" + std::to_string(log_every_));
    add(evaluate_every_ != 0, "eval/" + std::to_string(evaluate_every_) + "x" + std::to_string(evaluation_passes_) +
                                  (argmax_in_evaluation_ ? " argmax" : ""));
    add(sample_every_ != 0, "sample/" + std::to_string(sample_every_));
    add(save_every_ != 0, "save/" + std::to_string(save_every_));
    add(averages_, "ema");
    add(loader_thread_, "loader thread");
    add(strays_, "strays");
    add(graphs_, "graphs");
    return text;
  }

  /// One forward pass without gradients, as evaluation runs it.
  void forward_pass(std::uint32_t shape) {
    input();
    embed();
    for (std::uint32_t l = 0; l < layers_; ++l) layer_forward(shape, l);
    head(shape);
  }

  void one_step() {
    const std::uint64_t begin = w_.at();
    const std::uint64_t stray = strays_ && d_.chance(0.5) ? begin + d_.between(10, 200) : ~std::uint64_t{0};
    bool strayed = false;
    for (std::uint32_t p = 0; p < passes_; ++p) {
      const std::uint32_t shape = salt_ + (lengths_ > 1 ? d_.between(0, lengths_ - 1) : 0) * 1000;
      w_.thread = kMain;
      w_.phase = StepPhase::kForward;
      if (graphs_) {
        input();
        w_.graph(100, [&] { pass_forward(shape); });
        w_.phase = StepPhase::kBackward;
        w_.thread = kAutograd;
        w_.graph(101, [&] { pass_backward(shape, p + 1 == passes_); });
        if (reduces_) comm("AllReduce_Sum_bf16_RING_LL");
      } else {
        input();
        pass_forward(shape);
        w_.phase = StepPhase::kBackward;
        w_.thread = autograd_thread_ ? kAutograd : kMain;
        pass_backward(shape, p + 1 == passes_);
      }
      w_.thread = kMain;
      if (!strayed && w_.at() > stray) {
        w_.elementwise("FillFunctor<int>");
        strayed = true;
      }
    }
    w_.phase = StepPhase::kOptimizer;
    w_.thread = kMain;
    update();
    if (item_every_step_) w_.to_host();
    w_.out.steps.push_back({begin, w_.at(), StepKind::kStep});
  }

 private:
  void as_plain_decoder() {
    body_ = Body::kLlama;
    update_ = d_.chance(0.5) ? Update::kFused : Update::kForeach;
    layers_ = d_.between(2, 8);
    parameters_ = layers_ * 9 + 3;
    passes_ = lengths_ = 1;
    scales_ = recomputes_ = sharded_ = reduces_ = item_every_step_ = averages_ = loader_thread_ = strays_ = graphs_ =
        argmax_in_evaluation_ = false;
    log_every_ = evaluate_every_ = sample_every_ = save_every_ = 0;
    autograd_thread_ = true;
  }
  /// A pass over the tokens so far, the next one, and its copy to the host.
  void one_token() {
    embed();
    for (std::uint32_t l = 0; l < layers_; ++l) layer_forward(salt_ + 700'000, l);
    w_.gemm(salt_ + 700'077);
    w_.kernel("void (anonymous namespace)::cunn_SoftMaxForward<4, float, float, float>(float*)");
    w_.kernel("void at::native::(anonymous namespace)::sampleMultinomialOnce<float, float>(long*)");
    w_.kernel("void at::native::(anonymous namespace)::CatArrayBatchedCopy<long, unsigned int, 2, 128, 1>()");
    w_.to_host();
  }

  // ---- what surrounds the steps
  void start_up() {
    w_.thread = kMain;
    for (std::uint32_t p = 0; p < parameters_; ++p) {
      if (d_.chance(0.5))
        w_.kernel(
            "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4, "
            "normal_and_transform>(long)");
      else
        w_.elementwise("FillFunctor<float>");
      if (d_.chance(0.3)) w_.to_device();
      if (d_.chance(0.2)) w_.unrolled("direct_copy_kernel_cuda");
    }
    if (body_ == Body::kCompiled) {  // Inductor tries its choices
      for (std::uint32_t t = d_.between(0, 12); t > 0; --t)
        for (std::uint32_t r = 0; r < 25; ++r) {
          w_.kernel("triton_mm_" + std::to_string(t));
          w_.memset();
        }
    }
    for (std::uint32_t i = d_.between(0, 40); i > 0; --i) w_.kernel("setup_kernel_" + std::to_string(i));
  }
  void log() {
    w_.elementwise("CUDAFunctor_add<float>");
    w_.reduce("MeanOps<float, float, float, float>");
    if (sharded_ || reduces_) comm("AllGather_RING_LL");
    w_.elementwise("BinaryFunctor<float, float, float, DivFunctor>");
    w_.to_host(d_.between(1, 3));
    w_.elementwise("FillFunctor<float>");
  }
  void evaluate() {
    const std::uint32_t shape = salt_ + 500'000;
    for (std::uint32_t p = 0; p < evaluation_passes_; ++p) {
      forward_pass(shape);
      if (argmax_in_evaluation_) {
        argmax();
        w_.elementwise("CompareEqFunctor<long>");
        w_.reduce("sum_functor<long, long, long>");
        w_.to_host(d_.between(1, 2));
      } else {
        w_.kernel(
            "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>()");
        w_.to_host();
      }
    }
    w_.reduce("MeanOps<float, float, float, float>");
    w_.to_host();
  }
  void sample() {
    const std::uint64_t begin = w_.at();
    for (std::uint32_t t = d_.between(16, 64); t > 0; --t) {
      embed();
      for (std::uint32_t l = 0; l < layers_; ++l) layer_forward(salt_ + 700'000 + (t % 3 == 0 ? 1000 : 0), l);
      w_.gemm(salt_ + 700'077);
      w_.elementwise("BinaryFunctor<float, float, float, DivFunctor>");
      w_.kernel("void (anonymous namespace)::cunn_SoftMaxForward<4, float, float, float>(float*)");
      w_.kernel("void at::native::(anonymous namespace)::sampleMultinomialOnce<float, float>(long*)");
      w_.kernel("void at::native::(anonymous namespace)::CatArrayBatchedCopy<long, unsigned int, 2, 128, 1>()");
      if (t % 2 == 0) w_.to_host();
    }
    w_.to_host();
    w_.out.generated.push_back({begin, w_.at(), StepKind::kIteration});
  }
  void argmax() { w_.reduce("ArgMaxOps<float>"); }
  void comm(std::string_view what) {
    w_.kernel("ncclDevKernel_" + std::string(what) + "(ncclDevKernelArgsStorage<4096ul>)");
  }
  void input() {
    if (!loader_thread_)
      w_.to_device(inputs_);
    else
      loader_due_ = true;
  }
  /// Copies of a loader that runs ahead on a thread of its own fall anywhere into a step.
  void maybe_load() {
    if (!loader_due_ || !d_.chance(1.0 / layers_)) return;
    loader_due_ = false;
    const std::uint32_t was = w_.thread;
    w_.thread = kLoader;
    w_.to_device(inputs_);
    w_.thread = was;
  }
  void embed() {
    if (body_ == Body::kCnn || body_ == Body::kXla) return;
    w_.kernel(
        "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long, unsigned int, 2, 2, -2, "
        "true>()");
  }

  // ---- the passes
  void pass_forward(std::uint32_t shape) {
    embed();
    for (std::uint32_t l = 0; l < layers_; ++l) {
      if (sharded_) comm("AllGather_RING_LL");
      layer_forward(shape, l);
    }
    head(shape);
    loss();
    if (scales_) w_.elementwise("BinaryFunctor<float, float, float, MulFunctor>");
    if (passes_ > 1) w_.elementwise("BinaryFunctor<float, float, float, DivFunctor>");
  }
  void pass_backward(std::uint32_t shape, bool last) {
    loss_backward();
    w_.gemm(shape + 91);
    w_.gemm(shape + 92);
    for (std::uint32_t l = layers_; l-- > 0;) {
      if (sharded_) comm("AllGather_RING_LL");
      if (recomputes_) layer_forward(shape, l);
      layer_backward(shape, l);
      maybe_load();
      if (sharded_) comm("ReduceScatter_Sum_bf16_RING_LL");
      if (reduces_ && last && l % 4 == 0) comm("AllReduce_Sum_bf16_RING_LL");
    }
    if (body_ == Body::kCnn || body_ == Body::kXla) return;
    if (body_ == Body::kCompiled)
      w_.kernel("triton_poi_fused_embedding_dense_backward_" + std::to_string(salt_ % 50));
    else
      w_.kernel(
          "void at::native::(anonymous namespace)::embedding_backward_feature_kernel<c10::BFloat16, float, long>()");
    if (passes_ > 1) w_.elementwise("CUDAFunctor_add<float>");
  }
  void head(std::uint32_t shape) {
    if (body_ == Body::kCnn) w_.reduce("MeanOps<float, float, float, float>");
    if (body_ == Body::kLlama || body_ == Body::kExperts) rms_norm();
    if (body_ == Body::kGpt)
      w_.kernel("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>()");
    if (body_ == Body::kXla) {
      w_.kernel("loop_convert_fusion_" + std::to_string(salt_ % 9));
    }
    w_.gemm(shape + 90);
  }
  void loss() {
    if (body_ == Body::kXla) {
      w_.kernels({"input_reduce_fusion_1", "loop_exponential_fusion", "input_reduce_fusion_2", "loop_select_fusion_7"});
      return;
    }
    if (body_ == Body::kCompiled) {
      w_.kernels({"triton_red_fused__log_softmax_5", "triton_per_fused_nll_loss_forward_6"});
      return;
    }
    if (body_ == Body::kRecommender) {
      w_.elementwise("binary_cross_entropy_out_kernel");
      w_.reduce("MeanOps<float, float, float, float>");
      return;
    }
    w_.unrolled("direct_copy_kernel_cuda");
    w_.kernel("void (anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, LogSoftMaxForwardEpilogue>()");
    w_.kernel("void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>()");
  }
  void loss_backward() {
    if (body_ == Body::kXla) {
      w_.kernels({"loop_multiply_fusion_3", "input_scatter_fusion_2"});
      return;
    }
    if (body_ == Body::kCompiled) {
      w_.kernel("triton_red_fused__log_softmax_backward_data_nll_loss_backward_0");
      return;
    }
    if (body_ == Body::kRecommender) {
      w_.elementwise("binary_cross_entropy_backward_out_kernel");
      return;
    }
    w_.elementwise("FillFunctor<float>");
    w_.kernel("void at::native::(anonymous namespace)::nll_loss_backward_reduce_cuda_kernel_2d<float, long>()");
    w_.kernel("void (anonymous namespace)::cunn_SoftMaxBackward<4, float, float, float, LogSoftMaxBackwardEpilogue>()");
    w_.unrolled("direct_copy_kernel_cuda");
  }
  void rms_norm() {
    w_.unrolled("direct_copy_kernel_cuda");
    w_.elementwise("pow_tensor_scalar_kernel_impl<float, float>");
    w_.reduce("MeanOps<float, float, float, float>");
    w_.elementwise("CUDAFunctorOnSelf_add<float>");
    w_.elementwise("rsqrt_kernel_cuda");
    w_.elementwise("BinaryFunctor<float, float, float, MulFunctor>");
    w_.unrolled("bfloat16_copy_kernel_cuda");
    w_.elementwise("BinaryFunctor<c10::BFloat16, c10::BFloat16, MulFunctor>");
  }
  void rms_norm_backward() {
    w_.elementwise("BinaryFunctor<c10::BFloat16, c10::BFloat16, MulFunctor>");
    w_.reduce("sum_functor<c10::BFloat16, float, c10::BFloat16>");
    w_.unrolled("direct_copy_kernel_cuda");
    w_.elementwise("BinaryFunctor<float, float, float, MulFunctor>");
    w_.reduce("sum_functor<float, float, float>");
    w_.elementwise("pow_tensor_scalar_kernel_impl<float, float>");
    w_.elementwise("BinaryFunctor<float, float, float, MulFunctor>");
    w_.elementwise("CUDAFunctor_add<float>");
    w_.unrolled("bfloat16_copy_kernel_cuda");
  }
  void rope() {
    for (int i = 0; i < 2; ++i) {
      w_.elementwise("BinaryFunctor<c10::BFloat16, c10::BFloat16, MulFunctor>");
      w_.elementwise("neg_kernel_cuda");
      w_.kernel(
          "void at::native::(anonymous namespace)::CatArrayBatchedCopy<c10::BFloat16, unsigned int, 4, 64, 64>()");
      w_.elementwise("BinaryFunctor<c10::BFloat16, c10::BFloat16, MulFunctor>");
      w_.elementwise("CUDAFunctor_add<c10::BFloat16>");
    }
  }
  void experts(std::uint32_t shape, bool backward) {
    w_.kernel("void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>()");
    const std::uint32_t chosen = d_.between(5, 8);
    for (std::uint32_t e = 0; e < chosen; ++e) {
      w_.kernel("void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel>()");
      for (std::uint32_t g = 0; g < (backward ? 6u : 3u); ++g) w_.gemm(shape + 60 + g);
      w_.elementwise(backward ? "silu_backward_kernel" : "silu_kernel");
      w_.kernel("void at::native::(anonymous namespace)::indexFuncLargeIndex<c10::BFloat16, long, unsigned int>()");
    }
  }
  void layer_forward(std::uint32_t shape, std::uint32_t l) {
    switch (body_) {
      case Body::kLlama:
      case Body::kExperts:
        rms_norm();
        for (std::uint32_t g = 0; g < 3; ++g) w_.gemm(shape + g);
        rope();
        w_.kernel("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64, 64, 4, false>>()");
        w_.gemm(shape + 3);
        w_.elementwise("CUDAFunctor_add<c10::BFloat16>");
        rms_norm();
        if (body_ == Body::kExperts) {
          experts(shape, false);
        } else {
          w_.gemm(shape + 4);
          w_.elementwise("silu_kernel");
          w_.gemm(shape + 4);
          w_.elementwise("BinaryFunctor<c10::BFloat16, c10::BFloat16, MulFunctor>");
          w_.gemm(shape + 5);
        }
        w_.elementwise("CUDAFunctor_add<c10::BFloat16>");
        break;
      case Body::kGpt:
        w_.kernel("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>()");
        w_.gemm(shape);
        w_.kernel("fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel::Params)");
        w_.gemm(shape + 1);
        w_.kernel(
            "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int, 1, 4>()");
        w_.elementwise("CUDAFunctor_add<float>");
        w_.kernel("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>()");
        w_.gemm(shape + 2);
        w_.elementwise("GeluCUDAKernelImpl");
        w_.gemm(shape + 3);
        w_.kernel(
            "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int, 1, 4>()");
        w_.elementwise("CUDAFunctor_add<float>");
        break;
      case Body::kCnn:
        for (std::uint32_t c = 0; c < 1 + l % 3; ++c) {
          w_.kernel("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_" +
                    std::to_string(64 << (l + c) % 3) + "x128_16x4_nhwc_align4>()");
          w_.kernel("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>()");
          w_.elementwise("clamp_scalar_kernel_impl");
        }
        w_.elementwise("CUDAFunctor_add<float>");
        break;
      case Body::kRecommender:
        if (l == 0)
          w_.kernel("void split_embedding_codegen_forward_unweighted_kernel<float, float, float, long, 5ul>()");
        w_.gemm(shape + l % 4);
        w_.elementwise("clamp_scalar_kernel_impl");
        break;
      case Body::kCompiled:
        w_.kernel("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_" + std::to_string(salt_ % 20 + (l > 0 ? 1 : 0)));
        w_.gemm(shape);
        w_.kernel("triton_poi_fused_cat_" + std::to_string(salt_ % 20 + 2));
        w_.kernel("triton_poi_fused_cat_" + std::to_string(salt_ % 20 + 3));
        w_.kernel("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false>>()");
        w_.gemm(shape + 1);
        w_.kernel("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_" + std::to_string(salt_ % 20 + 4));
        w_.gemm(shape + 2);
        w_.kernel("triton_poi_fused_mul_silu_" + std::to_string(salt_ % 20 + 5));
        w_.gemm(shape + 3);
        break;
      case Body::kXla:
        w_.kernel("input_add_reduce_fusion_" + std::to_string(salt_ % 9));
        w_.gemm(shape);
        w_.kernel("loop_transpose_fusion_" + std::to_string(salt_ % 9));
        w_.kernel("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3_128x128x64");
        w_.gemm(shape + 1);
        w_.kernel("input_add_reduce_fusion_" + std::to_string(salt_ % 9 + 1));
        w_.gemm(shape + 2);
        w_.kernel("loop_tanh_multiply_fusion_" + std::to_string(salt_ % 9));
        w_.gemm(shape + 3);
        break;
    }
  }
  void layer_backward(std::uint32_t shape, std::uint32_t l) {
    switch (body_) {
      case Body::kLlama:
      case Body::kExperts:
        if (body_ == Body::kExperts) {
          experts(shape, true);
        } else {
          for (std::uint32_t g = 0; g < 2; ++g) w_.gemm(shape + 20 + g);
          w_.elementwise("BinaryFunctor<c10::BFloat16, c10::BFloat16, MulFunctor>");
          w_.elementwise("silu_backward_kernel");
          for (std::uint32_t g = 0; g < 4; ++g) w_.gemm(shape + 22 + g % 2);
          w_.elementwise("CUDAFunctor_add<c10::BFloat16>");
        }
        rms_norm_backward();
        w_.elementwise("CUDAFunctor_add<c10::BFloat16>");
        w_.gemm(shape + 30);
        w_.gemm(shape + 31);
        w_.kernel("void pytorch_flash::flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<128, 64, 128, 8>>()");
        w_.kernel("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128>>()");
        w_.kernel("void pytorch_flash::flash_bwd_convert_dq_kernel<Flash_bwd_kernel_traits<128, 64, 128, 8>>()");
        rope();
        for (std::uint32_t g = 0; g < 6; ++g) w_.gemm(shape + 32 + g);
        w_.elementwise("CUDAFunctor_add<c10::BFloat16>");
        rms_norm_backward();
        break;
      case Body::kGpt:
        w_.kernel("void at::native::(anonymous namespace)::masked_scale_kernel<float, unsigned char>()");
        for (std::uint32_t g = 0; g < 2; ++g) w_.gemm(shape + 20 + g);
        w_.reduce("sum_functor<float, float, float>");
        w_.elementwise("GeluBackwardCUDAKernelImpl");
        for (std::uint32_t g = 0; g < 2; ++g) w_.gemm(shape + 22 + g);
        w_.reduce("sum_functor<float, float, float>");
        layer_norm_backward();
        w_.elementwise("CUDAFunctor_add<float>");
        w_.kernel("void at::native::(anonymous namespace)::masked_scale_kernel<float, unsigned char>()");
        for (std::uint32_t g = 0; g < 2; ++g) w_.gemm(shape + 24 + g);
        w_.kernel("fmha_cutlassB_bf16_aligned_64x64_k64_dropout_sm80(AttentionBackwardKernel::Params)");
        for (std::uint32_t g = 0; g < 2; ++g) w_.gemm(shape + 26 + g);
        w_.reduce("sum_functor<float, float, float>");
        layer_norm_backward();
        w_.elementwise("CUDAFunctor_add<float>");
        break;
      case Body::kCnn:
        for (std::uint32_t c = 1 + l % 3; c-- > 0;) {
          w_.elementwise("threshold_backward_kernel");
          w_.kernel("void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>()");
          w_.kernel("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688dgrad_optimized_tf32_" +
                    std::to_string(64 << (l + c) % 3) + "x64_16x4_nhwc_align4>()");
          w_.kernel("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688wgrad_optimized_tf32_" +
                    std::to_string(64 << (l + c) % 3) + "x128_16x4_nhwc_align4>()");
        }
        break;
      case Body::kRecommender:
        w_.elementwise("threshold_backward_kernel");
        w_.gemm(shape + 20 + l % 4);
        w_.gemm(shape + 30 + l % 4);
        w_.reduce("sum_functor<float, float, float>");
        if (l == 0) {
          w_.kernel("void split_embedding_backward_codegen_adagrad_unweighted_kernel_warp_per_row_1<float, float>()");
        }
        break;
      case Body::kCompiled:
        for (std::uint32_t g = 0; g < 4; ++g) w_.gemm(shape + 20 + g);
        w_.kernel("triton_poi_fused_mul_silu_silu_backward_" + std::to_string(salt_ % 20 + 6));
        w_.gemm(shape + 24);
        w_.kernel("triton_red_fused__to_copy_add_div_mul_pow_sum_" + std::to_string(salt_ % 20 + 7));
        w_.kernel("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64>>()");
        w_.kernel("void pytorch_flash::flash_bwd_convert_dq_kernel<Flash_bwd_kernel_traits<64, 128, 128, 8>>()");
        w_.kernel("triton_poi_fused_cat_" + std::to_string(salt_ % 20 + 8));
        for (std::uint32_t g = 0; g < 3; ++g) w_.gemm(shape + 25 + g);
        w_.kernel("triton_red_fused__to_copy_add_div_mul_pow_sum_" + std::to_string(salt_ % 20 + 9));
        break;
      case Body::kXla:
        for (std::uint32_t g = 0; g < 4; ++g) w_.gemm(shape + 20 + g);
        w_.kernel("loop_multiply_fusion_" + std::to_string(salt_ % 9));
        w_.kernel("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_7_128x128x64");
        for (std::uint32_t g = 0; g < 4; ++g) w_.gemm(shape + 24 + g);
        w_.kernel("input_multiply_reduce_fusion_" + std::to_string(salt_ % 9));
        break;
    }
  }
  void layer_norm_backward() {
    w_.kernel("void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<float, float>()");
    w_.kernel("void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float, float, 64u, 1u>()");
  }

  // ---- the update
  void update() {
    if (scales_) {
      w_.foreach ("amp_non_finite_check_and_unscale", 2);
      w_.to_host();
    }
    if (clips_ && update_ != Update::kXla) {
      w_.foreach ("LpNormFunctor", 1 + parameters_ / 110);
      w_.kernel("void at::native::lpnorm_cleanup<float, float, 1>()");
      w_.kernel("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 1, 64, 64>()");
      w_.reduce("NormTwoOps<float, float, float, float>");
      w_.elementwise("CUDAFunctorOnSelf_add<float>");
      w_.elementwise("clamp_scalar_kernel_impl");
      w_.foreach ("BinaryOpListAlphaFunctor", 1 + parameters_ / 110);
    }
    const std::uint32_t chunks = 1 + parameters_ / 40;
    switch (update_) {
      case Update::kFused:
        state_if_new(parameters_ * 2);
        w_.foreach ("FusedAdamMathFunctor", chunks);
        break;
      case Update::kForeach:
        state_if_new(parameters_ * 2);
        for (const std::string_view f :
             {"BinaryOpScalarFunctor", "TernaryOpScalarFunctor", "BinaryOpScalarFunctor", "PointwiseOpScalarFunctor",
              "UnaryOpFunctor", "BinaryOpScalarListFunctor", "BinaryOpScalarFunctor", "PointwiseOpScalarListFunctor"})
          w_.foreach (f, chunks);
        break;
      case Update::kLoop:
        for (std::uint32_t p = 0; p < parameters_; ++p) {
          state_if_new(2);
          w_.elementwise("BinaryFunctor<float, float, float, MulFunctor>");
          w_.elementwise("lerp_scalar_kernel");
          w_.elementwise("BinaryFunctor<float, float, float, MulFunctor>");
          w_.elementwise("addcmul_cuda_kernel");
          w_.elementwise("sqrt_kernel_cuda");
          w_.elementwise("CUDAFunctorOnSelf_add<float>");
          w_.elementwise("addcdiv_cuda_kernel");
        }
        break;
      case Update::kSgdLoop:
        for (std::uint32_t p = 0; p < parameters_; ++p) {
          w_.elementwise("CUDAFunctor_add<float>");
          w_.elementwise("BinaryFunctor<float, float, float, MulFunctor>");
          w_.elementwise("CUDAFunctor_add<float>");
          w_.elementwise("CUDAFunctor_add<float>");
        }
        break;
      case Update::kMuon:
        for (std::uint32_t p = 0; p < parameters_ * 2 / 3; ++p) {
          state_if_new(1);
          w_.elementwise("lerp_scalar_kernel");
          w_.reduce("NormTwoOps<float, float, float, float>");
          w_.elementwise("BinaryFunctor<float, float, float, DivFunctor>");
          for (int i = 0; i < 5; ++i) {
            w_.gemm(salt_ + 300);
            w_.gemm(salt_ + 301);
            w_.elementwise("CUDAFunctor_add<c10::BFloat16>");
            w_.gemm(salt_ + 302);
          }
          w_.elementwise("CUDAFunctor_add<float>");
        }
        w_.foreach ("FusedAdamMathFunctor", 1 + chunks / 3);
        break;
      case Update::kAdafactor:
        for (std::uint32_t p = 0; p < parameters_; ++p) {
          state_if_new(2);
          w_.elementwise("pow_tensor_scalar_kernel_impl<float, float>");
          w_.reduce("MeanOps<float, float, float, float>");
          w_.elementwise("BinaryFunctor<float, float, float, MulFunctor>");
          w_.reduce("MeanOps<float, float, float, float>");
          w_.elementwise("rsqrt_kernel_cuda");
          w_.elementwise("BinaryFunctor<float, float, float, MulFunctor>");
          w_.reduce("NormTwoOps<float, float, float, float>");
          w_.elementwise("CUDAFunctor_add<float>");
        }
        break;
      case Update::kEightBit:
        for (std::uint32_t p = 0; p < parameters_; ++p) {
          state_if_new(4);
          w_.kernel("void kOptimizerStatic8bit2StateBlockwise<__nv_bfloat16, 0, 256, 1>()");
        }
        break;
      case Update::kLion:
        for (std::uint32_t p = 0; p < parameters_; ++p) {
          state_if_new(1);
          w_.elementwise("BinaryFunctor<float, float, float, MulFunctor>");
          w_.elementwise("lerp_scalar_kernel");
          w_.elementwise("sign_kernel_cuda");
          w_.elementwise("CUDAFunctor_add<float>");
          w_.elementwise("lerp_scalar_kernel");
        }
        break;
      case Update::kInductor:
        for (std::uint32_t p = 0; p < 1 + parameters_ / 12; ++p) w_.kernel("triton_for_fused_" + std::to_string(p));
        break;
      case Update::kXla:
        for (std::uint32_t p = 0; p < parameters_; ++p)
          w_.kernel("loop_add_multiply_sqrt_fusion_" + std::to_string(p % 7));
        break;
    }
    if (averages_) w_.foreach ("TernaryOpScalarFunctor", chunks);
    if (passes_ > 1 && update_ != Update::kXla) w_.memset(parameters_ / 3);  // gradients that are kept
  }
  void state_if_new(std::uint32_t times) {
    if (!optimizer_state_is_new_) return;
    for (; times > 0; --times) w_.elementwise("FillFunctor<float>");
  }

  Writer& w_;
  Dice& d_;
  Body body_;
  Update update_;
  std::uint32_t layers_, parameters_, passes_, lengths_, log_every_, evaluate_every_, evaluation_passes_, sample_every_,
      save_every_, inputs_, salt_;
  bool clips_, scales_, recomputes_, sharded_, reduces_, item_every_step_, argmax_in_evaluation_, averages_,
      loader_thread_, strays_, graphs_, autograd_thread_;
  bool optimizer_state_is_new_ = false, loader_due_ = false;
};

/// A whole step, or a forward pass, in one to three graphs.
inline void graphed_training(Writer& w, std::uint32_t steps) {
  w.out.trains = true;
  w.out.what = "whole step in a graph";
  const std::uint32_t inputs = w.dice.between(1, 3), log_every = w.dice.between(5, 20);
  const bool item = w.dice.chance(0.3);
  for (std::uint32_t i = 0; i < 200; ++i) w.elementwise("FillFunctor<float>");
  for (std::uint32_t s = 0; s < steps * 5; ++s) {
    const std::uint64_t begin = w.at();
    w.to_device(inputs);
    w.graph(7, [&] {
      w.gemm(1);
      for (int i = 0; i < 3; ++i) w.kernel("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<64>()");
      w.foreach ("FusedAdamMathFunctor", 3);
    });
    if (item) w.to_host();
    w.out.steps.push_back({begin, w.at(), StepKind::kStep});
    if (s % log_every == log_every - 1) {
      w.reduce("MeanOps<float, float, float, float>");
      w.to_host();
    }
  }
}

/// Two networks that take turns.
inline void adversarial_training(Writer& w, std::uint32_t steps) {
  w.out.trains = true;
  const std::uint32_t layers = w.dice.between(3, 12);
  w.out.what = "two networks that take turns";
  w.out.most_steps_of_a_cycle = 1;
  const auto convolutions = [&](std::uint32_t times, std::string_view pass, std::uint32_t salt) {
    for (std::uint32_t l = 0; l < times; ++l) {
      w.kernel("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688" + std::string(pass) + "_optimized_tf32_" +
               std::to_string(64 << (l + salt) % 3) + "x128_16x4_nhwc_align4>()");
      w.elementwise(pass == "fprop" ? "leaky_relu_kernel" : "leaky_relu_backward_kernel");
      if (pass == "dgrad")
        w.kernel("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688wgrad_optimized_tf32_64x64>()");
    }
  };
  for (std::uint32_t s = 0; s < steps; ++s) {
    const std::uint64_t begin = w.at();
    w.to_device(1);
    w.thread = kMain;
    convolutions(layers * 2, "fprop", 0);
    w.elementwise("binary_cross_entropy_out_kernel");
    w.thread = kAutograd;
    convolutions(layers, "dgrad", 1);
    w.thread = kMain;
    w.foreach ("FusedAdamMathFunctor", 2);
    w.kernel("void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4>()");
    convolutions(layers, "fprop", 2);
    w.elementwise("binary_cross_entropy_out_kernel");
    w.thread = kAutograd;
    convolutions(layers * 2, "dgrad", 3);
    w.thread = kMain;
    w.foreach ("FusedAdamMathFunctor", 3);
    w.out.steps.push_back({begin, w.at(), StepKind::kStep});
    if (s % 10 == 9) w.to_host(2);
  }
}

// ------------------------------------------------------------------------------------------------- serving

class ServingProgram {
 public:
  enum class Engine {
    kGenerateGreedy,
    kGenerateSampled,
    kVllmEager,
    kVllmGraphs,
    kVllmPiecewise,
    kTensorRt,
    kLlamaCpp
  };

  explicit ServingProgram(Writer& writer) : w_(writer), d_(writer.dice) {
    engine_ = d_.one_of<Engine>({Engine::kGenerateGreedy, Engine::kGenerateSampled, Engine::kVllmEager,
                                 Engine::kVllmGraphs, Engine::kVllmPiecewise, Engine::kTensorRt, Engine::kLlamaCpp});
    layers_ = d_.between(4, 48);
    flash2_ = d_.chance(0.5);
    greedy_ = engine_ == Engine::kGenerateGreedy || (engine_ != Engine::kGenerateSampled && d_.chance(0.5));
    logits_processors_ = d_.between(0, 6);
    graphed_ = engine_ == Engine::kLlamaCpp && d_.chance(0.4);
    extra_inputs_ = d_.between(0, 8);
    salt_ = d_.between(0, 1'000'000);
  }

  void run(std::uint32_t iterations) {
    static constexpr std::string_view kEngines[] = {"generate greedy", "generate sampled", "vllm eager", "vllm graphs",
                                                    "vllm piecewise",  "tensorrt-llm",     "llama.cpp"};
    w_.out.what = std::string(kEngines[static_cast<int>(engine_)]) + " x" + std::to_string(layers_) +
                  (flash2_ ? ", flash 2" : "") + (greedy_ ? ", greedy" : "") + (graphed_ ? ", graphed" : "");
    for (std::uint32_t p = 0; p < layers_ * 9; ++p) {
      w_.to_device();
      if (p % 3 == 0) w_.unrolled("direct_copy_kernel_cuda");
    }
    std::uint32_t running = d_.between(1, 8), until = 0;
    const bool one_request =
        engine_ == Engine::kGenerateGreedy || engine_ == Engine::kGenerateSampled || engine_ == Engine::kLlamaCpp;
    for (std::uint32_t i = 0; i < iterations; ++i) {
      const bool prefill = one_request ? i == until : i == 0 || d_.chance(0.12);
      if (one_request && prefill) {
        until = i + d_.between(12, 60);
        running = engine_ == Engine::kLlamaCpp ? 1 : d_.between(1, 4);
      }
      if (!one_request) running = std::clamp<std::uint32_t>(running + d_.between(0, 2) - 1, 1, 32);
      const std::uint32_t rows = prefill ? d_.between(40, 900) * (one_request ? running : 1) : running;
      const std::uint64_t begin = w_.at();
      iteration(prefill, rows, running);
      w_.out.steps.push_back({begin, w_.at(), prefill ? StepKind::kPrefillOrMixed : StepKind::kDecode});
      w_.out.prefill.push_back(prefill ? 1 : 0);
    }
  }

 private:
  std::uint32_t shape_of(std::uint32_t rows) const { return salt_ + (rows <= 16 ? rows : 16 + rows / 64) * 100; }

  void iteration(bool prefill, std::uint32_t rows, std::uint32_t sequences) {
    const std::uint32_t shape = shape_of(rows);
    switch (engine_) {
      case Engine::kGenerateGreedy:
      case Engine::kGenerateSampled:
        generate(prefill, rows, shape);
        break;
      case Engine::kVllmEager:
      case Engine::kVllmGraphs:
      case Engine::kVllmPiecewise:
        vllm(prefill, rows, sequences, shape);
        break;
      case Engine::kTensorRt:
        tensorrt(prefill, rows, sequences, shape);
        break;
      case Engine::kLlamaCpp:
        llama_cpp(prefill, rows, shape);
        break;
    }
  }

  /// Hugging Face's generate(): the next token stays on the device; what goes to the host is whether all are done.
  void generate(bool prefill, std::uint32_t rows, std::uint32_t shape) {
    if (prefill) w_.to_device(2);
    w_.kernel("void at::native::(anonymous namespace)::indexSelectSmallIndex<c10::BFloat16, long, unsigned int, 2>()");
    w_.kernel("void (anonymous namespace)::elementwise_kernel_with_index<int, at::native::arange_cuda_out>()");
    w_.elementwise("CUDAFunctorOnSelf_add<long>");
    w_.gemm(shape + 70);
    w_.elementwise("cos_kernel_cuda");
    w_.elementwise("sin_kernel_cuda");
    for (std::uint32_t l = 0; l < layers_; ++l) {
      rms(rows);
      for (std::uint32_t g = 0; g < 3; ++g) w_.gemm(shape + g);
      for (int i = 0; i < 2; ++i) {
        w_.elementwise("BinaryFunctor<c10::BFloat16, c10::BFloat16, MulFunctor>");
        w_.elementwise("neg_kernel_cuda");
        w_.kernel(
            "void at::native::(anonymous namespace)::CatArrayBatchedCopy<c10::BFloat16, unsigned int, 4, 64, 64>()");
        w_.elementwise("CUDAFunctor_add<c10::BFloat16>");
      }
      if (!prefill)
        for (int i = 0; i < 2; ++i)
          w_.kernel("void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<OpaqueType<2u>>()");
      if (prefill) {
        w_.kernel("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64, 64, 4, false>>()");
      } else {
        w_.kernel("void pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false>>()");
        w_.kernel("void pytorch_flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>()");
      }
      w_.gemm(shape + 3);
      w_.elementwise("CUDAFunctor_add<c10::BFloat16>");
      rms(rows);
      w_.gemm(shape + 4);
      w_.elementwise("silu_kernel");
      w_.gemm(shape + 4);
      w_.elementwise("BinaryFunctor<c10::BFloat16, c10::BFloat16, MulFunctor>");
      w_.gemm(shape + 5);
      w_.elementwise("CUDAFunctor_add<c10::BFloat16>");
    }
    rms(rows);
    w_.gemm(shape + 6);
    w_.unrolled("direct_copy_kernel_cuda");
    if (engine_ == Engine::kGenerateSampled) {
      w_.elementwise("BinaryFunctor<float, float, float, DivFunctor>");
      w_.kernel("void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>()");
      w_.elementwise("CompareFunctor<float>");
      w_.elementwise("masked_fill_kernel");
      w_.kernel("void at::native::segmented_sort_kernel<float, long>()");
      w_.kernel("void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>()");
      w_.kernel("void at::native::tensor_kernel_scan_innermost_dim<float, std::plus<float> >()");
      w_.elementwise("masked_fill_kernel");
      w_.kernel("void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>()");
      w_.kernel(
          "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4, "
          "exponential>()");
      w_.elementwise("BinaryFunctor<float, float, float, DivFunctor>");
    }
    w_.reduce("ArgMaxOps<float>");
    w_.elementwise("BinaryFunctor<long, long, long, MulFunctor>");
    w_.elementwise("CUDAFunctorOnSelf_add<long>");
    w_.kernel("void at::native::(anonymous namespace)::CatArrayBatchedCopy<long, unsigned int, 2, 128, 1>()");
    for (std::uint32_t i = 0; i < logits_processors_ * 2; ++i) w_.elementwise("CompareEqFunctor<long>");
    w_.elementwise("BitwiseOrFunctor<bool>");
    w_.elementwise("bitwise_not_kernel_cuda");
    w_.elementwise("BitwiseAndFunctor<long>");
    w_.reduce("MaxOps<long>");
    w_.elementwise("CompareEqFunctor<long>");
    w_.to_host();
  }
  void rms(std::uint32_t rows) {
    w_.unrolled("direct_copy_kernel_cuda");
    w_.elementwise("pow_tensor_scalar_kernel_impl<float, float>");
    w_.reduce("MeanOps<float, float, float, float>");
    w_.elementwise("rsqrt_kernel_cuda");
    w_.elementwise("BinaryFunctor<float, float, float, MulFunctor>");
    w_.unrolled("bfloat16_copy_kernel_cuda");
    (void)rows;
  }

  void vllm(bool prefill, std::uint32_t rows, std::uint32_t sequences, std::uint32_t shape) {
    w_.to_device(3 + extra_inputs_);
    const std::uint32_t total = prefill ? rows + sequences - 1 : rows;
    const auto attention = [&] {
      w_.kernel("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16>()", total);
      if (flash2_) {  // paged attention of version 2 runs the split kernel for all shapes
        w_.kernel("void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false>>()");
        if (!prefill && rows <= 4)
          w_.kernel("void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>>()");
      } else {
        w_.kernel(
            "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<PagedKv, Causal, VarSeq>>>()");
      }
    };
    const auto before = [&] {
      w_.kernel("void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>()", total);
      w_.gemm(shape);
      w_.kernel("void vllm::rotary_embedding_kernel<c10::BFloat16, true>()", total);
    };
    const auto after = [&] {
      w_.gemm(shape + 1);
      w_.kernel("void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>()", total);
      w_.gemm(shape + 2);
      w_.kernel("void vllm::act_and_mul_kernel<c10::BFloat16, vllm::silu_kernel>()");
      w_.gemm(shape + 3);
    };
    const std::uint32_t bucket = rows <= 1 ? 1 : rows <= 2 ? 2 : rows <= 4 ? 4 : (rows + 7) / 8 * 8;
    if (engine_ == Engine::kVllmGraphs && !prefill) {
      w_.graph(bucket, [&] {
        before();
        attention();
        after();
      });
    } else if (engine_ == Engine::kVllmPiecewise && total <= 512) {
      w_.graph(1000 + bucket, [&] { before(); });
      for (std::uint32_t l = 0; l < layers_; ++l) {
        attention();
        w_.graph(2000 + bucket * 100 + l, [&] {
          after();
          before();
        });
      }
    } else {
      w_.kernel("void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, int, unsigned int, 2>()");
      for (std::uint32_t l = 0; l < layers_; ++l) {
        before();
        attention();
        after();
      }
    }
    w_.kernel("void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel>()");
    w_.gemm(shape_of(sequences) + 60);
    w_.unrolled("direct_copy_kernel_cuda");
    if (greedy_) {
      w_.reduce("ArgMaxOps<float>");
    } else {
      w_.elementwise("BinaryFunctor<float, float, float, DivFunctor>");
      w_.kernel("void at::native::segmented_sort_kernel<float, long>()");
      w_.kernel("void (anonymous namespace)::cunn_SoftMaxForward<4, float, float, float>(float*)");
      w_.kernel(
          "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4, "
          "exponential>()");
      w_.elementwise("BinaryFunctor<float, float, float, DivFunctor>");
      w_.reduce("ArgMaxOps<float>");
      w_.elementwise("where_kernel_impl");
    }
    w_.unrolled("direct_copy_kernel_cuda");
    w_.to_host();
  }

  void tensorrt(bool prefill, std::uint32_t rows, std::uint32_t sequences, std::uint32_t shape) {
    w_.to_device(2 + extra_inputs_);
    const auto pass = [&] {
      for (std::uint32_t l = 0; l < layers_; ++l) {
        w_.kernel("void tensorrt_llm::kernels::generalRmsNorm<__nv_bfloat16, __nv_bfloat16, false>()", rows);
        w_.gemm(shape);
        if (prefill) {
          w_.kernel("void tensorrt_llm::kernels::applyBiasRopeUpdateKVCacheV2<__nv_bfloat16>()");
          w_.kernel("fmha_v2_flash_attention_bf16_64_128_S_qkv_128_causal_tma_ws_sm90_kernel");
        } else {
          w_.kernel("void tensorrt_llm::kernels::mmha::masked_multihead_attention_kernel<unsigned short, 128>()");
        }
        w_.gemm(shape + 1);
        w_.kernel("void tensorrt_llm::kernels::generalRmsNorm<__nv_bfloat16, __nv_bfloat16, false>()", rows);
        w_.gemm(shape + 2);
        w_.kernel("void tensorrt_llm::kernels::cutlass_kernels::doActivationKernel<__nv_bfloat16>()");
        w_.gemm(shape + 3);
      }
      w_.gemm(shape_of(sequences) + 60);
    };
    if (prefill)
      pass();
    else
      w_.graph(1 + (sequences + 3) / 4, pass);
    w_.kernel("void tensorrt_llm::kernels::batchApplyPenalty<float>()");
    w_.kernel("void tensorrt_llm::kernels::topKStage1<float, 128, 8>()");
    w_.kernel("void tensorrt_llm::kernels::topKStage2Sampling<float, 128, 8>()");
    w_.kernel("void tensorrt_llm::kernels::stopWordsCriterion()");
    w_.to_host(2);
  }

  /// The sampler runs on the host: logits go there for every token.
  void llama_cpp(bool prefill, std::uint32_t rows, std::uint32_t shape) {
    w_.to_device(4 + extra_inputs_ % 3);
    const auto pass = [&] {
      w_.kernel("void k_get_rows<16, 1, &dequantize_q4_0>(void const*)");
      for (std::uint32_t l = 0; l < layers_; ++l) {
        w_.kernel("void rms_norm_f32<1024, true>(float const*)");
        for (int g = 0; g < 3; ++g) product(prefill, shape);
        w_.kernel("void rope_norm<true, false, float>(float const*)");
        w_.kernel("void rope_norm<true, false, __half>(float const*)");
        w_.kernel("void k_set_rows<long, __half>(float const*)");
        w_.kernel("void k_set_rows<long, __half>(float const*)");
        if (prefill)
          w_.kernel("void flash_attn_ext_f16<128, 128, 64, 1>(char const*)");
        else
          w_.kernel("void flash_attn_ext_vec<128, 1, (ggml_type)1, (ggml_type)1>(char const*)");
        if (!prefill) w_.kernel("void flash_attn_combine_results<128>(float const*)");
        product(prefill, shape);
        w_.kernel("void k_bin_bcast<&op_add, float, float, float>(float const*)");
        w_.kernel("void rms_norm_f32<1024, true>(float const*)");
        for (int g = 0; g < 2; ++g) product(prefill, shape);
        w_.kernel("void unary_gated_op_kernel<&op_silu, float>(float const*)");
        product(prefill, shape);
        w_.kernel("void k_bin_bcast<&op_add, float, float, float>(float const*)");
      }
      w_.kernel("void rms_norm_f32<1024, true>(float const*)");
      product(false, shape);
    };
    (void)rows;
    if (graphed_ && !prefill)
      w_.graph(5, pass);
    else
      pass();
    w_.to_host();
  }
  void product(bool prefill, std::uint32_t shape) {
    if (!prefill) {
      w_.kernel("void quantize_q8_1(float const*, void*, long)");
      w_.kernel("void mul_mat_vec_q<(ggml_type)2, 1, false, false>(void const*)");
    } else {
      w_.kernel("void quantize_mmq_q8_1<(mmq_q8_1_ds_layout)1>(float const*)");
      w_.kernel("void mul_mat_q<(ggml_type)2, " + std::to_string(64 + shape % 3 * 32) + ", false>(char const*)");
    }
  }

  Writer& w_;
  Dice& d_;
  Engine engine_;
  std::uint32_t layers_, logits_processors_, extra_inputs_, salt_;
  bool flash2_, greedy_, graphed_;
};

/// A compiled model answers requests: a copy in, a graph or a few, the result out.
inline void compiled_inference(Writer& w, std::uint32_t turns) {
  const std::uint32_t graphs = w.dice.between(1, 3), outputs = w.dice.between(1, 2);
  const bool kernels = w.dice.chance(0.5);
  w.out.what = "compiled inference, " + std::to_string(graphs) + " graphs";
  for (std::uint32_t i = 0; i < 120; ++i) w.to_device();
  for (std::uint32_t t = 0; t < turns; ++t) {
    const std::uint64_t begin = w.at();
    w.to_device();
    for (std::uint32_t g = 0; g < graphs; ++g) w.graph(3 + g, [&] { w.gemm(g); });
    if (kernels) w.unrolled("direct_copy_kernel_cuda");
    w.to_host(outputs);
    w.out.steps.push_back({begin, w.at(), StepKind::kIteration});
    w.out.prefill.push_back(2);
  }
}

/// An encoder answers requests of a few lengths.
inline void encoder_serving(Writer& w, std::uint32_t turns) {
  const std::uint32_t layers = w.dice.between(4, 24), lengths = w.dice.between(1, 4);
  w.out.what = "encoder x" + std::to_string(layers) + ", " + std::to_string(lengths) + " lengths";
  for (std::uint32_t i = 0; i < layers * 12; ++i) w.to_device();
  for (std::uint32_t t = 0; t < turns; ++t) {
    const std::uint64_t begin = w.at();
    const std::uint32_t shape = 50'000 + 100 * w.dice.between(1, lengths);
    w.to_device(3);
    w.kernel("void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int, 2>()");
    w.kernel("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>()");
    for (std::uint32_t l = 0; l < layers; ++l) {
      for (std::uint32_t g = 0; g < 3; ++g) w.gemm(shape);
      w.kernel("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel::Params)");
      w.gemm(shape + 1);
      w.elementwise("CUDAFunctor_add<float>");
      w.kernel("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>()");
      w.gemm(shape + 2);
      w.elementwise("GeluCUDAKernelImpl");
      w.gemm(shape + 3);
      w.elementwise("CUDAFunctor_add<float>");
      w.kernel("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>()");
    }
    w.reduce("MeanOps<float, float, float, float>");
    w.elementwise("BinaryFunctor<float, float, float, DivFunctor>");
    w.to_host();
    w.out.steps.push_back({begin, w.at(), StepKind::kIteration});
    w.out.prefill.push_back(2);
  }
}

// ------------------------------------------------------------------------------------------------- no step at all

/// Programs that repeat without a step: loops over parameters, layer-wise quantisation, stencils, benchmarks.
inline void without_steps(Writer& w) {
  Dice& d = w.dice;
  switch (d.between(0, 6)) {
    case 0: {
      w.out.what = "benchmark of an optimizer";
      const std::uint32_t chunks = d.between(3, 40);
      const std::string_view of = d.chance(0.5) ? "FusedAdamMathFunctor" : "PointwiseOpScalarFunctor";
      for (int i = 0; i < 300; ++i) {
        w.foreach ("BinaryOpScalarFunctor", chunks);
        w.foreach (of, chunks);
        if (i % 10 == 9) w.to_host();
      }
      break;
    }
    case 1: {
      w.out.what = "stencil";
      const std::uint32_t fields = d.between(2, 9);
      for (int i = 0; i < 3000; ++i) {
        for (std::uint32_t f = 0; f < fields; ++f)
          w.kernel("stencil_3d_" + std::to_string(f) + "(double*, double const*)");
        if (i % 100 == 99) w.to_host();
      }
      break;
    }
    case 2: {
      w.out.what = "quantisation, layer by layer";
      const std::uint32_t columns = d.between(30, 200), batches = d.between(4, 16);
      for (std::uint32_t layer = 0; layer < 24; ++layer) {
        for (std::uint32_t b = 0; b < batches; ++b) {
          w.kernel("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>()");
          for (std::uint32_t g = 0; g < 7; ++g) w.gemm(900 + g);
          w.elementwise("silu_kernel");
        }
        w.kernel("void potrf_alg2_set_info(int, int, int*)");
        for (std::uint32_t c = 0; c < columns; ++c) {
          w.elementwise("round_kernel_cuda");
          w.elementwise("clamp_scalar_kernel_impl");
          w.elementwise("CUDAFunctor_add<float>");
          w.gemm(950);
        }
      }
      break;
    }
    case 3: {
      w.out.what = "benchmark of matmuls";
      for (std::uint32_t shape = 0; shape < 60; ++shape)
        for (std::uint32_t r = d.between(20, 200); r > 0; --r) {
          w.gemm(2000 + shape);
          if (d.chance(0.02)) w.memset();
        }
      break;
    }
    case 4: {
      w.out.what = "loop over parameters";
      const std::uint32_t kinds = d.between(2, 8);
      for (int i = 0; i < 4000; ++i)
        for (std::uint32_t k = 0; k < kinds; ++k) w.kernel("parameter_op_" + std::to_string(k));
      break;
    }
    case 5: {
      w.out.what = "dataframes";
      for (int q = 0; q < 300; ++q) {
        for (std::uint32_t i = d.between(3, 60); i > 0; --i)
          w.kernel("void cub::DeviceRadixSortOnesweepKernel_" + std::to_string(d.between(0, 40)));
        if (d.chance(0.6)) w.to_host(d.between(1, 3));
        if (d.chance(0.3)) w.to_device(d.between(1, 5));
      }
      break;
    }
    default: {
      w.out.what = "weights are loaded and converted";
      for (int p = 0; p < 3000; ++p) {
        w.to_device();
        w.unrolled("direct_copy_kernel_cuda");
        if (p % 7 == 0) w.kernel("void vllm::gptq_marlin_repack_kernel<256, 4, false>()");
        if (p % 9 == 0) w.elementwise("FillFunctor<float>");
      }
      break;
    }
  }
}

// ------------------------------------------------------------------------------------------------- drawing one

inline Program training(std::uint64_t seed) {
  Writer w(seed);
  const std::uint32_t kind = w.dice.between(0, 19), steps = w.dice.between(30, 60);
  if (kind == 0)
    graphed_training(w, steps);
  else if (kind == 1)
    adversarial_training(w, steps);
  else
    TrainingProgram(w).run(steps);
  return std::move(w.out);
}
inline Program serving(std::uint64_t seed) {
  Writer w(seed);
  const std::uint32_t kind = w.dice.between(0, 11);
  if (kind == 0)
    compiled_inference(w, w.dice.between(150, 300));
  else if (kind == 1)
    encoder_serving(w, w.dice.between(150, 300));
  else
    ServingProgram(w).run(w.dice.between(150, 300));
  return std::move(w.out);
}
inline Program no_step(std::uint64_t seed) {
  Writer w(seed);
  without_steps(w);
  return std::move(w.out);
}

}  // namespace mfu::programs

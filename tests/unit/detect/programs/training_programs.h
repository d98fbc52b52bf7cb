// Training loops: steps with their updates, and the logging, evaluation, sampling and checkpoints around them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/unit/detect/programs/model_passes.h"

namespace mfu::programs {

/// A decoder or encoder of transformer layers, a convolutional network, or a recommender, with its loop.
class TrainingProgram : public ModelPasses {
 public:
  enum class Update { kFused, kForeach, kLoop, kSgdLoop, kMuon, kAdafactor, kEightBit, kLion, kInductor, kXla };

  explicit TrainingProgram(Writer& writer) : ModelPasses(writer) {
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
    optimizer_state_is_new_ = true;
    for (std::uint32_t s = 0; s < steps; ++s) {
      overflows_ = overflows_in(s);
      one_step();
      if (!overflows_) optimizer_state_is_new_ = false;
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
  /// As GRPO alternates: tokens are generated, then passes without gradients, then a few steps, and an evaluation by
  /// its argmax now and then.
  void alternate(std::uint32_t rounds, std::uint32_t tokens, std::uint32_t steps) {
    as_plain_decoder();
    argmax_in_evaluation_ = salt_ % 2 == 0;
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
      if (!argmax_in_evaluation_ || round % 3 != 2) continue;
      w_.thread = kMain;
      w_.phase = StepPhase::kForward;
      evaluate();
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

  // ---- the update
  /// Where loss scaling asks the host whether a gradient overflowed, the update of such a step is left out: of the
  /// first few, while the scale is too large, and of one now and then. Not drawn, so that a seed's program stays what
  /// it was but for this.
  [[nodiscard]] bool overflows_in(std::uint32_t step) const {
    if (!scales_ || update_ == Update::kFused || update_ == Update::kInductor || update_ == Update::kXla) return false;
    return step < salt_ % 4 || step % (30 + salt_ % 41) == 29;
  }
  void update() {
    apply_update();
    if (averages_) w_.foreach ("TernaryOpScalarFunctor", 1 + parameters_ / 40);
    if (scales_ && salt_ % 2 == 0) w_.kernel("at::native::amp_update_scale_cuda_kernel(float*, int*, float const*)");
    if (passes_ > 1 && update_ != Update::kXla) w_.memset(parameters_ / 3);  // gradients that are kept
  }
  void apply_update() {
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
    if (overflows_) return;
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
  }
  void state_if_new(std::uint32_t times) {
    if (!optimizer_state_is_new_) return;
    for (; times > 0; --times) w_.elementwise("FillFunctor<float>");
  }

  Update update_;
  std::uint32_t layers_, parameters_, passes_, lengths_, log_every_, evaluate_every_, evaluation_passes_, sample_every_,
      save_every_, inputs_;
  bool clips_, scales_, recomputes_, sharded_, reduces_, item_every_step_, argmax_in_evaluation_, averages_,
      loader_thread_, strays_, graphs_, autograd_thread_;
  bool optimizer_state_is_new_ = false, loader_due_ = false, overflows_ = false;
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

}  // namespace mfu::programs

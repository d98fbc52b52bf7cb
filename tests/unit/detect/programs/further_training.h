// Training loops unlike those of training_programs.h: ranks of a pipeline, adapters on a quantised base, diffusion
// models, distillation, recurrent and graph networks, two encoders, environments played on the device, Keras.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/unit/detect/programs/writer.h"

namespace mfu::programs {

class FurtherTraining {
 public:
  enum class Loop {
    kPipelineRank,
    kAdapters,
    kDiffusion,
    kDistillation,
    kRecurrent,
    kGraphNetwork,
    kTwoEncoders,
    kPlaysAndTrains,
    kKeras,
    kCheckpointed,
  };
  static constexpr std::uint32_t kLoops = 10;
  static constexpr std::string_view kLoopNames[kLoops] = {
      "rank of a pipeline", "adapters",     "diffusion",        "distillation", "recurrent",
      "graph network",      "two encoders", "plays and trains", "Keras",        "checkpointed"};
  enum class Update { kFused, kForeach, kEightBit, kApex, kLoop };

  explicit FurtherTraining(Writer& writer) : w_(writer), d_(writer.dice) {
    loop_ = static_cast<Loop>(d_.between(0, kLoops - 1));
    layers_ = d_.between(2, 24);
    update_ = d_.one_of<Update>({Update::kFused, Update::kForeach, Update::kForeach, Update::kApex});
    if (loop_ == Loop::kPipelineRank) update_ = Update::kApex;
    if (loop_ == Loop::kAdapters && d_.chance(0.5)) update_ = Update::kEightBit;
    if (loop_ == Loop::kPlaysAndTrains || loop_ == Loop::kGraphNetwork)
      update_ = d_.chance(0.2) ? Update::kLoop : Update::kForeach;
    parameters_ = layers_ * (loop_ == Loop::kAdapters ? 4 : 9) + 3;
    passes_ = loop_ == Loop::kPipelineRank ? d_.between(2, 16)
              : loop_ == Loop::kAdapters   ? d_.between(1, 8)
                                           : (d_.chance(0.8) ? 1 : d_.between(2, 4));
    if (loop_ == Loop::kRecurrent || loop_ == Loop::kPlaysAndTrains || loop_ == Loop::kKeras ||
        loop_ == Loop::kGraphNetwork)
      passes_ = 1;
    stages_ = d_.between(2, 8);
    stage_ = d_.between(0, stages_ - 1);
    clips_ = d_.chance(0.6);
    averages_ = loop_ == Loop::kDiffusion || loop_ == Loop::kCheckpointed ? d_.chance(0.6) : false;
    log_every_ = d_.chance(0.8) ? d_.one_of<std::uint32_t>({1, 10, 10, 25}) : 0;
    evaluate_every_ = d_.chance(loop_ == Loop::kCheckpointed ? 0.9 : 0.3) ? d_.between(6, 24) : 0;
    evaluation_passes_ = d_.between(2, 20);
    save_every_ = d_.chance(0.2) ? d_.between(10, 25) : 0;
    checks_loss_ = d_.chance(0.3);
    loader_copies_ = d_.chance(0.15) && loop_ != Loop::kPipelineRank;
    inputs_ = d_.between(1, 4);
    salt_ = d_.between(0, 1'000'000);
    // Not drawn, so that a seed's program stays what it was but for this.
    const bool plain = loop_ != Loop::kPipelineRank && loop_ != Loop::kKeras;
    copies_ahead_ = plain && !loader_copies_ && passes_ == 1 && salt_ % 16 == 5;
  }

  void run(std::uint32_t steps) {
    w_.out.trains = true;
    w_.out.phases_known = loop_ != Loop::kPipelineRank && loop_ != Loop::kKeras;
    w_.out.what = describe();
    start_up();
    for (std::uint32_t s = 0; s < steps;) {
      if (loop_ == Loop::kPlaysAndTrains) {
        play();
        for (std::uint32_t i = 0; i < 4 + salt_ % 13; ++i, ++s) one_step(s);
      } else {
        one_step(s++);
      }
      w_.phase = StepPhase::kForward;
      w_.thread = kMain;
      if (log_every_ != 0 && s % log_every_ == 0) log();
      if (evaluate_every_ != 0 && s % evaluate_every_ == 0) evaluate();
      if (save_every_ != 0 && s % save_every_ == 0) w_.to_host(parameters_);
    }
  }

 private:
  [[nodiscard]] std::string describe() const {
    static constexpr std::string_view kUpdates[] = {"fused", "foreach", "8-bit", "apex", "loop"};
    std::string text = std::string(kLoopNames[static_cast<int>(loop_)]) + " x" + std::to_string(layers_) + ", update " +
                       std::string(kUpdates[static_cast<int>(update_)]) + ", passes " + std::to_string(passes_);
    const auto add = [&](bool is, const std::string& what) {
      if (is) text += ", " + what;
    };
    add(loop_ == Loop::kPipelineRank, "stage " + std::to_string(stage_) + " of " + std::to_string(stages_));
    add(clips_, "clips");
    add(averages_, "ema");
    add(log_every_ != 0, "log/" + std::to_string(log_every_));
    add(evaluate_every_ != 0, "eval/" + std::to_string(evaluate_every_) + "x" + std::to_string(evaluation_passes_));
    add(save_every_ != 0, "save/" + std::to_string(save_every_));
    add(checks_loss_, "checks the loss");
    add(loader_copies_, "loader thread");
    add(copies_ahead_, "copies ahead");
    return text;
  }

  void one_step(std::uint32_t number) {
    const std::uint64_t begin = w_.at();
    w_.thread = kMain;
    w_.phase = StepPhase::kForward;
    if (loop_ == Loop::kPipelineRank) {
      pipeline();
    } else {
      for (std::uint32_t p = 0; p < passes_; ++p) {
        forward(true);
        backward();
        if (checks_loss_) check_loss(p + 1 == passes_);
      }
    }
    w_.phase = StepPhase::kOptimizer;
    w_.thread = kMain;
    update(number == 0);
    w_.out.steps.push_back({begin, w_.at(), StepKind::kStep});
  }

  // ---- one pass over a batch
  void forward(bool trains) {
    w_.thread = kMain;
    w_.phase = StepPhase::kForward;
    if (!loader_copies_ && !(copies_ahead_ && trains)) w_.to_device(inputs_);
    // Recurrent networks and graphs run over as much as there is.
    length_ = loop_ == Loop::kRecurrent ? d_.between(20, 40) : 1;
    nodes_ = loop_ == Loop::kGraphNetwork ? d_.between(0, 3) : 0;
    const std::uint32_t shape = salt_ + (trains ? 0 : 400'000) + nodes_ * 1000;
    switch (loop_) {
      case Loop::kDiffusion:
        noise(shape);
        break;
      case Loop::kDistillation:
        w_.elementwise("FillFunctor<long>");
        embed();
        for (std::uint32_t l = 0; l < layers_ + layers_ / 2; ++l) attention_block(shape + 50'000);
        w_.gemm(shape + 50'090);
        w_.elementwise("BinaryFunctor<float, float, float, DivFunctor>");
        break;
      case Loop::kGraphNetwork:
        sample_neighbours();
        break;
      case Loop::kPlaysAndTrains:
        w_.kernel("void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel>()");
        w_.kernel("void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel>()");
        break;
      default:
        break;
    }
    if (loop_ != Loop::kDiffusion && loop_ != Loop::kKeras && loop_ != Loop::kGraphNetwork) embed();
    for (std::uint32_t l = 0; l < layers_; ++l) {
      block(shape, l);
      if (copies_ahead_ && trains && l == layers_ / 2) w_.to_device(inputs_);  // the next batch, on another stream
    }
    if (loop_ == Loop::kTwoEncoders) {
      w_.elementwise("FillFunctor<long>");
      for (std::uint32_t l = 0; l < layers_; ++l) attention_block(shape + 30'000);
      w_.reduce("NormTwoOps<float, float, float, float>");
      w_.elementwise("BinaryFunctor<float, float, float, DivFunctor>");
      comm("AllGather_RING_LL");
    }
    if (trains && loader_copies_) load();
    w_.gemm(shape + 90);
    loss(trains);
  }
  void block(std::uint32_t shape, std::uint32_t l) {
    switch (loop_) {
      case Loop::kDiffusion:
        residual_block(shape, l);
        if (l % 2 == 1) attention_block(shape + 7'000);
        break;
      case Loop::kRecurrent:
        w_.gemm(shape);
        for (std::uint32_t t = 0; t < length_; ++t) {
          w_.gemm(shape + 1);
          w_.kernel("void LSTM_elementWise_fp<__half, __half, float, (cudnnRNNBiasMode_t)2>(int, int, int, int)");
        }
        break;
      case Loop::kGraphNetwork:
        w_.gemm(shape + l);
        w_.kernel("void dgl::aten::cuda::SpMMCsrKernel<int, float, CopyLhs<float>, Sum<int, float, false>>(float*)");
        w_.elementwise("CUDAFunctor_add<float>");
        w_.elementwise("clamp_scalar_kernel_impl");
        break;
      case Loop::kPlaysAndTrains:
        w_.gemm(shape + l % 3);
        w_.elementwise("tanh_kernel_cuda");
        break;
      case Loop::kKeras:
        w_.kernel(
            "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_128x128_16x4_nhwc_align4>()");
        w_.kernel("void tensorflow::BiasNHWCKernel<float>(int, float const*, float const*, float*, int)");
        w_.kernel("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>()");
        w_.kernel("Relu_GPU_DT_FLOAT_DT_FLOAT_kernel");
        break;
      case Loop::kAdapters:
        adapter_block(shape);
        break;
      default:
        attention_block(shape);
        break;
    }
  }
  void attention_block(std::uint32_t shape) {
    w_.kernel("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>()", 2048);
    for (std::uint32_t g = 0; g < 3; ++g) w_.gemm(shape + g);
    w_.kernel("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false>>()");
    w_.gemm(shape + 3);
    w_.elementwise("CUDAFunctor_add<c10::BFloat16>");
    w_.kernel("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>()", 2048);
    w_.gemm(shape + 4);
    w_.elementwise("GeluCUDAKernelImpl");
    w_.gemm(shape + 5);
    w_.elementwise("CUDAFunctor_add<c10::BFloat16>");
  }
  void attention_block_backward(std::uint32_t shape) {
    for (std::uint32_t g = 0; g < 2; ++g) w_.gemm(shape + 20 + g);
    w_.elementwise("GeluBackwardCUDAKernelImpl");
    for (std::uint32_t g = 0; g < 2; ++g) w_.gemm(shape + 22 + g);
    w_.reduce("sum_functor<c10::BFloat16, float, c10::BFloat16>");
    layer_norm_backward();
    for (std::uint32_t g = 0; g < 2; ++g) w_.gemm(shape + 24 + g);
    w_.kernel("void pytorch_flash::flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<64, 128, 128, 8>>()");
    w_.kernel("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64>>()");
    w_.kernel("void pytorch_flash::flash_bwd_convert_dq_kernel<Flash_bwd_kernel_traits<64, 128, 128, 8>>()");
    for (std::uint32_t g = 0; g < 6; ++g) w_.gemm(shape + 26 + g);
    layer_norm_backward();
    w_.elementwise("CUDAFunctor_add<c10::BFloat16>");
  }
  void adapter_block(std::uint32_t shape) {
    w_.kernel("_rms_norm_forward_kernel", 1024);
    for (std::uint32_t g = 0; g < 7; ++g) {
      w_.kernel("void kDequantizeBlockwise<__nv_bfloat16, 512, 64, 8, 2>(float*, unsigned char*, float*, int, int)");
      w_.gemm(shape + g);
      w_.kernel(
          "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<c10::BFloat16, float, unsigned int>()");
      w_.gemm(shape + 40);
      w_.gemm(shape + 41);
      w_.elementwise("BUnaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, MulFunctor>");
      w_.elementwise("CUDAFunctor_add<c10::BFloat16>");
      if (g == 3) w_.kernel("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64, 64, 4, false>>()");
    }
    w_.kernel("_swiglu_forward_kernel");
  }
  void adapter_block_backward(std::uint32_t shape) {
    w_.kernel("_swiglu_backward_kernel");
    for (std::uint32_t g = 7; g-- > 0;) {
      if (g == 3) {
        w_.kernel("void pytorch_flash::flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<128, 64, 128, 8>>()");
        w_.kernel("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128>>()");
        w_.kernel("void pytorch_flash::flash_bwd_convert_dq_kernel<Flash_bwd_kernel_traits<128, 64, 128, 8>>()");
      }
      for (std::uint32_t i = 0; i < 4; ++i) w_.gemm(shape + 60 + i);
      w_.kernel("void at::native::(anonymous namespace)::masked_scale_kernel<c10::BFloat16, unsigned char>()");
      w_.kernel("void kDequantizeBlockwise<__nv_bfloat16, 512, 64, 8, 2>(float*, unsigned char*, float*, int, int)");
      w_.gemm(shape + 20 + g);
      w_.elementwise("CUDAFunctor_add<c10::BFloat16>");
    }
    w_.kernel("_rms_norm_backward_kernel", 132);
  }
  void residual_block(std::uint32_t shape, std::uint32_t l) {
    for (std::uint32_t c = 0; c < 2; ++c) {
      w_.kernel("void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<float>(long, float, float const*)");
      w_.elementwise("CUDAFunctor_add<float>");
      w_.elementwise("silu_kernel");
      w_.kernel("sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x" +
                std::to_string(64 << (l + shape) % 2) + "x32_stage4_warpsize2x2x1_g1_tensor16x8x16_kernel_cudnn");
    }
    w_.elementwise("CUDAFunctor_add<float>");
  }
  void residual_block_backward() {
    for (std::uint32_t c = 0; c < 2; ++c) {
      w_.kernel(
          "sm80_xmma_dgrad_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize64x64x64_kernel_cudnn");
      w_.kernel(
          "sm80_xmma_wgrad_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_kernel_cudnn");
      w_.elementwise("silu_backward_kernel");
      w_.kernel("void at::native::(anonymous namespace)::ComputeInternalGradientsCUDAKernel<float>(long)");
      w_.kernel("void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernel2<float>(long)");
      w_.elementwise("CUDAFunctor_add<float>");
    }
  }
  void loss(bool trains) {
    switch (loop_) {
      case Loop::kDiffusion:
        w_.elementwise("mse_kernel_cuda");
        w_.reduce("MeanOps<float, float, float, float>");
        break;
      case Loop::kDistillation:
        w_.kernel("void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>()");
        w_.elementwise("xlogy_kernel_cuda");
        w_.reduce("sum_functor<float, float, float>");
        break;
      case Loop::kRecurrent:
        w_.kernel("void at::native::(anonymous namespace)::ctc_loss_log_alpha_gpu_kernel<float, long>()");
        break;
      case Loop::kPlaysAndTrains:
        w_.kernel("void (anonymous namespace)::softmax_warp_forward<float, float, float, 5, true, false>()");
        for (const std::string_view f :
             {"exp_kernel_cuda", "clamp_kernel_impl", "BinaryFunctor<float, float, float, MulFunctor>",
              "maximum_kernel_cuda", "pow_tensor_scalar_kernel_impl<float, float>"})
          w_.elementwise(f);
        w_.reduce("MeanOps<float, float, float, float>");
        break;
      case Loop::kKeras:
        w_.kernel("void tensorflow::(anonymous namespace)::GenerateNormalizedProb<float, float, 4>(float const*)");
        w_.kernel(
            "void tensorflow::functor::BlockReduceKernel<float*, float*, 256, tensorflow::functor::Sum<float>>()");
        break;
      default:
        w_.kernel("void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float, float, float, LogSoftMax>()");
        w_.kernel(
            "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>()");
        break;
    }
    if (trains && passes_ > 1) w_.elementwise("BinaryFunctor<float, float, float, DivFunctor>");
  }

  void backward() {
    w_.thread = loop_ == Loop::kKeras ? kMain : kAutograd;
    w_.phase = StepPhase::kBackward;
    const std::uint32_t shape = salt_ + nodes_ * 1000;
    w_.elementwise("FillFunctor<float>");
    switch (loop_) {
      case Loop::kDiffusion:
        w_.elementwise("mse_backward_cuda_kernel");
        break;
      case Loop::kRecurrent:
        w_.kernel("void at::native::(anonymous namespace)::ctc_loss_backward_log_beta_gpu_kernel<float, long>()");
        break;
      case Loop::kPlaysAndTrains:
        w_.elementwise("BinaryFunctor<float, float, float, MulFunctor>");
        w_.kernel("void (anonymous namespace)::softmax_warp_backward<float, float, float, 5, true, false>()");
        break;
      case Loop::kKeras:
        w_.kernel("void tensorflow::BiasGradNHWC_SharedAtomics<float>(int, float const*, float*, int)");
        break;
      default:
        w_.kernel("void at::native::(anonymous namespace)::cunn_SoftMaxBackward<8, float, float, float, LogSoftMax>()");
        break;
    }
    w_.gemm(shape + 91);
    w_.gemm(shape + 92);
    if (loop_ == Loop::kTwoEncoders) {
      comm("ReduceScatter_Sum_bf16_RING_LL");
      for (std::uint32_t l = 0; l < layers_; ++l) attention_block_backward(shape + 30'000);
    }
    for (std::uint32_t l = layers_; l-- > 0;) block_backward(shape, l);
    if (loop_ == Loop::kTwoEncoders) comm("AllReduce_Sum_bf16_RING_LL");
  }
  void block_backward(std::uint32_t shape, std::uint32_t l) {
    switch (loop_) {
      case Loop::kDiffusion:
        if (l % 2 == 1) attention_block_backward(shape + 7'000);
        residual_block_backward();
        break;
      case Loop::kRecurrent:
        for (std::uint32_t t = 0; t < length_; ++t) {
          w_.kernel("void LSTM_elementWise_bp1<__half, __half, float>(int, int, int, __half*)");
          w_.gemm(shape + 20);
        }
        w_.gemm(shape + 21);
        w_.gemm(shape + 22);
        break;
      case Loop::kGraphNetwork:
        w_.elementwise("threshold_backward_kernel");
        w_.kernel("void dgl::aten::cuda::SpMMCsrKernel<int, float, CopyLhs<float>, Sum<int, float, false>>(float*)");
        w_.gemm(shape + 20 + l);
        w_.gemm(shape + 30 + l);
        w_.reduce("sum_functor<float, float, float>");
        break;
      case Loop::kPlaysAndTrains:
        w_.elementwise("tanh_backward_kernel_cuda");
        w_.gemm(shape + 20 + l % 3);
        w_.gemm(shape + 30 + l % 3);
        w_.reduce("sum_functor<float, float, float>");
        break;
      case Loop::kKeras:
        w_.kernel("ReluGrad_GPU_DT_FLOAT_DT_FLOAT_kernel");
        w_.kernel("void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>()");
        w_.kernel("void tensorflow::BiasGradNHWC_SharedAtomics<float>(int, float const*, float*, int)");
        w_.kernel(
            "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688dgrad_optimized_tf32_64x64_16x4_nhwc_align4>()");
        w_.kernel(
            "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688wgrad_optimized_tf32_64x64_16x4_nhwc_align4>()");
        break;
      case Loop::kAdapters:
        if (checkpoints()) adapter_block(shape);
        adapter_block_backward(shape);
        break;
      default:
        if (checkpoints()) attention_block(shape);
        attention_block_backward(shape);
        break;
    }
  }
  [[nodiscard]] bool checkpoints() const { return loop_ == Loop::kCheckpointed || salt_ % 3 == 0; }

  // ---- parts of one kind of loop
  /// 1F1B as Megatron schedules it: what the stage passes on goes by point-to-point messages.
  void pipeline() {
    const std::uint32_t warmup = std::min(passes_, stages_ - 1 - stage_);
    const bool first = stage_ == 0, last = stage_ + 1 == stages_;
    const auto forward_of = [&] {
      w_.thread = kMain;
      w_.phase = StepPhase::kForward;
      if (first || last) w_.to_device(inputs_);
      if (!first) comm("SendRecv");
      if (first) embed();
      for (std::uint32_t l = 0; l < layers_; ++l) engine_block(salt_);
      if (last) {
        w_.gemm(salt_ + 90);
        for (const std::string_view f : {"CUDAFunctor_add<float>", "exp_kernel_cuda", "log_kernel_cuda"})
          w_.elementwise(f);
        w_.reduce("sum_functor<float, float, float>");
      } else {
        comm("SendRecv");
      }
    };
    const auto backward_of = [&] {
      w_.thread = kMain;
      if (!last) comm("SendRecv");
      w_.thread = kAutograd;
      w_.phase = StepPhase::kBackward;
      if (last) {
        w_.elementwise("BinaryFunctor<float, float, float, MulFunctor>");
        w_.gemm(salt_ + 91);
        w_.gemm(salt_ + 92);
      }
      for (std::uint32_t l = layers_; l-- > 0;) engine_block_backward(salt_);
      if (first)
        w_.kernel(
            "void at::native::(anonymous namespace)::embedding_backward_feature_kernel<c10::BFloat16, float, long>()");
      w_.thread = kMain;
      if (!first) comm("SendRecv");
    };
    for (std::uint32_t p = 0; p < warmup; ++p) forward_of();
    for (std::uint32_t p = warmup; p < passes_; ++p) {
      forward_of();
      backward_of();
    }
    for (std::uint32_t p = 0; p < warmup; ++p) backward_of();
    w_.thread = kMain;
    comm("ReduceScatter_Sum_f32_RING_LL");
    if (first || last) comm("AllReduce_Sum_bf16_RING_LL");
  }
  /// A layer of Transformer Engine, in FP8.
  void engine_block(std::uint32_t shape) {
    w_.kernel("void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel<Kernel_traits<__nv_bfloat16>>()");
    w_.gemm(shape);
    w_.kernel("void transformer_engine::fused_rope_forward_kernel<__nv_bfloat16>(int, int, int)");
    w_.kernel("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_kernel0_0");
    w_.kernel("void transformer_engine::(anonymous namespace)::cast_transpose_general_kernel<8, 8, float>()");
    w_.gemm(shape + 1);
    w_.kernel("triton_poi_fused_add_0");
    w_.kernel("void transformer_engine::normalization::rmsnorm_fwd_tuned_kernel<Kernel_traits<__nv_bfloat16>>()");
    w_.gemm(shape + 2);
    w_.kernel("void transformer_engine::gated_act_kernel<__nv_bfloat16, float, Empty, silu>()");
    w_.kernel("void transformer_engine::(anonymous namespace)::cast_transpose_general_kernel<8, 8, float>()");
    w_.gemm(shape + 3);
    w_.kernel("triton_poi_fused_add_0");
  }
  void engine_block_backward(std::uint32_t shape) {
    w_.kernel("void transformer_engine::(anonymous namespace)::cast_transpose_general_kernel<8, 8, float>()");
    for (std::uint32_t g = 0; g < 2; ++g) w_.gemm(shape + 20 + g);
    w_.kernel("void transformer_engine::dgated_act_kernel<__nv_bfloat16, float, Empty, silu, dsilu>()");
    for (std::uint32_t g = 0; g < 2; ++g) w_.gemm(shape + 22 + g);
    w_.kernel("void transformer_engine::normalization::rmsnorm_bwd_tuned_kernel<Kernel_traits<__nv_bfloat16>>()");
    w_.kernel("void transformer_engine::normalization::rmsnorm_bwd_finalize_tuned_kernel<Kernel_traits<float>>()");
    for (std::uint32_t g = 0; g < 2; ++g) w_.gemm(shape + 24 + g);
    w_.kernel("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x128_1x2x1_kernel0_0");
    w_.kernel("void transformer_engine::fused_rope_backward_kernel<__nv_bfloat16>(int, int, int)");
    for (std::uint32_t g = 0; g < 2; ++g) w_.gemm(shape + 26 + g);
    w_.kernel("void transformer_engine::normalization::rmsnorm_bwd_tuned_kernel<Kernel_traits<__nv_bfloat16>>()");
    w_.kernel("void transformer_engine::normalization::rmsnorm_bwd_finalize_tuned_kernel<Kernel_traits<float>>()");
  }
  /// What diffusers runs before the network that is trained: the image's latents, noise, the text.
  void noise(std::uint32_t shape) {
    for (std::uint32_t l = 0; l < 4; ++l) residual_block(shape + 60'000, l);
    w_.kernel(
        "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4, normal>()");
    w_.kernel("void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<unsigned int, 4>()");
    w_.kernel("void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel>()");
    w_.elementwise("sqrt_kernel_cuda");
    w_.elementwise("BinaryFunctor<float, float, float, MulFunctor>");
    w_.elementwise("CUDAFunctor_add<float>");
    embed();
    for (std::uint32_t l = 0; l < 6; ++l) attention_block(shape + 80'000);
  }
  void sample_neighbours() {
    for (std::uint32_t hop = 0; hop < 2; ++hop) {
      w_.kernel("void dgl::aten::impl::_CSRRowWiseSampleUniformReplaceKernel<long, 4, 32>(unsigned long)");
      w_.kernel("void cub::DeviceRadixSortHistogramKernel<cub::DeviceRadixSortPolicy<long, long, int>>(int*)");
      for (std::uint32_t p = d_.between(3, 6); p > 0; --p)
        w_.kernel("void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, long, int>>(int*)");
      w_.kernel("void dgl::cuda::generate_hashmap_unique<long, 256, 1024>(long const*)");
      w_.to_host();  // how many there are
    }
    w_.kernel("void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int, 2, 2>()");
  }
  /// Actions are sampled on the device and carried out on the host.
  void play() {
    w_.thread = kMain;
    w_.phase = StepPhase::kForward;
    const std::uint64_t begin = w_.at();
    for (std::uint32_t t = 0; t < 32 + salt_ % 64; ++t) {
      w_.to_device(2);
      for (std::uint32_t l = 0; l < layers_; ++l) {
        w_.gemm(salt_ + 300'000 + l % 3);
        w_.elementwise("tanh_kernel_cuda");
      }
      w_.kernel("void (anonymous namespace)::softmax_warp_forward<float, float, float, 5, true, false>()");
      w_.kernel("void at::native::(anonymous namespace)::sampleMultinomialOnce<float, float>(long*)");
      w_.kernel("void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4>()");
      w_.to_host();
    }
    // Advantages, backwards in time.
    for (std::uint32_t t = 0; t < 32 + salt_ % 64; ++t)
      for (const std::string_view f : {"CUDAFunctor_add<float>", "BinaryFunctor<float, float, float, MulFunctor>"})
        w_.elementwise(f);
    w_.out.generated.push_back({begin, w_.at(), StepKind::kIteration});
  }
  /// The thread that trains asks whether the loss is a number: before the update, or before the next pass.
  void check_loss(bool last) {
    w_.thread = kMain;
    w_.phase = last ? StepPhase::kOptimizer : StepPhase::kForward;
    w_.elementwise("isnan_kernel_impl");
    w_.to_host();
    w_.elementwise("isinf_kernel_impl");
    w_.to_host();
  }

  // ---- the update
  void update(bool first) {
    const std::uint32_t chunks = 1 + parameters_ / 40;
    if (loop_ == Loop::kKeras) {
      for (std::uint32_t p = 0; p < parameters_; ++p)
        w_.kernel("void tensorflow::functor::ApplyAdamKernel<float>(int, float*, float*, float*)");
      return;
    }
    if (clips_ && update_ != Update::kApex) {
      w_.foreach ("LpNormFunctor", chunks);
      w_.kernel("void at::native::lpnorm_cleanup<float, float, 1>()");
      w_.kernel("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 1, 64, 64>()");
      w_.reduce("NormTwoOps<float, float, float, float>");
      w_.elementwise("CUDAFunctorOnSelf_add<float>");
      w_.elementwise("clamp_scalar_kernel_impl");
      w_.foreach ("BinaryOpListAlphaFunctor", chunks);
    }
    if (first)
      for (std::uint32_t p = 0; p < parameters_ * 2; ++p) w_.elementwise("FillFunctor<float>");
    switch (update_) {
      case Update::kFused:
        w_.foreach ("FusedAdamMathFunctor", chunks);
        break;
      case Update::kForeach:
        for (const std::string_view f :
             {"BinaryOpScalarFunctor", "TernaryOpScalarFunctor", "BinaryOpScalarFunctor", "PointwiseOpScalarFunctor",
              "UnaryOpFunctor", "BinaryOpScalarListFunctor", "BinaryOpScalarFunctor", "PointwiseOpScalarListFunctor"})
          w_.foreach (f, chunks);
        break;
      case Update::kEightBit:
        for (std::uint32_t p = 0; p < parameters_; ++p)
          w_.kernel("void kOptimizerStatic8bit2StateBlockwise<__nv_bfloat16, 0, 256, 1>()");
        break;
      case Update::kApex:
        apex("L2NormFunctor<float>", chunks);
        w_.kernel("void cleanup(float*, float*, float*, float*, bool, int)");
        if (loop_ == Loop::kPipelineRank) comm("AllReduce_Sum_f32_RING_LL");
        w_.to_host();
        if (clips_) apex("ScaleFunctor<float, float>", chunks);
        apex("AdamFunctorMaster<__nv_bfloat16, float, int>", chunks);
        if (loop_ == Loop::kPipelineRank) comm("AllGather_RING_LL");
        break;
      case Update::kLoop:
        for (std::uint32_t p = 0; p < parameters_; ++p)
          for (const std::string_view f : {"lerp_scalar_kernel", "BinaryFunctor<float, float, float, MulFunctor>",
                                           "addcmul_cuda_kernel", "sqrt_kernel_cuda", "addcdiv_cuda_kernel"})
            w_.elementwise(f);
        break;
    }
    if (!averages_) return;
    if (salt_ % 2 == 0)
      w_.foreach ("TernaryOpScalarFunctor", chunks);
    else
      for (std::uint32_t p = 0; p < parameters_; ++p) {
        w_.elementwise("CUDAFunctor_add<float>");
        w_.elementwise("BinaryFunctor<float, float, float, MulFunctor>");
        w_.elementwise("CUDAFunctorOnSelf_add<float>");
      }
  }
  void apex(std::string_view functor, std::uint32_t times) {
    const std::string name =
        "void multi_tensor_apply_kernel<TensorListMetadata<4>, " + std::string(functor) + ", float>(long)";
    for (; times > 0; --times) w_.kernel(name);
  }

  // ---- what surrounds the steps
  void start_up() {
    w_.thread = kMain;
    for (std::uint32_t p = 0; p < parameters_; ++p) {
      w_.kernel(
          "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4, uniform>()");
      if (d_.chance(0.6)) w_.to_device();
      if (loop_ == Loop::kAdapters) w_.kernel("void kQuantizeBlockwise<__nv_bfloat16, 64, 2, 0, 2>(float*, float*)");
    }
    for (std::uint32_t i = d_.between(0, 30); i > 0; --i) w_.kernel("autotuned_" + std::to_string(i));
  }
  void log() {
    w_.reduce("MeanOps<float, float, float, float>");
    if (loop_ == Loop::kPipelineRank) comm("AllReduce_Sum_f32_RING_LL");
    w_.to_host(d_.between(1, 3));
    w_.elementwise("FillFunctor<float>");
  }
  void evaluate() {
    for (std::uint32_t p = 0; p < evaluation_passes_; ++p) {
      if (loop_ == Loop::kPipelineRank) {
        if (stage_ == 0 || stage_ + 1 == stages_) w_.to_device(inputs_);
        comm("SendRecv");
        for (std::uint32_t l = 0; l < layers_; ++l) engine_block(salt_);
        comm("SendRecv");
      } else {
        forward(false);
        if (salt_ % 2 == 0) w_.to_host();
      }
    }
    w_.reduce("MeanOps<float, float, float, float>");
    w_.to_host();
  }
  void load() {
    const std::uint32_t was = w_.thread;
    w_.thread = kLoader;
    w_.to_device(inputs_);
    w_.thread = was;
  }
  void embed() {
    w_.kernel(
        "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long, unsigned int, 2, 2>()");
  }
  void layer_norm_backward() {
    w_.kernel("void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<float, float>()");
    w_.kernel("void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float, float, 64u, 1u>()");
  }
  void comm(std::string_view what) {
    w_.kernel("ncclDevKernel_" + std::string(what) + "(ncclDevKernelArgsStorage<4096ul>)");
  }

  Writer& w_;
  Dice& d_;
  Loop loop_;
  Update update_;
  std::uint32_t layers_, parameters_, passes_, stages_, stage_, log_every_, evaluate_every_, evaluation_passes_,
      save_every_, inputs_, salt_;
  std::uint32_t length_ = 1, nodes_ = 0;
  bool clips_, averages_, checks_loss_, loader_copies_, copies_ahead_;
};

}  // namespace mfu::programs

#include "core/model/kernel_flop.h"

#include <string>

#include "core/model/flop_count.h"

namespace mfu {
namespace {

Result<KernelFlop> checked(std::string_view kind, const KernelFlop& work) {
  if (!work.flop.fits() || !work.all.fits())
    return Error{"--kernel " + std::string(kind) + ": the product is beyond 2^64"};
  return work;
}

}  // namespace

Result<KernelFlop> gemm_flop(std::int64_t m, std::int64_t n, std::int64_t k) {
  KernelFlop work;
  work.flop = work.all = Count(2) * m * n * k;
  return checked("gemm", work);
}

Result<KernelFlop> kernel_flop(std::string_view kind, const Architecture& spec, const FlopsOptions& options,
                               Phase phase, std::span<const SequenceGroup> sequences) {
  KernelFlop work;
  Count tokens;
  for (const SequenceGroup& s : sequences) tokens += Count(s.count) * s.fed;
  for (const LayerSpec& layer : spec.layers) {
    const LayerWeights w = layer_weights(layer, spec.d_model);
    const MixerSpec& m = layer.mixer;
    Count flop;
    if (kind == "qkv") flop = tokens * 2 * w.qkv;
    if (kind == "o_proj") flop = tokens * 2 * w.o_proj;
    if (kind == "mlp") flop = tokens * 2 * (w.mlp_dense + w.mlp_shared + w.expert * layer.mlp.top_k);
    if ((kind == "flash_fwd" || kind == "flash_bwd") && has_attention(m)) {
      Count pairs;
      for (const SequenceGroup& s : sequences) {
        pairs += attention_pairs({s.past, s.fed, 1, true}, {m.causal, m.window, m.chunk}, options.attention) * s.count;
      }
      flop = pairs * 2 * m.heads * (Count(m.qk_dim) + m.v_dim);
      if (kind == "flash_bwd") flop *= 2;
    }
    work.all += flop * layer.repeat;
    if (work.flop < flop) {
      work.flop = flop;
      work.launches = layer.repeat;
    }
  }
  if (kind == "logits") {
    Count rows;
    for (const SequenceGroup& s : sequences) rows += s.fed > 0 ? s.count : 0;
    if (all_logits(spec, options.logits, phase)) rows = tokens;
    work.flop = work.all = rows * 2 * spec.vocab * spec.io_width();
  }
  return checked(kind, work);
}

}  // namespace mfu

#include "core/kernels/kernel_class.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace mfu {
namespace {

// A name is read in three parts: `void cutlass::Kernel2<cutlass_80_...gemm...>(Params)` has the qualified name
// `cutlass::Kernel2`, whose last component is the function `Kernel2`, and template arguments. Parameters are never
// looked at, and arguments only for the few launchers whose own name says nothing: the arguments of an elementwise or
// reduce kernel name functors and namespaces (`fbgemm_gpu::`, `at::native::...`) that say nothing about its work.
enum class Part : std::uint8_t { kFunction, kQualified, kArguments };

enum class Where : std::uint8_t {
  kAnywhere,
  kStart,  // at the start of the part
  kWord,   // letters and digits on neither side
  kWhole,  // the part is exactly this
  kGemm,   // kAnywhere, but neither FBGEMM's nor Gemma's: see is_gemm()
};

enum class Verdict : std::uint8_t { kGemm, kAttention, kComm, kOther, kAskArguments };

struct Rule {
  std::string_view text;  // lower case; compared without case; at least two characters
  Part part;
  Where where;
  Verdict verdict;
};

using enum Part;
using enum Where;

// In order of precedence: of all rules that match, the first one decides.
constexpr auto kRules = std::to_array<Rule>({
    // Inductor names its pointwise, reduction, scan and foreach kernels after every operator fused into them, so
    // `triton_poi_fused_addmm_relu_3` is what follows a matmul. Only its templates (`triton_tem_`) are matmuls.
    {"triton_poi_", kFunction, kStart, Verdict::kOther},
    {"triton_red_", kFunction, kStart, Verdict::kOther},
    {"triton_per_", kFunction, kStart, Verdict::kOther},
    {"triton_for_", kFunction, kStart, Verdict::kOther},
    {"triton_spl_", kFunction, kStart, Verdict::kOther},

    // Helpers that carry the name of the work they prepare.
    {"softmax", kFunction, kAnywhere, Verdict::kOther},
    {"rotary", kFunction, kAnywhere, Verdict::kOther},
    {"rope", kFunction, kWord, Verdict::kOther},
    {"reshape_and_cache", kFunction, kAnywhere, Verdict::kOther},
    {"concat", kFunction, kAnywhere, Verdict::kOther},     // concat_and_cache_mla, concat_and_cast_mha_k
    {"kv_buffer", kFunction, kAnywhere, Verdict::kOther},  // SGLang: set_mla_kv_buffer
    {"append", kFunction, kStart, Verdict::kOther},        // FlashInfer: AppendPagedKVCache...
    {"metadata", kFunction, kAnywhere, Verdict::kOther},
    {"indices", kFunction, kAnywhere, Verdict::kOther},
    {"attn_mask", kFunction, kAnywhere, Verdict::kOther},
    {"offsetskernel", kFunction, kAnywhere, Verdict::kOther},  // cuDNN: computeWgradSplitKOffsetsKernel
    {"gemm_starts", kFunction, kAnywhere, Verdict::kOther},    // grouped GEMM: pointers and sizes of each problem
    {"gemm_data", kFunction, kAnywhere, Verdict::kOther},
    {"setup_grouped_gemm", kFunction, kAnywhere, Verdict::kOther},
    {"quant_deep_gemm", kFunction, kAnywhere, Verdict::kOther},  // vLLM: activation and quantisation for DeepGEMM
    {"repack", kFunction, kAnywhere, Verdict::kOther},

    // Communication whose name leaves no doubt.
    {"nccl", kFunction, kAnywhere, Verdict::kComm},
    {"rccl", kFunction, kAnywhere, Verdict::kComm},
    {"nvshmem", kQualified, kAnywhere, Verdict::kComm},
    {"internode::", kQualified, kAnywhere, Verdict::kComm},  // DeepEP
    {"internode_ll::", kQualified, kAnywhere, Verdict::kComm},
    {"intranode::", kQualified, kAnywhere, Verdict::kComm},
    {"multimem_", kFunction, kAnywhere, Verdict::kComm},
    {"cross_device_reduce", kFunction, kAnywhere, Verdict::kComm},
    {"quickreduce::", kQualified, kAnywhere, Verdict::kComm},
    {"userbuffers", kFunction, kAnywhere, Verdict::kComm},
    {"msccl", kQualified, kAnywhere, Verdict::kComm},
    {"put_signal", kFunction, kAnywhere, Verdict::kComm},
    {"wait_signal", kFunction, kAnywhere, Verdict::kComm},
    {"barrier_kernel", kFunction, kAnywhere, Verdict::kComm},

    // Fused attention: the kernel itself, what combines its splits, and the two small passes around its backward.
    {"fmha", kFunction, kAnywhere, Verdict::kAttention},
    {"sdpa", kFunction, kAnywhere, Verdict::kAttention},
    {"flash_fwd", kFunction, kAnywhere, Verdict::kAttention},
    {"flash_bwd", kFunction, kAnywhere, Verdict::kAttention},
    {"attention", kFunction, kAnywhere, Verdict::kAttention},
    {"attn", kFunction, kAnywhere, Verdict::kAttention},
    {"mha", kFunction, kWord, Verdict::kAttention},
    {"mla", kFunction, kWord, Verdict::kAttention},
    {"xqa", kFunction, kWord, Verdict::kAttention},
    {"withkvcache", kFunction, kAnywhere, Verdict::kAttention},  // FlashInfer: SinglePrefillWithKVCacheKernel
    {"withpagedkvcache", kFunction, kAnywhere, Verdict::kAttention},
    {"withraggedkvcache", kFunction, kAnywhere, Verdict::kAttention},
    {"mergestate", kFunction, kAnywhere, Verdict::kAttention},
    {"merge_state", kFunction, kAnywhere, Verdict::kAttention},
    {"mqa_logits", kFunction, kAnywhere, Verdict::kAttention},
    {"dot_do_o", kFunction, kAnywhere, Verdict::kAttention},
    {"convert_dq", kFunction, kAnywhere, Verdict::kAttention},
    {"reduce_segments", kFunction, kWhole, Verdict::kAttention},  // vLLM: joins unified_attention_3d's segments
    {"_fwd_kernel", kFunction, kWhole, Verdict::kAttention},      // Triton attention of FlashAttention, vLLM, SGLang
    {"_fwd_kernel_alibi", kFunction, kWhole, Verdict::kAttention},
    {"_bwd_kernel", kFunction, kWhole, Verdict::kAttention},
    {"_fwd_kernel_stage", kFunction, kStart, Verdict::kAttention},
    {"_fwd_grouped_kernel_stage", kFunction, kStart, Verdict::kAttention},
    {"_fwd_kernel_splitk", kFunction, kStart, Verdict::kAttention},  // xFormers split-K decode and its reduction
    {"_splitk_reduce", kFunction, kWhole, Verdict::kAttention},
    {"bwd_kernel_dk_dv", kFunction, kAnywhere, Verdict::kAttention},
    {"bwd_kernel_dq", kFunction, kAnywhere, Verdict::kAttention},
    {"_bwd_preprocess", kFunction, kStart, Verdict::kAttention},

    // Matrix multiplies, by library.
    {"gemm", kFunction, kGemm, Verdict::kGemm},
    {"gemv", kFunction, kAnywhere, Verdict::kGemm},
    {"gemvx::", kQualified, kAnywhere, Verdict::kGemm},
    {"nvjet", kFunction, kAnywhere, Verdict::kGemm},
    {"cublaslt::", kQualified, kAnywhere, Verdict::kGemm},
    {"epilogue::impl::globalkernel", kQualified, kAnywhere, Verdict::kGemm},  // cuBLASLt's, before 12.x named it so
    {"splitkreduce", kFunction, kAnywhere, Verdict::kGemm},
    {"cijk_", kFunction, kAnywhere, Verdict::kGemm},  // AMD Tensile
    {"wvsplitk", kFunction, kAnywhere, Verdict::kGemm},
    {"matmul", kFunction, kAnywhere, Verdict::kGemm},
    {"mm", kFunction, kWord, Verdict::kGemm},
    {"bmm", kFunction, kWord, Verdict::kGemm},
    {"addmm", kFunction, kWord, Verdict::kGemm},
    {"mul_mat", kFunction, kAnywhere, Verdict::kGemm},  // ggml
    {"triton_tem_fused", kFunction, kStart, Verdict::kGemm},
    {"fused_moe_kernel", kFunction, kAnywhere, Verdict::kGemm},
    {"batched_triton_kernel", kFunction, kWhole, Verdict::kGemm},  // vLLM: batched experts
    {"marlin", kFunction, kAnywhere, Verdict::kGemm},
    {"weight_only::kernel", kQualified, kAnywhere, Verdict::kGemm},  // TensorRT-LLM
    {"bgmv", kFunction, kAnywhere, Verdict::kGemm},                  // LoRA
    {"sgmv", kFunction, kAnywhere, Verdict::kGemm},
    {"lora_shrink", kFunction, kAnywhere, Verdict::kGemm},
    {"lora_expand", kFunction, kAnywhere, Verdict::kGemm},
    {"_cce_", kFunction, kStart, Verdict::kGemm},  // fused output matrix and cross entropy
    {"efficient_entropy_kernel_general_mainloop", kFunction, kStart, Verdict::kGemm},

    // Convolutions: what does a convolution's arithmetic, the transforms of Winograd and FFT algorithms included.
    // Offset tables and layout changes around it are not matched. Mamba's causal_conv1d is no matmul and is not either.
    {"fprop", kFunction, kAnywhere, Verdict::kGemm},
    {"dgrad", kFunction, kAnywhere, Verdict::kGemm},
    {"wgrad", kFunction, kAnywhere, Verdict::kGemm},
    {"winograd", kFunction, kAnywhere, Verdict::kGemm},
    {"conv2d", kFunction, kAnywhere, Verdict::kGemm},
    {"conv_depthwise", kFunction, kAnywhere, Verdict::kGemm},
    {"grouped_conv", kFunction, kAnywhere, Verdict::kGemm},
    {"asmconv", kFunction, kAnywhere, Verdict::kGemm},
    {"scudnn", kFunction, kAnywhere, Verdict::kGemm},
    {"884cudnn", kFunction, kAnywhere, Verdict::kGemm},
    {"1688cudnn", kFunction, kAnywhere, Verdict::kGemm},
    {"fft2d_r2c", kFunction, kStart, Verdict::kGemm},
    {"fft2d_c2r", kFunction, kStart, Verdict::kGemm},

    // Collectives by their everyday names. After GEMM: a GEMM fused with a collective (`gemm_allreduce`) is a matmul.
    {"all_reduce", kFunction, kAnywhere, Verdict::kComm},
    {"allreduce", kFunction, kAnywhere, Verdict::kComm},
    {"all_gather", kFunction, kAnywhere, Verdict::kComm},
    {"allgather", kFunction, kAnywhere, Verdict::kComm},
    {"reduce_scatter", kFunction, kAnywhere, Verdict::kComm},
    {"reducescatter", kFunction, kAnywhere, Verdict::kComm},
    {"all_to_all", kFunction, kAnywhere, Verdict::kComm},
    {"alltoall", kFunction, kAnywhere, Verdict::kComm},
    {"all2all", kFunction, kAnywhere, Verdict::kComm},
    {"moea2a", kFunction, kAnywhere, Verdict::kComm},

    // Launchers: CUTLASS 2 and 3, Composable Kernel, cuBLAS's dot product (a GEMM with m = n = 1) and its reduction.
    {"kernel", kFunction, kWhole, Verdict::kAskArguments},
    {"kernel2", kFunction, kWhole, Verdict::kAskArguments},
    {"device_kernel", kFunction, kWhole, Verdict::kAskArguments},
    {"kentry", kFunction, kStart, Verdict::kAskArguments},
    {"dot_kernel", kFunction, kWhole, Verdict::kAskArguments},
    {"reduce_1block_kernel", kFunction, kWhole, Verdict::kAskArguments},

    {"fmha", kArguments, kAnywhere, Verdict::kAttention},
    {"flashattn", kArguments, kAnywhere, Verdict::kAttention},
    {"attention", kArguments, kAnywhere, Verdict::kAttention},
    {"cublasgemv", kArguments, kAnywhere, Verdict::kGemm},
    {"gemm", kArguments, kGemm, Verdict::kGemm},
    {"fprop", kArguments, kAnywhere, Verdict::kGemm},
    {"dgrad", kArguments, kAnywhere, Verdict::kGemm},
    {"wgrad", kArguments, kAnywhere, Verdict::kGemm},
    {"splitk", kArguments, kAnywhere, Verdict::kGemm},
    {"machete", kArguments, kAnywhere, Verdict::kGemm},
});

constexpr std::array<char, 256> kLower = [] {
  std::array<char, 256> table{};
  for (int i = 0; i < 256; ++i)
    table[static_cast<std::size_t>(i)] = static_cast<char>(i >= 'A' && i <= 'Z' ? i - 'A' + 'a' : i);
  return table;
}();
constexpr char lower(char c) noexcept { return kLower[static_cast<unsigned char>(c)]; }
constexpr bool is_alnum(char c) noexcept { return (lower(c) >= 'a' && lower(c) <= 'z') || (c >= '0' && c <= '9'); }

constexpr std::size_t kBuckets = 256;
constexpr std::size_t bucket_of(char first, char second) noexcept {
  const auto a = static_cast<unsigned char>(lower(first));
  const auto b = static_cast<unsigned char>(lower(second));
  return (a * 31U + b) % kBuckets;
}

// The rules by their first two characters, so that a name is read once and not once per rule.
struct RuleIndex {
  static constexpr std::uint8_t kEnd = 0xFF;
  std::array<std::uint8_t, kBuckets> first{};
  std::array<std::uint8_t, kRules.size()> next{};
};
static_assert(kRules.size() < RuleIndex::kEnd);

constexpr RuleIndex make_index() {
  RuleIndex index;
  index.first.fill(RuleIndex::kEnd);
  for (std::size_t i = kRules.size(); i-- > 0;) {  // backwards: each chain is then in order of precedence
    const std::size_t bucket = bucket_of(kRules[i].text[0], kRules[i].text[1]);
    index.next[i] = index.first[bucket];
    index.first[bucket] = static_cast<std::uint8_t>(i);
  }
  return index;
}
constexpr RuleIndex kIndex = make_index();

// `text` holds `gemm` at `at`: false in FBGEMM (embedding kernels live in its namespace) and in the name of the model
// Gemma (`gemma_rmsnorm`, `GemmaRMSNorm`), but not in `gemmAllReduce`.
bool is_gemm(std::string_view text, std::size_t at) noexcept {
  if (at >= 2 && lower(text[at - 2]) == 'f' && lower(text[at - 1]) == 'b') return false;
  return at + 4 >= text.size() || text[at + 4] != 'a';
}

bool matches(const Rule& rule, std::string_view text, std::size_t at) noexcept {
  if (rule.text.size() > text.size() - at) return false;
  for (std::size_t i = 0; i < rule.text.size(); ++i) {
    if (lower(text[at + i]) != rule.text[i]) return false;
  }
  const std::size_t end = at + rule.text.size();
  switch (rule.where) {
    case kAnywhere:
      return true;
    case kStart:
      return at == 0;
    case kWhole:
      return at == 0 && end == text.size();
    case kWord:
      return (at == 0 || !is_alnum(text[at - 1])) && (end == text.size() || !is_alnum(text[end]));
    case kGemm:
      return is_gemm(text, at);
  }
  return false;
}

// Index of the first rule that matches somewhere in a qualified name whose function starts at `function_at`;
// kRules.size() if none does. One pass: `matches` sees the function alone where a rule is about the function.
std::size_t first_rule(std::string_view qualified, std::size_t function_at) noexcept {
  const std::string_view function = qualified.substr(function_at);
  std::size_t best = kRules.size();
  for (std::size_t at = 0; at + 1 < qualified.size(); ++at) {
    for (std::size_t i = kIndex.first[bucket_of(qualified[at], qualified[at + 1])]; i < best; i = kIndex.next[i]) {
      const Rule& rule = kRules[i];
      if (rule.part == kQualified
              ? matches(rule, qualified, at)
              : rule.part == kFunction && at >= function_at && matches(rule, function, at - function_at)) {
        best = i;
      }
    }
  }
  return best;
}

// The same for the template arguments of a launcher.
std::size_t first_argument_rule(std::string_view arguments) noexcept {
  std::size_t best = kRules.size();
  for (std::size_t at = 0; at + 1 < arguments.size(); ++at) {
    for (std::size_t i = kIndex.first[bucket_of(arguments[at], arguments[at + 1])]; i < best; i = kIndex.next[i]) {
      if (kRules[i].part == kArguments && matches(kRules[i], arguments, at)) best = i;
    }
  }
  return best;
}

// What a name is judged by. Bounded, so that a hostile name of any length costs no more than a long real one.
class NameParts {
 public:
  explicit NameParts(std::string_view name) noexcept {
    name = name.substr(0, kMaxRead);
    if (name.starts_with("_Z")) {
      read_mangled(name.substr(2));
    } else {
      read_demangled(name);
    }
  }

  [[nodiscard]] std::string_view qualified() const noexcept { return {name_.data(), size_}; }
  [[nodiscard]] std::size_t function_at() const noexcept { return function_at_; }
  [[nodiscard]] std::string_view arguments() const noexcept { return arguments_; }

 private:
  // The function's name and the first of its arguments stand at the front: what decides is found in the first few
  // hundred bytes of every name seen, the longest of which are CUTLASS 3's with several thousand.
  static constexpr std::size_t kMaxRead = 1024;
  static constexpr std::size_t kMaxName = 512;

  void append(char c) noexcept {
    if (size_ < kMaxName) name_[size_++] = c;
  }

  void restart() noexcept {
    size_ = 0;
    function_at_ = 0;
    arguments_ = {};
  }

  // Everything outside brackets, from the last space (what precedes it is the return type) to the parameter list.
  void read_demangled(std::string_view name) noexcept {
    for (std::size_t i = 0; i < name.size();) {
      const char c = name[i];
      if (c == '<') {
        const std::size_t end = skip_brackets(name, i, '<', '>');
        if (!name.substr(i).starts_with("<unnamed>")) arguments_ = name.substr(i, end - i);
        i = end;
      } else if (c == '(') {
        if (!name.substr(i).starts_with("(anonymous namespace)")) {
          if (size_ > 0) return;
        }
        i = skip_brackets(name, i, '(', ')');
      } else if (c == '{') {
        i = skip_brackets(name, i, '{', '}');
      } else {
        if (c == ' ') {
          if (name.substr(i).starts_with(" [clone")) return;
          restart();
        } else {
          append(c);
          if (c == ':') function_at_ = size_;
        }
        ++i;
      }
    }
  }

  // The position after the bracket that closes the one at `at`; the end if none does. Parentheses hide the `<` and `>`
  // of expressions in template arguments, as in `std::enable_if<((8)>(0)), void>`; `->` closes nothing.
  static std::size_t skip_brackets(std::string_view name, std::size_t at, char open, char close) noexcept {
    std::size_t depth = 0;
    std::size_t parentheses = 0;
    for (std::size_t i = at; i < name.size(); ++i) {
      const char c = name[i];
      if (open == '<') {
        if (c == '(') ++parentheses;
        if (c == ')' && parentheses > 0) --parentheses;
        if (parentheses > 0 || (c == '>' && name[i - 1] == '-')) continue;
      }
      if (c == open) ++depth;
      if (c == close && --depth == 0) return i + 1;
    }
    return name.size();
  }

  // Itanium mangling as far as it matters: the length-prefixed identifiers up to the template arguments.
  void read_mangled(std::string_view rest) noexcept {
    while (!rest.empty() && (rest[0] < '0' || rest[0] > '9')) {
      if (rest[0] == 'I' || rest[0] == 'E') break;
      rest.remove_prefix(1);
    }
    while (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') {
      std::size_t length = 0;
      while (!rest.empty() && rest[0] >= '0' && rest[0] <= '9' && length < kMaxName * 10) {
        length = length * 10 + static_cast<std::size_t>(rest[0] - '0');
        rest.remove_prefix(1);
      }
      if (size_ > 0) {
        append(':');
        append(':');
      }
      function_at_ = size_;
      const std::size_t taken = std::min(length, rest.size());
      for (const char c : rest.substr(0, taken)) append(c);
      rest.remove_prefix(taken);
    }
    if (rest.starts_with('I')) arguments_ = rest;
  }

  std::array<char, kMaxName> name_;  // left unset on purpose: only the first size_ characters are read
  std::size_t size_ = 0;
  std::size_t function_at_ = 0;
  std::string_view arguments_;
};

constexpr KernelClass class_of(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::kGemm:
      return KernelClass::kGemm;
    case Verdict::kAttention:
      return KernelClass::kAttention;
    case Verdict::kComm:
      return KernelClass::kComm;
    case Verdict::kOther:
    case Verdict::kAskArguments:
      break;
  }
  return KernelClass::kOther;
}

}  // namespace

std::string_view name(KernelClass c) noexcept {
  switch (c) {
    case KernelClass::kGemm:
      return "gemm";
    case KernelClass::kAttention:
      return "attention";
    case KernelClass::kComm:
      return "comm";
    case KernelClass::kOther:
      break;
  }
  return "other";
}

KernelClass classify_kernel(std::string_view demangled) noexcept {
  const NameParts parts(demangled);
  std::size_t rule = first_rule(parts.qualified(), parts.function_at());
  if (rule == kRules.size()) return KernelClass::kOther;
  if (kRules[rule].verdict != Verdict::kAskArguments) return class_of(kRules[rule].verdict);

  const std::string_view arguments = parts.arguments();
  // Some tools drop the arguments from a kernel's short name; what is then left of a CUTLASS 2 GEMM is `Kernel2`.
  if (arguments.empty()) return kRules[rule].text == "kernel2" ? KernelClass::kGemm : KernelClass::kOther;
  rule = first_argument_rule(arguments);
  return rule == kRules.size() ? KernelClass::kOther : class_of(kRules[rule].verdict);
}

bool is_matmul(KernelClass c) noexcept { return c == KernelClass::kGemm || c == KernelClass::kAttention; }

}  // namespace mfu

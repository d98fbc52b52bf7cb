#include "core/kernels/kernel_traits.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>

namespace mfu {
namespace {

using enum KernelRole;

// A name is read in three parts: `void cutlass::Kernel2<cutlass_80_...gemm...>(Params)` has the qualified name
// `cutlass::Kernel2`, whose last component is the function `Kernel2`, and template arguments. Parameters are never
// looked at. For the class, arguments are read only of the few launchers whose own name says nothing: the arguments of
// an elementwise or reduce kernel name functors and namespaces (`fbgemm_gpu::`, `at::native::...`) that say nothing
// about its work. For the role they are read, since ATen's kernels carry their functor there.
enum class Where : std::uint8_t {
  kNowhere,    // the row says nothing of the class
  kFunction,   // anywhere in the function
  kStart,      // at its start
  kWord,       // in it, letters and digits on neither side
  kWhole,      // it is exactly this
  kQualified,  // anywhere in the qualified name
  kArguments,  // anywhere in the arguments of a launcher
  kEither,     // in the function, or in the arguments of a launcher
  kMatmul,     // kEither, but neither FBGEMM's nor Gemma's: see is_gemm()
};
enum class Verdict : std::uint8_t { kIsGemm, kIsAttention, kIsComm, kIsOther, kAskArguments };
using enum Where;
using enum Verdict;

constexpr KernelRole kNoRole = kGraph;  // no kernel's name has it

struct Rule {
  std::string_view text, then;
  Where where = kNowhere;
  Verdict verdict = kIsOther;
  KernelRole role = kNoRole;

  constexpr Rule(std::string_view text_, Where where_, Verdict verdict_, KernelRole role_ = kNoRole)
      : text(text_), where(where_), verdict(verdict_), role(role_) {}
  constexpr Rule(std::string_view text_, KernelRole role_) : text(text_), role(role_) {}
  constexpr Rule(std::string_view text_, std::string_view then_, KernelRole role_)
      : text(text_), then(then_), role(role_) {}
};

constexpr auto kRules = std::to_array<Rule>({
#include "core/kernels/kernel_rules.inc"
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

constexpr bool for_name(const Rule& rule) { return rule.where != kNowhere && rule.where != kArguments; }
constexpr bool for_arguments(const Rule& rule) {
  return rule.where == kArguments || rule.where == kEither || rule.where == kMatmul;
}
constexpr bool for_role(const Rule& rule) { return rule.role != kNoRole; }

// The rules of one kind by their first two characters, so that a name is read once and not once per rule.
struct RuleIndex {
  static constexpr std::uint16_t kEnd = kRules.size();
  std::array<std::uint16_t, kBuckets> first{};
  std::array<std::uint16_t, kRules.size()> next{};

  template <typename Kind>
  explicit constexpr RuleIndex(Kind is_of_kind) {
    first.fill(kEnd);
    for (std::size_t i = kRules.size(); i-- > 0;) {  // backwards: each chain is then in order of precedence
      if (!is_of_kind(kRules[i])) continue;
      const std::size_t bucket = bucket_of(kRules[i].text[0], kRules[i].text[1]);
      next[i] = first[bucket];
      first[bucket] = static_cast<std::uint16_t>(i);
    }
  }

  // First rule for which `matches(rule, at)` holds anywhere in `text`; kEnd: none.
  template <typename Matches>
  [[nodiscard]] std::size_t first_match(std::string_view text, Matches matches) const noexcept {
    std::size_t best = kEnd;
    for (std::size_t at = 0; at + 1 < text.size(); ++at) {
      for (std::size_t i = first[bucket_of(text[at], text[at + 1])]; i < best; i = next[i])
        if (matches(kRules[i], at)) best = i;
    }
    return best;
  }
};
constexpr RuleIndex kOfName(for_name);
constexpr RuleIndex kOfArguments(for_arguments);
constexpr RuleIndex kOfRole(for_role);

bool stands_at(std::string_view piece, std::string_view text, std::size_t at) noexcept {
  return std::ranges::equal(text.substr(at, piece.size()), piece, {}, lower);
}

bool is_in(std::string_view piece, std::string_view text, std::size_t from = 0) noexcept {
  for (std::size_t at = from; at + piece.size() <= text.size(); ++at)
    if (stands_at(piece, text, at)) return true;
  return false;
}

// `text` holds `gemm` at `at`: false in FBGEMM (embedding kernels live in its namespace) and in the name of the model
// Gemma (`gemma_rmsnorm`, `GemmaRMSNorm`), but not in `gemmAllReduce`.
bool is_gemm(std::string_view text, std::size_t at) noexcept {
  if (at >= 2 && lower(text[at - 2]) == 'f' && lower(text[at - 1]) == 'b') return false;
  return at + 4 >= text.size() || text[at + 4] != 'a';
}

// Whether a rule about the function holds at `at` of it.
bool holds_in_function(const Rule& rule, std::string_view function, std::size_t at) noexcept {
  const std::size_t end = at + rule.text.size();
  const bool word_ends = end == function.size() || !is_alnum(function[end]);
  if (rule.where == kMatmul) return is_gemm(function, at);
  if (rule.where == kWord) return (at == 0 || !is_alnum(function[at - 1])) && word_ends;
  if (rule.where == kStart) return at == 0;
  return rule.where != kWhole || (at == 0 && end == function.size());
}

// The parts of a name that decide. Bounded, so that a hostile name of any length costs no more than a long real one.
class NameParts {
 public:
  explicit NameParts(std::string_view name) noexcept {
    name = name.substr(0, kMaxRead);
    if (name.starts_with("_Z"))
      read_mangled(name.substr(2));
    else
      read_demangled(name);
  }

  [[nodiscard]] std::string_view qualified() const noexcept { return {name_.data(), size_}; }
  [[nodiscard]] std::size_t function_at() const noexcept { return function_at_; }
  [[nodiscard]] std::string_view arguments() const noexcept { return arguments_; }

 private:
  // The function's name and the first of its arguments come first: they are in the first few hundred bytes of every
  // name seen, the longest of which are CUTLASS 3's with several thousand.
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
        if (!name.substr(i).starts_with("(anonymous namespace)"))
          if (size_ > 0) return;
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
  return verdict == kIsGemm        ? KernelClass::kGemm
         : verdict == kIsAttention ? KernelClass::kAttention
         : verdict == kIsComm      ? KernelClass::kComm
                                   : KernelClass::kOther;
}

// A class, and the rule that decided it; kRules.size(): none.
struct ClassFound {
  std::size_t rule;
  KernelClass kernel_class;
};

ClassFound find_class(std::string_view demangled) noexcept {
  const NameParts parts(demangled);
  const std::size_t function_at = parts.function_at();
  const std::string_view qualified = parts.qualified(), function = qualified.substr(function_at);
  const std::size_t rule = kOfName.first_match(qualified, [&](const Rule& r, std::size_t at) noexcept {
    if (r.where == kQualified) return stands_at(r.text, qualified, at);
    return at >= function_at && stands_at(r.text, function, at - function_at) &&
           holds_in_function(r, function, at - function_at);
  });
  if (rule == kRules.size()) return {rule, KernelClass::kOther};
  if (kRules[rule].verdict != kAskArguments) return {rule, class_of(kRules[rule].verdict)};

  const std::string_view arguments = parts.arguments();
  // Some tools drop the arguments from a kernel's short name, which leaves `Kernel2` of a CUTLASS 2 GEMM.
  if (arguments.empty()) return {rule, kRules[rule].text == "kernel2" ? KernelClass::kGemm : KernelClass::kOther};
  const std::size_t inner = kOfArguments.first_match(arguments, [&](const Rule& r, std::size_t at) noexcept {
    return stands_at(r.text, arguments, at) && (r.where != kMatmul || is_gemm(arguments, at));
  });
  return {inner, inner == kRules.size() ? KernelClass::kOther : class_of(kRules[inner].verdict)};
}

/// A kernel whose launch has one block per row. `name` with its namespace where other libraries have such a name too;
/// looked up in the sources of the libraries.
struct RowKernel {
  std::string_view name;
  RowAxis axis;
};
constexpr auto kRowKernels = std::to_array<RowKernel>({
    // PyTorch, ATen/native/cuda/layer_norm_kernel.cu: <<<M>>> for M rows. RowwiseMoments is left out: group norms run
    // it over batch x groups.
    {"vectorized_layer_norm_kernel", RowAxis::kX},
    {"LayerNormForwardCUDAKernel", RowAxis::kX},
    // vLLM, csrc/layernorm_kernels.cu and layernorm_quant_kernels.cu: grid(num_tokens), all but the last dimension.
    {"vllm::rms_norm_kernel", RowAxis::kX},
    {"vllm::fused_add_rms_norm_kernel", RowAxis::kX},
    {"vllm::rms_norm_static_fp8_quant_kernel", RowAxis::kX},
    {"vllm::fused_add_rms_norm_static_fp8_quant_kernel", RowAxis::kX},
    // FlashInfer, include/flashinfer/norm.cuh: nblks(batch_size), the rows. QKRMSNormKernel takes no more blocks than
    // fit the device.
    {"RMSNormKernel", RowAxis::kX},
    {"FusedAddRMSNormKernel", RowAxis::kX},
    {"RMSNormQuantKernel", RowAxis::kX},
    // TensorRT-LLM, cpp/tensorrt_llm/kernels/rmsnormKernels.cu and layernormKernels.cu: grid(tokens).
    {"generalRmsNorm", RowAxis::kX},
    {"generalLayerNorm", RowAxis::kX},
    // Apex, csrc/layer_norm_cuda_kernel.cu: blocks(1, min(n1, maxGridY), 1) for n1 rows.
    {"cuApplyLayerNorm", RowAxis::kY},
    {"cuApplyRMSNorm", RowAxis::kY},
    // Triton. Liger ops/rms_norm.py and rope.py: (n_rows,), (batch x seq_len,), the latter backward too; Unsloth
    // kernels/rms_layernorm.py: (n_rows,); flash-attn ops/triton/layer_norm.py: (M,) for M rows.
    {"_rms_norm_forward_kernel", RowAxis::kX},
    {"_rms_layernorm_forward", RowAxis::kX},
    {"_layer_norm_fwd_1pass_kernel", RowAxis::kX},
    {"_triton_rope", RowAxis::kX},
    // vLLM, csrc/pos_encoding_kernels.cu: grid(num_tokens); layers/rotary_embedding/mrope.py: (n_row,), the tokens.
    {"vllm::rotary_embedding_kernel", RowAxis::kX},
    {"_triton_mrope_forward", RowAxis::kX},
    // vLLM, csrc/cache_kernels.cu: grid(num_tokens) of the slot mapping, so without the rows that pad a graph;
    // triton_reshape_and_cache_flash.py: (slot_mapping.shape[0], tiles of a row).
    {"vllm::reshape_and_cache_kernel", RowAxis::kX},
    {"vllm::reshape_and_cache_flash_kernel", RowAxis::kX},
    {"vllm::concat_and_cache_mla_kernel", RowAxis::kX},
    {"reshape_and_cache_kernel_flash", RowAxis::kXTiled},
    // SGLang, python/sglang/srt/mem_cache: (slots, tiles of a row). FlashInfer fb28d724, include/flashinfer/page.cuh:
    // nblks(batch_size), one token of each sequence; (tokens, heads).
    {"set_mla_kv_buffer_kernel", RowAxis::kXTiled},
    {"AppendPagedKVCacheDecodeKernel", RowAxis::kX},
    {"NVFP4QuantizeAppendPagedKVCacheKernel", RowAxis::kXTiled},
    {"NVFP4QuantizeAppendPagedKVCacheWithSlotMappingKernel", RowAxis::kXTiled},
    // mfu demo, tools/demo/kernels.cu.
    {"demo_layernorm", RowAxis::kX},
});

/// Names are read up to here; the deciding part is in the first few hundred bytes of every name seen.
constexpr std::size_t kMaxRead = 1024;

/// The name without its parameter list, whose types name other kernels' namespaces; template arguments stay, since
/// ATen's elementwise and reduce kernels carry their functor there.
std::string_view without_parameters(std::string_view name) noexcept {
  // Brackets that are open: a `>` inside parentheses compares, as in enable_if<(((8)>(0)))>.
  std::array<char, 64> open;
  std::size_t depth = 0, parentheses = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (c == '(' && depth == 0) {
      if (i > 0 && !name.substr(i).starts_with("(anonymous namespace)")) return name.substr(0, i);
    } else if (c == '<' || c == '(') {
      if (depth == open.size()) return name;
      open[depth++] = c;
      parentheses += c == '(';
    } else if (c == '>') {
      if (depth > 0 && open[depth - 1] == '<' && name[i - 1] != '-') --depth;
    } else if (c == ')' && parentheses > 0) {
      --parentheses;
      while (open[--depth] != '(') {  // a `<` inside them compared, too
      }
    }
  }
  return name;
}

/// Whole names only: `_block_rms_norm_forward_kernel` has several rows to a block.
RowAxis row_axis_of(std::string_view name) noexcept {
  const auto of_a_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  for (const RowKernel& kernel : kRowKernels) {
    const std::size_t at = name.find(kernel.name);
    if (at == name.npos) continue;
    const std::string_view after = name.substr(at + kernel.name.size());
    if ((at == 0 || !of_a_name(name[at - 1])) && (after.empty() || !of_a_name(after.front()))) return kernel.axis;
  }
  return RowAxis::kNone;
}

/// \param name without parameters
KernelRole role_of(std::string_view demangled, std::string_view name) noexcept {
  const ClassFound found = find_class(demangled);
  if (found.kernel_class == KernelClass::kComm) return kComm;
  const std::size_t rule = kOfRole.first_match(name, [&](const Rule& r, std::size_t at) noexcept {
    return stands_at(r.text, name, at) && (r.then.empty() || is_in(r.then, name, at + r.text.size()));
  });
  const std::size_t decided = is_matmul(found.kernel_class) ? std::min(found.rule, rule) : rule;
  if (decided == kRules.size()) return KernelRole::kOther;
  if (kRules[decided].role != kNoRole) return kRules[decided].role;
  return found.kernel_class == KernelClass::kAttention ? kAttention : KernelRole::kGemm;
}

struct Hint {
  std::string_view word;  ///< lower case
  DType dtype;
};

// In order: a kernel with 8-bit operands names its 16-bit output too, and one with 16-bit operands its 32-bit sum.
// Sources: cuBLAS (s16816gemm_bf16, nvjet_tst_..., hgemm, sgemm, dgemm, imma, i8816), CUTLASS (tensorop type names, and
// 884/1688 with d, i or s before them), TransformerEngine and DeepGEMM (e4m3, fp8), vLLM and Triton kernels (fp8,
// bf16). `s1688gemm` and `s1684gemm` without a type word multiply TF32 on Ampere and later; Volta's and Turing's
// `s884gemm` and `s1688gemm` always name fp16, which comes before them here.
// Operands of two widths run at the rate of the wider one: on Blackwell fp4 beside fp8 is an instruction of kind
// mxf8f6f4, which has FP8's rate (CUTLASS, blackwell_functionality.md); fp4 weights beside bf16 are widened first.
constexpr std::array kHints{
    Hint{"f8f6f4", DType::kFp8},         Hint{"e2m1mxe4m3", DType::kFp8},
    Hint{"e2m1e4m3", DType::kFp8},       Hint{"e4m3mxe2m1", DType::kFp8},
    Hint{"e4m3e2m1", DType::kFp8},       Hint{"e2m1bfloat16", DType::kBf16},
    Hint{"m3_ue8m0xe2m1", DType::kFp8},  Hint{"m1_ue8m0xe4m3", DType::kFp8},
    Hint{"nvfp4", DType::kFp4},          Hint{"mxfp4", DType::kFp4},
    Hint{"e2m1", DType::kFp4},           Hint{"e4m3", DType::kFp8},
    Hint{"e5m2", DType::kFp8},           Hint{"fp8", DType::kFp8},
    Hint{"float8", DType::kFp8},         Hint{"nvjet_qq", DType::kFp8},
    Hint{"nvjet_sm100_qq", DType::kFp8}, Hint{"nvjet_tst", DType::kBf16},
    Hint{"0_tst_", DType::kBf16},        Hint{"nvjet_hsh", DType::kFp16},
    Hint{"0_hsh_", DType::kFp16},        Hint{"imma", DType::kInt8},
    Hint{"s8_", DType::kInt8},           Hint{"int8", DType::kInt8},
    Hint{"i8i32", DType::kInt8},         Hint{"i8816gemm", DType::kInt8},
    Hint{"i16832gemm", DType::kInt8},    Hint{"bf16", DType::kBf16},
    Hint{"bfloat16", DType::kBf16},      Hint{"tf32", DType::kTf32},
    Hint{"fp16", DType::kFp16},          Hint{"f16", DType::kFp16},
    Hint{"hgemm", DType::kFp16},         Hint{"half", DType::kFp16},
    Hint{"hmma", DType::kFp16},          Hint{"h884gemm", DType::kFp16},
    Hint{"h1688gemm", DType::kFp16},     Hint{"h16816gemm", DType::kFp16},
    Hint{"s884gemm", DType::kFp16},      Hint{"s1688gemm", DType::kTf32},
    Hint{"s1684gemm", DType::kTf32},     Hint{"s1688cudnn", DType::kTf32},
    Hint{"s1688fprop", DType::kTf32},    Hint{"s1688dgrad", DType::kTf32},
    Hint{"s1688wgrad", DType::kTf32},    Hint{"d884gemm", DType::kFp64},
    Hint{"d1688gemm", DType::kFp64},     Hint{"dgemm", DType::kFp64},
    Hint{"f64", DType::kFp64},           Hint{"sgemm", DType::kFp32},
    Hint{"f32f32", DType::kFp32},        Hint{"ffma", DType::kFp32},
};

}  // namespace

std::string_view name(KernelClass c) noexcept {
  constexpr std::array<std::string_view, 4> kNames{"gemm", "attention", "comm", "other"};
  return kNames[static_cast<std::size_t>(c)];
}

KernelClass classify_kernel(std::string_view demangled) noexcept { return find_class(demangled).kernel_class; }

bool is_matmul(KernelClass c) noexcept { return c == KernelClass::kGemm || c == KernelClass::kAttention; }

std::optional<DType> matmul_dtype(std::string_view demangled) noexcept {
  for (const Hint& hint : kHints)
    if (is_in(hint.word, demangled)) return hint.dtype;
  return std::nullopt;
}

std::optional<DType> dtype_of_most(const std::array<DurationNs, kDTypes>& ran) noexcept {
  constexpr std::array<DurationNs, kDTypes> kRates{1, 1, 8, 16, 16, 32, 32, 32, 64, 64, 64, 64, 16};  // FP32: 1
  std::array<DurationNs, kDTypes> flop{};
  for (std::size_t i = 0; i < kDTypes; ++i) flop[i] = ran[i] * kRates[i];
  const auto most = std::max_element(flop.begin(), flop.end());
  return *most > 0 ? std::optional(static_cast<DType>(most - flop.begin())) : std::nullopt;
}

KernelTraits traits_of(KernelRole role) noexcept {
  KernelTraits traits{role, 0, RowAxis::kNone, 0};
  switch (role) {
    case kGraph:
      traits.flags = kFlagGraph;
      break;
    case kCopyToDevice:
      traits.flags = kFlagToDevice;
      break;
    case kCopyToHost:
      traits.flags = kFlagToHost;
      break;
    case kOptimizer:
      traits.flags = kFlagOptimizer;
      break;
    case kForeach:
      traits.flags = kFlagForeach;
      break;
    case kAttentionBackward:
    case kNormBackward:
    case kSoftmaxBackward:
    case kEmbeddingBackward:
    case kElementwiseBackward:
      traits.flags = kFlagBackward;
      break;
    case kLoss:
      traits.flags = kFlagLoss;
      break;
    case kSampling:
      traits.flags = kFlagSampling;
      break;
    default:
      break;
  }
  // A library picks among these by shape; copies have no family, since their sizes say nothing.
  if (role == kGemm || role == kConvBackward || role == kAttention || role == kAttentionPrefill ||
      role == kAttentionDecode || role == kAttentionBackward)
    traits.family = 1 + static_cast<std::uint32_t>(role == kConvBackward ? kGemm : role);
  return traits;
}

KernelTraits role_of_kernel(std::string_view demangled) noexcept {
  const std::string_view name = without_parameters(demangled.substr(0, kMaxRead));
  KernelTraits traits = traits_of(role_of(demangled, name));
  if (traits.role == kNorm || traits.role == kRope || traits.role == kCacheWrite) traits.row_axis = row_axis_of(name);
  return traits;
}

KernelRole copy_role(CopyDirection direction) noexcept {
  if (direction == CopyDirection::kToDevice) return kCopyToDevice;
  if (direction == CopyDirection::kToHost) return kCopyToHost;
  return kCopyWithin;
}

CopyDirection copy_direction(std::string_view name) noexcept {
  const auto has = [name](std::initializer_list<std::string_view> words) {
    return std::any_of(words.begin(), words.end(), [name](std::string_view w) { return name.find(w) != name.npos; });
  };
  // A is an array, P a peer.
  if (has({"HtoD", "HtoA", "HostToDevice"})) return CopyDirection::kToDevice;
  if (has({"DtoH", "AtoH", "DeviceToHost"})) return CopyDirection::kToHost;
  if (has({"DtoD", "DtoA", "AtoD", "AtoA", "PtoP", "HtoH", "DeviceToDevice", "HostToHost"}))
    return CopyDirection::kWithin;
  return CopyDirection::kUnknown;
}

}  // namespace mfu

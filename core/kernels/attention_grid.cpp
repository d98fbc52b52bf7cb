#include "core/kernels/attention_grid.h"

#include <algorithm>

#include "core/kernels/kernel_traits.h"

namespace mfu {
namespace {

bool has(std::string_view text, std::string_view piece) noexcept { return text.find(piece) != std::string_view::npos; }

/// The number at `at`; 0: none there.
std::uint32_t number_at(std::string_view text, std::size_t at) noexcept {
  constexpr std::uint32_t kMost = 1u << 16;
  std::uint32_t value = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9' && value < kMost; ++at)
    value = value * 10 + static_cast<std::uint32_t>(text[at] - '0');
  return value;
}

/// Argument `index` of the first template argument list after `type`, where it is a number: `type<64, 128, ...>`.
std::uint32_t template_number(std::string_view text, std::string_view type, std::uint32_t index) noexcept {
  std::size_t at = text.find(type);
  if (at == std::string_view::npos) return 0;
  at += type.size();
  if (at >= text.size() || text[at] != '<') return 0;
  ++at;
  for (; index != 0; --index) {
    at = text.find_first_of(",>", at);
    if (at == std::string_view::npos || text[at] == '>') return 0;
    ++at;
  }
  while (at < text.size() && (text[at] == ' ' || text[at] == '(')) {  // `(int)64` as some demanglers print it
    if (text.substr(at, 5) == "(int)")
      at += 5;
    else
      ++at;
  }
  return number_at(text, at);
}

/// Behind the end of the template argument list whose `<` is at `at`; npos: it does not end.
std::size_t end_of_list(std::string_view text, std::size_t at) noexcept {
  int depth = 0;
  for (; at < text.size(); ++at) {
    if (text[at] == '<') ++depth;
    if (text[at] == '>' && --depth == 0) return at + 1;
  }
  return std::string_view::npos;
}

/// Arguments behind `kernel<traits`, all of them true or false.
struct Flags {
  static constexpr std::size_t kMost = 10;
  bool value[kMost] = {};
  std::size_t count = 0;  ///< 0: they are not what is looked for
};

Flags flags_behind(std::string_view text, std::string_view traits) noexcept {
  Flags flags;
  std::size_t at = text.find(traits);
  if (at == std::string_view::npos) return flags;
  at = end_of_list(text, at + traits.size());
  while (at != std::string_view::npos && at < text.size() && text[at] != '>') {
    const std::size_t end = text.find_first_of(",>", at + 1);
    if (end == std::string_view::npos) return {};
    std::string_view word = text.substr(at, end - at);
    word.remove_prefix(std::min(word.size(), word.find_first_not_of(", ")));
    while (!word.empty() && word.back() == ' ') word.remove_suffix(1);
    at = end;
    if (word.empty() && text[end] == '>') break;  // the list ends: `traits<...> >`
    const bool set = word == "true" || word == "(bool)1";
    if ((!set && word != "false" && word != "(bool)0") || flags.count == Flags::kMost) return {};
    flags.value[flags.count++] = set;
  }
  return flags;
}

/// Mask, lengths and width of a kernel of FlashAttention-2 with `traits<width, ...>`, which has `least` flags or more
/// since all of these are among them.
void read_flags(std::string_view name, std::string_view traits, std::size_t least, AttentionKernel& kernel) noexcept {
  const Flags flags = flags_behind(name, traits);
  if (flags.count < least) return;
  const bool causal = flags.value[1], local = flags.value[2], even_lengths = flags.value[4],
             even_width = flags.value[5];
  if (!local) kernel.mask = causal ? AttentionKernel::Mask::kCausal : AttentionKernel::Mask::kNone;
  kernel.whole_blocks = even_lengths;
  if (even_width) kernel.head_dim = template_number(name, traits, 0);
}

bool is_helper(std::string_view name) noexcept {
  for (const std::string_view piece :
       {"dot_do_o", "convert_d", "clear_d", "combine", "Combine", "preprocess", "Preprocess", "postprocess",
        "Postprocess", "prepare_varlen_num_blocks", "_fwd_kernel_stage2", "reduce_segments", "merge_attn",
        "MergeStates", "reduction"})
    if (has(name, piece)) return true;
  return false;
}

}  // namespace

AttentionKernel attention_kernel_of(std::string_view name) noexcept {
  using Axis = AttentionKernel::Axis;
  using Part = AttentionKernel::Part;
  AttentionKernel kernel;
  const bool backward = role_of_kernel(name).role == KernelRole::kAttentionBackward || has(name, "fmha_cutlassB") ||
                        has(name, "flash_bwd");
  kernel.part = is_helper(name) ? Part::kHelper : backward ? Part::kBackward : Part::kForward;
  if (has(name, "flash_fwd_kernel<") && has(name, "Flash_fwd_kernel_traits")) {
    kernel.sequences = Axis::kY;
    kernel.heads = Axis::kZ;
    kernel.queries_per_block = template_number(name, "Flash_fwd_kernel_traits", 1);
    read_flags(name, "Flash_fwd_kernel_traits", 7, kernel);
  } else if (has(name, "Flash_bwd_kernel_traits")) {
    kernel.sequences = Axis::kY;
    kernel.heads = Axis::kZ;
    // Of the three kernels, the one that does the work counts blocks of keys, or processors where it is deterministic.
    if (has(name, "dot_do_o") || has(name, "convert_dq")) {
      kernel.queries_per_block = template_number(name, "Flash_bwd_kernel_traits", 1);
    } else if (has(name, "seqk_parallel_kernel<")) {
      kernel.keys_per_block = template_number(name, "Flash_bwd_kernel_traits", 2);
      read_flags(name, "Flash_bwd_kernel_traits", 6, kernel);
    }
  } else if (has(name, "FlashAttnBwdPreprocess<")) {
    kernel.sequences = Axis::kZ;
    kernel.heads = Axis::kY;
    kernel.queries_per_block = template_number(name, "FlashAttnBwdPreprocess<cute::tuple<cute::C", 0);
  } else if (has(name, "_fwd_kernel_stage1") || has(name, "_fwd_grouped_kernel_stage1")) {
    kernel.sequences = Axis::kX;
  } else if (has(name, "masked_multihead_attention_kernel")) {
    kernel.sequences = Axis::kY;
  } else if (has(name, "FlashAttnFwdSm") || has(name, "FlashAttnBwdSm")) {
    kernel.said_by_helpers = true;
  } else if (const std::size_t at = name.find("fmha_cutlassF_"); at != std::string_view::npos) {
    kernel.sequences = Axis::kZ;
    kernel.heads = Axis::kY;
    // `fmha_cutlassF_bf16_aligned_64x128_rf_sm80`: blocks of queries x keys.
    const std::size_t tile = name.find("aligned_", at);  // also in `notaligned_`
    if (tile != std::string_view::npos) kernel.queries_per_block = number_at(name, tile + 8);
  } else if (has(name, "fmha_cutlassB_")) {
    kernel.sequences = Axis::kZ;
    kernel.heads = Axis::kY;
  }
  return kernel;
}

namespace {

std::optional<std::int64_t> along(AttentionKernel::Axis axis, const Grid& grid) noexcept {
  constexpr std::uint32_t kMost = 0xFFFF;  // pack(Grid) keeps so much of y and z
  switch (axis) {
    case AttentionKernel::Axis::kNone:
      return std::nullopt;
    case AttentionKernel::Axis::kX:
      // A port of these kernels to another platform has everything along x.
      return grid.x != 0 && (grid.y > 1 || grid.z > 1) ? std::optional<std::int64_t>(grid.x) : std::nullopt;
    case AttentionKernel::Axis::kY:
      return grid.y != 0 && grid.y < kMost ? std::optional<std::int64_t>(grid.y) : std::nullopt;
    case AttentionKernel::Axis::kZ:
      return grid.z != 0 && grid.z < kMost ? std::optional<std::int64_t>(grid.z) : std::nullopt;
  }
  return std::nullopt;
}

bool fills(std::int64_t count, std::int64_t per_block, std::int64_t blocks) noexcept {
  return count <= blocks * per_block && count > (blocks - 1) * per_block;
}

}  // namespace

std::optional<std::int64_t> sequences_of(const AttentionKernel& kernel, const Grid& grid) noexcept {
  return along(kernel.sequences, grid);
}

std::optional<std::int64_t> heads_of(const AttentionKernel& kernel, const Grid& grid) noexcept {
  return along(kernel.heads, grid);
}

bool may_have_queries(const AttentionKernel& kernel, const Grid& grid, std::int64_t queries) noexcept {
  return kernel.queries_per_block == 0 || grid.x == 0 || fills(queries, kernel.queries_per_block, grid.x);
}

bool has_keys(const AttentionKernel& kernel, const Grid& grid, std::int64_t keys) noexcept {
  return kernel.keys_per_block != 0 && grid.x != 0 && fills(keys, kernel.keys_per_block, grid.x) &&
         (!kernel.whole_blocks || keys % kernel.keys_per_block == 0);
}

}  // namespace mfu

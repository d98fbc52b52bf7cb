#include "core/kernels/attention_grid.h"

#include "core/kernels/kernel_role.h"

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

bool is_helper(std::string_view name) noexcept {
  for (const std::string_view piece : {"dot_do_o", "convert_d", "clear_d", "combine", "preprocess", "postprocess",
                                       "reduce_segments", "merge_attn", "MergeStates", "reduction"})
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
  } else if (has(name, "Flash_bwd_kernel_traits")) {
    kernel.sequences = Axis::kY;
    kernel.heads = Axis::kZ;
    // Of the three kernels, the one that does the work counts blocks of keys, or processors where it is deterministic.
    if (has(name, "dot_do_o") || has(name, "convert_dq"))
      kernel.queries_per_block = template_number(name, "Flash_bwd_kernel_traits", 1);
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

std::optional<std::int64_t> sequences_of(const AttentionKernel& kernel, const Grid& grid) noexcept {
  constexpr std::uint32_t kMost = 0xFFFF;  // what pack(Grid) keeps of y and z
  const std::uint32_t count = kernel.sequences == AttentionKernel::Axis::kY   ? grid.y
                              : kernel.sequences == AttentionKernel::Axis::kZ ? grid.z
                                                                              : 0;
  return count != 0 && count < kMost ? std::optional<std::int64_t>(count) : std::nullopt;
}

bool may_have_queries(const AttentionKernel& kernel, const Grid& grid, std::int64_t queries) noexcept {
  if (kernel.queries_per_block == 0 || grid.x == 0) return true;
  const std::int64_t block = kernel.queries_per_block, blocks = grid.x;
  return queries <= blocks * block && queries > (blocks - 1) * block;
}

}  // namespace mfu

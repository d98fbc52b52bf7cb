#include "core/kernels/tile.h"

#include <algorithm>

#include "core/kernels/attention_grid.h"
#include "core/kernels/kernel_traits.h"

namespace mfu {
namespace {

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }
bool has(std::string_view text, std::string_view piece) noexcept { return text.find(piece) != text.npos; }
constexpr std::int64_t blocks_of(std::int64_t size, std::int64_t block) noexcept { return (size + block - 1) / block; }
constexpr std::int64_t padded(std::int64_t size, std::int64_t block) noexcept {
  return block > 0 ? blocks_of(size, block) * block : size;
}

/// Reads a number off the front of `text`; 0: none there, or too large for a tile.
std::uint32_t take_number(std::string_view& text) noexcept {
  std::uint32_t value = 0;
  while (!text.empty() && is_digit(text.front()) && value < 10'000) {
    value = value * 10 + static_cast<std::uint32_t>(text.front() - '0');
    text.remove_prefix(1);
  }
  return value < 10'000 ? value : 0;
}

/// `128x64`, with the third of `128x64x32` where there is one.
struct Sizes {
  std::uint32_t a = 0, b = 0, c = 0;
  [[nodiscard]] bool found() const noexcept { return a > 0 && b > 0; }
};

Sizes take_sizes(std::string_view& text) noexcept {
  Sizes s;
  s.a = take_number(text);
  if (s.a == 0 || !text.starts_with('x')) return {};
  text.remove_prefix(1);
  s.b = take_number(text);
  if (text.starts_with('x')) {
    text.remove_prefix(1);
    s.c = take_number(text);
  }
  return s.found() ? s : Sizes{};
}

/// The first `_AxB` of `text`, which is cut behind it.
Sizes next_sizes(std::string_view& text) noexcept {
  while (!text.empty()) {
    const std::size_t at = text.find('_');
    if (at == text.npos) break;
    text.remove_prefix(at + 1);
    std::string_view rest = text;
    if (const Sizes s = take_sizes(rest); s.found()) {
      text = rest;
      return s;
    }
  }
  return {};
}

std::string_view behind(std::string_view text, std::string_view piece) noexcept {
  const std::size_t at = text.find(piece);
  return at == text.npos ? std::string_view{} : text.substr(at + piece.size());
}

/// The tile of a product, by the name.
struct GemmTile {
  std::uint32_t m = 0, n = 0, k = 0;
  std::uint32_t cluster = 1;  ///< blocks of a cluster: the grid is a multiple of it
  bool loops = false;         ///< blocks may loop over tiles, so that the grid does not count them
};

/// CUTLASS 3: the first tuple of three constants that is no cluster, `tuple<C<128>, C<256>, C<64>>`.
GemmTile cutlass3_tile(std::string_view name) noexcept {
  for (std::string_view rest = behind(name, "tuple<"); !rest.empty(); rest = behind(rest, "tuple<")) {
    std::uint32_t sizes[3] = {};
    std::string_view at = rest.substr(0, rest.find("tuple<"));
    for (std::uint32_t& size : sizes) {
      at = behind(at, "C<");
      if (at.starts_with("(int)")) at.remove_prefix(5);
      size = take_number(at);
    }
    if (sizes[0] >= 64 && sizes[1] >= 8 && sizes[2] >= 8) return {sizes[0], sizes[1], sizes[2], 1, true};
  }
  return {};
}

std::optional<GemmTile> gemm_tile(std::string_view name) noexcept {
  if (has(name, "winograd") || has(name, "fft") || has(name, "gemv") || has(name, "splitKreduce") ||
      has(name, "Grouped"))
    return std::nullopt;
  GemmTile tile;
  if (std::string_view rest = behind(name, "tilesize"); !rest.empty()) {
    const Sizes s = take_sizes(rest);
    tile = {s.a, s.b, s.c, 1, has(name, "sm90_") || has(name, "sm100_")};
  } else if (rest = behind(name, "nvjet_"); !rest.empty()) {
    rest = name.substr(name.find("nvjet_"));
    const Sizes s = next_sizes(rest), step = next_sizes(rest), cluster = next_sizes(rest);
    tile = {s.a, s.b, step.a, std::max(1u, cluster.a * cluster.b), true};
  } else if (has(name, "GemmUniversal") || has(name, "CollectiveMma")) {
    tile = cutlass3_tile(name);
  } else {
    for (const std::string_view word : {"gemm", "cudnn", "fprop", "dgrad", "wgrad"}) {
      rest = behind(name, word);
      if (rest.empty()) continue;
      const Sizes s = next_sizes(rest);
      std::string_view stages = behind(rest, "stages_");
      // CUTLASS writes the step right behind the tile, cuBLAS behind `stages_`.
      const Sizes step = stages.empty() ? take_sizes(rest.starts_with('_') ? (rest.remove_prefix(1), rest) : rest)
                                        : take_sizes(stages);
      tile = {s.a, s.b, step.a, 1, false};
      if (tile.m > 0) break;
    }
  }
  if (tile.m == 0 || tile.n == 0) return std::nullopt;
  return tile;
}

std::optional<Tiling> gemm_tiling(const GemmTile& tile, std::int64_t blocks,
                                  const std::optional<ProblemSize>& problem) noexcept {
  Tiling out;
  out.tile_m = tile.m;
  out.tile_n = tile.n;
  out.tile_k = tile.k;
  out.tiles = out.units = blocks;
  out.upper_bound = true;
  if (problem && problem->m > 0 && problem->n > 0) {
    out.tiles = blocks_of(problem->m, tile.m) * blocks_of(problem->n, tile.n) * problem->batch;
    out.upper_bound = false;
    if (!tile.loops && blocks < out.tiles) return std::nullopt;
    out.units = std::max(blocks, out.tiles);
  } else if (tile.loops) {
    return std::nullopt;
  }
  if (problem && problem->k > 0) {
    out.padded_flop =
        2.0 * tile.m * tile.n * static_cast<double>(out.tiles) * static_cast<double>(padded(problem->k, tile.k));
  }
  return out;
}

/// Key blocks that the query block `i` of FlashAttention-2 meets; its last query sees all keys.
std::int64_t key_blocks(std::int64_t i, const ProblemSize& p, std::int64_t queries, std::int64_t keys,
                        bool causal) noexcept {
  const std::int64_t all = blocks_of(p.n, keys);
  if (!causal) return all;
  return std::clamp<std::int64_t>(blocks_of((i + 1) * queries + p.n - p.m, keys), 0, all);
}

std::optional<Tiling> flash_tiling(std::string_view name, const Grid& grid,
                                   const std::optional<ProblemSize>& problem) noexcept {
  const bool backward = has(name, "flash_bwd_dq_dk_dv_loop_seqk_parallel"),
             split = has(name, "flash_fwd_splitkv_kernel");
  if (!backward && !split && !has(name, "flash_fwd_kernel")) return std::nullopt;
  std::string_view rest = behind(name, backward ? "Flash_bwd_kernel_traits<" : "Flash_fwd_kernel_traits<");
  std::uint32_t sizes[3] = {};  // width, queries, keys
  for (std::uint32_t& size : sizes) {
    while (!rest.empty() && !is_digit(rest.front())) rest.remove_prefix(1);
    size = take_number(rest);
    if (size == 0) return std::nullopt;
  }
  Tiling out;
  out.tile_m = sizes[1];
  out.tile_n = sizes[2];
  // One query of a split pass sees all keys.
  const AttentionKernel::Mask mask = split ? AttentionKernel::Mask::kNone : attention_kernel_of(name).mask;
  const std::int64_t along = backward ? sizes[2] : sizes[1];
  const std::int64_t products = split ? grid.z : static_cast<std::int64_t>(grid.y) * grid.z;
  if (!problem || problem->m <= 0 || problem->n <= 0 || mask == AttentionKernel::Mask::kUnknown) return std::nullopt;
  if (split && problem->m > 1) return std::nullopt;  // perhaps causal, or heads in the place of queries
  if (grid.x != blocks_of(backward ? problem->n : problem->m, along)) return std::nullopt;
  std::int64_t pairs = 0;
  for (std::int64_t i = 0; i < blocks_of(problem->m, sizes[1]); ++i)
    pairs += key_blocks(i, *problem, sizes[1], sizes[2], mask == AttentionKernel::Mask::kCausal);
  out.tiles = pairs * products;
  out.units = static_cast<std::int64_t>(grid.x) * grid.y * grid.z;
  out.padded_flop = (backward ? 10.0 : 4.0) * sizes[0] * sizes[1] * sizes[2] * static_cast<double>(out.tiles);
  return out;
}

std::optional<Tiling> memory_efficient_tiling(std::string_view name, const Grid& grid,
                                              const std::optional<ProblemSize>& problem) noexcept {
  std::string_view rest = behind(name, "fmha_cutlassF_");
  if (rest.empty() || !has(rest, "16_")) return std::nullopt;
  const Sizes block = next_sizes(rest);
  // AttentionKernel<type, arch, aligned, queries, keys, most width, ...>: one step along the keys holds a whole head.
  std::string_view arguments = behind(rest, "AttentionKernel<");
  for (int i = 0; i < 5 && !arguments.empty(); ++i) arguments = behind(arguments, ",");
  while (!arguments.empty() && !is_digit(arguments.front())) arguments.remove_prefix(1);
  const std::uint32_t width = take_number(arguments);
  if (!block.found() || !problem || problem->m <= 0 || problem->n <= 0) return std::nullopt;
  if (width != block.b || problem->k != width) return std::nullopt;  // several steps, or a head that is padded
  if (grid.x != blocks_of(problem->m, block.a)) return std::nullopt;
  const double blocks = static_cast<double>(grid.x) * grid.y * grid.z;
  Tiling out;
  out.tile_m = block.a;
  out.tile_n = block.b;
  out.units = static_cast<std::int64_t>(blocks);
  out.tiles = out.units * blocks_of(problem->n, block.b);
  out.padded_flop =
      blocks * 2.0 * block.a * width * static_cast<double>(padded(problem->n, block.b) + padded(problem->n, 32));
  return out;
}

}  // namespace

std::optional<Tiling> tiling_of(std::string_view demangled, const Grid& grid,
                                const std::optional<ProblemSize>& problem) noexcept {
  const std::int64_t blocks = static_cast<std::int64_t>(grid.x) * grid.y * grid.z;
  if (blocks <= 0) return std::nullopt;
  switch (classify_kernel(demangled)) {
    case KernelClass::kGemm: {
      const auto tile = gemm_tile(demangled);
      return tile ? gemm_tiling(*tile, blocks, problem) : std::nullopt;
    }
    case KernelClass::kAttention: {
      const auto flash = flash_tiling(demangled, grid, problem);
      return flash ? flash : memory_efficient_tiling(demangled, grid, problem);
    }
    default:
      return std::nullopt;
  }
}

}  // namespace mfu

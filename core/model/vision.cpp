#include "core/model/vision.h"

#include <algorithm>

namespace mfu {
namespace {

Count outputs_of_mlp(const VisionSpec& v) noexcept { return Count(v.mlp_matrices - 1) * v.mlp_width + v.width; }

void add_patches(const VisionSpec& v, Count patches, VisionCount& out) noexcept {
  out.patch_embed = patches * 2 * v.patch_elements * v.width;
  out.outputs += patches * v.width;
}

/// Linear parts of `layers` transformer blocks on `rows` rows.
void add_blocks(const VisionSpec& v, std::int64_t layers, Count attention_rows, Count mlp_rows,
                VisionCount& out) noexcept {
  const Count d = v.width, inner = v.inner > 0 ? v.inner : v.width;
  out.qkv += attention_rows * 6 * d * inner * layers;
  out.o_proj += attention_rows * 2 * d * inner * layers;
  out.mlp += mlp_rows * 2 * v.mlp_matrices * d * v.mlp_width * layers;
  out.outputs += attention_rows * (inner * 4 + d) * layers + mlp_rows * outputs_of_mlp(v) * layers;
}

/// Attention cores of `layers` layers over groups of `rows` rows that see each other.
void add_core(const VisionSpec& v, std::int64_t layers, Count group_rows_squared, VisionCount& out) noexcept {
  const Count inner = v.inner > 0 ? v.inner : v.width;
  out.attn_scores += group_rows_squared * 2 * inner * layers;
  out.attn_av += group_rows_squared * 2 * inner * layers;
}

void add_projector(const VisionSpec& v, Count patches, Count tokens, VisionCount& out) noexcept {
  const auto add = [&out](Count rows, std::int64_t in, std::int64_t width) {
    out.projector += rows * 2 * in * width;
    out.outputs += rows * width;
  };
  for (const auto& [in, width] : v.patch_projector) add(patches, in, width);
  for (const auto& [in, width] : v.projector) add(tokens, in, width);
  out.tokens_out = tokens;
}

VisionCount count_fixed(const VisionSpec& v) noexcept {
  VisionCount out;
  const std::int64_t edge = v.patch > 0 ? v.image / v.patch : 0;
  const Count patches = v.patches > 0 ? Count(v.patches) : Count(edge) * edge;
  const Count rows = patches + v.extra_tokens;
  add_patches(v, patches, out);
  add_blocks(v, v.layers, rows, rows, out);
  add_core(v, v.layers, rows * rows, out);
  if (v.pooling_head) {
    const Count d = v.width;
    out.qkv += (rows * 2 + 1) * 2 * d * d;
    out.o_proj += d * 2 * d;
    out.attn_scores += rows * 2 * d;
    out.attn_av += rows * 2 * d;
    out.mlp += d * 4 * v.mlp_width;
    out.outputs += rows * d * 2 + d * 4 + v.mlp_width;
  }
  Count tokens = patches.divided_by(std::max<std::int64_t>(1, v.merge * v.merge));
  if (v.pooled_tokens > 0) tokens = v.pooled_tokens;
  if (v.projector.empty() && v.merge <= 1 && v.pooled_tokens == 0) tokens = rows;
  add_projector(v, patches, tokens, out);
  out.other += v.image_flop;
  out.projector += v.projector_flop;
  const Count core = v.image_core + v.projector_core;
  out.attn_scores += core.divided_by(2);
  out.attn_av += core - core.divided_by(2);
  return out;
}

/// Nearest multiple of `step`, at least one.
std::int64_t round_to(std::int64_t value, std::int64_t step) noexcept {
  return std::max<std::int64_t>(1, (value + step / 2) / step) * step;
}

/// Sum of squares of the pieces that cutting `length` into steps of `step` leaves (the last may be shorter).
Count piece_squares(std::int64_t length, std::int64_t step) noexcept {
  const std::int64_t rest = length % step;
  return Count(length / step) * step * step + Count(rest) * rest;
}

VisionCount count_dynamic(const VisionSpec& v, std::int64_t height, std::int64_t width) noexcept {
  VisionCount out;
  const std::int64_t factor = std::max<std::int64_t>(1, v.patch * v.merge);
  const std::int64_t rows_high = round_to(height, factor) / std::max<std::int64_t>(1, v.patch);
  const std::int64_t rows_wide = round_to(width, factor) / std::max<std::int64_t>(1, v.patch);
  const Count patches = Count(rows_high) * rows_wide;
  add_patches(v, patches, out);
  add_blocks(v, v.layers, patches, patches, out);
  const std::int64_t global = v.window > 0 ? v.global_layers : v.layers;
  add_core(v, global, patches * patches, out);
  if (v.window > 0) {
    // Windows tile the image; those at the right and lower edge keep only the patches they have. A window of h x w
    // patches costs (h*w)^2, so the sum over the grid is the product of the sums over each edge.
    add_core(v, v.layers - global, piece_squares(rows_high, v.window) * piece_squares(rows_wide, v.window), out);
  }
  add_projector(v, patches, patches.divided_by(std::max<std::int64_t>(1, v.merge * v.merge)), out);
  return out;
}

// DeepSeek-OCR's encoder (its published deepencoder code): SAM-B (patch 16, width 768, 12 layers, windows of 14 except
// layers 2, 5, 8, 11), neck and two stride-2 convolutions, CLIP-L/14 of width 1024 on SAM's output, linear to the
// model.
VisionCount count_deep_encoder(const VisionSpec& v, std::int64_t edge_pixels) noexcept {
  VisionCount out;
  constexpr std::int64_t kPatch = 16, kWindow = 14, kWindowLayers = 8, kGlobalLayers = 4, kHeads = 12;
  VisionSpec sam;
  sam.width = 768;
  sam.mlp_width = 3072;
  sam.patch_elements = 3 * kPatch * kPatch;
  const std::int64_t edge = std::max<std::int64_t>(4, edge_pixels / kPatch);
  const Count patches = Count(edge) * edge;
  add_patches(sam, patches, out);
  // Windows are padded: the projections run on the padded rows, the MLP on the real ones.
  const std::int64_t windows_edge = (edge + kWindow - 1) / kWindow;
  const Count windows = Count(windows_edge) * windows_edge;
  const Count window_rows = kWindow * kWindow;
  add_blocks(sam, kWindowLayers, windows * window_rows, patches, out);
  add_core(sam, kWindowLayers, windows * window_rows * window_rows, out);
  add_blocks(sam, kGlobalLayers, patches, patches, out);
  add_core(sam, kGlobalLayers, patches * patches, out);
  // Decomposed relative positions: every query times the row table and the column table of its grid.
  out.other += windows * window_rows * 2 * sam.width * (2 * kWindow) * kWindowLayers;
  out.other += patches * 2 * sam.width * (Count(2) * edge) * kGlobalLayers;
  out.outputs += (windows * window_rows * (2 * kWindow) * kWindowLayers + patches * 2 * edge * kGlobalLayers) * kHeads;
  const Count half = Count((edge + 1) / 2) * ((edge + 1) / 2);
  const std::int64_t quarter_edge = ((edge + 1) / 2 + 1) / 2;
  const Count quarter = Count(quarter_edge) * quarter_edge;
  out.convolution = patches * 2 * (768 * 256 + 9 * 256 * 256);  // neck: 1x1 and 3x3
  out.convolution += half * 2 * (9 * 256 * 512);
  out.convolution += quarter * 2 * (9 * 512 * 1024);
  out.other += out.convolution;
  out.outputs += patches * 2 * 256 + half * 512 + quarter * 1024;
  const Count clip_rows = quarter + v.extra_tokens;
  add_blocks(v, v.layers, clip_rows, clip_rows, out);
  add_core(v, v.layers, clip_rows * clip_rows, out);
  add_projector(v, quarter, quarter, out);
  return out;
}

constexpr Count VisionCount::*kCounts[] = {
    &VisionCount::patch_embed, &VisionCount::qkv,     &VisionCount::attn_scores, &VisionCount::attn_av,
    &VisionCount::o_proj,      &VisionCount::mlp,     &VisionCount::projector,   &VisionCount::other,
    &VisionCount::convolution, &VisionCount::outputs, &VisionCount::tokens_out,
};

}  // namespace

VisionCount& VisionCount::operator+=(const VisionCount& more) noexcept {
  for (const auto count : kCounts) this->*count += more.*count;
  return *this;
}

VisionCount operator*(VisionCount counted, Count times) noexcept {
  for (const auto count : kCounts) counted.*count *= times;
  return counted;
}

VisionCount operator-(VisionCount all, const VisionCount& part) noexcept {
  for (const auto count : kCounts) all.*count = all.*count - part.*count;
  return all;
}

VisionCount count_image(const VisionSpec& tower, std::int64_t height, std::int64_t width) noexcept {
  switch (tower.kind) {
    case VisionKind::kFixed:
      return count_fixed(tower);
    case VisionKind::kDynamic:
      return count_dynamic(tower, height, width);
    case VisionKind::kDeepEncoder:
      return count_deep_encoder(tower, std::max(height, width));
  }
  return {};
}

std::pair<std::int64_t, std::int64_t> default_image(const VisionSpec& tower) noexcept {
  if (tower.kind == VisionKind::kDynamic) return {0, 0};
  return {tower.image, tower.image};
}

}  // namespace mfu

// FLOP of vision towers and their projectors, image by image.
#pragma once

#include <cstdint>
#include <utility>

#include "core/base/count.h"
#include "core/model/architecture.h"

namespace mfu {

/// Forward FLOP of one image, or of several.
struct VisionCount {
  Count patch_embed, qkv, attn_scores, attn_av, o_proj, mlp, projector;
  Count other;        ///< SAM: relative positions and convolutions
  Count convolution;  ///< the part of `other` that is known to be convolutions
  Count outputs;      ///< elements that products and convolutions write, `image_flop` left out
  Count tokens_out;   ///< image tokens that enter the decoder

  VisionCount& operator+=(const VisionCount& more) noexcept;
  friend VisionCount operator*(VisionCount count, Count times) noexcept;
  friend VisionCount operator-(VisionCount all, const VisionCount& part) noexcept;

  [[nodiscard]] Count sum() const noexcept {
    return patch_embed + qkv + attn_scores + attn_av + o_proj + mlp + projector + other;
  }
};

/// One image of `height` x `width` pixels. Towers of a fixed size resize every image to it; Qwen-VL towers round each
/// edge to the nearest multiple of patch x merge; DeepSeek-OCR takes the larger edge (640 or 1024 in its own use).
[[nodiscard]] VisionCount count_image(const VisionSpec& tower, std::int64_t height, std::int64_t width) noexcept;

/// The image that a tower gets when no size is given: its own for fixed ones; none (0, 0) for dynamic ones.
[[nodiscard]] std::pair<std::int64_t, std::int64_t> default_image(const VisionSpec& tower) noexcept;

}  // namespace mfu

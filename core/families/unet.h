// The UNets of Stable Diffusion 1.5, 2 and XL, as diffusers ships their config. Internal to the readers of this room.
#pragma once

#include <string_view>

#include "core/base/json_fields.h"
#include "core/model/architecture.h"

namespace mfu {

inline constexpr std::string_view kUNetType = "UNet2DConditionModel";

/// Convolutions and transformer blocks on a picture that is halved from level to level
/// (arXiv:2112.10752, arXiv:2307.01952; the published code of diffusers). A token is a pixel of the latent picture;
/// `encoder_len` are the tokens of the text.
void build_unet(const Fields& f, Architecture& spec);

}  // namespace mfu

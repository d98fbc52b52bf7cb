// From a model's config to its dimensions: one table with an entry per family.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/model/architecture.h"

namespace mfu {

/// Reads a model config: a Hugging Face `config.json`, that of a diffusers transformer, `params.json` of Meta and
/// Mistral, arguments of Megatron-LM and nanoGPT, the project's own schema
/// ({"d_model", "vocab_size", "layers": [...]}) or {"params": N}.
/// \param text JSON; \param place what precedes a key in messages, e.g. `config.json: `.
/// Error: key, value and what was expected; an unknown `model_type` is named, with the ways on. Never a guess: a
/// missing key takes the default of the family's published configuration class where that class is known to leave it
/// out. A type that no row knows is read by the usual key names of decoders, if it has them; `assumed` then says so.
[[nodiscard]] Result<Architecture> read_model(std::string_view text, std::string_view place);
/// The same of a config that was parsed already.
[[nodiscard]] Result<Architecture> read_parsed_model(const nlohmann::json& config, std::string_view place);

/// How many bits a weight of `dtype` takes, block scales included: mxfp4 4.25, nvfp4 and nf4 4.5.
[[nodiscard]] WeightFormat weight_format(DType dtype);

/// The types nearest in spelling to `type`, nearest first: `qwen3, qwen2, qwen3_vl`.
[[nodiscard]] std::string nearest_model_types(std::string_view type, std::size_t most = 3);

/// Every `model_type` that read_model knows, for messages and tests.
[[nodiscard]] std::vector<std::string_view> known_model_types();

}  // namespace mfu

// Where a config comes from: inline JSON, a file, a folder, or a model id in the local Hugging Face cache.
#pragma once

#include <string>
#include <string_view>

#include "core/base/environment.h"
#include "core/base/result.h"

namespace mfu {

/// The text of a config and where it was found.
struct ConfigText {
  std::string text;
  std::string name;    ///< for messages: file name as given or found, or `inline`
  std::string folder;  ///< that relative paths inside it start from; empty: the working directory
};

/// Finds and reads `source`: text that starts with `{`, a file, a folder that holds config.json, or a model id such as
/// `Qwen/Qwen3-8B` in HF_HUB_CACHE, HF_HOME/hub or ~/.cache/huggingface/hub.
/// \param folder relative paths are tried here first. The Error names the file and the places where it was looked for.
[[nodiscard]] Result<ConfigText> find_config_text(std::string_view source, const std::string& folder,
                                                  const Getenv& getenv);

}  // namespace mfu

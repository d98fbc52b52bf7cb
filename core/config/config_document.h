// A config as JSON, in the one form that everything else reads.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/environment.h"
#include "core/base/result.h"

namespace mfu {

/// The wrapper {"model": {...}, "workload": {...}, ...}. A plain model config was put into one, and a `model` that
/// names a file or a model id was replaced by what it names.
struct ConfigDocument {
  ConfigDocument();  ///< an empty object
  ConfigDocument(ConfigDocument&&) noexcept;
  ConfigDocument& operator=(ConfigDocument&&) noexcept;
  ~ConfigDocument();

  [[nodiscard]] nlohmann::json& root() noexcept { return *root_; }
  [[nodiscard]] const nlohmann::json& root() const noexcept { return *root_; }

  std::string place;        ///< before keys of the wrapper, in messages: `job.json: `
  std::string model_place;  ///< before keys of the model: `job.json: model.`
  struct RepeatedKey {
    std::string place, key;
  };
  std::vector<RepeatedKey> repeated;  ///< keys that one object names twice: the last value counts

  std::string model_source;  ///< where the model was found: path, or `inline`; empty: none

 private:
  std::unique_ptr<nlohmann::json> root_;
};

/// Finds and parses `source` (see find_config_text) and what its `model` names.
/// \param origin before every message: the variable that named the source; empty: the command line
[[nodiscard]] Result<ConfigDocument> read_document(std::string_view source, std::string_view origin,
                                                   const Getenv& getenv);

}  // namespace mfu

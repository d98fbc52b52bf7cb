#include "core/config/config.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "core/config/config_document.h"
#include "core/config/config_file.h"
#include "core/config/overrides.h"
#include "core/config/resolved.h"
#include "core/config/variables.h"

namespace mfu {
namespace {

/// Everything; later words overrule earlier ones: variables, config file, overrides, peak variables.
Config load(const char* source, std::string_view origin, const Getenv& getenv, const char* const* environ_block,
            std::vector<Override> overrides) {
  Config config;
  std::vector<Problem>& problems = config.problems;
  read_variables(getenv, config, &problems);
  check_spelling(environ_block, &problems);
  if (config.disabled) return config;
  ConfigDocument document;
  if (source != nullptr) {
    if (Result<ConfigDocument> found = read_document(source, origin, getenv)) {
      document = std::move(*found);
    } else {
      problems.push_back({"", "", Problem::Kind::kNoModel, found.error().message, "measuring time only"});
    }
  }
  if (document.place.empty()) document.place = "MFU_SET: ";
  if (document.model_place.empty()) document.model_place = "MFU_SET: model.";
  if (const char* text = value_of(getenv, "MFU_SET")) {
    std::vector<Override> given = parse_overrides(text, "MFU_SET", &problems);
    overrides.insert(overrides.begin(), std::make_move_iterator(given.begin()), std::make_move_iterator(given.end()));
  }
  apply_overrides(overrides, document.root(), &problems);
  FlopsOptions options;
  read_config_file(document, overrides, config, options, &problems);
  read_peak_variables(getenv, config, &problems);
  config.resolved_json = resolved_json(config, options);
  return config;
}

void write_warnings(Config& config) {
  for (const Problem& problem : config.problems) config.warnings.push_back(problem.line());
}

}  // namespace

Config load_config(const Getenv& getenv, const char* const* environ_block) {
  try {
    Config config = load(value_of(getenv, "MFU_MODEL_CONFIG"), "MFU_MODEL_CONFIG", getenv, environ_block, {});
    write_warnings(config);
    return config;
  } catch (...) {  // out of memory: the host goes on, without a model
  }
  Config fallback;
  fallback.warnings.emplace_back("MFU_MODEL_CONFIG: could not be read; measuring time only");
  return fallback;
}

Result<Config> load_config_file(std::string_view source, const Getenv& getenv, std::vector<Override> overrides) {
  try {
    Config config = load(std::string(source).c_str(), "", getenv, nullptr, std::move(overrides));
    // A person waits for the answer: a config that cannot be read as it was meant is an error. Unknown keys leave a
    // usable one, and what the variables say is for a run.
    for (const Problem::Kind kind : {Problem::Kind::kNoModel, Problem::Kind::kValue}) {
      for (const Problem& problem : config.problems) {
        if (problem.kind == kind && !(kind == Problem::Kind::kValue && problem.place.empty()))
          return Error{problem.complaint()};
      }
    }
    write_warnings(config);
    return config;
  } catch (...) {
    return Error{"out of memory while reading the config"};
  }
}

}  // namespace mfu

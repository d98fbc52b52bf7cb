// The options of `mfu serve`. The server is a separate module, so that the command needs no HTTP server to start.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace mfu {

/// What is exported of each rank; the job's own metrics always are.
enum class PerRank {
  kAuto,  ///< kAll up to 128 ranks, kMfu beyond: a scrape of 1,000 ranks stays below 1 MB
  kAll,
  kMfu,  ///< mfu_rank_up and the ratios of the newest window
  kNone,
};

struct ServeOptions {
  std::vector<std::string> directories;
  std::string address = "127.0.0.1";
  int port = 9977;                         ///< 0: any that is free
  std::vector<std::string> allowed_hosts;  ///< further names of this server, as HttpServer takes them
  std::string textfile;                    ///< write the exposition there instead of serving it
  bool once = false;                       ///< of textfile: write it once
  double every_s = 10;                     ///< between writes of textfile
  std::string job;                         ///< the label `job`; empty: the first directory's name
  PerRank per_rank = PerRank::kAuto;
  std::optional<double> gpu_hour;  ///< price of a GPU for an hour
  /// The live page at `/`, as HTML; an Error is shown instead. Called again and again, from one thread at a time.
  std::function<Result<std::string>()> page;
  /// Puts `text` into the file `path`, whole.
  std::function<Result<void>(const std::string& path, const std::string& text)> replace;
};

/// Serves until SIGINT or SIGTERM. \return an exit code; errors are on stderr.
using ServeFunction = int(const ServeOptions&);
inline constexpr const char* kServeModule = "libmfu_serve.so";
inline constexpr const char* kServeSymbol = "mfu_serve";

}  // namespace mfu

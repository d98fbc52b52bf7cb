// `mfu serve`: a job's run directories as Prometheus metrics.
#include <dlfcn.h>

#include <memory>
#include <ostream>
#include <string>

#include "core/base/say.h"
#include "tools/commands/commands.h"
#include "tools/commands/job_input.h"
#include "tools/commands/library_path.h"
#include "tools/commands/output_file.h"
#include "tools/job/cost.h"
#include "tools/report/page/page.h"
#include "tools/run_dir/find_run_dir.h"
#include "tools/serve/server_module.h"

namespace mfu {
namespace {

/// The report of the job so far, as a page that loads itself again.
Result<std::string> live_page(const std::string& path, const std::optional<double>& gpu_hour) {
  constexpr int kRefreshS = 10;
  try {
    Result<Job> job = read_job({path, {.gpu_hour = gpu_hour}, "", nullptr}, nullptr, [](std::string_view) {});
    if (!job) return job.error();
    return run_page(*job, MFU_VERSION, {nullptr, kRefreshS});
  } catch (const std::exception& e) {
    return Error{e.what()};
  }
}

int serve(ServeOptions& options) {
  const auto fail = [](const std::string& message) { return say_error("serve", message); };
  auto directories = find_run_dirs(options.directories);
  if (!directories) return fail(directories.error().message);
  options.directories = std::move(*directories);
  const Result<std::optional<double>> price = gpu_hour(options.gpu_hour);
  if (!price) return say_error("serve", price.error().message, kUsageError);
  options.gpu_hour = *price;
  const auto path = installed_file(kServeModule);
  if (!path) return fail(path.error().message);
  void* module = ::dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr)
    return fail(std::string(::dlerror()) +
                "; it needs libprometheus-cpp-core and libcivetweb (Debian: libprometheus-cpp-core1.0, libcivetweb1)");
  auto* function = reinterpret_cast<ServeFunction*>(::dlsym(module, kServeSymbol));
  if (function == nullptr) return fail(*path + ": not of this version: no " + kServeSymbol);
  options.page = [&options] { return live_page(options.directories.front(), options.gpu_hour); };
  options.replace = [](const std::string& file, const std::string& text) {
    return replace_file(file, PathFrom::kDefault, [&text](std::ostream& out) -> Result<void> {
      out << text;
      return {};
    });
  };
  return function(options);
}

}  // namespace

void add_serve(CommandLine& line) {
  auto options = std::make_shared<ServeOptions>();
  Command sub = line.command("serve", "Every rank as Prometheus metrics, and the live page");
  sub.option("dir", options->directories,
             "run directories, or files of one; default: MFU_RUN_DIR, else the newest in ./mfu-runs");
  sub.option("-p,--port", options->port, "port; 0: any that is free; default: 9977", {.between = {0, 65535}});
  sub.option("--address", options->address, "address to listen on; default: 127.0.0.1; 0.0.0.0: all of them");
  sub.option(
      "--allow-host", options->allowed_hosts,
      "a name under which others ask for this server, behind addresses, localhost and this machine's name; '*': any");
  sub.option("--textfile", options->textfile, "write FILE for node_exporter's textfile collector instead of serving",
             {.type = "FILE", .excludes = {"--port", "--address", "--allow-host"}});
  sub.flag("--once", options->once, "with --textfile: write it once and end", {.needs = {"--textfile"}});
  sub.option("--every", options->every_s, "with --textfile: seconds between writes; default: 10",
             {.between = {0.1, 86400.0}, .needs = {"--textfile"}});
  const auto per_rank = std::make_shared<std::string>("auto");
  sub.option("--per-rank", *per_rank,
             "what is exported of each rank: all, mfu (its ratios), none; default: all up to 128 ranks, then mfu",
             {.one_of = {"auto", "all", "mfu", "none"}, .any_case = true});
  add_price_option(sub, options->gpu_hour);
  sub.option("--job", options->job, "the label `job`; default: the directory's name");
  sub.footer(
      {"mfu serve runs/today", "mfu serve runs/today --port 9100 --address 0.0.0.0",
       "mfu serve runs/today --textfile mfu.prom --once"},
      "0; 1 when a directory cannot be read, the port is taken or the file cannot be written; with --once also when "
      "no file of a run can be used");
  sub.action([options, per_rank] {
    options->per_rank = *per_rank == "all"    ? PerRank::kAll
                        : *per_rank == "mfu"  ? PerRank::kMfu
                        : *per_rank == "none" ? PerRank::kNone
                                              : PerRank::kAuto;
    return serve(*options);
  });
}

}  // namespace mfu

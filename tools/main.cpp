// `mfu`: one command, a file per subcommand.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "core/base/build_info.h"
#include "core/base/edit_distance.h"
#include "tools/commands/commands.h"

namespace {

/// `; did you mean report?` where one is near.
std::string nearest_command(const CLI::App& app, const std::string& word) {
  std::string best;
  std::size_t least = 3;  // letters that may be wrong
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    const std::size_t distance = mfu::edit_distance(word, command->get_name());
    if (distance >= least) continue;
    least = distance;
    best = command->get_name();
  }
  return best.empty() ? "" : "; did you mean " + best + "?";
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) arguments.emplace_back(argv[i]);
  CLI::App app("MFU of a model's regions: live, from traces, from shapes", "mfu");
  const std::string commit(mfu::build_commit());
  const std::string kind(mfu::build_kind());
  const std::string origin = commit + (commit.empty() || kind.empty() ? "" : ", ") + kind;
  app.set_version_flag("--version", MFU_VERSION + (origin.empty() ? "" : " (" + origin + ")"));
  app.require_subcommand(0, 1);
  app.footer(mfu::help_footer({"mfu demo", "mfu run -c config.json python train.py", "mfu doctor", "mfu run --help"},
                              "that of the command, which its own --help explains"));
  mfu::add_run(app, arguments);
  mfu::add_flops(app);
  mfu::add_plan(app);
  mfu::add_replay(app);
  mfu::add_report(app);
  mfu::add_compare(app);
  mfu::add_serve(app);
  mfu::add_top(app);
#ifdef MFU_HAVE_CUDA
  mfu::add_demo(app);
  mfu::add_doctor(app);
#endif
  mfu::add_completion(app);
  mfu::add_man(app);
  const auto is_named = [&](const CLI::App* command) { return command->get_name() == arguments.front(); };
  if (!arguments.empty() && !arguments.front().starts_with('-') && app.get_subcommands(is_named).empty()) {
    // `mfu help run` and `mfu version` are what people try first.
    if (arguments.front() == "help" || arguments.front() == "version") {
      const bool help = arguments.front() == "help";
      arguments.erase(arguments.begin());
      if (!help) arguments.clear();
      arguments.emplace_back(help ? "--help" : "--version");
    } else {
      std::fprintf(stderr, "mfu: no command \"%s\"%s; mfu --help lists those there are\n", arguments.front().c_str(),
                   nearest_command(app, arguments.front()).c_str());
      return mfu::kUsageError;
    }
  }
  if (arguments.empty()) {
    std::fputs(app.help().c_str(), stderr);
    return mfu::kUsageError;
  }
  const std::string named = "mfu" + (arguments.front().starts_with('-') ? "" : " " + arguments.front());
  std::reverse(arguments.begin(), arguments.end());  // the order that CLI11 wants them in
  try {
    app.parse(arguments);
  } catch (const CLI::RuntimeError& result) {
    return result.get_exit_code();
  } catch (const CLI::ParseError& wrong) {
    if (wrong.get_exit_code() == 0) return app.exit(wrong);  // --help, --version
    std::fprintf(stderr, "%s: %s\n%s --help lists the options\n", named.c_str(), wrong.what(), named.c_str());
    return mfu::kUsageError;
  }
  return 0;
}

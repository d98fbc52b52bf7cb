// `mfu`: one command, a file per subcommand.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "tools/commands/commands.h"

int main(int argc, char** argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) arguments.emplace_back(argv[i]);
  CLI::App app("MFU of a model's regions: live, from traces, from shapes", "mfu");
  app.set_version_flag("--version", MFU_VERSION);
  app.require_subcommand(1);
  app.footer(mfu::help_footer({"mfu demo", "mfu run -c config.json python train.py", "mfu doctor", "mfu run --help"},
                              "that of the command, which its own --help explains"));
  mfu::add_run(app, arguments);
  mfu::add_flops(app);
  mfu::add_plan(app);
  mfu::add_replay(app);
  mfu::add_report(app);
  mfu::add_serve(app);
  mfu::add_top(app);
#ifdef MFU_HAVE_CUDA
  mfu::add_demo(app);
  mfu::add_doctor(app);
#endif
  mfu::add_completion(app);
  const auto is_named = [&](const CLI::App* command) { return command->get_name() == arguments.front(); };
  if (!arguments.empty() && !arguments.front().starts_with('-') && app.get_subcommands(is_named).empty()) {
    std::fprintf(stderr, "mfu: no command \"%s\"; mfu --help lists those there are\n", arguments.front().c_str());
    return mfu::kUsageError;
  }
  std::reverse(arguments.begin(), arguments.end());  // the order that CLI11 wants them in
  try {
    app.parse(arguments);
  } catch (const CLI::RuntimeError& result) {
    return result.get_exit_code();
  } catch (const CLI::ParseError& wrong) {
    return app.exit(wrong) == 0 ? 0 : mfu::kUsageError;  // 0: --help, --version
  }
  return 0;
}

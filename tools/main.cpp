// `mfu`: one command, a file per subcommand.
#include <CLI/CLI.hpp>

#include "tools/commands.h"

int main(int argc, char** argv) {
  CLI::App app("MFU of a model's regions: live, from traces, from shapes", "mfu");
  app.set_version_flag("--version", MFU_VERSION);
  app.require_subcommand(1);
  mfu::add_run(app);
  mfu::add_flops(app);
  mfu::add_plan(app);
  mfu::add_replay(app);
  mfu::add_serve(app);
  mfu::add_top(app);
#ifdef MFU_HAVE_CUDA
  mfu::add_demo(app);
  mfu::add_doctor(app);
#endif
  CLI11_PARSE(app, argc, argv);
  return 0;
}

// `mfu`: one command, a file per subcommand.
#include <CLI/CLI.hpp>

#include "tools/commands.h"

#ifdef MFU_HAVE_DEMO
#include "tools/demo.h"
#endif

int main(int argc, char** argv) {
  CLI::App app("MFU of model regions: live, from traces, from shapes", "mfu");
  app.require_subcommand(1);
  mfu::add_flops(app);
  mfu::add_plan(app);
#ifdef MFU_HAVE_DEMO
  mfu::add_demo(app);
#endif
  CLI11_PARSE(app, argc, argv);
  return 0;
}

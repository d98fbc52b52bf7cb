// `mfu`: one command, one file per subcommand.
#include <CLI/CLI.hpp>

#include "tools/commands.h"

int main(int argc, char** argv) {
  CLI::App app{"mfu: live and offline model FLOP utilisation"};
  app.require_subcommand(1);
  mfu::add_replay(app);
  CLI11_PARSE(app, argc, argv);
  return 0;
}

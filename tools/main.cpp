// `mfu`: one command, a file per subcommand.
#include <string>
#include <vector>

#include "core/base/build_info.h"
#include "tools/commands/commands.h"

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::string commit(mfu::build_commit());
  const std::string kind(mfu::build_kind());
  const std::string origin = commit + (commit.empty() || kind.empty() ? "" : ", ") + kind;
  mfu::CommandLine line("MFU of a model's regions: live, from traces, from shapes",
                        MFU_VERSION + (origin.empty() ? "" : " (" + origin + ")"));
  line.whole().footer({"mfu demo", "mfu run -c config.json python train.py", "mfu doctor", "mfu run --help"},
                      "that of the command, which its own --help explains");
  line.title("Measure a program");
  mfu::add_run(line, arguments);
  mfu::add_top(line);
#ifdef MFU_HAVE_CUDA
  mfu::add_demo(line);
  mfu::add_doctor(line);
  mfu::add_verdict(line);
#endif
  line.title("Look at what was measured");
  mfu::add_report(line);
  mfu::add_advise(line);
  mfu::add_compare(line);
  mfu::add_replay(line);
  mfu::add_serve(line);
  mfu::add_collect(line);
  line.title("Count without a run");
  mfu::add_flops(line);
  mfu::add_plan(line);
  line.title("For the shell");
  mfu::add_completion(line);
  mfu::add_man(line);
  if (!arguments.empty() && arguments.front() == "__complete")
    return mfu::complete(line, {arguments.begin() + 1, arguments.end()});
  return line.run(std::move(arguments));
}

// `mfu verdict`: tries the library's assumptions on this machine. The steps are Python (mfuinject/verdict).
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/say.h"
#include "tools/commands/child.h"
#include "tools/commands/commands.h"

namespace mfu {
namespace {

namespace fs = std::filesystem;

struct VerdictCall {
  double minutes = 10;
  std::string out, python = "python3";
  std::vector<std::string> only;
  bool list = false, small = false;
};

/// The folder that holds `mfuinject/verdict`: in a wheel the one around this command's, after `cmake --install` in
/// share, in a build folder the sources'.
std::optional<fs::path> package_root() {
  std::error_code error;
  const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& root :
       {here.parent_path(), here.parent_path() / "share/mfuinject/python", here.parent_path().parent_path() / "python"})
    if (fs::exists(root / "mfuinject/verdict/__main__.py", error)) return root;
  return std::nullopt;
}

int run_verdict(const VerdictCall& call) {
  const std::optional<fs::path> root = package_root();
  if (!root) return say_error("verdict", "its files (mfuinject/verdict) are not beside this command");
  std::error_code error;
  const std::string mfu = fs::read_symlink("/proc/self/exe", error).string(), minutes = fmt::format("{}", call.minutes);
  std::vector<std::string> words{call.python, "-m", "mfuinject.verdict", "--mfu", mfu, "--minutes", minutes};
  if (!call.out.empty()) words.insert(words.end(), {"--out", call.out});
  if (call.list) words.emplace_back("--list");
  if (call.small) words.emplace_back("--small");
  if (!call.only.empty()) {
    words.emplace_back("--only");
    words.insert(words.end(), call.only.begin(), call.only.end());
  }
  const char* before = ::getenv("PYTHONPATH");
  const std::string path = root->string() + (before != nullptr && *before != '\0' ? ":" + std::string(before) : "");
  ::setenv("PYTHONPATH", path.c_str(), 1);
  const std::vector<char*> argv = spawn_arguments(words);
  ::execvp(argv[0], argv.data());
  return say_error("verdict", call.python + ": " + std::strerror(errno));
}

}  // namespace

void add_verdict(CommandLine& line) {
  const auto call = std::make_shared<VerdictCall>();
  Command command =
      line.command("verdict", "Try on this machine what the library assumes about a GPU: ten minutes, one file");
  command.option("--minutes", call->minutes, "for all steps together",
                 {.between = {0.1, 600.0}, .shows_default = true});
  command.option("--out", call->out, "the result file; without it verdict-HOST-DATE.json.gz in this folder",
                 {.type = "FILE"});
  command.option("--only", call->only, "this step alone, several times for several (--list names them)",
                 {.type = "STEP", .one_value_each = true});
  command.flag("--list", call->list, "name the steps and stop");
  command.option("--python", call->python, "the Python whose packages are tried",
                 {.type = "PROGRAM", .shows_default = true});
  command.flag("--small", call->small, "little of everything: tries the steps, not the machine");
  command.footer(
      {"mfu verdict", "mfu verdict --only injection --only work", "mfu verdict --minutes 15 --out verdict.json.gz"},
      "0 all checks held, 1 some did not, 2 wrong arguments, 77 no GPU");
  command.action([call] { return run_verdict(*call); });
}

}  // namespace mfu

// The subcommands of `mfu`: each adds itself to the command line. Their callbacks throw CLI::RuntimeError with the exit
// code when that is not 0.
#pragma once

#include <cstdlib>
#include <initializer_list>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace mfu {

constexpr int kUsageError = 2;  ///< exit code of a command line that cannot be understood, whichever command it names

/// What the `--help` of every command ends with. `exit_codes`: the command's own, as a sentence without its full stop.
[[nodiscard]] inline std::string help_footer(std::initializer_list<const char*> examples, const char* exit_codes) {
  std::string text = "Examples:\n";
  for (const char* example : examples) text += std::string("  ") + example + "\n";
  return text + "Exit code: " + exit_codes + "; 2 when the command line is wrong.";
}

/// For CLI11's check(): what is wrong with the text of an option that takes a number above 0, or nothing.
[[nodiscard]] inline std::string above_zero(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return *end == '\0' && value > 0 && value < 1e9 ? "" : "expected a number above 0, got \"" + text + "\"";
}

/// `mfu run [options] [--] CMD...`: CMD with the library in it. Takes CMD off `arguments` (the words after `mfu`): its
/// options are its own, whatever they are called.
void add_run(CLI::App& app, std::vector<std::string>& arguments);

/// `mfu doctor`: what works on this machine and what does not.
void add_doctor(CLI::App& app);

/// `mfu flops CONFIG`: what MFU multiplies by, component by component.
void add_flops(CLI::App& app);

/// `mfu plan`: Chinchilla-optimal parameters, tokens and days for a compute budget.
void add_plan(CLI::App& app);

/// `mfu replay TRACE...`: stored traces through the same core.
void add_replay(CLI::App& app);

/// `mfu top`: every rank of a job in the terminal.
void add_top(CLI::App& app);

/// `mfu serve`: a job as Prometheus metrics.
void add_serve(CLI::App& app);

/// `mfu report DIR|TRACE`: a run as a page, JSON, CSV, a Chrome trace; assertions for CI; two runs side by side.
void add_report(CLI::App& app);

/// `mfu compare A B`: what differs between two runs, and where the change comes from.
void add_compare(CLI::App& app);

/// `mfu demo`: a small transformer's launches through the real library.
void add_demo(CLI::App& app);

/// `mfu completion SHELL`: a shell's completion of every command that `app` has by the time it is asked.
void add_completion(CLI::App& app);

/// `mfu man`: the manual page of every command that `app` has by the time it is asked.
void add_man(CLI::App& app);

}  // namespace mfu

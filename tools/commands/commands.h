// The subcommands of `mfu`: each adds itself to the command line.
#pragma once

#include <string>
#include <vector>

#include "tools/commands/command_line.h"

namespace mfu {

/// `mfu run [options] [--] CMD...`: CMD with the library in it. Takes CMD off `arguments` (the words after `mfu`): its
/// options are its own, by any name.
void add_run(CommandLine& line, std::vector<std::string>& arguments);

/// `mfu doctor` finds everything that prevents a measurement on this machine.
void add_doctor(CommandLine& line);

/// `mfu flops CONFIG`: FLOP, bytes and parameters, component by component.
void add_flops(CommandLine& line);

/// `mfu plan`: Chinchilla-optimal parameters, tokens and days for a compute budget.
void add_plan(CommandLine& line);

/// `mfu replay TRACE...`: stored traces through the same core.
void add_replay(CommandLine& line);

/// `mfu top`: every rank of a job in the terminal.
void add_top(CommandLine& line);

/// `mfu serve`: a job as Prometheus metrics.
void add_serve(CommandLine& line);

/// `mfu collect DIR --to DIR2`: run files to where all are read.
void add_collect(CommandLine& line);

/// `mfu report DIR|TRACE`: a run as a page, JSON, CSV, a Chrome trace; assertions for CI.
void add_report(CommandLine& line);

/// `mfu advise DIR|TRACE` says what to do next, and on what evidence.
void add_advise(CommandLine& line);

/// `mfu compare A B`: differences between two runs, and the causes of a change.
void add_compare(CommandLine& line);

/// `mfu demo`: a small transformer's launches through the real library.
void add_demo(CommandLine& line);

/// `mfu verdict`: tries on this machine what the library assumes about a GPU.
void add_verdict(CommandLine& line);

/// `mfu completion SHELL`: a shell's completion of every command that `line` has by the time it is asked.
void add_completion(CommandLine& line);

/// `mfu __complete WORDS...`: candidates for the last word, for the scripts of `mfu completion`. A candidate a
/// line, `word<TAB>description`, or one of `:files` (a path) and `:program N` (a program begins at word N from 0).
[[nodiscard]] int complete(const CommandLine& line, const std::vector<std::string>& words);

/// `mfu man`: the manual page of every command that `line` has by the time it is asked.
void add_man(CommandLine& line);

}  // namespace mfu

// `mfu man`: the manual page in roff, made from the same descriptions as `--help`.
#include <span>
#include <string>

#include "core/base/say.h"
#include "tools/commands/commands.h"

namespace mfu {
namespace {

/// Text for roff: nothing in it is a request, hyphens are those that people type.
std::string roff(const std::string& text) {
  std::string out;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
    line_begins = c == '\n';
  }
  return out;
}

void print_option(const OptionInfo& option) {
  std::string names;
  for (const std::string& name : option.names) names += (names.empty() ? "" : ", ") + ("\\fB" + roff(name)) + "\\fR";
  if (names.empty()) names = "\\fI" + roff(option.label) + "\\fR";
  if (option.takes_value && !option.names.empty() && !option.type.empty())
    names += " \\fI" + roff(option.type.substr(0, option.type.find(" in ["))) + "\\fR";
  std::string description = option.description;
  if (!option.default_text.empty()) description += " (default: " + option.default_text + ")";
  say(".TP\n{}\n{}\n", names, Lines{roff(description)});
}

void print_options(const CommandInfo& command) {
  for (const OptionInfo& option : command.options)
    if (&option != command.find("--help")) print_option(option);
}

/// Examples and exit codes, as `--help` ends with them.
void print_footer(const std::string& footer) {
  if (!footer.empty()) say(".PP\n.nf\n{}\n.fi\n", Lines{roff(footer)});
}

void print_page(const std::vector<CommandInfo>& commands) {
  say(".TH MFU 1 \"\" \"mfuinject {}\" \"User Commands\"\n", MFU_VERSION);
  say(".SH NAME\nmfu \\- {}\n", roff(commands.front().description));
  say(".SH SYNOPSIS\n.B mfu\n.I command\n[\\fIoptions\\fR]\n");
  say(".SH DESCRIPTION\nShows how much of a GPU's peak the regions of a model's work use, live, from traces, or from "
      "shapes, and where the rest of the time goes. Each command has \\fB\\-\\-help\\fR.\n");
  print_options(commands.front());
  say(".SH COMMANDS\n");
  for (const CommandInfo& command : std::span(commands).subspan(1)) {
    say(".SS mfu {}\n{}\n", roff(command.name), roff(command.description));
    print_options(command);
    print_footer(command.footer);
  }
  say(".SH ENVIRONMENT\nThe MFU_* variables that \\fBmfu run\\fR sets are described in docs/reference.md.\n");
  print_footer(commands.front().footer);
}

}  // namespace

void add_man(CommandLine& line) {
  Command sub = line.command("man", "Print the manual page, for man(1)");
  sub.footer({"mfu man | man -l -"}, "0");
  sub.action([&line] {
    print_page(line.commands());
    return 0;
  });
}

}  // namespace mfu

// `mfu man`: the manual page in roff, made from the same descriptions as `--help`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

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

void print_option(const CLI::Option& option) {
  std::string names;
  for (const std::string& name : option.get_snames())
    names += (names.empty() ? "" : ", ") + ("\\fB\\-" + roff(name)) + "\\fR";
  for (const std::string& name : option.get_lnames())
    names += (names.empty() ? "" : ", ") + ("\\fB\\-\\-" + roff(name)) + "\\fR";
  if (names.empty()) names = "\\fI" + roff(option.get_name(true)) + "\\fR";
  if (option.get_items_expected_max() > 0 && !option.get_positional()) {
    const std::string type = option.get_type_name();
    if (!type.empty()) names += " \\fI" + roff(type.substr(0, type.find(" in ["))) + "\\fR";
  }
  std::string description = option.get_description();
  if (!option.get_default_str().empty()) description += " (default: " + option.get_default_str() + ")";
  fmt::print(".TP\n{}\n{}\n", names, roff(description));
}

void print_options(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty() && option->get_lnames() != std::vector<std::string>{"help"}) print_option(*option);
}

/// Examples and exit codes, as `--help` ends with them.
void print_footer(const std::string& footer) {
  if (!footer.empty()) fmt::print(".PP\n.nf\n{}\n.fi\n", roff(footer));
}

void print_page(const CLI::App& app) {
  fmt::print(".TH MFU 1 \"\" \"mfuinject {}\" \"User Commands\"\n", MFU_VERSION);
  fmt::print(".SH NAME\nmfu \\- {}\n", roff(app.get_description()));
  fmt::print(".SH SYNOPSIS\n.B mfu\n.I command\n[\\fIoptions\\fR]\n");
  fmt::print(
      ".SH DESCRIPTION\nShows how much of a GPU's peak the regions of a model's work use, live, from traces, or from "
      "shapes, and where the rest of the time goes. Each command has \\fB\\-\\-help\\fR.\n");
  print_options(app);
  fmt::print(".SH COMMANDS\n");
  for (const CLI::App* command : app.get_subcommands([](const CLI::App* sub) { return !sub->get_group().empty(); })) {
    fmt::print(".SS mfu {}\n{}\n", roff(command->get_name()), roff(command->get_description()));
    print_options(*command);
    print_footer(command->get_footer());
  }
  fmt::print(".SH ENVIRONMENT\nThe MFU_* variables that \\fBmfu run\\fR sets are described in docs/reference.md.\n");
  print_footer(app.get_footer());
}

}  // namespace

void add_man(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("man", "Print the manual page, for man(1)");
  sub->footer(help_footer({"mfu man | man -l -"}, "0"));
  sub->callback([&app] { print_page(app); });
}

}  // namespace mfu

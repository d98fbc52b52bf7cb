// `mfu completion SHELL`: what a shell needs to complete the command line, made from the commands as they are.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "tools/commands/commands.h"

namespace mfu {
namespace {

/// What can stand where an option's value or a positional argument is.
enum class Takes { kNothing, kWords, kPath, kProgram, kOther };

struct Argument {
  std::vector<std::string> names;  ///< `-c`, `--config`; empty for a positional
  std::string description;
  Takes takes = Takes::kNothing;
  std::vector<std::string> words;  ///< all that is allowed, for kWords
};

struct Command {
  std::string path;  ///< `mfu run`
  std::string description;
  std::vector<Argument> options;
  std::vector<Argument> positionals;
  std::vector<std::pair<std::string, std::string>> subcommands;  ///< name, description

  [[nodiscard]] bool runs_program() const {
    return std::any_of(positionals.begin(), positionals.end(),
                       [](const Argument& a) { return a.takes == Takes::kProgram; });
  }
};

std::vector<std::string> split(const std::string& text, const std::string& separators) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find_first_of(separators, begin), text.size());
    if (end > begin) words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

/// CLI11 keeps an option's choices nowhere but in its type's name: `TEXT:{own,share}`.
Argument argument(const CLI::Option& option) {
  Argument a;
  for (const std::string& name : option.get_snames()) a.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) a.names.push_back("--" + name);
  a.description = option.get_description();
  if (option.get_items_expected_max() == 0) return a;
  const std::string type = option.get_type_name();
  const std::size_t open = type.find('{'), close = type.find('}');
  if (open != std::string::npos && close != std::string::npos && open < close) {
    a.takes = Takes::kWords;
    a.words = split(type.substr(open + 1, close - open - 1), ",");
  } else if (type == "CMD") {
    a.takes = Takes::kProgram;
  } else {
    const bool path = type == "TEXT" || type == "PATH" || type == "DIR" || type == "FILE";
    a.takes = path ? Takes::kPath : Takes::kOther;
  }
  return a;
}

/// `app` and all below it; what is hidden from `--help` stays hidden.
void flatten(const CLI::App& app, const std::string& path, std::vector<Command>& commands) {
  Command command;
  command.path = path;
  command.description = app.get_description();
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    (option->get_positional() ? command.positionals : command.options).push_back(argument(*option));
  }
  const auto below = app.get_subcommands([](const CLI::App* sub) { return !sub->get_group().empty(); });
  for (const CLI::App* sub : below) command.subcommands.emplace_back(sub->get_name(), sub->get_description());
  commands.push_back(std::move(command));
  for (const CLI::App* sub : below) flatten(*sub, path + " " + sub->get_name(), commands);
}

/// `text` in single quotes, for bash and zsh (`'` ends them) or for fish (which escapes inside them).
std::string in_quotes(const std::string& text, bool fish = false) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'')
      out += fish ? "\\'" : "'\\''";
    else if (fish && c == '\\')
      out += "\\\\";
    else
      out += c;
  }
  return out + "'";
}

// --- bash -----------------------------------------------------------------------------------------------------------

constexpr const char* kBashHead = R"(# bash completion of mfu; made by `mfu completion bash`
_mfu_words() { mapfile -t COMPREPLY < <(compgen -W "$1" -- "$2"); }
_mfu_paths() {
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen -f -- "$1")
}

# The program that begins at word $1, and its own arguments.
_mfu_program() {
  if ((COMP_CWORD == $1)); then
    mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[COMP_CWORD]}")
  elif declare -F _command_offset >/dev/null; then
    _command_offset "$1"
  else
    _mfu_paths "${COMP_WORDS[COMP_CWORD]}"
  fi
}

_mfu() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=mfu at
  COMPREPLY=()
  # `--option=value` is three words to bash.
  if [[ $cur == = ]]; then
    cur=
  elif [[ $prev == = ]]; then
    prev=${COMP_WORDS[COMP_CWORD - 2]}
  fi
)";

void print_bash(const std::vector<Command>& commands) {
  fmt::print("{}", kBashHead);
  std::string known, with_program;
  for (const Command& command : commands) {
    if (command.path != "mfu") known += (known.empty() ? "" : " | ") + in_quotes(command.path);
    if (command.runs_program()) with_program += (with_program.empty() ? "" : " | ") + in_quotes(command.path);
  }
  fmt::print(
      "  for ((at = 1; at < COMP_CWORD; ++at)); do\n"
      "    case \"$command ${{COMP_WORDS[at]}}\" in\n"
      "      {}) command+=\" ${{COMP_WORDS[at]}}\" ;;\n"
      "    esac\n"
      "    case $command in {}) break ;; esac\n"
      "  done\n"
      "  case $command in\n",
      known, with_program);
  for (const Command& command : commands) {
    fmt::print("    {})\n", in_quotes(command.path));
    std::string options, with_value;
    for (const Argument& a : command.options) {
      for (const std::string& name : a.names) {
        options += (options.empty() ? "" : " ") + name;
        if (a.takes != Takes::kNothing) with_value += (with_value.empty() ? "" : " | ") + name;
      }
    }
    if (command.runs_program()) {
      // The program is the first word that is neither an option nor an option's value.
      fmt::print(
          "      for ((++at; at < COMP_CWORD; ++at)); do\n"
          "        case ${{COMP_WORDS[at]}} in\n"
          "          --) _mfu_program $((at + 1)); return ;;\n"
          "          {})\n"
          "            [[ ${{COMP_WORDS[at + 1]}} == = ]] && ((++at))\n"
          "            ((++at)) ;;\n"
          "          -*) ;;\n"
          "          *) _mfu_program \"$at\"; return ;;\n"
          "        esac\n"
          "      done\n",
          with_value);
    }
    if (!with_value.empty()) fmt::print("      case $prev in\n");
    for (const Argument& a : command.options) {
      if (a.takes == Takes::kNothing) continue;
      const char* action = a.takes == Takes::kPath ? "_mfu_paths \"$cur\"; " : "";
      const std::string words =
          a.takes == Takes::kWords
              ? "_mfu_words " + in_quotes(fmt::format("{}", fmt::join(a.words, " "))) + " \"$cur\"; "
              : "";
      fmt::print("        {}) {}{}return ;;\n", fmt::join(a.names, " | "), action, words);
    }
    if (!with_value.empty()) fmt::print("      esac\n");
    fmt::print("      if [[ $cur == -* ]]; then\n        _mfu_words {} \"$cur\"\n", in_quotes(options));
    if (!command.subcommands.empty()) {
      std::string names;
      for (const auto& [name, description] : command.subcommands) names += (names.empty() ? "" : " ") + name;
      fmt::print("      else\n        _mfu_words {} \"$cur\"\n", in_quotes(names));
    } else if (!command.positionals.empty()) {
      const Argument& first = command.positionals.front();
      if (first.takes == Takes::kWords)
        fmt::print("      else\n        _mfu_words {} \"$cur\"\n",
                   in_quotes(fmt::format("{}", fmt::join(first.words, " "))));
      else if (first.takes == Takes::kProgram)
        fmt::print("      else\n        _mfu_program \"$COMP_CWORD\"\n");
      else if (first.takes == Takes::kPath)
        fmt::print("      else\n        _mfu_paths \"$cur\"\n");
    }
    fmt::print("      fi\n      ;;\n");
  }
  fmt::print("  esac\n}}\ncomplete -F _mfu mfu\n");
}

// --- zsh ------------------------------------------------------------------------------------------------------------

/// `text` as _arguments and _describe want it: their own separators escaped.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_action(const Argument& a) {
  switch (a.takes) {
    case Takes::kNothing:
      return "";
    case Takes::kWords:
      return fmt::format(":value:({})", fmt::join(a.words, " "));
    case Takes::kPath:
      return ":path:_files";
    case Takes::kProgram:
    case Takes::kOther:
      break;
  }
  return ":value:";
}

void print_zsh(const std::vector<Command>& commands) {
  fmt::print("#compdef mfu\n# zsh completion of mfu; made by `mfu completion zsh`\n");
  const auto function = [](const std::string& path) {
    std::string name = "_" + path;
    std::replace(name.begin(), name.end(), ' ', '_');
    return name;
  };
  for (const Command& command : commands) {
    fmt::print("\n{}() {{\n", function(command.path));
    if (!command.subcommands.empty()) fmt::print("  local curcontext=$curcontext state line\n  local -A opt_args\n");
    // -A: an option after the program's name is the program's.
    fmt::print("  _arguments -S{}", command.runs_program() ? " -A '-*'" : command.subcommands.empty() ? "" : " -C");
    for (const Argument& a : command.options) {
      const std::string all = fmt::format("({})", fmt::join(a.names, " "));
      for (const std::string& name : a.names) {
        const bool long_value = a.takes != Takes::kNothing && name.starts_with("--");
        fmt::print(" \\\n    {}", in_quotes(fmt::format("{}{}{}[{}]{}", a.names.size() > 1 ? all : "", name,
                                                        long_value                   ? "="
                                                        : a.takes != Takes::kNothing ? "+"
                                                                                     : "",
                                                        zsh_text(a.description), zsh_action(a))));
      }
    }
    if (!command.subcommands.empty()) {
      fmt::print(
          " \\\n    '1:command:->command' \\\n    '*::argument:->argument'\n"
          "  case $state in\n    command)\n      local -a commands=(\n");
      for (const auto& [name, description] : command.subcommands)
        fmt::print("        {}\n", in_quotes(name + ":" + zsh_text(description)));
      fmt::print(
          "      )\n      _describe -t commands command commands\n      ;;\n    argument)\n      case $words[1] in\n");
      for (const auto& [name, description] : command.subcommands)
        fmt::print("        {}) {} ;;\n", name, function(command.path + " " + name));
      fmt::print("      esac\n      ;;\n  esac\n}}\n");
      continue;
    }
    bool rest_printed = false;  // _arguments takes one `*` only, and it stands for every word
    for (const Argument& a : command.positionals) {
      if (a.takes == Takes::kProgram)
        fmt::print(" \\\n    '(-)1:program:_command_names -e' \\\n    '*::argument:_normal'");
      else if (!rest_printed)
        fmt::print(" \\\n    {}", in_quotes("*" + zsh_action(a)));
      rest_printed = true;
    }
    fmt::print("\n}}\n");
  }
  // Sourced or autoloaded: both work.
  fmt::print("\nif [[ $funcstack[1] == _mfu ]]; then\n  _mfu \"$@\"\nelse\n  compdef _mfu mfu\nfi\n");
}

// --- fish -----------------------------------------------------------------------------------------------------------

void print_fish(const std::vector<Command>& commands) {
  fmt::print("# fish completion of mfu; made by `mfu completion fish`\ncomplete -c mfu -f\n");
  for (const Command& command : commands) {
    const std::vector<std::string> path = split(command.path, " ");
    std::string condition = "__fish_use_subcommand";
    for (std::size_t i = 1; i < path.size(); ++i) {
      if (i == 1)
        condition.clear();
      else
        condition += "; and ";
      condition.append("__fish_seen_subcommand_from ").append(path[i]);
    }
    const std::string head = "complete -c mfu -n " + in_quotes(condition, true);
    for (const auto& [name, description] : command.subcommands)
      fmt::print("{} -a {} -d {}\n", head, name, in_quotes(description, true));
    const auto value = [](const Argument& a) -> std::string {
      switch (a.takes) {
        case Takes::kNothing:
          return "";
        case Takes::kWords:
          return " -x -a " + in_quotes(fmt::format("{}", fmt::join(a.words, " ")), true);
        case Takes::kPath:
          return " -r -F";
        case Takes::kProgram:
          return " -x -a '(__mfu_program)'";
        case Takes::kOther:
          break;
      }
      return " -x";
    };
    if (command.runs_program()) {
      // The program is the first word that is neither an option nor an option's value; what follows completes as its
      // own.
      std::string with_value;
      for (const Argument& a : command.options) {
        if (a.takes != Takes::kNothing) with_value += fmt::format(" {}", fmt::join(a.names, " "));
      }
      fmt::print(
          "function __mfu_program\n"
          "  set -l words (commandline -opc) (commandline -ct)\n"
          "  set -e words[1..{}]\n"
          "  while string match -q -- '-*' $words[1]\n"
          "    set -l word $words[1]\n"
          "    set -e words[1]\n"
          "    test \"$word\" = --; and break\n"
          "    contains -- $word{}; and set -e words[1]\n"
          "  end\n"
          "  set -q words[1]; and complete -C (string join ' ' -- (string escape -- $words[1..-2]) $words[-1])\n"
          "end\n",
          path.size(), with_value);
    }
    for (const Argument& a : command.options) {
      std::string names;
      for (const std::string& name : a.names)
        names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      fmt::print("{}{}{} -d {}\n", head, names, value(a), in_quotes(a.description, true));
    }
    if (!command.positionals.empty() && command.positionals.front().takes != Takes::kOther) {
      const Argument& a = command.positionals.front();
      fmt::print("{}{}\n", head, a.takes == Takes::kPath ? " -F" : value(a));
    }
  }
}

}  // namespace

void add_completion(CLI::App& app) {
  CLI::App* command = app.add_subcommand("completion", "What a shell needs to complete mfu's commands and options");
  const auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "the shell")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer(
      help_footer({"source <(mfu completion bash)", "source <(mfu completion zsh)", "mfu completion fish | source",
                   "mfu completion bash > ~/.local/share/bash-completion/completions/mfu",
                   "mfu completion fish > ~/.config/fish/completions/mfu.fish"},
                  "0"));
  command->callback([&app, shell] {
    std::vector<Command> commands;
    flatten(app, "mfu", commands);
    if (*shell == "bash")
      print_bash(commands);
    else if (*shell == "zsh")
      print_zsh(commands);
    else
      print_fish(commands);
  });
}

}  // namespace mfu

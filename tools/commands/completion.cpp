// `mfu completion SHELL` and `mfu __complete WORDS`: the shells' scripts ask the command what can stand where the
// cursor is, so that they know nothing of it themselves.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/say.h"
#include "tools/commands/commands.h"

namespace mfu {
namespace {

constexpr std::string_view kFiles = ":files";

// `--option=value` is three words to bash.
constexpr std::string_view kBash = R"(# bash completion of mfu; made by `mfu completion bash`
_mfu() {
  local cur=${COMP_WORDS[COMP_CWORD]} line
  [[ $cur == = ]] && cur=
  COMPREPLY=()
  while IFS= read -r line; do
    case $line in
      :files)
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
      ":program $COMP_CWORD") mapfile -t COMPREPLY < <(compgen -c -- "$cur") ;;
      :program*)
        if declare -F _command_offset >/dev/null; then
          _command_offset "${line#* }"
        else
          mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        fi ;;
      *) COMPREPLY+=("${line%%$'\t'*}") ;;
    esac
  done < <("${COMP_WORDS[0]/#\~/$HOME}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _mfu mfu
)";

constexpr std::string_view kZsh = R"(#compdef mfu
# zsh completion of mfu; made by `mfu completion zsh`
_mfu() {
  local line
  local -a offered
  for line in "${(@f)$("${(Q)words[1]/#\~/$HOME}" __complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)}"; do
    case $line in
      :files) compset -P '--*='; _files; return ;;
      :program*) shift "${line#* }" words; (( CURRENT -= ${line#* } )); _normal; return ;;
      ?*) offered+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
    esac
  done
  _describe -t values value offered
}
# Sourced or autoloaded: both work.
if [[ $funcstack[1] == _mfu ]]; then _mfu "$@"; else compdef _mfu mfu; fi
)";

constexpr std::string_view kFish = R"(# fish completion of mfu; made by `mfu completion fish`
function __mfu_complete
  set -l words (commandline -opc)
  set -l current (commandline -ct)
  for line in ($words[1] __complete $words[2..-1] "$current" 2>/dev/null)
    switch $line
      case ':files'
        set -l option (string match -r -- '^--[^=]*=' "$current")
        printf "$option%s\n" (__fish_complete_path (string replace -r -- '^--[^=]*=' '' "$current"))
      case ':program *'
        set -l at (math (string replace ':program ' '' $line) + 1)
        complete -C (string join ' ' -- (string escape -- $words[$at..-1]) "$current")
      case '*'
        echo $line
    end
  end
end
complete -c mfu -f -a '(__mfu_complete)'
)";

bool takes_program(const OptionInfo& option) { return option.names.empty() && option.type == "CMD"; }

void offer(std::string_view word, std::string_view description, std::string_view typed) {
  if (word.starts_with(typed)) say("{}\t{}\n", word, description);
}

/// Values of `option` where `typed` is, with `before` (`--phase=`) in the same word.
void offer_values(const OptionInfo& option, const std::string& typed, const std::string& before = "") {
  const std::vector<std::string> words = words_of(option.type);
  for (const std::string& word : words) offer(before + word, option.description, before + typed);
  const bool path = option.type == "TEXT" || option.type == "PATH" || option.type == "DIR" || option.type == "FILE";
  if (words.empty() && path) say("{}\n", kFiles);
}

}  // namespace

int complete(const CommandLine& line, const std::vector<std::string>& words) {
  const std::vector<CommandInfo> commands = line.commands();
  std::string typed = words.empty() ? "" : words.back();
  if (typed == "=") typed.clear();
  if (words.size() < 2) {
    for (const CommandInfo& command : commands)
      if (&command != &commands.front()) offer(command.name, command.description, typed);
  }
  const CommandInfo* command = words.size() < 2 ? &commands.front() : nullptr;
  for (const CommandInfo& one : commands)
    if (words.size() > 1 && one.name == words.front()) command = &one;
  if (command == nullptr) return 0;
  const OptionInfo* positional = nullptr;
  for (const OptionInfo& option : command->options)
    if (option.names.empty() && positional == nullptr) positional = &option;

  const OptionInfo* value_of = nullptr;  // the option whose value comes next
  for (std::size_t at = 1; at < words.size(); ++at) {
    const bool last = at + 1 == words.size();
    const std::string& word = words[at];
    if (word == "=" && !last) continue;  // of bash
    if (value_of != nullptr && last) {
      offer_values(*value_of, typed);
      return 0;
    }
    const bool ends_options = word == "--" && !last;
    if (value_of != nullptr) {
      value_of = nullptr;
    } else if (positional != nullptr && takes_program(*positional) && (ends_options || !word.starts_with('-'))) {
      say(":program {}\n", at + (ends_options ? 2 : 1));
      return 0;
    } else if (!last) {
      const OptionInfo* option = command->find(word);
      if (option != nullptr && option->takes_value) value_of = option;
    }
  }
  const std::size_t equals = typed.find('=');
  if (typed.starts_with("--") && equals != std::string::npos) {
    const OptionInfo* option = command->find(typed.substr(0, equals));
    if (option != nullptr && option->takes_value)
      offer_values(*option, typed.substr(equals + 1), typed.substr(0, equals + 1));
  } else if (typed.starts_with('-')) {
    for (const OptionInfo& option : command->options)
      for (const std::string& name : option.names) offer(name, option.description, typed);
  } else if (positional != nullptr && words.size() > 1) {
    offer_values(*positional, typed);
  }
  return 0;
}

void add_completion(CommandLine& line) {
  Command command = line.command("completion", "What a shell needs to complete mfu's commands and options");
  const auto shell = std::make_shared<std::string>();
  command.option("shell", *shell, "the shell", {.one_of = {"bash", "zsh", "fish"}, .required = true});
  command.footer({"source <(mfu completion bash)", "source <(mfu completion zsh)", "mfu completion fish | source",
                  "mfu completion bash > ~/.local/share/bash-completion/completions/mfu",
                  "mfu completion fish > ~/.config/fish/completions/mfu.fish"},
                 "0");
  command.action([shell] {
    say("{}", Lines{std::string(*shell == "bash" ? kBash : *shell == "zsh" ? kZsh : kFish)});
    return 0;
  });
}

}  // namespace mfu

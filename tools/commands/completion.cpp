// `mfu completion SHELL` and `mfu __complete WORDS`: the shells' scripts ask the command what can stand where the
// cursor is, so that they know nothing of it themselves.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/say.h"
#include "tools/commands/commands.h"

namespace mfu {

std::string_view embedded_bash_completion() noexcept;
std::string_view embedded_zsh_completion() noexcept;
std::string_view embedded_fish_completion() noexcept;

namespace {

constexpr std::string_view kFiles = ":files";

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
    say("{}", Lines{std::string(*shell == "bash"  ? embedded_bash_completion()
                                : *shell == "zsh" ? embedded_zsh_completion()
                                                  : embedded_fish_completion())});
    return 0;
  });
}

}  // namespace mfu

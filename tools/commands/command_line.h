// The command line of `mfu`, over CLI11. Only command_line.cpp includes CLI11, which takes five seconds a file to read.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace mfu {

constexpr int kUsageError = 2;  ///< exit code of a command line that cannot be understood, whichever command it names

/// One option, while it is declared. Each call returns it again.
class CommandOption {
 public:
  /// What is wrong with the text of a value; empty: nothing.
  using Check = std::function<std::string(const std::string&)>;

  explicit CommandOption(CLI::Option* option) : option_(option) {}

  CommandOption required() const;
  CommandOption type_name(const char* name) const;  ///< what the help shows for a value
  CommandOption one_of(std::vector<std::string> words) const;
  CommandOption one_of_in_any_case(std::vector<std::string> words) const;  ///< the value becomes the word as it is here
  CommandOption between(double low, double high) const;
  CommandOption between(std::int64_t low, std::int64_t high) const;
  CommandOption check(Check wrong) const;
  CommandOption above_zero() const;
  CommandOption separated_by(char separator) const;  ///< several values in one word
  CommandOption one_value_each() const;              ///< a repeated option takes one word each time
  CommandOption shows_default() const;               ///< the value that it has now is in the help
  CommandOption hidden() const;                      ///< not in the help, the manual or completion
  CommandOption needs(const CommandOption& other) const;
  CommandOption excludes(const CommandOption& other) const;

 private:
  CLI::Option* option_;
};

/// One subcommand, while it is declared. What options write to must live as long as the command line.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  /// `names`: `-c,--config`, or a word without `-`: a positional argument. T: std::string, a number, std::optional of a
  /// number, a vector of strings or std::int64_t.
  template <class T>
  CommandOption option(const std::string& names, T& value, const std::string& description);
  CommandOption flag(const std::string& names, bool& value, const std::string& description);
  /// Options that the help shows under one title.
  void group(const char* title, std::initializer_list<const char*> options);
  /// What `--help` ends with. `exit_codes`: the command's, as a sentence without its full stop.
  void footer(std::initializer_list<const char*> examples, const std::string& exit_codes);
  /// What the command does; its exit code.
  void action(std::function<int()> act);

 private:
  CLI::App* app_;
};

/// An option as the manual and completion show it.
struct OptionInfo {
  std::vector<std::string> names;  ///< `-c`, `--config`; empty: positional
  std::string label;               ///< `config` of a positional
  std::string type;                ///< `PATH`; the words in braces where only some are allowed: `TEXT:{own,share}`
  std::string description, default_text;
  bool takes_value = false;
};

struct CommandInfo {
  std::string name, description, footer;
  std::vector<OptionInfo> options;  ///< positional ones included, hidden ones not

  [[nodiscard]] const OptionInfo* find(const std::string& option) const;
};

class CommandLine {
 public:
  CommandLine(const std::string& description, const std::string& version);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  Command command(const char* name, const char* description);
  [[nodiscard]] Command whole();  ///< `mfu` itself

  /// `mfu` itself first, then each subcommand, as far as they are declared by now.
  [[nodiscard]] std::vector<CommandInfo> commands() const;
  [[nodiscard]] std::string help() const;
  /// Does what `words`, those after `mfu`, ask for. Returns the exit code; what is wrong goes to stderr.
  [[nodiscard]] int run(std::vector<std::string> words);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace mfu

// The command line of `mfu`, over CLI11. Only command_line.cpp includes CLI11, which takes five seconds a file to read.
#pragma once

#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace mfu {

constexpr int kUsageError = 2;  ///< exit code of a command line that cannot be understood, whichever command it names

/// Properties of an option beside its names.
struct OptionRules {
  const char* type = nullptr;            ///< the word for a value in the help; nullptr: the name of its type
  std::vector<std::string> one_of = {};  ///< the only words; empty: any
  bool any_case = false;                 ///< of `one_of`, which are lower-case
  std::pair<double, double> between = {-std::numeric_limits<double>::infinity(),
                                       std::numeric_limits<double>::infinity()};  ///< the least and the largest number
  std::function<std::string(const std::string&)> check = {};  ///< the mistake in a text; empty: none
  char separator = 0;                                         ///< between several values in one word
  bool required = false;
  bool one_value_each = false;                         ///< a repeated option takes one word each time
  bool shows_default = false;                          ///< the value that it has now is in the help
  bool hidden = false;                                 ///< not in the help, the manual or completion
  std::vector<std::string> needs = {}, excludes = {};  ///< other options
};
/// Of `between`: a number above 0.
inline constexpr std::pair<double, double> kAboveZero{std::numeric_limits<double>::min(), 999'999'999.0};
/// Of `between`: counts, as large as sums of them stay in their type.
inline constexpr std::pair<double, double> kFromOne{1, 0x1p40}, kFromZero{0, 0x1p40};

/// One subcommand, while it is declared. Targets of options must live as long as the command line.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  /// `names`: `-c,--config`, or a word without `-`: a positional argument. T: std::string, a number, std::optional of a
  /// number, a vector of strings or std::int64_t. A number is finite, and between the bounds that `rules` gives.
  template <class T>
  void option(const std::string& names, T& value, const std::string& description, const OptionRules& rules = {});
  void flag(const std::string& names, bool& value, const std::string& description, const OptionRules& rules = {});
  /// Options that the help shows under one title.
  void group(const char* title, std::initializer_list<const char*> options);
  /// The end of `--help`. `exit_codes`: the command's, as a sentence without its full stop.
  void footer(std::initializer_list<const char*> examples, const std::string& exit_codes);
  /// Runs the command and returns its exit code. An exception is a line on stderr, and 1.
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

/// The only words that a value can be, by its type's name: `own` and `share` of `TEXT:{own,share}`. Empty: any.
[[nodiscard]] std::vector<std::string> words_of(const std::string& type);

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
  /// The heading in the help of the commands that are declared next.
  void title(const char* title) { title_ = title; }
  [[nodiscard]] Command whole();  ///< `mfu` itself

  /// `mfu` itself first, then each subcommand, as far as they are declared by now.
  [[nodiscard]] std::vector<CommandInfo> commands() const;
  /// Does what `words`, those after `mfu`, ask for. Returns the exit code; errors go to stderr.
  [[nodiscard]] int run(std::vector<std::string> words);

 private:
  std::unique_ptr<CLI::App> app_;
  std::string title_;
};

}  // namespace mfu

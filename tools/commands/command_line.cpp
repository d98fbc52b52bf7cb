#include "tools/commands/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "core/base/edit_distance.h"

namespace mfu {
namespace {

/// `; did you mean report?` where one is near, else `;`.
std::string nearest_command(const CLI::App& app, const std::string& word) {
  std::string best;
  std::size_t least = 3;  // letters that may be wrong
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    const std::size_t distance = edit_distance(word, command->get_name());
    if (distance >= least) continue;
    least = distance;
    best = command->get_name();
  }
  return best.empty() ? ";" : "; did you mean " + best + "?";
}

/// `; did you mean --every?` where an option of the command is near.
std::string nearest_option(const CLI::App* command, const std::string& word) {
  std::string best;
  std::size_t least = 3;
  const std::string name = word.substr(0, word.find('='));
  for (const CLI::Option* option : command->get_options()) {
    for (const std::string& known : option->get_lnames()) {
      const std::size_t distance = edit_distance(name, "--" + known);
      if (distance >= least || option->get_group().empty()) continue;
      least = distance;
      best = "--" + known;
    }
  }
  return best.empty() ? "" : "; did you mean " + best + "?";
}

/// `a, b or c` of CLI11's `{a,b,c}` or `{a->1,b->2} OR {1,2}`.
std::string alternatives(const std::string& braces) {
  const std::string list = braces.substr(1, braces.find('}') - 1);
  std::vector<std::string> words;
  for (std::size_t at = 0; at < list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    words.push_back(list.substr(at, std::min(end, list.find("->", at)) - at));
    at = end + 1;
  }
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  return text;
}

/// What an option takes, in words: `N`, `train, prefill or decode`.
std::string value_words(const std::string& type) {
  if (const std::size_t braces = type.find('{'); braces != std::string::npos) return alternatives(type.substr(braces));
  return type.starts_with("TEXT") ? "a value" : type;
}

/// `--gpu=`, of which CLI11 takes the next word, and `--json=3`. Empty: none of them is there.
std::string wrong_equals(const CLI::App* command, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (word == "--") break;
    const std::size_t equals = word.find('=');
    if (!word.starts_with("--") || equals == std::string::npos) continue;
    const std::string name = word.substr(0, equals);
    const CLI::Option* option = command->get_option_no_throw(name);
    if (option == nullptr) continue;
    const bool takes_one = option->get_items_expected_max() > 0;
    if (takes_one && equals + 1 == word.size())
      return name + ": expected " + value_words(option->get_type_name()) + ", got nothing";
    if (!takes_one) return name + ": expected no value, got \"" + word.substr(equals + 1) + "\"";
  }
  return "";
}

/// What CLI11 says of a word that is none of a few, of an option that there is not, and of what is missing. Empty: it
/// says something else.
std::string in_our_words(const CLI::App* command, const std::string& message) {
  const std::vector<std::string> not_taken = command->remaining(true);
  for (const std::string& word : not_taken)
    if (word.size() > 1 && word.starts_with('-')) return word + ": no such option" + nearest_option(command, word);
  if (!not_taken.empty()) return "expected no further argument, got \"" + not_taken.front() + "\"";
  const auto part = [&message](std::size_t from, std::size_t to) { return message.substr(from, to - from); };
  const std::size_t colon = message.find(": ");
  if (const std::size_t at = message.find(" not in {"); at != std::string::npos && colon < at)
    return part(0, colon) + ": expected " + alternatives(message.substr(at + 8)) + ", got \"" + part(colon + 2, at) +
           "\"";
  constexpr std::string_view kCheck = ": Check ", kIn = " value in {";
  if (const std::size_t at = message.find(kCheck), in = message.find(kIn);
      at != std::string::npos && in != std::string::npos)
    return part(0, at) + ": expected " + alternatives(message.substr(in + kIn.size() - 1)) + ", got \"" +
           part(at + kCheck.size(), in) + "\"";
  constexpr std::string_view kRequired = " is required", kMissing = ": 1 required ";
  if (message.ends_with(kRequired)) {
    const std::string name = message.substr(0, message.size() - kRequired.size());
    const CLI::Option* option = command->get_option_no_throw(name);
    return "expected " + name + (option == nullptr ? "" : ", " + option->get_description()) + ", got nothing";
  }
  if (const std::size_t at = message.find(kMissing); at != std::string::npos && message.ends_with(" missing"))
    return part(0, at) + ": expected " + value_words(part(at + kMissing.size(), message.size() - 8)) + ", got nothing";
  constexpr std::string_view kConvert = "Could not convert: ";
  if (const std::size_t equals = message.find(" = "); message.starts_with(kConvert) && equals != std::string::npos) {
    const std::string name = part(kConvert.size(), equals);
    const CLI::Option* option = command->get_option_no_throw(name);
    return name + ": expected " + (option == nullptr ? "another value" : value_words(option->get_type_name())) +
           ", got \"" + message.substr(equals + 3) + "\"";
  }
  return "";
}

/// CLI11's `--flop: Value -3 not in range 0.000000 to 1000000000000000019884624838656.000000` in words.
std::string in_words(const std::string& message) {
  const std::size_t value_at = message.find(": Value "), range_at = message.rfind(" not in range ");
  if (value_at == std::string::npos || range_at == std::string::npos || range_at < value_at) return message;
  constexpr std::size_t kValue = 8, kRange = 14;
  const std::string range = message.substr(range_at + kRange);
  const std::size_t to = range.find(" to ");
  if (to == std::string::npos) return message;
  const double low = std::strtod(range.c_str(), nullptr), high = std::strtod(range.c_str() + to + 4, nullptr);
  const bool whole = range.find('.') == std::string::npos;
  constexpr double kNoLimit = 1e9;  // what is beyond is there to keep sums in their types
  constexpr double kNearZero = 1e-4;
  std::array<char, 128> limits{};
  if (high >= kNoLimit && low > 0 && low < kNearZero)
    std::snprintf(limits.data(), limits.size(), "above 0");
  else if (high >= kNoLimit)
    std::snprintf(limits.data(), limits.size(), "%.10g or more", low);
  else
    std::snprintf(limits.data(), limits.size(), "from %.10g to %.10g", low, high);
  return message.substr(0, value_at) + ": expected a " + (whole ? "whole " : "") + "number " + limits.data() +
         ", got \"" + message.substr(value_at + kValue, range_at - value_at - kValue) + "\"";
}

/// For a check(): `nan` is in every range of CLI11's, `inf` in some.
std::string finite(const std::string& text) {
  return std::isfinite(std::strtod(text.c_str(), nullptr)) ? "" : "expected a number, got \"" + text + "\"";
}

/// Numbers are finite ones. In the help a number is `N` or `NUMBER`, not CLI11's `INT:INT in [1 - 1099511627776]`.
void name_numbers(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    for (CLI::Option* option : command->get_options()) {
      const std::string type = option->get_type_name();
      const bool range = type.find(" in [") != std::string::npos;
      if (!range && type != "FLOAT" && type != "INT" && type != "UINT") continue;
      if (range) option->get_validator(0)->description("");
      const std::string own = type.substr(0, type.find(':'));
      if (own == "FLOAT" || own == "NUMBER") option->check(finite);
      option->type_name(own == "FLOAT" ? "NUMBER" : own == "INT" || own == "UINT" ? "N" : own);
    }
  }
}

/// What CLI11 shows and what is hidden: hidden options are of no group.
OptionInfo info_of(const CLI::Option& option) {
  OptionInfo info;
  for (const std::string& name : option.get_snames()) info.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) info.names.push_back("--" + name);
  info.label = option.get_name(true);
  info.type = option.get_type_name();
  info.description = option.get_description();
  info.default_text = option.get_default_str();
  info.takes_value = option.get_items_expected_max() > 0;
  return info;
}

CommandInfo info_of(const CLI::App& app) {
  CommandInfo info{app.get_name(), app.get_description(), app.get_footer(), {}};
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty()) info.options.push_back(info_of(*option));
  return info;
}

}  // namespace

CommandOption CommandOption::required() const {
  option_->required();
  return *this;
}
CommandOption CommandOption::type_name(const char* name) const {
  option_->type_name(name);
  return *this;
}
CommandOption CommandOption::one_of(std::vector<std::string> words) const {
  option_->check(CLI::IsMember(std::move(words)));
  return *this;
}
CommandOption CommandOption::one_of_in_any_case(std::vector<std::string> words) const {
  option_->transform(CLI::IsMember(std::move(words), CLI::ignore_case));
  return *this;
}
CommandOption CommandOption::between(double low, double high) const {
  option_->check(CLI::Range(low, high));
  return *this;
}
CommandOption CommandOption::between(std::int64_t low, std::int64_t high) const {
  option_->check(CLI::Range(low, high));
  return *this;
}
CommandOption CommandOption::check(Check wrong) const {
  option_->check(std::move(wrong));
  return *this;
}
CommandOption CommandOption::above_zero() const {
  return check([](const std::string& text) -> std::string {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    return *end == '\0' && value > 0 && value < 1e9 ? "" : "expected a number above 0, got \"" + text + "\"";
  });
}
CommandOption CommandOption::separated_by(char separator) const {
  option_->delimiter(separator);
  return *this;
}
CommandOption CommandOption::one_value_each() const {
  option_->allow_extra_args(false);
  return *this;
}
CommandOption CommandOption::shows_default() const {
  option_->capture_default_str();
  return *this;
}
CommandOption CommandOption::hidden() const {
  option_->group("");
  return *this;
}
CommandOption CommandOption::needs(const CommandOption& other) const {
  option_->needs(other.option_);
  return *this;
}
CommandOption CommandOption::excludes(const CommandOption& other) const {
  option_->excludes(other.option_);
  return *this;
}

template <class T>
CommandOption Command::option(const std::string& names, T& value, const std::string& description) {
  return CommandOption(app_->add_option(names, value, description));
}
template CommandOption Command::option(const std::string&, std::string&, const std::string&);
template CommandOption Command::option(const std::string&, int&, const std::string&);
template CommandOption Command::option(const std::string&, std::int64_t&, const std::string&);
template CommandOption Command::option(const std::string&, double&, const std::string&);
template CommandOption Command::option(const std::string&, std::optional<std::uint32_t>&, const std::string&);
template CommandOption Command::option(const std::string&, std::optional<std::int64_t>&, const std::string&);
template CommandOption Command::option(const std::string&, std::optional<double>&, const std::string&);
template CommandOption Command::option(const std::string&, std::vector<std::string>&, const std::string&);
template CommandOption Command::option(const std::string&, std::vector<std::int64_t>&, const std::string&);

CommandOption Command::flag(const std::string& names, bool& value, const std::string& description) {
  return CommandOption(app_->add_flag(names, value, description));
}

void Command::group(const char* title, std::initializer_list<const char*> options) {
  for (const char* option : options) app_->get_option(option)->group(title);
}

void Command::footer(std::initializer_list<const char*> examples, const std::string& exit_codes) {
  std::string text = "Examples:\n";
  for (const char* example : examples) text += std::string("  ") + example + "\n";
  app_->footer(text + "Exit code: " + exit_codes + "; 2 when the command line is wrong.");
}

void Command::action(std::function<int()> act) {
  app_->callback([act = std::move(act)] {
    if (const int code = act(); code != 0) throw CLI::RuntimeError(code);
  });
}

const OptionInfo* CommandInfo::find(const std::string& option) const {
  const auto has = [&option](const OptionInfo& o) { return std::ranges::find(o.names, option) != o.names.end(); };
  const auto found = std::ranges::find_if(options, has);
  return found == options.end() ? nullptr : &*found;
}

CommandLine::CommandLine(const std::string& description, const std::string& version)
    : app_(std::make_unique<CLI::App>(description, "mfu")) {
  app_->set_version_flag("--version", version);
  app_->require_subcommand(0, 1);
}

CommandLine::~CommandLine() = default;

Command CommandLine::command(const char* name, const char* description) {
  return Command(app_->add_subcommand(name, description));
}

Command CommandLine::whole() { return Command(app_.get()); }

std::vector<CommandInfo> CommandLine::commands() const {
  std::vector<CommandInfo> infos{info_of(*app_)};
  const auto shown = [](const CLI::App* sub) { return !sub->get_group().empty(); };
  for (const CLI::App* sub : app_->get_subcommands(shown)) infos.push_back(info_of(*sub));
  return infos;
}

std::string CommandLine::help() const { return app_->help(); }

int CommandLine::run(std::vector<std::string> words) {
  name_numbers(*app_);
  const auto is_named = [&](const CLI::App* command) { return command->get_name() == words.front(); };
  if (!words.empty() && !words.front().starts_with('-') && app_->get_subcommands(is_named).empty()) {
    // `mfu help run` and `mfu version` are what people try first.
    const bool help = words.front() == "help";
    const bool asks_for_none =
        help && words.size() > 1 && !words[1].starts_with('-') &&
        app_->get_subcommands([&](const CLI::App* command) { return command->get_name() == words[1]; }).empty();
    if (asks_for_none) words.erase(words.begin());
    if (!asks_for_none && (help || words.front() == "version")) {
      words.erase(words.begin());
      if (!help) words.clear();
      words.emplace_back(help ? "--help" : "--version");
    } else {
      std::fprintf(stderr, "mfu: no command \"%s\"%s mfu --help lists those there are\n", words.front().c_str(),
                   nearest_command(*app_, words.front()).c_str());
      return kUsageError;
    }
  }
  if (words.empty()) {
    std::fputs(app_->help().c_str(), stderr);
    return kUsageError;
  }
  if (words.front() == "--") {
    std::fputs("mfu: expected a command, got \"--\"\nmfu --help lists the commands\n", stderr);
    return kUsageError;
  }
  const std::string named = "mfu" + (words.front().starts_with('-') ? "" : " " + words.front());
  const auto complain = [&named](const std::string& what) {
    std::fprintf(stderr, "%s: %s\n%s --help lists the options\n", named.c_str(), what.c_str(), named.c_str());
    return kUsageError;
  };
  const auto first = app_->get_subcommands(is_named);
  if (const std::string wrong = wrong_equals(first.empty() ? app_.get() : first.front(), words); !wrong.empty())
    return complain(wrong);
  std::reverse(words.begin(), words.end());  // the order that CLI11 wants them in
  try {
    app_->parse(words);
  } catch (const CLI::RuntimeError& result) {
    return result.get_exit_code();
  } catch (const CLI::ParseError& wrong) {
    if (wrong.get_exit_code() == 0) return app_->exit(wrong);  // --help, --version
    const auto chosen = app_->get_subcommands();
    const std::string ours = in_our_words(chosen.empty() ? app_.get() : chosen.front(), wrong.what());
    return complain(ours.empty() ? in_words(wrong.what()) : ours);
  }
  return 0;
}

}  // namespace mfu

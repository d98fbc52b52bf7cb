#include "tools/commands/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string_view>
#include <type_traits>

#include "core/base/edit_distance.h"
#include "core/base/number_text.h"
#include "core/base/say.h"

namespace mfu {
namespace {

/// `; did you mean report?` where one of `known` is near, else nothing.
std::string nearest(const std::string& word, const std::vector<std::string>& known) {
  std::string best;
  std::size_t least = 3;  // letters that may be wrong
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance >= least) continue;
    least = distance;
    best = candidate;
  }
  return best.empty() ? "" : "; did you mean " + best + "?";
}

std::string nearest_option(const CLI::App* command, const std::string& word) {
  std::vector<std::string> known;
  for (const CLI::Option* option : command->get_options())
    for (const std::string& name : option->get_lnames())
      if (!option->get_group().empty()) known.push_back("--" + name);
  return nearest(word.substr(0, word.find('=')), known);
}

/// `a, b or c`.
std::string alternatives(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  return text;
}

/// The values of an option, in words: `N`, `train, prefill or decode`.
std::string value_words(const std::string& type) {
  if (const std::vector<std::string> words = words_of(type); !words.empty()) return alternatives(words);
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

/// CLI11's message in other words where an option is unknown, a word is left over, or something is missing.
std::string in_other_words(const CLI::App* command, const std::string& message) {
  const std::vector<std::string> not_taken = command->remaining(true);
  for (const std::string& word : not_taken)
    if (word.size() > 1 && word.starts_with('-')) return word + ": no such option" + nearest_option(command, word);
  if (!not_taken.empty()) return "expected no further argument, got \"" + not_taken.front() + "\"";
  const auto part = [&message](std::size_t from, std::size_t to) { return message.substr(from, to - from); };
  constexpr std::string_view kRequired = " is required", kMissing = ": 1 required ";
  if (message.ends_with(kRequired)) {
    const std::string name = message.substr(0, message.size() - kRequired.size());
    const CLI::Option* option = command->get_option_no_throw(name);
    return "expected " + name + (option == nullptr ? "" : ", " + option->get_description()) + ", got nothing";
  }
  if (const std::size_t at = message.find(kMissing); at != std::string::npos && message.ends_with(" missing"))
    return part(0, at) + ": expected " + value_words(part(at + kMissing.size(), message.size() - 8)) + ", got nothing";
  return message;
}

using Check = std::function<std::string(const std::string&)>;

Check one_of(const std::vector<std::string>& words) {
  return [words](const std::string& text) {
    return std::ranges::find(words, text) != words.end() ? ""
                                                         : "expected " + alternatives(words) + ", got \"" + text + "\"";
  };
}

/// Whether all of `text` is a finite number, a `whole` one in digits alone, from `low` to `high`.
Check number(double low, double high, bool whole) {
  return [=](const std::string& text) -> std::string {
    const std::optional<double> value = parse_number(text);
    const bool digits = text.find_first_not_of("0123456789", text.starts_with('-') ? 1 : 0) == std::string::npos;
    if (value && *value >= low && *value <= high && (digits || !whole)) return "";
    constexpr double kNoLimit = 999'999'999;  // a larger bound only keeps sums in their types
    constexpr double kNearZero = 1e-4;
    const std::string limits = high < kNoLimit              ? fmt::format(" from {:.10g} to {:.10g}", low, high)
                               : low > 0 && low < kNearZero ? std::string(" above 0")
                               : std::isfinite(low)         ? fmt::format(" {:.10g} or more", low)
                                                            : std::string();
    return fmt::format("expected a {}number{}, got \"{}\"", whole ? "whole " : "", limits, text);
  };
}

template <class T>
struct Numeric : std::is_arithmetic<T> {
  static constexpr bool kWhole = std::is_integral_v<T>;
};
template <class T>
struct Numeric<std::optional<T>> : Numeric<T> {};
template <class T>
struct Numeric<std::vector<T>> : Numeric<T> {};

void apply(const OptionRules& rules, CLI::App& command, CLI::Option& option) {
  if (rules.check) option.check(rules.check);
  if (!rules.one_of.empty())
    option.check(one_of(rules.one_of))->type_name(fmt::format("TEXT:{{{}}}", fmt::join(rules.one_of, ",")));
  if (rules.any_case) option.transform([](std::string text) { return CLI::detail::to_lower(text); });
  if (rules.type != nullptr) option.type_name(rules.type);
  if (rules.separator != 0) option.delimiter(rules.separator);
  if (rules.required) option.required();
  if (rules.one_value_each) option.allow_extra_args(false);
  if (rules.shows_default) option.capture_default_str();
  if (rules.hidden) option.group("");
  for (const std::string& other : rules.needs) option.needs(command.get_option(other));
  for (const std::string& other : rules.excludes) option.excludes(command.get_option(other));
}

constexpr std::size_t kHelpColumns = 80, kHelpIndent = 26;

/// `text` in lines of the help, those after the first behind `indent` spaces.
std::string folded(const std::string& text, std::size_t indent) {
  return fmt::format("{}\n", fmt::join(wrapped(text, kHelpColumns - indent), "\n" + std::string(indent, ' ')));
}

/// CLI11's help within 80 columns. The values that an option takes are named behind its description.
class HelpText : public CLI::Formatter {
  static std::string entry(const std::string& name, const std::string& description) {
    const bool fits = name.size() + 4 <= kHelpIndent;
    return fmt::format("  {:<{}}{}{}", name, kHelpIndent - 2, fits ? "" : "\n" + std::string(kHelpIndent, ' '),
                       folded(description, kHelpIndent));
  }
  std::string make_option(const CLI::Option* option, bool positional) const override {
    const std::string type = option->get_type_name();
    const std::vector<std::string> words = words_of(type);
    std::string name = make_option_name(option, positional), text = option->get_description();
    if (option->get_items_expected_max() > 0 && !positional && !type.empty())
      name += words.empty() ? " " + type.substr(0, type.find(' ')) : " WORD";
    if (!words.empty() && text.find(words.back()) == std::string::npos) text += ": " + alternatives(words);
    if (!option->get_default_str().empty()) text += "; default: " + option->get_default_str();
    if (option->get_required() && !positional) text += "; required";
    return entry(name, text);
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return entry(command->get_name(), command->get_description());
  }
  std::string make_description(const CLI::App* command) const override { return folded(command->get_description(), 0); }
  std::string make_footer(const CLI::App* command) const override {
    const std::string footer = command->get_footer();
    const std::size_t codes = footer.rfind('\n') + 1;
    return footer.substr(0, codes) + folded(footer.substr(codes), 0);
  }
};

/// CLI11 shows options of a group: hidden ones are of none.
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

template <class T>
void Command::option(const std::string& names, T& value, const std::string& description, const OptionRules& rules) {
  CLI::Option& option = *app_->add_option(names, value, description);
  if constexpr (Numeric<T>::value) option.type_name(Numeric<T>::kWhole ? "N" : "NUMBER");
  const auto [low, high] = rules.between;
  if (!rules.check && (Numeric<T>::value || std::isfinite(low))) option.check(number(low, high, Numeric<T>::kWhole));
  apply(rules, *app_, option);
}
template void Command::option(const std::string&, std::string&, const std::string&, const OptionRules&);
template void Command::option(const std::string&, int&, const std::string&, const OptionRules&);
template void Command::option(const std::string&, std::int64_t&, const std::string&, const OptionRules&);
template void Command::option(const std::string&, double&, const std::string&, const OptionRules&);
template void Command::option(const std::string&, std::optional<std::uint32_t>&, const std::string&,
                              const OptionRules&);
template void Command::option(const std::string&, std::optional<std::int64_t>&, const std::string&, const OptionRules&);
template void Command::option(const std::string&, std::optional<double>&, const std::string&, const OptionRules&);
template void Command::option(const std::string&, std::vector<std::string>&, const std::string&, const OptionRules&);
template void Command::option(const std::string&, std::vector<std::int64_t>&, const std::string&, const OptionRules&);

void Command::flag(const std::string& names, bool& value, const std::string& description, const OptionRules& rules) {
  apply(rules, *app_, *app_->add_flag(names, value, description));
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
  app_->callback([act = std::move(act), name = app_->get_name()] {
    int code = 1;
    try {
      code = act();
    } catch (const std::exception& e) {
      say_error(name, e.what());
    }
    if (code == 0 && (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && errno != EPIPE) {
      say_error(name, "stdout: cannot be written");
      code = 1;
    }
    if (code != 0) throw CLI::RuntimeError(code);
  });
}

std::vector<std::string> words_of(const std::string& type) {
  std::vector<std::string> words;
  const std::size_t open = type.find('{'), close = type.find('}');
  for (std::size_t at = open == std::string::npos ? open : open + 1; at < close && close != std::string::npos;) {
    const std::size_t end = std::min(type.find(',', at), close);
    words.push_back(type.substr(at, end - at));
    at = end + 1;
  }
  return words;
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
  app_->formatter(std::make_shared<HelpText>());
}

CommandLine::~CommandLine() = default;

Command CommandLine::command(const char* name, const char* description) {
  return Command(app_->add_subcommand(name, description)->group(title_));
}

Command CommandLine::whole() { return Command(app_.get()); }

std::vector<CommandInfo> CommandLine::commands() const {
  std::vector<CommandInfo> infos{info_of(*app_)};
  const auto shown = [](const CLI::App* sub) { return !sub->get_group().empty(); };
  for (const CLI::App* sub : app_->get_subcommands(shown)) infos.push_back(info_of(*sub));
  return infos;
}

int CommandLine::run(std::vector<std::string> words) {
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
      std::vector<std::string> known;
      for (const CommandInfo& command : commands()) known.push_back(command.name);
      const std::string near = nearest(words.front(), known);
      say(stderr, "mfu: no command \"{}\"{} mfu --help lists those there are\n", words.front(),
          near.empty() ? ";" : near);
      return kUsageError;
    }
  }
  if (words.empty()) {
    say(stderr, "{}", Lines{app_->help()});
    return kUsageError;
  }
  if (words.front() == "--") {
    say(stderr, "mfu: expected a command, got \"--\"\nmfu --help lists the commands\n");
    return kUsageError;
  }
  const std::string named = "mfu" + (words.front().starts_with('-') ? "" : " " + words.front());
  const auto complain = [&named](const std::string& what) {
    say(stderr, "{}: {}\n{} --help lists the options\n", named, what, named);
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
    return complain(in_other_words(chosen.empty() ? app_.get() : chosen.front(), wrong.what()));
  }
  return 0;
}

}  // namespace mfu

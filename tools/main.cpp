// `mfu`: one command, a file per subcommand.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/build_info.h"
#include "core/base/edit_distance.h"
#include "tools/commands/commands.h"

namespace {

/// `; did you mean report?` where one is near, else `;`.
std::string nearest_command(const CLI::App& app, const std::string& word) {
  std::string best;
  std::size_t least = 3;  // letters that may be wrong
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    const std::size_t distance = mfu::edit_distance(word, command->get_name());
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
      const std::size_t distance = mfu::edit_distance(name, "--" + known);
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

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) arguments.emplace_back(argv[i]);
  CLI::App app("MFU of a model's regions: live, from traces, from shapes", "mfu");
  const std::string commit(mfu::build_commit());
  const std::string kind(mfu::build_kind());
  const std::string origin = commit + (commit.empty() || kind.empty() ? "" : ", ") + kind;
  app.set_version_flag("--version", MFU_VERSION + (origin.empty() ? "" : " (" + origin + ")"));
  app.require_subcommand(0, 1);
  app.footer(mfu::help_footer({"mfu demo", "mfu run -c config.json python train.py", "mfu doctor", "mfu run --help"},
                              "that of the command, which its own --help explains"));
  mfu::add_run(app, arguments);
  mfu::add_flops(app);
  mfu::add_plan(app);
  mfu::add_replay(app);
  mfu::add_report(app);
  mfu::add_compare(app);
  mfu::add_serve(app);
  mfu::add_top(app);
#ifdef MFU_HAVE_CUDA
  mfu::add_demo(app);
  mfu::add_doctor(app);
#endif
  mfu::add_completion(app);
  mfu::add_man(app);
  name_numbers(app);
  const auto is_named = [&](const CLI::App* command) { return command->get_name() == arguments.front(); };
  if (!arguments.empty() && !arguments.front().starts_with('-') && app.get_subcommands(is_named).empty()) {
    // `mfu help run` and `mfu version` are what people try first.
    const bool help = arguments.front() == "help";
    const bool asks_for_none =
        help && arguments.size() > 1 && !arguments[1].starts_with('-') &&
        app.get_subcommands([&](const CLI::App* command) { return command->get_name() == arguments[1]; }).empty();
    if (asks_for_none) arguments.erase(arguments.begin());
    if (!asks_for_none && (help || arguments.front() == "version")) {
      arguments.erase(arguments.begin());
      if (!help) arguments.clear();
      arguments.emplace_back(help ? "--help" : "--version");
    } else {
      std::fprintf(stderr, "mfu: no command \"%s\"%s mfu --help lists those there are\n", arguments.front().c_str(),
                   nearest_command(app, arguments.front()).c_str());
      return mfu::kUsageError;
    }
  }
  if (arguments.empty()) {
    std::fputs(app.help().c_str(), stderr);
    return mfu::kUsageError;
  }
  if (arguments.front() == "--") {
    std::fputs("mfu: expected a command, got \"--\"\nmfu --help lists the commands\n", stderr);
    return mfu::kUsageError;
  }
  const std::string named = "mfu" + (arguments.front().starts_with('-') ? "" : " " + arguments.front());
  const auto complain = [&named](const std::string& what) {
    std::fprintf(stderr, "%s: %s\n%s --help lists the options\n", named.c_str(), what.c_str(), named.c_str());
    return mfu::kUsageError;
  };
  const auto first = app.get_subcommands(is_named);
  if (const std::string wrong = wrong_equals(first.empty() ? &app : first.front(), arguments); !wrong.empty())
    return complain(wrong);
  std::reverse(arguments.begin(), arguments.end());  // the order that CLI11 wants them in
  try {
    app.parse(arguments);
  } catch (const CLI::RuntimeError& result) {
    return result.get_exit_code();
  } catch (const CLI::ParseError& wrong) {
    if (wrong.get_exit_code() == 0) return app.exit(wrong);  // --help, --version
    const auto chosen = app.get_subcommands();
    const std::string ours = in_our_words(chosen.empty() ? &app : chosen.front(), wrong.what());
    return complain(ours.empty() ? in_words(wrong.what()) : ours);
  }
  return 0;
}

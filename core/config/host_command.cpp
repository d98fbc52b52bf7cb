#include "core/config/host_command.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "core/base/clock.h"
#include "core/base/file_start.h"
#include "core/base/secrets.h"

namespace mfu {
namespace {

bool is_plain(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("@%+=:,./-_").find(c) != std::string_view::npos;
}

std::string quoted(std::string_view argument) {
  if (!argument.empty() && std::all_of(argument.begin(), argument.end(), is_plain)) return std::string(argument);
  std::string out = "'";
  for (const char c : argument) {
    if (c == '\'')
      out += "'\\''";
    else
      out += static_cast<unsigned char>(c) < ' ' ? ' ' : c;  // a line stays a line
  }
  return out + "'";
}

}  // namespace

std::string command_text(std::string_view cmdline) {
  std::string out;
  bool hide_next = false;
  while (!cmdline.empty() && out.size() <= kMaxCommandBytes) {
    const std::size_t length = std::min(cmdline.find('\0'), cmdline.size());
    const std::string_view argument = cmdline.substr(0, length);
    cmdline.remove_prefix(std::min(length + 1, cmdline.size()));
    if (!out.empty()) out += ' ';
    const std::size_t equals = argument.find('=');
    const bool hidden = hide_next && !argument.starts_with("--");
    hide_next = false;
    if (hidden) {
      out += "***";
    } else if (equals != argument.npos && is_secret_name(argument.substr(0, equals))) {
      out += quoted(argument.substr(0, equals + 1)) + "***";
    } else {
      hide_next = argument.starts_with("-") && is_secret_name(argument);
      out += quoted(std::string_view(without_secrets(argument)));
    }
  }
  if (out.size() > kMaxCommandBytes) {
    std::size_t end = kMaxCommandBytes - 3;
    while (end > 0 && (static_cast<unsigned char>(out[end]) & 0xC0) == 0x80) --end;  // not within a character
    out.resize(end);
    out += "...";
  }
  return out;
}

std::string host_command() {
  std::array<char, 4 * kMaxCommandBytes> buffer;
  return command_text(file_start("/proc/self/cmdline", buffer));
}

std::optional<std::int64_t> start_ticks(std::string_view stat) {
  // The second field is a name in brackets that may hold blanks; the start is the 20th after it.
  std::size_t at = stat.rfind(')');
  for (int i = 0; i < 20 && at < stat.size(); ++i) at = stat.find(' ', at + 1);
  std::int64_t ticks = 0;
  if (at >= stat.size() || std::from_chars(stat.data() + at + 1, stat.data() + stat.size(), ticks).ec != std::errc())
    return std::nullopt;
  return ticks;
}

TimeNs host_began_ns() {
  std::array<char, 1024> buffer;
  const auto ticks = start_ticks(file_start("/proc/self/stat", buffer));
  const DurationNs age =
      time_of(CLOCK_BOOTTIME) - ticks.value_or(0) * (kNsPerSecond / std::max(1L, ::sysconf(_SC_CLK_TCK)));
  return ticks && age >= 0 ? utc_now() - age : 0;
}

}  // namespace mfu

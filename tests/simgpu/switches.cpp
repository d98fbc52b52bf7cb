// SIMGPU_* variables: what a test scripts on the simulated GPU. A value that cannot be read aborts with one line on
// stderr: a test must not pass because its script had a typing error.
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "tools/simgpu/settings.h"

namespace mfu::sim {
namespace {

/// Of a named function, instead of its work.
struct FunctionFault {
  int result = 0;               ///< returned at once when not 0
  std::int64_t delay_ms = 0;    ///< slept before anything else
  bool hang = false;            ///< never returns
  std::uint64_t from_call = 1;  ///< first call (counted from 1) that is affected
};

/// Never freed: the libraries stay in use until the last instruction of the process.
std::map<std::string, FunctionFault>& faults() {
  static auto* const all = new std::map<std::string, FunctionFault>;
  return *all;
}

[[noreturn]] void bad(const char* name, std::string_view value, const char* expected) {
  std::fprintf(stderr, "[simgpu] %s=\"%.*s\": expected %s\n", name, static_cast<int>(value.size()), value.data(),
               expected);
  std::abort();
}

double number(const char* name, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != '\0') bad(name, text, "a number");
  return value;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t at = text.find(separator);
    if (at != 0) parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) break;
    text.remove_prefix(at + 1);
  }
  return parts;
}

template <typename T>
void read(const char* name, T& out) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == '\0') return;
  if constexpr (std::is_same_v<T, std::string>) {
    out = text;
  } else if constexpr (std::is_same_v<T, bool>) {
    out = number(name, text) != 0;
  } else {
    out = static_cast<T>(number(name, text));
  }
}

/// `name:value` pairs separated by commas, and `@n` after the value: from the n-th call on.
void read_functions(const char* variable, void (*apply)(FunctionFault&, double)) {
  std::string text;
  read(variable, text);
  for (const std::string& entry : split(text, ',')) {
    const std::size_t at = entry.find('@');
    const std::size_t colon = entry.find(':');
    FunctionFault& fault = faults()[entry.substr(0, std::min(colon, at))];
    const double value = colon == std::string::npos ? 1 : number(variable, entry.substr(colon + 1, at - colon - 1));
    apply(fault, value);
    if (at != std::string::npos) fault.from_call = static_cast<std::uint64_t>(number(variable, entry.substr(at + 1)));
  }
}

/// The i-th of the ';'-separated values of `name`; the last one holds for all devices after it.
template <typename T>
void read_per_device(const char* name, std::vector<DeviceSpec>& devices, T DeviceSpec::*member, double scale = 1) {
  std::string text;
  read(name, text);
  const std::vector<std::string> values = split(text, ';');
  if (values.empty()) return;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const std::string& value = values[std::min(i, values.size() - 1)];
    if constexpr (std::is_same_v<T, std::string>) {
      devices[i].*member = value;
    } else {
      devices[i].*member = static_cast<T>(number(name, value) * scale);
    }
  }
}

void read_foreign(Settings& s) {
  std::string text;
  read("SIMGPU_FOREIGN", text);
  for (const std::string& entry : split(text, ',')) {
    const std::vector<std::string> parts = split(entry, ':');
    ForeignClient client;
    client.kind = parts[0];
    if (parts.size() > 1) client.start_ms = static_cast<std::int64_t>(number("SIMGPU_FOREIGN", parts[1]));
    if (parts.size() > 2) client.stop_ms = static_cast<std::int64_t>(number("SIMGPU_FOREIGN", parts[2]));
    const std::string_view known = "old_kineto new_kineto resiliency freer first";
    if (known.find(client.kind) == std::string_view::npos) bad("SIMGPU_FOREIGN", client.kind, known.data());
    s.foreign.push_back(client);
  }
}

void read_devices(std::vector<DeviceSpec>& devices) {
  std::size_t count = 1;
  read("SIMGPU_DEVICES", count);
  devices.resize(count);
  read_per_device("SIMGPU_DEVICE_NAME", devices, &DeviceSpec::name);
  read_per_device("SIMGPU_SM_COUNT", devices, &DeviceSpec::sm_count);
  read_per_device("SIMGPU_CLOCK_KHZ", devices, &DeviceSpec::clock_khz);
  read_per_device("SIMGPU_MEMORY_CLOCK_KHZ", devices, &DeviceSpec::memory_clock_khz);
  read_per_device("SIMGPU_BUS_BITS", devices, &DeviceSpec::bus_bits);
  read_per_device("SIMGPU_MEMORY_GB", devices, &DeviceSpec::memory_bytes, static_cast<double>(1ull << 30));
  read_per_device("SIMGPU_CC_MAJOR", devices, &DeviceSpec::cc_major);
  read_per_device("SIMGPU_CC_MINOR", devices, &DeviceSpec::cc_minor);
  read_per_device("SIMGPU_PEAK_TFLOPS", devices, &DeviceSpec::flop_per_s, 1e12);
  read_per_device("SIMGPU_PEAK_GBPS", devices, &DeviceSpec::bytes_per_s, 1e9);
  for (const DeviceSpec& device : devices) {
    if (device.name.find("Simulated") == std::string::npos)
      bad("SIMGPU_DEVICE_NAME", device.name, "a name with the word Simulated");
  }
}

}  // namespace

void read_settings(Settings& s) {
#define SETTING(type, member, initial, variable) read(variable, s.member);
#include "tools/simgpu/settings.inc"
#undef SETTING
  read_devices(s.devices);
  std::string text;
  read("SIMGPU_FLOP_PER_BLOCK", text);
  for (const std::string& entry : split(text, ',')) {
    const std::size_t colon = entry.find(':');
    if (colon == std::string::npos) bad("SIMGPU_FLOP_PER_BLOCK", entry, "NAME:FLOP");
    s.flop_per_block.emplace_back(entry.substr(0, colon), number("SIMGPU_FLOP_PER_BLOCK", entry.substr(colon + 1)));
  }
  std::string memory = "addresses";
  read("SIMGPU_MEMORY", memory);
  if (memory != "contents" && memory != "addresses") bad("SIMGPU_MEMORY", memory, "addresses or contents");
  s.memory_contents = memory == "contents";
  read_functions("SIMGPU_FAIL", [](FunctionFault& f, double v) { f.result = static_cast<int>(v); });
  read_functions("SIMGPU_DELAY_MS", [](FunctionFault& f, double v) { f.delay_ms = static_cast<std::int64_t>(v); });
  read_functions("SIMGPU_HANG", [](FunctionFault& f, double v) { f.hang = v != 0; });
  std::string kinds;
  read("SIMGPU_REFUSE_KINDS", kinds);
  for (const std::string& kind : split(kinds, ',')) {
    s.refused_kinds.push_back(static_cast<std::uint32_t>(number("SIMGPU_REFUSE_KINDS", kind)));
  }
  std::string burst;
  read("SIMGPU_DROP_BURST", burst);
  if (const std::vector<std::string> parts = split(burst, ':'); !parts.empty()) {
    if (parts.size() != 2) bad("SIMGPU_DROP_BURST", burst, "EVERY:COUNT");
    s.drop_every = static_cast<std::uint64_t>(number("SIMGPU_DROP_BURST", parts[0]));
    s.drop_burst = static_cast<std::uint64_t>(number("SIMGPU_DROP_BURST", parts[1]));
  }
  read_foreign(s);
}

int run_fault(const char* function) {
  (void)settings();  // which reads them
  if (faults().empty()) return 0;
  auto it = faults().find(function);
  if (it == faults().end() && std::string_view(function).starts_with("cupti")) it = faults().find("*");
  if (it == faults().end()) return 0;
  std::uint64_t call = 0;
  {
    static auto* const mutex = new std::mutex;
    static auto* const calls = new std::map<std::string, std::uint64_t>;
    const std::lock_guard lock(*mutex);
    call = ++(*calls)[function];
  }
  const FunctionFault& fault = it->second;
  if (call < fault.from_call) return 0;
  if (fault.delay_ms > 0) {
    const timespec ts{fault.delay_ms / 1000, fault.delay_ms % 1000 * 1'000'000};
    nanosleep(&ts, nullptr);
  }
  while (fault.hang) pause();
  return fault.result;
}

}  // namespace mfu::sim

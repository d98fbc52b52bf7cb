// A libnvidia-ml.so.1 whose board takes what the program says: the file NVML_POWER_FILE holds {joules, watts, since},
// joules being those up to `since` (CLOCK_MONOTONIC, ns). NVML_PERIOD_MS: how often the counter changes. NVML_REFUSE:
// what the energy call returns. NVML_DELAY_MS: how long it takes, of every call or of each NVML_DELAY_EVERY-th one.
// NVML_HANG_AFTER: so many calls return, the next one never does. NVML_RESET_AFTER: then it begins at 0 again.
// NVML_PART: the device is a part of one. NVML_HELD: share of the time in which power holds the clock down.
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

namespace {

struct Board {
  double joules, watts;
  std::int64_t since_ns;
};

std::int64_t now_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

double number(const char* name, double otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atof(text) : otherwise;
}

const Board* board() {
  static const Board* const mapped = [] {
    const char* path = std::getenv("NVML_POWER_FILE");
    const int file = path != nullptr ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) std::abort();
    void* at = mmap(nullptr, sizeof(Board), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    return static_cast<const Board*>(at);
  }();
  return mapped;
}

}  // namespace

extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlDeviceGetHandleByUUID(const char*, void** device) {
  static int one;
  *device = &one;
  return 0;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void* part, void** device) {
  *device = part;
  return number("NVML_PART", 0) != 0 ? 0 : 3;
}
int nvmlDeviceGetClockInfo(void*, int, unsigned* mhz) {
  *mhz = 1500;
  return 0;
}
int nvmlDeviceGetTotalEnergyConsumption(void*, unsigned long long* millijoules) {
  static int calls = 0;
  ++calls;
  if (number("NVML_HANG_AFTER", 1e9) < calls)
    for (;;) pause();
  if (calls % static_cast<int>(number("NVML_DELAY_EVERY", 1)) == 0)
    usleep(static_cast<useconds_t>(1000 * number("NVML_DELAY_MS", 0)));
  if (const int refused = static_cast<int>(number("NVML_REFUSE", 0)); refused != 0) return refused;
  const std::int64_t period = static_cast<std::int64_t>(1e6 * number("NVML_PERIOD_MS", 20));
  const std::int64_t shown = now_ns() / period * period;
  const Board& b = *board();
  double joules = b.joules + b.watts * static_cast<double>(shown - b.since_ns) * 1e-9;
  static double set_back = 0;
  if (calls == number("NVML_RESET_AFTER", -1)) set_back = joules;
  *millijoules = static_cast<unsigned long long>(1000 * (joules - set_back));
  return 0;
}
int nvmlDeviceGetViolationStatus(void*, int policy, unsigned long long* reference_and_violation) {
  const std::int64_t now = now_ns();
  reference_and_violation[0] = static_cast<unsigned long long>(now / 1000);
  reference_and_violation[1] =
      static_cast<unsigned long long>(policy == 0 ? number("NVML_HELD", 0) * static_cast<double>(now) : 0);
  return 0;
}
}

// LD_PRELOAD: CLOCK_REALTIME is set on by CLOCK_STEP_S seconds, CLOCK_STEP_AFTER_S seconds after the program began, or
// with CLOCK_STEP_AT_READING=N for all once a thread whose name begins with `mfu-` has read it N times.
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace {

double number(const char* name) {
  const char* text = getenv(name);
  return text == nullptr ? 0 : strtod(text, nullptr);
}

timespec begin{};
double step_s = 0, after_s = 0;
int at_reading = 0;
std::atomic<int> readings{0};

bool is_of_the_library() {
  char name[16] = {};
  return prctl(PR_GET_NAME, name) == 0 && strncmp(name, "mfu-", 4) == 0;
}

[[gnu::constructor]] void on_load() {
  step_s = number("CLOCK_STEP_S");
  after_s = number("CLOCK_STEP_AFTER_S");
  at_reading = static_cast<int>(number("CLOCK_STEP_AT_READING"));
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &begin);
}

}  // namespace

extern "C" [[gnu::visibility("default")]] int clock_gettime(clockid_t clock, timespec* t) noexcept {
  const long result = syscall(SYS_clock_gettime, clock, t);
  if (result != 0 || clock != CLOCK_REALTIME || step_s == 0) return static_cast<int>(result);
  if (at_reading != 0) {
    const bool set = readings.load() >= at_reading;
    if (set) t->tv_sec += static_cast<time_t>(step_s);
    if (!set && is_of_the_library()) ++readings;
    return 0;
  }
  timespec now{};
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
  const double since =
      static_cast<double>(now.tv_sec - begin.tv_sec) + static_cast<double>(now.tv_nsec - begin.tv_nsec) * 1e-9;
  if (since >= after_s) t->tv_sec += static_cast<time_t>(step_s);
  return 0;
}

// Hosts whose own affairs come first, one per word.
//   realtime       a SCHED_FIFO thread on one processor starts CUDA and wakes 1,000 times a second for a second. Prints
//                  `NAME POLICY NICE PROCESSORS` of every thread whose name begins with `mfu-`, and on standard error
//                  the 99th percentile of its wake-ups' delays in us
//   setenv         a thread sets and unsets variables without end while CUDA starts
//   locked         mlockall(MCL_CURRENT | MCL_FUTURE), then it works. Prints what is resident in KiB
//   locale NAME    setlocale(LC_ALL, NAME), then it works. Prints 1.5 as printf does
// 77: the system does not allow it.
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <clocale>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "host_work.h"

using host::start_cuda;
using host::steps;

namespace {

constexpr int kNotAllowed = 77;

void print_own_threads() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(entry.path() / "comm"), name);
    if (!name.starts_with("mfu-")) continue;
    const ::pid_t thread = std::stoi(entry.path().filename());
    ::cpu_set_t processors;
    CPU_ZERO(&processors);
    ::sched_getaffinity(thread, sizeof processors, &processors);
    std::printf("%s %d %d %d\n", name.c_str(), ::sched_getscheduler(thread),
                ::getpriority(PRIO_PROCESS, static_cast<::id_t>(thread)), CPU_COUNT(&processors));
  }
}

void* wake_up(void*) {
  ::cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(::sched_getcpu(), &one);
  const ::sched_param priority{40};
  if (::sched_setaffinity(0, sizeof one, &one) != 0 || ::sched_setscheduler(0, SCHED_FIFO, &priority) != 0)
    std::_Exit(kNotAllowed);
  start_cuda();
  steps(2);
  constexpr long kPeriod = 1'000'000;
  std::vector<long> late;
  ::timespec next{};
  ::clock_gettime(CLOCK_MONOTONIC, &next);
  for (int i = 0; i < 1000; ++i) {
    next.tv_nsec += kPeriod;
    if (next.tv_nsec >= 1'000'000'000) ++next.tv_sec, next.tv_nsec -= 1'000'000'000;
    ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, nullptr);
    ::timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    late.push_back((now.tv_sec - next.tv_sec) * 1'000'000'000 + now.tv_nsec - next.tv_nsec);
  }
  std::sort(late.begin(), late.end());
  std::fprintf(stderr, "late %ld us\n", late[990] / 1000);
  return nullptr;
}

int realtime() {
  ::pthread_t thread;
  if (::pthread_create(&thread, nullptr, wake_up, nullptr) != 0) return 1;
  ::pthread_join(thread, nullptr);
  print_own_threads();
  return 0;
}

std::atomic<bool> g_stop{false};

void* set_variables(void*) {
  for (int i = 0; !g_stop; i = (i + 1) % 3000) {
    const std::string name = "STORM_" + std::to_string(i);
    ::setenv(name.c_str(), "some value of no interest", 1);
    if (i % 3 == 0) ::unsetenv(name.c_str());
  }
  return nullptr;
}

int storm_of_variables() {
  // The simulated driver reads its own variables at its first call, with getenv(): before the storm.
  host::g_driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  int version = 0;
  if (host::g_driver == nullptr ||
      host::driver_function<decltype(&::cuDriverGetVersion)>("cuDriverGetVersion")(&version) != CUDA_SUCCESS)
    return 2;
  ::pthread_t thread;
  if (::pthread_create(&thread, nullptr, set_variables, nullptr) != 0) return 1;
  start_cuda();
  g_stop = true;
  ::pthread_join(thread, nullptr);
  steps(3);
  std::puts("worked");
  return 0;
}

int locked() {
  if (::mlockall(MCL_CURRENT | MCL_FUTURE) != 0) return kNotAllowed;
  start_cuda();
  steps(10);
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmRSS:")) std::printf("%ld\n", std::stol(line.substr(6)));
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const std::string word = count > 1 ? words[1] : "";
  if (word == "realtime") return realtime();
  if (word == "setenv") return storm_of_variables();
  if (word == "locked") return locked();
  if (word != "locale" || count < 3) return 99;
  if (std::setlocale(LC_ALL, words[2]) == nullptr) return kNotAllowed;
  start_cuda();
  steps(3);
  std::printf("%.1f\n", 1.5);
  return 0;
}

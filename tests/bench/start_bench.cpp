// What being there costs a process: the load of the library and InitializeInjection in one that uses CUDA (CUPTI's own
// time left out), and the preload in one that does not. Each is a process of its own.
#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/bench/cpu_time.h"

namespace {

double now_ms(::clockid_t clock) {
  ::timespec t{};
  ::clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

struct Started {
  double wall_ms = -1;
  double cpu_ms = -1;
};

/// dlopen and InitializeInjection in a fresh child, as the driver does it inside cuInit.
Started start_once() {
  int ends[2];
  if (::pipe(ends) != 0) return {};
  const ::pid_t child = ::fork();
  if (child == 0) {
    ::setenv("MFU_CUPTI", "/nonexistent/libcupti.so", 1);
    ::setenv("MFU_LOG", "none", 1);
    ::setenv("MFU_MODEL_CONFIG", MFU_TEST_DATA "/configs/qwen3-8b.json", 1);
    Started s;
    const double wall = now_ms(CLOCK_MONOTONIC), cpu = now_ms(CLOCK_THREAD_CPUTIME_ID);
    if (void* library = ::dlopen(MFU_INJECT_LIBRARY, RTLD_NOW | RTLD_LOCAL)) {
      if (const auto start = reinterpret_cast<int (*)()>(::dlsym(library, "InitializeInjection"));
          start != nullptr && start() == 1)
        s = {now_ms(CLOCK_MONOTONIC) - wall, now_ms(CLOCK_THREAD_CPUTIME_ID) - cpu};
    }
    ::_exit(::write(ends[1], &s, sizeof s) == sizeof s ? 0 : 1);
  }
  ::close(ends[1]);
  Started s;
  if (::read(ends[0], &s, sizeof s) != sizeof s) s = {};
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return s;
}

void BM_LoadAndInitialize(benchmark::State& state) {
  std::vector<double> wall, cpu;
  for (auto _ : state) {
    const Started s = start_once();
    if (s.wall_ms < 0) {
      state.SkipWithError("the library did not start");
      break;
    }
    wall.push_back(s.wall_ms);
    cpu.push_back(s.cpu_ms);
    state.SetIterationTime(s.wall_ms * 1e-3);
  }
  if (wall.empty()) return;
  state.counters["median_ms"] = mfu::median(wall);
  state.counters["median_cpu_ms"] = mfu::median(cpu);
}
BENCHMARK(BM_LoadAndInitialize)->Iterations(31)->UseManualTime()->Unit(benchmark::kMillisecond);

struct Ran {
  double wall_ms = 0;
  double cpu_ms = 0;
  bool silent = true;
};

/// One /bin/true, with the library preloaded or without.
Ran run_true(bool preloaded) {
  int ends[2];
  if (::pipe(ends) != 0) return {};
  const double begin = now_ms(CLOCK_MONOTONIC);
  const ::pid_t child = ::vfork();
  if (child == 0) {
    ::dup2(ends[1], STDOUT_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    const char* const with[] = {"LD_PRELOAD=" MFU_INJECT_LIBRARY, nullptr};
    const char* const without[] = {"LD_NOTHING=" MFU_INJECT_LIBRARY, nullptr};
    const char* const arguments[] = {"/bin/true", nullptr};
    ::execve("/bin/true", const_cast<char* const*>(arguments), const_cast<char* const*>(preloaded ? with : without));
    ::_exit(127);
  }
  ::close(ends[1]);
  int status = 0;
  ::rusage used{};
  ::wait4(child, &status, 0, &used);
  Ran ran;
  ran.wall_ms = now_ms(CLOCK_MONOTONIC) - begin;
  for (const ::timeval& t : {used.ru_utime, used.ru_stime})
    ran.cpu_ms += static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_usec) * 1e-3;
  char byte = 0;
  ran.silent = ::read(ends[0], &byte, 1) == 0 && status == 0;
  ::close(ends[0]);
  return ran;
}

/// In turns, so that both see the same machine; medians of the differences.
void BM_PreloadWithoutCuda(benchmark::State& state) {
  std::vector<double> wall, cpu;
  for (auto _ : state) {
    const Ran without = run_true(false), with = run_true(true);
    if (!with.silent || !without.silent) {
      state.SkipWithError("output, or an exit code other than 0");
      break;
    }
    wall.push_back(with.wall_ms - without.wall_ms);
    cpu.push_back(with.cpu_ms - without.cpu_ms);
    state.SetIterationTime(with.wall_ms * 1e-3);
  }
  if (wall.empty()) return;
  state.counters["extra_ms"] = mfu::median(wall);
  state.counters["extra_cpu_ms"] = mfu::median(cpu);
}
BENCHMARK(BM_PreloadWithoutCuda)->Iterations(201)->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace

// More hosts that do what ours should not have to expect, one per word; the exit code and standard output are what the
// host does without the library.
// clang-format off
//   timers              SIGPROF, SIGALRM and SIGVTALRM a thousand times a second while it works
//   longjmp             a signal takes it out of NVTX calls by siglongjmp, 300 times
//   unload LIBRARY      opens and closes the library, and closes it more often than it opened it
//   storm               four threads launch while it makes 120 children that _exit, exec, or use NVTX
//   leave KIND          four threads launch while it ends: exit _exit quick_exit return abortthread execthread
//                       handler_exit handler__exit handler_abort handler_exec kill
//   strict              a thread goes into seccomp's strict mode, in which any system call ends the process, and uses NVTX
//   kill NUMBER...      works, has every thread killed that makes one of these system calls, works
//   chroot WHEN FOLDER  goes into an empty root: `before` CUDA starts or `after`
//   closerange          closes every descriptor, 0 to 2 too, and works
//   threads STACK [range-before]
//                       40 threads with stacks of that many bytes make steps; the process's first range is theirs, or
//                       the main thread's before them
// clang-format on
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "host_work.h"

using host::start_cuda;
using host::steps;

namespace {

std::atomic<int> g_signals{0}, g_in_foreign_threads{0};

void run_sh() { ::execl("/bin/sh", "sh", "-c", "exit 23", static_cast<char*>(nullptr)); }

/// Launches as fast as it can, for ever.
void* launch_for_ever(void*) {
  const auto set = host::driver_function<decltype(&::cuMemsetD8Async)>("cuMemsetD8Async");
  (void)host::driver_function<decltype(&::cuCtxSetCurrent)>("cuCtxSetCurrent")(host::g_context);
  while (true) {
    nvtxRangePushA("step batch=1 seq_len=8");
    (void)set(host::g_memory, 0, 4096, nullptr);
    nvtxRangePop();
  }
}

void start_launching(::pthread_t (&threads)[4]) {
  for (::pthread_t& thread : threads) ::pthread_create(&thread, nullptr, launch_for_ever, nullptr);
}

void count_signal(int) {
  char name[16] = {};
  ::prctl(PR_GET_NAME, name);
  if (std::strncmp(name, "mfu-", 4) == 0) ++g_in_foreign_threads;
  ++g_signals;
}

int timers() {
  start_cuda();
  struct ::sigaction action {};
  action.sa_handler = count_signal;
  const ::itimerval often{{0, 1000}, {0, 1000}};
  for (const auto& [signal, timer] :
       {std::pair{SIGPROF, ITIMER_PROF}, {SIGALRM, ITIMER_REAL}, {SIGVTALRM, ITIMER_VIRTUAL}}) {
    ::sigaction(signal, &action, nullptr);
    ::setitimer(static_cast<decltype(ITIMER_PROF)>(timer), &often, nullptr);
  }
  for (int i = 0; i < 500 || g_signals < 500; ++i) steps(1);  // sleeps that are cut short
  if (g_in_foreign_threads != 0) return 1;
  std::puts("worked");
  return 0;
}

::sigjmp_buf g_jump;

int jump_out() {
  for (int i = 0; i < 100; ++i) {
    nvtxRangePushA("step batch=1 seq_len=8");
    nvtxRangePop();
  }
  struct ::sigaction action {};
  action.sa_handler = [](int) { ::siglongjmp(g_jump, 1); };
  ::sigaction(SIGALRM, &action, nullptr);
  volatile int jumps = 0;
  if (::sigsetjmp(g_jump, 1) != 0) jumps = jumps + 1;
  const ::itimerval soon{{0, 0}, {0, 200}};
  if (jumps < 300) {
    ::setitimer(ITIMER_REAL, &soon, nullptr);
    while (true) {
      nvtxRangePushA("step batch=1 seq_len=8");
      nvtxRangePop();
    }
  }
  std::puts("jumped");
  return 0;
}

int unload(const char* library) {
  start_cuda();
  steps(3);
  for (int round = 0; round < 20; ++round) {
    void* handle = ::dlopen(library, RTLD_NOW);
    if (handle == nullptr) return 1;
    for (int i = 0; i < 4; ++i) (void)::dlclose(handle);  // that of the driver and that of NVTX too
    steps(1);
  }
  std::puts("worked");
  return 0;
}

int storm() {
  start_cuda();
  steps(2);
  ::pthread_t threads[4];
  start_launching(threads);
  for (int i = 0; i < 120; ++i) {
    const ::pid_t child = i % 4 == 3 ? ::vfork() : ::fork();
    if (child == 0) {
      if (i % 4 == 1) {
        nvtxRangePushA("step in the child");
        nvtxRangePop();
      }
      if (i % 4 >= 2) run_sh();
      ::_exit(23);
    }
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 23) return 1;
  }
  std::puts("stormed");
  std::fflush(stdout);
  ::_exit(0);
}

int leave(const std::string& kind) {
  start_cuda();
  steps(2);
  ::sigset_t alarm;
  ::sigemptyset(&alarm);
  ::sigaddset(&alarm, SIGALRM);
  ::pthread_sigmask(SIG_BLOCK, &alarm, nullptr);
  ::pthread_t threads[4];
  start_launching(threads);
  ::pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr);
  ::usleep(200'000);
  if (kind == "return") return 21;
  if (kind == "exit") std::exit(21);
  if (kind == "_exit") ::_exit(21);
  if (kind == "quick_exit") std::quick_exit(21);
  if (kind == "kill") ::raise(SIGKILL);
  if (kind == "handler_exit") {  // in this thread, out of a sleep
    ::signal(SIGALRM, [](int) { std::exit(22); });
    ::ualarm(1000, 0);
    ::pause();
  }
  // The others in a thread that launches, wherever it is.
  if (kind == "handler__exit") ::signal(SIGUSR1, [](int) { ::_exit(22); });
  if (kind == "handler_abort") ::signal(SIGUSR1, [](int) { std::abort(); });
  if (kind == "handler_exec") ::signal(SIGUSR1, [](int) { run_sh(); });
  if (kind.rfind("handler_", 0) == 0) {
    ::pthread_kill(threads[0], SIGUSR1);
  } else {
    static const bool exec = kind == "execthread";
    ::pthread_t thread;
    ::pthread_create(
        &thread, nullptr,
        [](void*) -> void* {
          if (exec) run_sh();
          std::abort();
        },
        nullptr);
  }
  ::sleep(60);
  return 1;
}

int strict() {
  start_cuda();
  steps(2);
  ::pthread_t thread;
  static bool refused = false;
  ::pthread_create(
      &thread, nullptr,
      [](void*) -> void* {
        for (int i = 0; i < 1000; ++i) {
          nvtxRangePushA("step batch=1 seq_len=8");
          nvtxRangePop();
        }
        // Not seccomp's own strict mode: that forbids the time stamp counter too, and with it every clock.
        ::sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(::seccomp_data, nr)),
                                  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 0, 1),
                                  BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
                                  BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};
        ::sock_fprog program{4, filter};
        if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
            ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0) {
          refused = true;
          return nullptr;
        }
        for (int i = 0; i < 1000; ++i) {
          nvtxRangePushA("step batch=1 seq_len=8");
          nvtxRangePop();
        }
        (void)::syscall(SYS_exit, 0);
        return nullptr;
      },
      nullptr);
  ::pthread_join(thread, nullptr);
  steps(5);
  std::puts(refused ? "no seccomp here" : "worked");
  return 0;
}

int kill_on(int count, char** numbers) {
  start_cuda();
  steps(10);
  std::vector<::sock_filter> filter{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(::seccomp_data, nr))};
  for (int i = 0; i < count; ++i) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(std::atol(numbers[i])), 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  ::sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0) {
    std::puts("no seccomp here");
    return 0;
  }
  steps(20);
  std::puts("worked");
  return 0;
}

int change_root(const std::string& when, const char* folder) {
  host::g_driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  const auto enter = [folder] { return ::chroot(folder) == 0 && ::chdir("/") == 0; };
  if (when == "before" && !enter()) return 1;
  if (when == "before" && host::driver_function<decltype(&::cuInit)>("cuInit")(0) != CUDA_SUCCESS) return 2;
  start_cuda();
  steps(5);
  if (when == "after" && !enter()) return 1;
  steps(10);
  std::puts("worked");
  return 0;
}

int close_range_of_all() {
  start_cuda();
  steps(3);
  for (int i = 0; i < 10; ++i) {
    if (::syscall(436, 0u, ~0u, 0u) != 0)
      for (int fd = 0; fd < 1024; ++fd) ::close(fd);
    steps(2);
  }
  return 33;
}

int threads_of(std::size_t bytes, bool range_before) {
  start_cuda();
  if (range_before) {
    nvtxRangePushA("before");
    nvtxRangePop();
  }
  ::pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  if (::pthread_attr_setstacksize(&attributes, bytes) != 0) return 1;
  ::pthread_t threads[40];
  for (::pthread_t& thread : threads) {
    const auto work = [](void*) -> void* {
      for (int i = 0; i < 5; ++i) {
        nvtxRangePushA("step batch=1 seq_len=8");
        ::usleep(2000);
        nvtxRangePop();
      }
      return nullptr;
    };
    if (::pthread_create(&thread, &attributes, work, nullptr) != 0) return 2;
  }
  for (const ::pthread_t thread : threads) ::pthread_join(thread, nullptr);
  std::puts("worked");
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const std::string word = count > 1 ? words[1] : "";
  if (word == "timers") return timers();
  if (word == "longjmp") return jump_out();
  if (word == "storm") return storm();
  if (word == "strict") return strict();
  if (word == "closerange") return close_range_of_all();
  if (count < 3) return 99;
  if (word == "unload") return unload(words[2]);
  if (word == "leave") return leave(words[2]);
  if (word == "kill") return kill_on(count - 2, words + 2);
  if (word == "threads") return threads_of(static_cast<std::size_t>(std::atol(words[2])), count > 3);
  if (word == "chroot" && count > 3) return change_root(words[2], words[3]);
  return 99;
}

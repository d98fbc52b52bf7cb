// Hosts that do what ours should not have to expect, one per word. Exit code 0 and what stands behind the word on
// standard output are what the host does without the library; anything from 1 to 89 says what went wrong.
//   descriptor2 DATABASE   starts CUDA, closes its descriptors and opens a file of its own, which becomes number 2
//   numbers                close(0) and open() again and again: the number must be 0 each time
//   pipe                   closes the writing end of a pipe: its reader must see the end at once
//   closeall               closes every descriptor above 2, again and again
//   smallstack BYTES       the first NVTX call comes from a thread with a stack of that size
//   chdir FOLDER           works, goes to another folder, works
//   names FILE             a range for each of the names in FILE, which are separated by a NUL
//   setuid UID             works, becomes another user, works
//   seccomp NUMBER...      a filter refuses these system calls (EPERM) from the start
//   limit NAME VALUE       works, sets RLIMIT_NAME (NOFILE FSIZE AS NPROC STACK MEMLOCK) to VALUE, works
//   leave KIND             works, ends: return exit quick_exit _exit abort thread handler term kill exec execthread
//   lastthread             opens ranges, and ends its only thread
//   fork KIND              works, makes a child, works: fork forkexec vfork spawn clone thread double before
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <nvtx3/nvToolsExt.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "host_work.h"

extern char** environ;

namespace {

using host::start_cuda;
using host::steps;

int descriptor2(const char* path) {
  start_cuda();
  steps(3);
  for (int fd = 0; fd < 3; ++fd) ::close(fd);
  for (int fd = 0; fd < 2; ++fd)
    if (::open("/dev/null", O_RDWR) != fd) return 1;
  if (::open(path, O_RDWR | O_CREAT | O_TRUNC, 0644) != 2) return 2;
  if (::write(2, "database", 8) != 8) return 3;
  steps(30);
  return 0;
}

int numbers() {
  start_cuda();
  steps(1);
  int wrong = 0;
  for (int round = 0; round < 100; ++round) {
    nvtxRangePushA("step batch=1 seq_len=8");
    for (int i = 0; i < 300; ++i) {
      ::close(0);
      if (::open("/dev/null", O_RDONLY) != 0) ++wrong;
    }
    ::usleep(10'000);
    nvtxRangePop();
  }
  return wrong == 0 ? 0 : 1;
}

int close_pipe() {
  start_cuda();
  for (int round = 0; round < 50; ++round) {
    int ends[2];
    if (::pipe(ends) != 0) return 1;
    steps(1);  // long enough for a file of the library's to be written meanwhile
    ::close(ends[1]);
    ::pollfd reader{ends[0], POLLIN, 0};
    char byte;
    if (::poll(&reader, 1, 10'000) != 1 || ::read(ends[0], &byte, 1) != 0) return 2;
    ::close(ends[0]);
  }
  return 0;
}

int close_all() {
  start_cuda();
  for (int round = 0; round < 20; ++round) {
    for (int fd = 3; fd < 256; ++fd) ::close(fd);
    steps(1);
  }
  return 0;
}

void* first_range(void*) {
  nvtxRangePushA("step");
  nvtxRangePop();
  return nullptr;
}

int small_stack(std::size_t bytes) {
  ::pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  if (::pthread_attr_setstacksize(&attributes, bytes) != 0) return 1;
  ::pthread_t thread;
  if (::pthread_create(&thread, &attributes, first_range, nullptr) != 0) return 2;
  ::pthread_join(thread, nullptr);
  std::puts("lives");
  return 0;
}

int change_folder(const char* folder) {
  start_cuda();
  steps(10);
  if (::mkdir(folder, 0755) != 0 || ::chdir(folder) != 0) return 1;
  steps(30);
  return 0;
}

int names(const char* path) {
  start_cuda();
  std::ifstream file(path, std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  for (std::size_t at = 0; at < all.size();) {
    const std::string name(all.c_str() + at);
    at += name.size() + 1;
    nvtxDomainHandle_t domain = nvtxDomainCreateA(name.c_str());
    nvtxEventAttributes_t event{};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event.message.ascii = name.c_str();
    nvtxRangePushA(name.c_str());
    nvtxDomainRangePushEx(domain, &event);
    nvtxNameOsThreadA(static_cast<std::uint32_t>(::syscall(SYS_gettid)), name.c_str());
    ::usleep(2'000);
    nvtxDomainRangePop(domain);
    nvtxRangePop();
  }
  steps(5);
  return 0;
}

int change_user(const char* user) {
  start_cuda();
  steps(10);
  if (::setuid(static_cast<::uid_t>(std::atol(user))) != 0) return 1;
  steps(10);
  return 0;
}

int refuse(int count, char** numbers) {
  std::vector<::sock_filter> filter{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(::seccomp_data, nr))};
  for (int i = 0; i < count; ++i) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(std::atol(numbers[i])), 0, 1));
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (EPERM & SECCOMP_RET_DATA)));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  ::sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    std::puts("no seccomp here");
    return 0;
  }
  start_cuda();
  steps(10);
  std::puts("worked");
  return 0;
}

int limit(const std::string& name, const char* value) {
  const std::map<std::string, int> known{{"NOFILE", RLIMIT_NOFILE}, {"FSIZE", RLIMIT_FSIZE},
                                         {"AS", RLIMIT_AS},         {"NPROC", RLIMIT_NPROC},
                                         {"STACK", RLIMIT_STACK},   {"MEMLOCK", RLIMIT_MEMLOCK}};
  start_cuda();
  steps(5);
  const auto most = static_cast<::rlim_t>(std::atoll(value));
  const ::rlimit both{most, most};
  if (::setrlimit(static_cast<decltype(RLIMIT_AS)>(known.at(name)), &both) != 0) return 1;
  steps(10);
  std::puts("worked");
  return 0;
}

void run_true() { ::execl("/bin/sh", "sh", "-c", "exit 23", static_cast<char*>(nullptr)); }

int leave(const std::string& kind) {
  start_cuda();
  steps(5);
  ::alarm(60);  // whatever hangs
  if (kind == "return") return 21;
  if (kind == "exit") std::exit(21);
  if (kind == "quick_exit") std::quick_exit(21);
  if (kind == "_exit") ::_exit(21);
  if (kind == "abort") std::abort();
  if (kind == "term") ::raise(SIGTERM);
  if (kind == "kill") ::raise(SIGKILL);
  if (kind == "exec") run_true();
  if (kind == "handler") {
    ::signal(SIGUSR1, [](int) { std::exit(22); });
    ::raise(SIGUSR1);
  }
  ::pthread_t thread;
  static const bool exec = kind == "execthread";
  ::pthread_create(
      &thread, nullptr,
      [](void*) -> void* {
        if (exec) run_true();
        std::exit(24);
      },
      nullptr);
  ::pthread_join(thread, nullptr);
  return 1;
}

int end_last_thread() {
  void* driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (driver == nullptr || reinterpret_cast<decltype(&::cuInit)>(::dlsym(driver, "cuInit"))(0) != CUDA_SUCCESS)
    return 1;
  ::alarm(60);
  for (int i = 0; i < 5; ++i) {
    nvtxRangePushA("step batch=1 seq_len=8");
    ::usleep(20'000);
    nvtxRangePop();
  }
  ::pthread_exit(nullptr);
}

int wait_for(::pid_t child) {
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return 1;
  return WIFEXITED(status) && WEXITSTATUS(status) == 23 ? 0 : 2;
}

int in_child() {
  nvtxRangePushA("step in the child");
  nvtxRangePop();
  return 23;
}

int make_child(const std::string& kind) {
  int failed = 0;
  if (kind == "fork" || kind == "double") {
    const ::pid_t child = ::fork();
    if (child == 0 && kind == "double")
      ::_exit(wait_for([] {
                const ::pid_t grandchild = ::fork();
                if (grandchild == 0) std::exit(in_child());
                return grandchild;
              }()) == 0
                  ? 23
                  : 1);
    if (child == 0) std::exit(in_child());
    failed = wait_for(child);
  } else if (kind == "forkexec") {
    const ::pid_t child = ::fork();
    if (child == 0) run_true();
    failed = wait_for(child);
  } else if (kind == "vfork") {
    const ::pid_t child = ::vfork();
    if (child == 0) {
      run_true();
      ::_exit(1);
    }
    failed = wait_for(child);
  } else if (kind == "spawn") {
    ::pid_t child = -1;
    const char* words[] = {"sh", "-c", "exit 23", nullptr};
    if (::posix_spawn(&child, "/bin/sh", nullptr, nullptr, const_cast<char**>(words), environ) != 0) return 3;
    failed = wait_for(child);
  } else if (kind == "clone") {
    static char stack[65536];
    failed = wait_for(::clone([](void*) { return 23; }, stack + sizeof stack, CLONE_VM | SIGCHLD, nullptr));
  } else if (kind == "thread") {
    ::pthread_t thread;
    ::pthread_create(
        &thread, nullptr,
        [](void*) -> void* {
          const ::pid_t child = ::fork();
          if (child == 0) std::exit(in_child());
          return reinterpret_cast<void*>(static_cast<std::intptr_t>(wait_for(child)));
        },
        nullptr);
    void* result = nullptr;
    ::pthread_join(thread, &result);
    failed = static_cast<int>(reinterpret_cast<std::intptr_t>(result));
  }
  return failed;
}

int children(const std::string& kind) {
  if (kind == "before") {  // a host that forks its workers, and each starts CUDA
    for (int i = 0; i < 4; ++i) {
      const ::pid_t child = ::fork();
      if (child == 0) {
        start_cuda();
        steps(5);
        return 23;
      }
      if (const int failed = wait_for(child); failed != 0) return failed;
    }
    return 0;
  }
  start_cuda();
  steps(5);
  for (int i = 0; i < 20; ++i)
    if (const int failed = make_child(kind); failed != 0) return failed;
  steps(5);
  return 0;
}

}  // namespace

int main(int count, char** words) {
  const std::string word = count > 1 ? words[1] : "";
  if (word == "numbers") return numbers();
  if (word == "pipe") return close_pipe();
  if (word == "closeall") return close_all();
  if (word == "lastthread") return end_last_thread();
  if (count < 3) return 99;
  if (word == "descriptor2") return descriptor2(words[2]);
  if (word == "smallstack") return small_stack(static_cast<std::size_t>(std::atol(words[2])));
  if (word == "chdir") return change_folder(words[2]);
  if (word == "names") return names(words[2]);
  if (word == "setuid") return change_user(words[2]);
  if (word == "seccomp") return refuse(count - 2, words + 2);
  if (word == "limit" && count > 3) return limit(words[2], words[3]);
  if (word == "leave") return leave(words[2]);
  if (word == "fork") return children(words[2]);
  return 99;
}

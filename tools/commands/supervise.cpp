#include "tools/commands/supervise.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>
#include <utility>

#include "tools/commands/child.h"

namespace mfu {
namespace {

/// All that can be passed on to the program: only SIGKILL and SIGSTOP cannot. Stopping and going on keep their usual
/// effect on this process, and SIGPIPE concerns this process's output. SIGCHLD is waited for as well.
::sigset_t passed_on() {
  ::sigset_t set;
  ::sigfillset(&set);
  for (const int signal : {SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT, SIGPIPE}) ::sigdelset(&set, signal);
  return set;
}

void send_on(pid_t child, const ::siginfo_t& info) {
  if (info.si_code != SI_QUEUE || ::sigqueue(child, info.si_signo, info.si_value) != 0) ::kill(child, info.si_signo);
}

void sleep_ms(long ms) {
  const ::timespec pause{0, ms * 1'000'000};
  ::nanosleep(&pause, nullptr);
}

/// The process dies with `parent`, even by SIGKILL. Called in the child.
void die_with(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // it was gone before
}

/// A process of our group that does nothing and blocks every signal. A signal that is pending for it was sent to the
/// whole group, and so to the program too: no system call distinguishes a signal to one process from one to its group.
class GroupWitness {
 public:
  GroupWitness() { start(); }
  ~GroupWitness() { stop(); }
  GroupWitness(const GroupWitness&) = delete;
  GroupWitness& operator=(const GroupWitness&) = delete;

  /// Was `signal` sent to the group? Asked right after this process got it. Forgets it.
  bool saw(int signal) {
    sleep_ms(50);  // schedulers signal one process after the other
    std::ifstream status("/proc/" + std::to_string(pid_) + "/status");
    bool seen = false;
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("ShdPnd:")) seen = (std::strtoull(line.c_str() + 7, nullptr, 16) >> (signal - 1) & 1) != 0;
    if (seen) {
      stop();
      start();
    }
    return seen;
  }

 private:
  void start() {
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ != 0) return;
    die_with(parent);
    ::sigset_t all;
    ::sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    ::prctl(PR_SET_NAME, "mfu-run-witness");
    for (int fd = 0; fd < 1024; ++fd) ::close(fd);
    while (true) ::pause();
  }
  void stop() const {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  pid_t pid_ = -1;
};

bool in_foreground() {
  const int tty = ::open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
  if (tty < 0) return false;
  const bool ours = ::tcgetpgrp(tty) == ::getpgrp();
  ::close(tty);
  return ours;
}

/// \return 0, or the errno of execvp.
int read_start_error(int pipe_end) {
  int error = 0;
  ::ssize_t n = 0;
  do n = ::read(pipe_end, &error, sizeof error);
  while (n < 0 && errno == EINTR);
  return n == static_cast<::ssize_t>(sizeof error) ? error : 0;
}

/// Reaps what ended. \return true when the child is among it; then `status` is its own.
bool reap(pid_t child, int& status) {
  while (true) {
    int now = 0;
    const pid_t pid = ::waitpid(-1, &now, WNOHANG | WUNTRACED);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) return false;
    if (pid != child) continue;
    if (WIFSTOPPED(now)) {
      if (!in_foreground()) continue;
      ::raise(SIGSTOP);  // until the shell continues us
      ::kill(child, SIGCONT);
      continue;
    }
    status = now;
    return true;
  }
}

}  // namespace

ProgramEnd run_and_wait(const std::vector<std::string>& command, const std::function<void()>& before_end) {
  std::vector<std::string> words = command;
  const std::vector<char*> arguments = spawn_arguments(words);

  const ::sigset_t waited = passed_on();
  ::sigset_t before;
  ::sigprocmask(SIG_BLOCK, &waited, &before);
  struct ::sigaction usual {
  }, child_before{}, pipe_before{};
  usual.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &usual, &child_before);  // ignored, as some parents leave it, waitpid would find no status

  ProgramEnd end;
  int started[2] = {-1, -1};
  if (::pipe2(started, O_CLOEXEC) != 0) {
    end.start_error = errno;
    return end;
  }
  std::fflush(nullptr);
  const pid_t self = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    die_with(self);
    ::sigaction(SIGCHLD, &child_before, nullptr);
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    ::execvp(arguments[0], arguments.data());
    const int why = errno;
    (void)!::write(started[1], &why, sizeof why);
    ::_exit(127);
  }
  const int fork_error = errno;
  ::close(started[1]);
  end.start_error = child < 0 ? fork_error : read_start_error(started[0]);
  ::close(started[0]);
  usual.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &usual, &pipe_before);  // output at the end must not change the exit status
  if (child < 0) return end;

  GroupWitness witness;
  bool asked = false;
  while (!reap(child, end.status)) {
    ::siginfo_t info{};
    const int signal = ::sigwaitinfo(&waited, &info);
    if (signal < 0 || signal == SIGCHLD) continue;
    const bool same_group = ::getpgid(child) == ::getpgrp();
    const bool by_terminal = info.si_code > 0;  // from the kernel: Ctrl-C, Ctrl-\, a closed terminal
    if (same_group && (by_terminal || witness.saw(signal))) continue;
    if ((signal == SIGTERM || signal == SIGINT) && !std::exchange(asked, true)) before_end();
    send_on(child, info);
  }
  // Signals for the program must not end us before the last lines; later ones may.
  const ::timespec now{0, 0};
  while (::sigtimedwait(&waited, nullptr, &now) > 0) {
  }
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  return end;
}

void end_like(int status) {
  std::fflush(nullptr);
  if (WIFSIGNALED(status)) {
    const ::rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    const int signal = WTERMSIG(status);
    ::signal(signal, SIG_DFL);
    ::sigset_t only;
    ::sigemptyset(&only);
    ::sigaddset(&only, signal);
    ::sigprocmask(SIG_UNBLOCK, &only, nullptr);
    ::raise(signal);
    ::_exit(128 + signal);  // the first process of a container does not die of it
  }
  ::_exit(WEXITSTATUS(status));
}

}  // namespace mfu

// Preloaded: forks before main, as launchers that watch a program do. The child goes on as the program.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

__attribute__((constructor)) static void begin() {
  ::unsetenv("LD_PRELOAD");
  const ::pid_t child = ::fork();
  if (child == 0) return;
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) ::_exit(98);
  ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 97);
}

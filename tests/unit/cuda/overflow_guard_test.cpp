// A call that never ends is caught where its stack ends, and nothing of the process is different afterwards.
#include "cuda/overflow_guard.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

namespace mfu {
namespace {

#ifdef MFU_SANITIZED
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

volatile bool g_goes_on = true;

[[gnu::noinline]] unsigned without_end(unsigned depth) {  // NOLINT(misc-no-recursion)
  volatile unsigned own = depth;
  return g_goes_on ? without_end(own + 1) + own : own;
}

void host_handler(int) {}

TEST(OverflowGuard, ACallThatComesBack) {
  int answer = 0;
  const std::thread::id caller = std::this_thread::get_id();
  EXPECT_EQ(call_guarded([&] { answer = std::this_thread::get_id() == caller ? 42 : 0; }), GuardedCall::kReturned);
  EXPECT_EQ(answer, 42);
}

TEST(OverflowGuard, ACallThatDoesNot) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer keeps SIGSEGV for itself";
  struct ::sigaction ours {};
  struct ::sigaction after {};
  struct ::sigaction before {};
  ours.sa_handler = host_handler;
  ::sigaction(SIGSEGV, &ours, &before);
  ::stack_t stack_before{};
  ::stack_t stack_after{};
  ::sigset_t mask_before;
  ::sigset_t mask_after;
  ::sigaltstack(nullptr, &stack_before);
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask_before);
  for (int i = 0; i < 3; ++i) {
    unsigned sum = 1;
    EXPECT_EQ(call_guarded([&] { sum = without_end(0); }), GuardedCall::kOverflowed);
    EXPECT_EQ(sum, 1u);
    EXPECT_EQ(call_guarded([&] { sum = 2; }), GuardedCall::kReturned);
    EXPECT_EQ(sum, 2u);
  }
  ::sigaction(SIGSEGV, &before, &after);
  EXPECT_EQ(after.sa_handler, host_handler);
  ::sigaltstack(nullptr, &stack_after);
  EXPECT_EQ(stack_after.ss_sp, stack_before.ss_sp);
  EXPECT_EQ(stack_after.ss_flags, stack_before.ss_flags);
  ::pthread_sigmask(SIG_SETMASK, nullptr, &mask_after);
  for (int signal = 1; signal < 32; ++signal)
    EXPECT_EQ(::sigismember(&mask_before, signal), ::sigismember(&mask_after, signal)) << signal;
}

/// From here on nothing more can be mapped. False: it can, as under qemu, which keeps this limit from its host.
bool refuse_memory() {
  ::rlimit little{};
  ::getrlimit(RLIMIT_AS, &little);
  little.rlim_cur = 1 << 20;
  if (::setrlimit(RLIMIT_AS, &little) != 0) return false;
  return ::mmap(nullptr, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED;
}

bool can_refuse_memory() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(refuse_memory() ? 0 : 1);
  int status = 0;
  return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

/// No memory for a stack is not the same as one that was filled: nothing is known of the function.
TEST(OverflowGuardDeathTest, NoMemoryForAStack) {
  if (kSanitized) GTEST_SKIP() << "there is no stack of its own under a sanitizer";
  if (!can_refuse_memory()) GTEST_SKIP() << "the limit of addresses is not kept here";
  const auto call = [] {
    if (!refuse_memory()) ::_exit(3);
    bool called = false;
    const GuardedCall answer = call_guarded([&] { called = true; });
    ::_exit(answer == GuardedCall::kNotCalled && !called ? 0 : 1);
  };
  EXPECT_EXIT(call(), testing::ExitedWithCode(0), "");
}

GuardedCall g_answer_in_handler = GuardedCall::kReturned;
bool g_called_in_handler = false;

void guarded_handler(int) {
  g_answer_in_handler = call_guarded([] { g_called_in_handler = true; });
}

/// The stack for signals cannot be changed by who stands on it.
TEST(OverflowGuard, OnTheSignalStack) {
  if (kSanitized) GTEST_SKIP() << "there is no stack of its own under a sanitizer";
  static char stack[1 << 16];
  ::stack_t ours{}, before{};
  ours.ss_sp = stack;
  ours.ss_size = sizeof stack;
  ASSERT_EQ(::sigaltstack(&ours, &before), 0);
  struct ::sigaction on_stack {};
  struct ::sigaction handler_before {};
  on_stack.sa_handler = guarded_handler;
  on_stack.sa_flags = SA_ONSTACK;
  ::sigaction(SIGUSR1, &on_stack, &handler_before);
  ::raise(SIGUSR1);
  ::sigaction(SIGUSR1, &handler_before, nullptr);
  ::sigaltstack(&before, nullptr);
  EXPECT_EQ(g_answer_in_handler, GuardedCall::kNotCalled);
  EXPECT_FALSE(g_called_in_handler);
}

/// What is no overflow is none of its business.
TEST(OverflowGuardDeathTest, AnotherFault) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer keeps SIGSEGV for itself";
  const auto fault = [] {
    (void)call_guarded([] {
      volatile int* nowhere = nullptr;
      *nowhere = 1;
    });
  };
  EXPECT_EXIT(fault(), testing::KilledBySignal(SIGSEGV), "");
}

}  // namespace
}  // namespace mfu

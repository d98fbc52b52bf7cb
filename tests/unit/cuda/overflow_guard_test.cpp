// A call that never ends is caught where its stack ends, and nothing of the process is different afterwards.
#include "cuda/overflow_guard.h"

#include <gtest/gtest.h>
#include <signal.h>

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
  EXPECT_TRUE(survives_overflow([&] { answer = std::this_thread::get_id() == caller ? 42 : 0; }));
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
    EXPECT_FALSE(survives_overflow([&] { sum = without_end(0); }));
    EXPECT_EQ(sum, 1u);
    EXPECT_TRUE(survives_overflow([&] { sum = 2; }));
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

/// What is no overflow is none of its business.
TEST(OverflowGuardDeathTest, AnotherFault) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer keeps SIGSEGV for itself";
  const auto fault = [] {
    (void)survives_overflow([] {
      volatile int* nowhere = nullptr;
      *nowhere = 1;
    });
  };
  EXPECT_EXIT(fault(), testing::KilledBySignal(SIGSEGV), "");
}

}  // namespace
}  // namespace mfu

// longjmp goes from one stack to another here, which the checked form of it takes for an error.
#undef _FORTIFY_SOURCE
#include "cuda/overflow_guard.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstddef>

namespace mfu::detail {

namespace {

// Sanitizers keep books of stacks, and of SIGSEGV.
#ifdef MFU_SANITIZED
constexpr bool kGuarded = false;
#else
constexpr bool kGuarded = true;
#endif

constexpr std::size_t kStack = std::size_t{1} << 20, kHandlerStack = std::size_t{64} << 10,
                      kGuardPage = std::size_t{1} << 20;

struct Call {
  void (*function)(void*) = nullptr;
  void* argument = nullptr;
  ::ucontext_t caller{}, callee{};
  ::jmp_buf overflowed;
  const char* stack = nullptr;  ///< memory without access; the stack is above
  bool ended = false;
};

[[gnu::tls_model("initial-exec")]] constinit thread_local Call* t_call = nullptr;
struct ::sigaction g_before;

void on_fault(int signal, ::siginfo_t* info, void*) {
  const Call* call = t_call;
  const auto* at = static_cast<const char*>(info->si_addr);
  if (call != nullptr && at >= call->stack && at < call->stack + kGuardPage)
    ::_longjmp(const_cast<Call*>(call)->overflowed, 1);
  // Of other code: it happens again as soon as this returns, and finds the handler that was there before.
  ::sigaction(signal, &g_before, nullptr);
  if (info->si_code <= 0) ::raise(signal);  // unless it was sent
}

void run() {
  Call& call = *t_call;
  call.function(call.argument);
  call.ended = true;
}

/// Memory with a page without access below it.
char* map_stack(std::size_t bytes) noexcept {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  ::mprotect(memory, kGuardPage, PROT_NONE);
  return static_cast<char*>(memory);
}

}  // namespace

GuardedCall call_guarded(void (*function)(void*), void* argument) noexcept {
  if constexpr (!kGuarded) {
    function(argument);
    return GuardedCall::kReturned;
  }
  constexpr std::size_t kAll = kGuardPage + kStack + kHandlerStack;
  char* memory = map_stack(kAll);
  if (memory == nullptr) return GuardedCall::kNotCalled;
  Call call;
  call.function = function;
  call.argument = argument;
  call.stack = memory;
  ::stack_t handler_stack{}, handler_stack_before{};
  handler_stack.ss_sp = memory + kGuardPage + kStack;
  handler_stack.ss_size = kHandlerStack;
  struct ::sigaction ours {};
  ours.sa_sigaction = on_fault;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  ::sigset_t fault, mask_before;
  ::sigemptyset(&ours.sa_mask);
  ::sigemptyset(&fault);
  ::sigaddset(&fault, SIGSEGV);
  if (::sigaltstack(&handler_stack, &handler_stack_before) != 0) {  // the caller is a handler itself
    ::munmap(memory, kAll);
    return GuardedCall::kNotCalled;
  }
  ::sigaction(SIGSEGV, &ours, &g_before);
  ::pthread_sigmask(SIG_UNBLOCK, &fault, &mask_before);
  t_call = &call;
  if (::getcontext(&call.callee) == 0 && ::_setjmp(call.overflowed) == 0) {
    call.callee.uc_stack.ss_sp = memory + kGuardPage;
    call.callee.uc_stack.ss_size = kStack;
    call.callee.uc_link = &call.caller;
    ::makecontext(&call.callee, run, 0);
    ::swapcontext(&call.caller, &call.callee);
  }
  t_call = nullptr;
  ::pthread_sigmask(SIG_SETMASK, &mask_before, nullptr);
  struct ::sigaction now {};
  if (::sigaction(SIGSEGV, nullptr, &now) == 0 && now.sa_sigaction == on_fault)
    ::sigaction(SIGSEGV, &g_before, nullptr);
  ::sigaltstack(&handler_stack_before, nullptr);
  const bool ended = call.ended;
  ::munmap(memory, kAll);
  return ended ? GuardedCall::kReturned : GuardedCall::kOverflowed;
}

}  // namespace mfu::detail

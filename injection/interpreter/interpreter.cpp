#include "injection/interpreter/interpreter.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "core/attribution/record_queue.h"
#include "core/base/ticks.h"
#include "cuda/host_thread.h"

namespace mfu {

extern const char kWatchSource[];  ///< watch.py

namespace {

// CPython's stable ABI, as far as it is used: https://docs.python.org/3/c-api/stable.html
struct Object;
using FastCall = Object* (*)(Object* self, Object* const* arguments, std::ptrdiff_t count);
struct MethodDef {
  const char* name;
  FastCall function;
  int flags;
  const char* doc;
};
constexpr int kFastCall = 0x0080;     // METH_FASTCALL
constexpr int kFileInput = 257;       // Py_file_input
constexpr unsigned kMostModels = 64;  // messages that wait

struct Api {
  int (*is_initialized)();
  int (*is_finalizing)();
  int (*add_pending_call)(int (*)(void*), void*);
  int (*gil_ensure)();
  void (*gil_release)(int);
  Object* (*new_function)(MethodDef*, Object* self, Object* module);
  Object* (*compile)(const char* source, const char* file, int start);
  Object* (*eval)(Object* code, Object* globals, Object* locals);
  Object* (*builtins)();
  Object* (*new_dict)();
  int (*set_item)(Object* dict, const char* key, Object* value);
  void (*take_ref)(Object*);
  void (*drop_ref)(Object*);
  void (*clear_error)();
  long long (*to_number)(Object*);
  const char* (*to_text)(Object*, std::ptrdiff_t*);
  Object* none;

  [[nodiscard]] bool load() noexcept;
};

constinit Api g_api{};

/// What is handed over between the host's threads and the drain.
struct Exchange {
  BoundedQueue<ProgramFact, 8192> facts;
  BoundedQueue<InterpreterMessage*, kMostModels> messages;
};
constinit std::atomic<Exchange*> g_exchange{nullptr};
constinit std::atomic<bool> g_lost{false};
constinit std::atomic<bool> g_look_again{false};

template <typename F>
bool find(F& function, const char* name, const char* older = nullptr) noexcept {
  void* found = ::dlsym(RTLD_DEFAULT, name);
  if (found == nullptr && older != nullptr) found = ::dlsym(RTLD_DEFAULT, older);
  function = reinterpret_cast<F>(found);
  return found != nullptr;
}

bool Api::load() noexcept {
  return find(is_initialized, "Py_IsInitialized") && find(is_finalizing, "Py_IsFinalizing", "_Py_IsFinalizing") &&
         find(add_pending_call, "Py_AddPendingCall") && find(gil_ensure, "PyGILState_Ensure") &&
         find(gil_release, "PyGILState_Release") && find(new_function, "PyCFunction_NewEx") &&
         find(compile, "Py_CompileString") && find(eval, "PyEval_EvalCode") && find(builtins, "PyEval_GetBuiltins") &&
         find(new_dict, "PyDict_New") && find(set_item, "PyDict_SetItemString") && find(take_ref, "Py_IncRef") &&
         find(drop_ref, "Py_DecRef") && find(clear_error, "PyErr_Clear") && find(to_number, "PyLong_AsLongLong") &&
         find(to_text, "PyUnicode_AsUTF8AndSize") && find(none, "_Py_NoneStruct");
}

Object* nothing() noexcept {
  g_api.take_ref(g_api.none);
  return g_api.none;
}

/// [host thread, the interpreter's lock held] post(kind, mode, subject, model, batch, seq_len, context, tokens,
/// gen_batch, gen_tokens): a fact. Absent values are -1, or left out at the end.
Object* post(Object*, Object* const* arguments, std::ptrdiff_t count) noexcept {
  constexpr std::ptrdiff_t kLeast = 4;
  constexpr std::size_t kKeys[] = {ShapeWords::kBatch,  ShapeWords::kSeqLen,   ShapeWords::kContext,
                                   ShapeWords::kTokens, ShapeWords::kGenBatch, ShapeWords::kGenTokens};
  const HostLinks* live = host_switches().live.load(std::memory_order_acquire);
  Exchange* exchange = g_exchange.load(std::memory_order_acquire);
  if (live == nullptr || exchange == nullptr || count < kLeast || host_switches().inert.load(std::memory_order_relaxed))
    return nothing();
  ProgramFact fact;
  fact.kind = static_cast<FactKind>(g_api.to_number(arguments[0]));
  fact.mode = static_cast<std::uint8_t>(g_api.to_number(arguments[1]));
  fact.subject = static_cast<std::uint64_t>(g_api.to_number(arguments[2]));
  fact.model = static_cast<std::uint32_t>(g_api.to_number(arguments[3]));
  for (std::ptrdiff_t i = kLeast; i < count && i < kLeast + static_cast<std::ptrdiff_t>(std::size(kKeys)); ++i)
    if (const long long value = g_api.to_number(arguments[i]); value >= 0) fact.shape.set(kKeys[i - kLeast], value);
  g_api.clear_error();  // a number that was none
  fact.thread = static_cast<std::uint32_t>(::gettid());
  (void)live->attribution->newest_correlation(fact.launch);
  fact.at = ticks_now();
  if (!exchange->facts.push(fact)) g_lost.store(true, std::memory_order_relaxed);
  return nothing();
}

/// [as above] tell(kind, number, text)
Object* tell(Object*, Object* const* arguments, std::ptrdiff_t count) noexcept {
  Exchange* exchange = g_exchange.load(std::memory_order_acquire);
  if (exchange == nullptr || count != 3 || host_switches().inert.load(std::memory_order_relaxed)) return nothing();
  std::ptrdiff_t length = 0;
  const char* text = g_api.to_text(arguments[2], &length);
  const auto kind = static_cast<InterpreterMessage::Kind>(g_api.to_number(arguments[0]));
  const auto number = static_cast<std::uint32_t>(g_api.to_number(arguments[1]));
  g_api.clear_error();
  if (kind == InterpreterMessage::Kind::kNotYet) g_look_again.store(true, std::memory_order_relaxed);
  try {
    auto message = std::make_unique<InterpreterMessage>(
        InterpreterMessage{kind, number, text != nullptr ? std::string(text, static_cast<std::size_t>(length)) : ""});
    if (exchange->messages.push(message.get())) (void)message.release();
  } catch (const std::bad_alloc&) {  // one fact less
  }
  return nothing();
}

MethodDef g_methods[] = {{"post", post, kFastCall, nullptr}, {"tell", tell, kFastCall, nullptr}};

/// [the interpreter's lock held] Runs watch.py in a new namespace. It lets no exception through.
void run_source() {
  Object* globals = g_api.new_dict();
  if (globals == nullptr) return g_api.clear_error();
  (void)g_api.set_item(globals, "__builtins__", g_api.builtins());
  for (MethodDef& method : g_methods)
    if (Object* function = g_api.new_function(&method, nullptr, nullptr); function != nullptr) {
      (void)g_api.set_item(globals, method.name, function);
      g_api.drop_ref(function);
    }
  if (Object* code = g_api.compile(kWatchSource, "<mfuinject>", kFileInput); code != nullptr) {
    if (Object* result = g_api.eval(code, globals, globals); result != nullptr) g_api.drop_ref(result);
    g_api.drop_ref(code);
  }
  g_api.clear_error();
  g_api.drop_ref(globals);
}

int in_main_thread(void*) {
  if (g_api.is_finalizing() == 0) run_source();
  return 0;
}

/// Not noexcept, and nothing here catches: an interpreter that ends may end this thread while it waits for the lock.
void* on_own_thread(void*) {
  if (g_api.is_finalizing() != 0) return nullptr;
  const int state = g_api.gil_ensure();
  run_source();
  g_api.gil_release(state);
  return nullptr;
}

void start_thread() noexcept {
  ::sigset_t all;
  ::sigset_t before;
  ::sigfillset(&all);
  if (::pthread_sigmask(SIG_SETMASK, &all, &before) != 0) return;
  ::pthread_t thread{};
  if (::pthread_create(&thread, nullptr, on_own_thread, nullptr) == 0) ::pthread_detach(thread);
  (void)::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

void Interpreter::enter() noexcept {
  static constinit std::atomic<bool> entered{false};
  if (!g_api.load() || g_api.is_initialized() == 0 || g_api.is_finalizing() != 0 || entered.exchange(true)) return;
  auto* exchange = new (std::nothrow) Exchange;  // never freed: callbacks may come until the process is gone
  if (exchange == nullptr) return;
  g_exchange.store(exchange, std::memory_order_release);
  if (::gettid() != ::getpid() || g_api.add_pending_call(in_main_thread, nullptr) != 0) start_thread();
}

void Interpreter::look_again() noexcept {
  if (!g_look_again.load(std::memory_order_relaxed) || g_api.is_finalizing() != 0) return;
  void* torch = ::dlopen("libtorch_python.so", RTLD_LAZY | RTLD_NOLOAD);
  if (torch == nullptr) return;
  ::dlclose(torch);
  g_look_again.store(false, std::memory_order_relaxed);
  start_thread();
}

bool Interpreter::take(ProgramFact& fact) noexcept {
  Exchange* exchange = g_exchange.load(std::memory_order_acquire);
  return exchange != nullptr && exchange->facts.pop(fact);
}

std::optional<InterpreterMessage> Interpreter::take_message() {
  Exchange* exchange = g_exchange.load(std::memory_order_acquire);
  InterpreterMessage* message = nullptr;
  if (exchange == nullptr || !exchange->messages.pop(message)) return std::nullopt;
  const std::unique_ptr<InterpreterMessage> taken(message);
  return std::move(*taken);
}

bool Interpreter::lost_facts() noexcept { return g_lost.load(std::memory_order_relaxed); }

}  // namespace mfu

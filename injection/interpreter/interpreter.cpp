#include "injection/interpreter/interpreter.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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

extern const char kWatchSource[];  ///< objects.py, flop.py and watch.py

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
constexpr int kFastCall = 0x0080;        // METH_FASTCALL
constexpr int kFileInput = 257;          // Py_file_input
constexpr unsigned kMostMessages = 128;  // that wait; a process has 64 models at most
constexpr unsigned kMostModels = 64;
constexpr unsigned kMostFacts = 1u << 14;  // that wait: under 2 MiB

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
  Object* (*get_item)(Object* dict, const char* key);
  Object* (*modules)();
  void (*take_ref)(Object*);
  void (*drop_ref)(Object*);
  void (*clear_error)();
  long long (*to_number)(Object*);
  const char* (*to_text)(Object*, std::ptrdiff_t*);
  Object* (*call)(Object* function, ...);  ///< with a null behind the last argument
  int (*error_is)(Object* kind);
  Object* (*from_number)(long long);
  Object *none, *yes, *no;
  Object *zero, *optimizer_gone;  ///< numbers, made by the first that has the lock
  Object** any_exception;
  // Where they are missing, as before CPython 3.12 and 3.11, less is hidden.
  Object* (*take_error)();
  void (*set_error)(Object*);
  int (*set_traceback)(Object* error, Object* traceback);
  void* (*this_thread)();
  void (*enter_tracing)(void*);
  void (*leave_tracing)(void*);

  [[nodiscard]] bool load() noexcept;
};

constinit Api g_api{};

/// Whether the drain could read a model's config.
enum class Answer : std::uint8_t { kNone, kRead, kRefused };

/// What is handed over between the host's threads and the drain.
struct Exchange {
  std::atomic<BoundedQueue<ProgramFact, kMostFacts>*> facts{nullptr};  ///< made with the first one, never freed
  BoundedQueue<InterpreterMessage*, kMostMessages> messages;
  std::atomic<std::int64_t> waiting{0};  ///< facts, about
  std::array<std::atomic<Answer>, kMostModels + 1> answers{};
  void (*wake)() = nullptr;
};
constinit std::atomic<Exchange*> g_exchange{nullptr};
constinit std::atomic<bool> g_unwanted{false};
constinit std::atomic<bool> g_lost{false};
constinit std::atomic<bool> g_look_again{false};
constinit std::atomic<bool> g_layers{false};  ///< are wanted

template <typename F>
bool find(F& function, const char* name, const char* older = nullptr) noexcept {
  void* found = ::dlsym(RTLD_DEFAULT, name);
  if (found == nullptr && older != nullptr) found = ::dlsym(RTLD_DEFAULT, older);
  function = reinterpret_cast<F>(found);
  return found != nullptr;
}

bool Api::load() noexcept {
  (void)find(take_error, "PyErr_GetRaisedException");
  (void)find(set_error, "PyErr_SetRaisedException");
  (void)find(set_traceback, "PyException_SetTraceback");
  (void)find(this_thread, "PyThreadState_Get");
  (void)find(enter_tracing, "PyThreadState_EnterTracing");
  (void)find(leave_tracing, "PyThreadState_LeaveTracing");
  return find(is_initialized, "Py_IsInitialized") && find(is_finalizing, "Py_IsFinalizing", "_Py_IsFinalizing") &&
         find(add_pending_call, "Py_AddPendingCall") && find(gil_ensure, "PyGILState_Ensure") &&
         find(gil_release, "PyGILState_Release") && find(new_function, "PyCFunction_NewEx") &&
         find(compile, "Py_CompileString") && find(eval, "PyEval_EvalCode") && find(builtins, "PyEval_GetBuiltins") &&
         find(new_dict, "PyDict_New") && find(set_item, "PyDict_SetItemString") &&
         find(get_item, "PyDict_GetItemString") && find(modules, "PyImport_GetModuleDict") &&
         find(take_ref, "Py_IncRef") && find(drop_ref, "Py_DecRef") && find(clear_error, "PyErr_Clear") &&
         find(to_number, "PyLong_AsLongLong") && find(to_text, "PyUnicode_AsUTF8AndSize") &&
         find(from_number, "PyLong_FromLongLong") && find(call, "PyObject_CallFunctionObjArgs") &&
         find(error_is, "PyErr_ExceptionMatches") && find(any_exception, "PyExc_Exception") &&
         find(none, "_Py_NoneStruct") && find(yes, "_Py_TrueStruct") && find(no, "_Py_FalseStruct");
}

Object* new_ref(Object* object) noexcept {
  g_api.take_ref(object);
  return object;
}

Object* nothing() noexcept { return new_ref(g_api.none); }

bool is_unwanted() noexcept {
  return g_unwanted.load(std::memory_order_relaxed) || host_switches().inert.load(std::memory_order_relaxed);
}

/// [host thread, the interpreter's lock held] post(kind, mode, subject, model, batch, seq_len, context, tokens,
/// gen_batch, gen_tokens, ctx_context): a fact. Absent values are -1, or left out at the end. True: no more of them are
/// wanted.
Object* post(Object*, Object* const* arguments, std::ptrdiff_t count) noexcept {
  constexpr std::ptrdiff_t kLeast = 4;
  constexpr std::size_t kKeys[] = {ShapeWords::kBatch,     ShapeWords::kSeqLen,   ShapeWords::kContext,
                                   ShapeWords::kTokens,    ShapeWords::kGenBatch, ShapeWords::kGenTokens,
                                   ShapeWords::kCtxContext};
  const HostLinks* live = host_switches().live.load(std::memory_order_acquire);
  Exchange* exchange = g_exchange.load(std::memory_order_acquire);
  if (is_unwanted()) return new_ref(g_api.yes);
  if (live == nullptr || exchange == nullptr || count < kLeast) return nothing();
  ProgramFact fact;
  fact.kind = static_cast<FactKind>(g_api.to_number(arguments[0]));
  fact.mode = static_cast<std::uint8_t>(g_api.to_number(arguments[1]));
  fact.subject = static_cast<std::uint64_t>(g_api.to_number(arguments[2]));
  fact.model = static_cast<std::uint32_t>(g_api.to_number(arguments[3]));
  for (std::ptrdiff_t i = kLeast; i < count && i < kLeast + static_cast<std::ptrdiff_t>(std::size(kKeys)); ++i)
    if (const long long value = g_api.to_number(arguments[i]); value >= 0) fact.shape.set(kKeys[i - kLeast], value);
  g_api.clear_error();  // a number that was none
  fact.thread = static_cast<std::uint32_t>(::syscall(SYS_gettid));
  (void)live->attribution->newest_correlation(fact.launch);
  if (const HostThread* thread = live_thread(*live); thread != nullptr && thread->state != nullptr)
    fact.range = static_cast<InstanceId>(thread->state->innermost.load(std::memory_order_relaxed));
  fact.at = ticks_now();
  auto* facts = exchange->facts.load(std::memory_order_relaxed);
  if (facts == nullptr) {  // the thread that has the lock is alone here
    facts = new (std::nothrow) BoundedQueue<ProgramFact, kMostFacts>;
    exchange->facts.store(facts, std::memory_order_release);
  }
  if (facts == nullptr || !facts->push(fact)) {
    g_lost.store(true, std::memory_order_relaxed);
    return new_ref(g_api.yes);
  }
  if (exchange->waiting.fetch_add(1, std::memory_order_relaxed) == kMostFacts / 2) exchange->wake();
  return nothing();
}

/// [as above] refused(model): whether its config cannot be read; None: the drain has not seen it yet.
Object* refused(Object*, Object* const* arguments, std::ptrdiff_t count) noexcept {
  Exchange* exchange = g_exchange.load(std::memory_order_acquire);
  if (exchange == nullptr || count != 1) return nothing();
  const long long model = g_api.to_number(arguments[0]);
  g_api.clear_error();
  if (model < 0 || model > kMostModels) return nothing();
  const Answer answer = exchange->answers[static_cast<std::size_t>(model)].load(std::memory_order_relaxed);
  return answer == Answer::kNone ? nothing() : new_ref(answer == Answer::kRefused ? g_api.yes : g_api.no);
}

/// [as above] What was raised in this part is no matter of the program's, but an interrupt that came meanwhile is: it
/// goes on, with no traceback through this part. \return it does
bool goes_on() {
  if (g_api.error_is(*g_api.any_exception) != 0) {
    g_api.clear_error();
    return false;
  }
  if (g_api.take_error != nullptr && g_api.set_error != nullptr && g_api.set_traceback != nullptr) {
    Object* error = g_api.take_error();
    (void)g_api.set_traceback(error, g_api.none);
    g_api.set_error(error);
  }
  return true;
}

/// [as above] Calls the Python function that it was made for. \return its result
Object* guarded(Object* function, Object* const* arguments, std::ptrdiff_t count) {
  constexpr std::ptrdiff_t kMost = 4;
  Object* given[kMost + 1] = {};
  std::copy_n(arguments, std::min(count, kMost), given);
  Object* result = g_api.call(function, given[0], given[1], given[2], given[3], nullptr);
  return result != nullptr ? result : goes_on() ? nullptr : nothing();
}

/// [as above] The optimizer of this number is gone. No bytecode runs in it, and so no handler of a signal.
Object* gone(Object* number, Object* const*, std::ptrdiff_t) noexcept {
  Object* const fact[] = {g_api.optimizer_gone, g_api.zero, number, g_api.zero};
  return post(nullptr, fact, std::ssize(fact));
}

/// [as above] guard(function): `function` behind guarded(). at_end(number): a function that reports the end of that
/// optimizer, for a weak reference to call.
template <FastCall kFunction>
Object* bound(Object*, Object* const* arguments, std::ptrdiff_t count) noexcept {
  static MethodDef method{"report", kFunction, kFastCall, nullptr};
  return count == 1 ? g_api.new_function(&method, arguments[0], nullptr) : nothing();
}

/// [as above] tell(kind, number, text)
Object* tell(Object*, Object* const* arguments, std::ptrdiff_t count) noexcept {
  Exchange* exchange = g_exchange.load(std::memory_order_acquire);
  if (exchange == nullptr || count != 3 || is_unwanted() || g_api.is_finalizing() != 0) return nothing();
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
    if (kind == InterpreterMessage::Kind::kModel) exchange->wake();  // until then its products are counted
  } catch (const std::bad_alloc&) {                                  // one fact less
  }
  return nothing();
}

/// [as above] asked(): FLOP of the matrix products that this thread asked cuBLAS for since it called this last.
Object* asked(Object*, Object* const*, std::ptrdiff_t) noexcept {
  const HostLinks* live = host_switches().live.load(std::memory_order_acquire);
  const HostThread* thread = live != nullptr && !is_unwanted() ? live_thread(*live) : nullptr;
  if (thread == nullptr || thread->state == nullptr) return new_ref(g_api.zero);
  return g_api.from_number(static_cast<long long>(std::min(std::exchange(thread->state->flop_asked, 0.0), 9e18)));
}

MethodDef g_methods[] = {{"post", post, kFastCall, nullptr},          {"tell", tell, kFastCall, nullptr},
                         {"refused", refused, kFastCall, nullptr},    {"guard", bound<guarded>, kFastCall, nullptr},
                         {"at_end", bound<gone>, kFastCall, nullptr}, {"asked", asked, kFastCall, nullptr}};

/// \return an interrupt came meanwhile, and goes on
bool run_in_namespace() {
  if (g_api.get_item(g_api.modules(), "torch") == nullptr) {
    g_look_again.store(true, std::memory_order_relaxed);
    return false;
  }
  g_api.zero = g_api.from_number(0);
  g_api.optimizer_gone = g_api.from_number(static_cast<long long>(FactKind::kOptimizerGone));
  Object* globals = g_api.zero != nullptr && g_api.optimizer_gone != nullptr ? g_api.new_dict() : nullptr;
  bool interrupted = false;
  if (globals == nullptr) {
    g_api.clear_error();
    return interrupted;
  }
  (void)g_api.set_item(globals, "__builtins__", g_api.builtins());
  (void)g_api.set_item(globals, "layers", g_layers.load(std::memory_order_relaxed) ? g_api.yes : g_api.no);
  for (MethodDef& method : g_methods)
    if (Object* function = g_api.new_function(&method, nullptr, nullptr); function != nullptr) {
      (void)g_api.set_item(globals, method.name, function);
      g_api.drop_ref(function);
    }
  if (Object* code = g_api.compile(kWatchSource, "<mfuinject>", kFileInput); code != nullptr) {
    if (Object* result = g_api.eval(code, globals, globals); result != nullptr)
      g_api.drop_ref(result);
    else
      interrupted = goes_on();
    g_api.drop_ref(code);
  }
  if (!interrupted) g_api.clear_error();
  g_api.drop_ref(globals);
  return interrupted;
}

/// [the interpreter's lock held] Runs watch.py in a new namespace. No tracer sees it. \return as above
bool run_source() {
  void* const thread = g_api.enter_tracing != nullptr && g_api.leave_tracing != nullptr && g_api.this_thread != nullptr
                           ? g_api.this_thread()
                           : nullptr;
  if (thread != nullptr) g_api.enter_tracing(thread);
  const bool interrupted = run_in_namespace();
  if (thread != nullptr) g_api.leave_tracing(thread);
  return interrupted;
}

int in_main_thread(void*) { return g_api.is_finalizing() == 0 && run_source() ? -1 : 0; }

/// Not noexcept, and nothing here catches: an interpreter that ends may end this thread while it waits for the lock.
void* on_own_thread(void*) {
  if (g_api.is_finalizing() != 0) return nullptr;
  const int state = g_api.gil_ensure();
  if (run_source()) g_api.clear_error();  // signals are the main thread's
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

void Interpreter::enter(bool layers, void (*wake)()) noexcept {
  static constinit std::atomic<bool> entered{false};
  if (!g_api.load() || g_api.is_initialized() == 0 || g_api.is_finalizing() != 0 || entered.exchange(true)) return;
  auto* exchange = new (std::nothrow) Exchange;  // never freed: callbacks may come until the process is gone
  if (exchange == nullptr) return;
  exchange->wake = wake;
  g_layers.store(layers, std::memory_order_relaxed);
  g_exchange.store(exchange, std::memory_order_release);
  if (::syscall(SYS_gettid) != ::getpid() || g_api.add_pending_call(in_main_thread, nullptr) != 0) start_thread();
}

void Interpreter::look_again() noexcept {
  if (!g_look_again.load(std::memory_order_relaxed) || is_unwanted() || g_api.is_finalizing() != 0) return;
  void* torch = ::dlopen("libtorch_python.so", RTLD_LAZY | RTLD_NOLOAD);
  if (torch == nullptr) return;
  ::dlclose(torch);
  g_look_again.store(false, std::memory_order_relaxed);
  start_thread();
}

bool Interpreter::has_reported() noexcept {
  const Exchange* exchange = g_exchange.load(std::memory_order_acquire);
  return exchange != nullptr && exchange->facts.load(std::memory_order_acquire) != nullptr;
}

bool Interpreter::take(ProgramFact& fact) noexcept {
  Exchange* exchange = g_exchange.load(std::memory_order_acquire);
  auto* facts = exchange != nullptr ? exchange->facts.load(std::memory_order_acquire) : nullptr;
  if (facts == nullptr || !facts->pop(fact)) return false;
  exchange->waiting.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

std::optional<InterpreterMessage> Interpreter::take_message() {
  Exchange* exchange = g_exchange.load(std::memory_order_acquire);
  InterpreterMessage* message = nullptr;
  if (exchange == nullptr || !exchange->messages.pop(message)) return std::nullopt;
  const std::unique_ptr<InterpreterMessage> taken(message);
  return std::move(*taken);
}

void Interpreter::stop() noexcept { g_unwanted.store(true, std::memory_order_relaxed); }

void Interpreter::answer(std::uint32_t model, bool readable) noexcept {
  Exchange* exchange = g_exchange.load(std::memory_order_acquire);
  if (exchange != nullptr && model <= kMostModels)
    exchange->answers[model].store(readable ? Answer::kRead : Answer::kRefused, std::memory_order_relaxed);
}

bool Interpreter::is_half_full() noexcept {
  const Exchange* exchange = g_exchange.load(std::memory_order_acquire);
  return exchange != nullptr && exchange->waiting.load(std::memory_order_relaxed) >= kMostFacts / 2;
}

bool Interpreter::lost_facts() noexcept { return g_lost.load(std::memory_order_relaxed); }

}  // namespace mfu

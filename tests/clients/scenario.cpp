// `scenario`: a GPU program that does what a small script says. It links no CUDA library: libcuda.so.1 and
// libcudart.so.N are opened by SONAME when the script first needs them. README.md describes the language.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

[[noreturn]] void fail(const std::string& message) {
  std::fprintf(stderr, "scenario: %s\n", message.c_str());
  _exit(70);
}

// The script -----------------------------------------------------------------------------------------------------

struct Statement {
  std::vector<std::string> words;  ///< without the key=value words
  std::map<std::string, std::string> options;
  std::vector<Statement> body;
  int line = 0;

  [[nodiscard]] const std::string& word(std::size_t i) const {
    if (i >= words.size()) fail("line " + std::to_string(line) + ": `" + words[0] + "` needs more words");
    return words[i];
  }
  [[nodiscard]] std::string option(const std::string& key, const std::string& otherwise = "") const {
    const auto it = options.find(key);
    return it == options.end() ? otherwise : it->second;
  }
  [[nodiscard]] double number(std::size_t i) const { return std::strtod(word(i).c_str(), nullptr); }
  [[nodiscard]] bool has(const std::string& flag) const {
    for (const std::string& w : words) {
      if (w == flag) return true;
    }
    return false;
  }
};

class Parser {
 public:
  explicit Parser(std::string text) : text_(std::move(text)) {}

  std::vector<Statement> block(bool nested = false) {
    std::vector<Statement> statements;
    for (;;) {
      skip_blank();
      if (at_ == text_.size()) {
        if (nested) fail("missing }");
        return statements;
      }
      if (text_[at_] == '}') {
        if (!nested) fail("line " + std::to_string(line_) + ": } without {");
        ++at_;
        return statements;
      }
      statements.push_back(statement());
    }
  }

 private:
  void skip_blank() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (std::isspace(static_cast<unsigned char>(c)) != 0 || c == ';') {
        if (c == '\n') ++line_;
        ++at_;
      } else {
        return;
      }
    }
  }

  Statement statement() {
    Statement s;
    s.line = line_;
    while (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != ';' && text_[at_] != '}' && text_[at_] != '#') {
      if (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r') {
        ++at_;
        continue;
      }
      if (text_[at_] == '{') {
        ++at_;
        s.body = block(true);
        break;
      }
      bool quoted = false;
      const std::string w = word(quoted);
      const std::size_t equals = w.find('=');
      if (!quoted && equals != std::string::npos && equals > 0) {
        s.options[w.substr(0, equals)] = w.substr(equals + 1);
      } else {
        s.words.push_back(w);
      }
    }
    if (s.words.empty()) fail("line " + std::to_string(s.line) + ": a statement starts with a word");
    return s;
  }

  std::string word(bool& quoted) {
    std::string w;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (std::isspace(static_cast<unsigned char>(c)) != 0 || c == ';' || c == '{' || c == '}') break;
      ++at_;
      if (c != '"') {
        w += c;
        continue;
      }
      quoted = true;
      while (at_ < text_.size() && text_[at_] != '"') {
        char d = text_[at_++];
        if (d == '\\' && at_ < text_.size()) {
          d = text_[at_++];
          if (d == 'n') d = '\n';
          if (d == 'x') {
            d = static_cast<char>(std::strtol(text_.substr(at_, 2).c_str(), nullptr, 16));
            at_ += 2;
          }
        }
        w += d;
      }
      ++at_;
    }
    return w;
  }

  std::string text_;
  std::size_t at_ = 0;
  int line_ = 1;
};

// CUDA -----------------------------------------------------------------------------------------------------------

#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)
// A driver function by the versioned name that cuda.h makes of it.
#define CU(name) (reinterpret_cast<decltype(&::name)>(driver_symbol(TEXT(name))))
#define RT(name) (reinterpret_cast<decltype(&::name)>(runtime_symbol(#name)))

void* driver_library() {
  static void* const library = [] {
    void* l = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (l == nullptr) fail(dlerror());
    return l;
  }();
  return library;
}

void* driver_symbol(const char* name) {
  void* f = dlsym(driver_library(), name);
  if (f == nullptr) fail(std::string("libcuda.so.1 has no ") + name);
  return f;
}

void* runtime_symbol(const char* name) {
  static void* const library = [] {
    for (const char* soname : {"libcudart.so.13", "libcudart.so.12"}) {
      if (void* l = dlopen(soname, RTLD_NOW | RTLD_GLOBAL); l != nullptr) return l;
    }
    fail("no libcudart.so.13 or .12");
  }();
  void* f = dlsym(library, name);
  if (f == nullptr) fail(std::string("libcudart has no ") + name);
  return f;
}

struct GraphState {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
};

/// Everything that script names stand for. Guarded by `mutex` where threads may meet.
struct World {
  std::recursive_mutex mutex;
  std::map<std::string, std::string> kernel_lines;  ///< declared kernels and what the `// simgpu:` line says of them
  std::map<std::pair<int, std::string>, CUfunction> functions;  ///< per device
  std::map<int, CUcontext> contexts;
  std::map<std::string, CUstream> streams;
  std::map<std::string, CUevent> events;
  std::map<std::string, GraphState> graphs;
  std::map<std::string, std::thread> threads;
  std::map<std::string, nvtxDomainHandle_t> domains;
  std::map<std::string, nvtxRangeId_t> ranges;
  std::map<std::pair<std::string, std::string>, nvtxStringHandle_t> strings;
  std::map<std::pair<std::string, std::string>, std::uint64_t> schemas;
  std::map<std::string, void*> libraries;
  std::map<std::string, std::uint64_t> v2_ranges;
  struct Barrier {
    int waiting = 0;
    std::uint64_t round = 0;
  };
  std::map<std::string, Barrier> barriers;
  std::condition_variable_any barrier_changed;
  CUdeviceptr memory = 0;
};

World& world() {
  static World* const instance = new World;  // leaked: threads may outlive main
  return *instance;
}

thread_local int current_device = 0;
thread_local bool initialised = false;

bool ignores_errors = false;

void check(CUresult result, const Statement& s) {
  if (result == CUDA_SUCCESS || ignores_errors) return;
  fail("line " + std::to_string(s.line) + ": " + s.words[0] + ": CUDA error " + std::to_string(result));
}

/// cuInit and the current device's primary context, on this thread.
void need_context(const Statement& s) {
  if (initialised) return;
  check(CU(cuInit)(0), s);
  World& w = world();
  const std::lock_guard lock(w.mutex);
  CUcontext& context = w.contexts[current_device];
  if (context == nullptr) check(CU(cuDevicePrimaryCtxRetain)(&context, current_device), s);
  check(CU(cuCtxSetCurrent)(context), s);
  initialised = true;
}

CUstream stream_named(const Statement& s, const std::string& name) {
  if (name.empty() || name == "default") return nullptr;
  if (name == "per_thread") return CU_STREAM_PER_THREAD;
  need_context(s);
  World& w = world();
  const std::lock_guard lock(w.mutex);
  CUstream& stream = w.streams[name];
  if (stream == nullptr) check(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING), s);
  return stream;
}

CUevent event_named(const Statement& s, const std::string& name) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  CUevent& event = w.events[name];
  if (event == nullptr) check(CU(cuEventCreate)(&event, 0), s);
  return event;
}

CUfunction function_named(const Statement& s, const std::string& name) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  CUfunction& function = w.functions[{current_device, name}];
  if (function != nullptr) return function;
  std::string ptx = ".version 7.0\n.target sm_75\n.address_size 64\n";
  if (const auto it = w.kernel_lines.find(name); it != w.kernel_lines.end()) {
    ptx += "// simgpu: " + name + it->second + "\n";
  }
  ptx += ".visible .entry " + name + "()\n{\n  ret;\n}\n";
  CUmodule module = nullptr;
  check(CU(cuModuleLoadData)(&module, ptx.c_str()), s);
  check(CU(cuModuleGetFunction)(&function, module, name.c_str()), s);
  return function;
}

struct Dim {
  unsigned x = 1, y = 1, z = 1;
};

Dim dim(const std::string& text, unsigned x) {
  Dim d{x, 1, 1};
  if (!text.empty()) std::sscanf(text.c_str(), "%u,%u,%u", &d.x, &d.y, &d.z);
  return d;
}

void launch(const Statement& s) {
  need_context(s);
  const CUfunction f = function_named(s, s.word(1));
  const CUstream stream = stream_named(s, s.option("stream"));
  const Dim g = dim(s.option("grid"), 1), b = dim(s.option("block"), 128);
  const std::string api = s.option("api", "kernel");
  const long count = std::strtol(s.option("count", "1").c_str(), nullptr, 10);
  for (long i = 0; i < count; ++i) {
    if (api == "kernel") {
      check(CU(cuLaunchKernel)(f, g.x, g.y, g.z, b.x, b.y, b.z, 0, stream, nullptr, nullptr), s);
    } else if (api == "ptsz") {
      auto* launch_ptsz = reinterpret_cast<decltype(&::cuLaunchKernel)>(driver_symbol("cuLaunchKernel_ptsz"));
      check(launch_ptsz(f, g.x, g.y, g.z, b.x, b.y, b.z, 0, stream, nullptr, nullptr), s);
    } else if (api == "cooperative") {
      check(CU(cuLaunchCooperativeKernel)(f, g.x, g.y, g.z, b.x, b.y, b.z, 0, stream, nullptr), s);
    } else if (api == "ex" || api == "pdl") {
      CUlaunchAttribute attribute{};
      attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
      attribute.value.programmaticStreamSerializationAllowed = 1;
      CUlaunchConfig config{};
      config.gridDimX = g.x, config.gridDimY = g.y, config.gridDimZ = g.z;
      config.blockDimX = b.x, config.blockDimY = b.y, config.blockDimZ = b.z;
      config.hStream = stream;
      config.attrs = &attribute;
      config.numAttrs = api == "pdl" ? 1 : 0;
      check(CU(cuLaunchKernelEx)(&config, f, nullptr, nullptr), s);
    } else if (api == "runtime") {
      auto* rt = reinterpret_cast<cudaError_t (*)(const void*, dim3, dim3, void**, size_t, cudaStream_t)>(
          runtime_symbol("cudaLaunchKernel"));
      check(static_cast<CUresult>(rt(f, dim3(g.x, g.y, g.z), dim3(b.x, b.y, b.z), nullptr, 0, stream)), s);
    } else {
      fail("line " + std::to_string(s.line) + ": unknown api=" + api);
    }
  }
}

CUdeviceptr scratch(const Statement& s) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  if (w.memory == 0) check(CU(cuMemAlloc)(&w.memory, 64 << 20), s);
  return w.memory;
}

void copy(const Statement& s) {
  need_context(s);
  static auto& host = *new std::vector<char>(64 << 20);
  const std::string kind = s.word(1);
  const auto bytes = static_cast<std::size_t>(s.number(2));
  if (bytes > host.size()) fail("memcpy of more than 64 MiB");
  const CUstream stream = stream_named(s, s.option("stream"));
  const CUdeviceptr device = scratch(s);
  const bool wait = s.has("sync");
  if (kind == "htod") {
    check(
        wait ? CU(cuMemcpyHtoD)(device, host.data(), bytes) : CU(cuMemcpyHtoDAsync)(device, host.data(), bytes, stream),
        s);
  } else if (kind == "dtoh") {
    check(
        wait ? CU(cuMemcpyDtoH)(host.data(), device, bytes) : CU(cuMemcpyDtoHAsync)(host.data(), device, bytes, stream),
        s);
  } else if (kind == "dtod") {
    check(wait ? CU(cuMemcpyDtoD)(device, device, bytes) : CU(cuMemcpyDtoDAsync)(device, device, bytes, stream), s);
  } else {
    fail("memcpy needs htod, dtoh or dtod");
  }
}

// NVTX -----------------------------------------------------------------------------------------------------------

std::wstring wide(const std::string& utf8) {
  std::wstring out;
  for (std::size_t i = 0; i < utf8.size();) {
    const auto c = static_cast<unsigned char>(utf8[i]);
    const std::size_t length = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
    wchar_t code = length == 1 ? c : c & (0xFF >> (length + 1));
    for (std::size_t k = 1; k < length && i + k < utf8.size(); ++k) {
      code = (code << 6) | (static_cast<unsigned char>(utf8[i + k]) & 0x3F);
    }
    out += code;
    i += length;
  }
  return out;
}

nvtxDomainHandle_t domain_named(const std::string& name, bool is_wide = false) {
  if (name.empty()) return nullptr;
  World& w = world();
  const std::lock_guard lock(w.mutex);
  const auto it = w.domains.find(name);
  if (it != w.domains.end()) return it->second;
  return w.domains[name] = is_wide ? nvtxDomainCreateW(wide(name).c_str()) : nvtxDomainCreateA(name.c_str());
}

/// Attributes of a range or mark: text form, payload and category by the statement's options.
struct Attributes {
  nvtxEventAttributes_t value{};
  std::string text;
  std::wstring wide_text;

  Attributes(const Statement& s, std::string message) : text(std::move(message)) {
    value.version = NVTX_VERSION;
    value.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    const std::string form = s.option("text", "ascii");
    const std::string domain = s.option("domain");
    if (form == "wide") {
      wide_text = wide(text);
      value.messageType = NVTX_MESSAGE_TYPE_UNICODE;
      value.message.unicode = wide_text.c_str();
    } else if (form == "registered" || form == "registered_wide") {
      World& w = world();
      const std::lock_guard lock(w.mutex);
      nvtxStringHandle_t& handle = w.strings[{domain, text}];
      if (handle == nullptr) {
        handle = form == "registered" ? nvtxDomainRegisterStringA(domain_named(domain), text.c_str())
                                      : nvtxDomainRegisterStringW(domain_named(domain), wide(text).c_str());
      }
      value.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
      value.message.registered = handle;
    } else if (form != "none") {
      value.messageType = NVTX_MESSAGE_TYPE_ASCII;
      value.message.ascii = text.c_str();
    }
    for (const auto& [key, given] : s.options) {
      if (key == "u64") {
        value.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
        value.payload.ullValue = std::strtoull(given.c_str(), nullptr, 10);
      } else if (key == "i64") {
        value.payloadType = NVTX_PAYLOAD_TYPE_INT64;
        value.payload.llValue = std::strtoll(given.c_str(), nullptr, 10);
      } else if (key == "double") {
        value.payloadType = NVTX_PAYLOAD_TYPE_DOUBLE;
        value.payload.dValue = std::strtod(given.c_str(), nullptr);
      } else if (key == "u32") {
        value.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT32;
        value.payload.uiValue = static_cast<std::uint32_t>(std::strtoul(given.c_str(), nullptr, 10));
      } else if (key == "i32") {
        value.payloadType = NVTX_PAYLOAD_TYPE_INT32;
        value.payload.iValue = static_cast<std::int32_t>(std::strtol(given.c_str(), nullptr, 10));
      } else if (key == "float") {
        value.payloadType = NVTX_PAYLOAD_TYPE_FLOAT;
        value.payload.fValue = std::strtof(given.c_str(), nullptr);
      } else if (key == "category") {
        value.category = static_cast<std::uint32_t>(std::strtoul(given.c_str(), nullptr, 10));
      } else if (key == "color") {
        value.colorType = NVTX_COLOR_ARGB;
        value.color = static_cast<std::uint32_t>(std::strtoul(given.c_str(), nullptr, 16));
      }
    }
  }
};

bool plain(const Statement& s) { return s.options.empty() || (s.options.size() == 1 && s.option("text") == "wide"); }

void push(const Statement& s) {
  const std::string& text = s.word(1);
  if (plain(s)) {
    if (s.options.empty()) {
      nvtxRangePushA(text.c_str());
    } else {
      nvtxRangePushW(wide(text).c_str());
    }
    return;
  }
  const Attributes a(s, text);
  if (s.options.contains("domain")) {
    nvtxDomainRangePushEx(domain_named(s.option("domain")), &a.value);
  } else {
    nvtxRangePushEx(&a.value);
  }
}

void pop(const Statement& s) {
  if (s.options.contains("domain")) {
    nvtxDomainRangePop(domain_named(s.option("domain")));
  } else {
    nvtxRangePop();
  }
}

void start_range(const Statement& s) {
  const std::string& text = s.word(2);
  nvtxRangeId_t id = 0;
  if (s.options.contains("domain")) {
    const Attributes a(s, text);
    id = nvtxDomainRangeStartEx(domain_named(s.option("domain")), &a.value);
  } else if (s.options.empty()) {
    id = nvtxRangeStartA(text.c_str());
  } else if (plain(s)) {
    id = nvtxRangeStartW(wide(text).c_str());
  } else {
    const Attributes a(s, text);
    id = nvtxRangeStartEx(&a.value);
  }
  World& w = world();
  const std::lock_guard lock(w.mutex);
  w.ranges[s.word(1)] = id;
}

void end_range(const Statement& s) {
  nvtxRangeId_t id = 0;
  {
    World& w = world();
    const std::lock_guard lock(w.mutex);
    id = w.ranges[s.word(1)];
  }
  if (s.options.contains("domain")) {
    nvtxDomainRangeEnd(domain_named(s.option("domain")), id);
  } else {
    nvtxRangeEnd(id);
  }
}

void mark(const Statement& s) {
  const Attributes a(s, s.word(1));
  if (s.options.contains("domain")) {
    nvtxDomainMarkEx(domain_named(s.option("domain")), &a.value);
  } else if (s.options.empty()) {
    nvtxMarkA(s.word(1).c_str());
  } else if (plain(s)) {
    nvtxMarkW(wide(s.word(1)).c_str());
  } else {
    nvtxMarkEx(&a.value);
  }
}

/// A push through the payload extension: a schema of u64 fields, named as the options are.
void ext_push(const Statement& s) {
  const nvtxDomainHandle_t domain = domain_named(s.option("domain"));
  std::vector<std::uint64_t> values;
  std::string key_text;
  std::vector<nvtxPayloadSchemaEntry_t> entries;
  for (const auto& [key, given] : s.options) {
    if (key == "domain") continue;
    nvtxPayloadSchemaEntry_t entry{};
    entry.type = NVTX_PAYLOAD_ENTRY_TYPE_UINT64;
    entry.name = key.c_str();
    entry.offset = values.size() * sizeof(std::uint64_t);
    entries.push_back(entry);
    key_text += key + ' ';
    values.push_back(std::strtoull(given.c_str(), nullptr, 10));
  }
  World& w = world();
  std::uint64_t schema = 0;
  {
    const std::lock_guard lock(w.mutex);
    std::uint64_t& known = w.schemas[{s.option("domain"), key_text}];
    if (known == 0) {
      nvtxPayloadSchemaAttr_t attributes{};
      attributes.fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES |
                             NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE;
      attributes.type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC;
      attributes.entries = entries.data();
      attributes.numEntries = entries.size();
      attributes.payloadStaticSize = values.size() * sizeof(std::uint64_t);
      known = nvtxPayloadSchemaRegister(domain, &attributes);
    }
    schema = known;
  }
  const nvtxPayloadData_t data{schema, values.size() * sizeof(std::uint64_t), values.data()};
  if (s.words.size() > 1) {
    // With a message: the extended payload hangs on ordinary attributes.
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
    attributes.message.ascii = s.word(1).c_str();
    attributes.payloadType = static_cast<std::int32_t>(NVTX_PAYLOAD_TYPE_EXT);
    attributes.reserved0 = 1;  // one payload
    attributes.payload.ullValue = NVTX_POINTER_AS_PAYLOAD_ULLVALUE(&data);
    nvtxDomainRangePushEx(domain, &attributes);
  } else {
    nvtxRangePushPayload(domain, &data, 1);
  }
}

void* companion(const char* name) {
  char self[4096];
  const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  if (n <= 0) fail("no /proc/self/exe");
  self[n] = '\0';
  const std::string path = std::string(self).substr(0, std::string(self).rfind('/') + 1) + name;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail(dlerror());
  return library;
}

template <typename F>
F* from_companion(const char* library, const char* symbol) {
  auto* f = reinterpret_cast<F*>(dlsym(companion(library), symbol));
  if (f == nullptr) fail(std::string(library) + " has no " + symbol);
  return f;
}

void foreign(const Statement& s) {
  // Whatever libcupti the process has.
  for (const char* soname : {"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8"}) {
    void* library = dlopen(soname, RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr && s.has("load")) library = dlopen(soname, RTLD_NOW);
    if (library == nullptr) continue;
    auto* act = reinterpret_cast<int (*)(const char*, const char*)>(dlsym(library, "simgpu_foreign"));
    if (act == nullptr) fail("libcupti is not the simulated one");
    act(s.word(1).c_str(), s.word(2).c_str());
    return;
  }
}

// Running --------------------------------------------------------------------------------------------------------

void run(const std::vector<Statement>& block);

/// Waits as long as this process has a thread with the OS name `name`.
void until_ended(const std::string& name) {
  namespace fs = std::filesystem;
  for (bool runs = true; runs; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
    runs = false;
    std::error_code ended;  // a thread may go while its folder is looked at
    for (fs::directory_iterator task("/proc/self/task", ended), last; !ended && task != last; task.increment(ended)) {
      std::string thread;
      std::getline(std::ifstream(task->path() / "comm"), thread);
      runs |= thread == name;
    }
  }
}

void busy_wait(double ms) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double, std::milli>(ms);
  while (std::chrono::steady_clock::now() < until) {
  }
}

void start_thread(const Statement& s) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  const int device = current_device;
  w.threads[s.word(1)] = std::thread([&s, device] {
    pthread_setname_np(pthread_self(), s.word(1).substr(0, 15).c_str());
    current_device = device;
    run(s.body);
  });
}

void join(const std::string& name) {
  World& w = world();
  std::vector<std::thread> joined;
  {
    const std::lock_guard lock(w.mutex);
    for (auto it = w.threads.begin(); it != w.threads.end();) {
      if (name.empty() || it->first == name) {
        joined.push_back(std::move(it->second));
        it = w.threads.erase(it);
      } else {
        ++it;
      }
    }
  }
  for (std::thread& t : joined) t.join();
}

void barrier(const Statement& s) {
  World& w = world();
  std::unique_lock lock(w.mutex);
  World::Barrier& b = w.barriers[s.word(1)];
  const std::uint64_t round = b.round;
  if (++b.waiting == static_cast<int>(s.number(2))) {
    b.waiting = 0;
    ++b.round;
    w.barrier_changed.notify_all();
    return;
  }
  w.barrier_changed.wait(lock, [&] { return b.round != round; });
}

void fork_child(const Statement& s) {
  std::fflush(stdout);
  const pid_t pid = fork();
  if (pid < 0) fail("fork failed");
  if (pid == 0) {
    run(s.body);
    std::fflush(stdout);
    if (s.has("_exit")) _exit(0);
    std::exit(0);
  }
}

void wait_children() {
  int status = 0;
  for (pid_t pid = 0; (pid = waitpid(-1, &status, 0)) > 0 || errno == EINTR;) {
    if (pid > 0 && status != 0)
      std::printf("child status %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    if (pid <= 0) errno = 0;
  }
}

int signal_number(const std::string& name) {
  static const std::map<std::string, int> kNames{{"TERM", SIGTERM}, {"INT", SIGINT},   {"KILL", SIGKILL},
                                                 {"SEGV", SIGSEGV}, {"ABRT", SIGABRT}, {"USR1", SIGUSR1},
                                                 {"HUP", SIGHUP}};
  const auto it = kNames.find(name);
  return it == kNames.end() ? std::atoi(name.c_str()) : it->second;
}

using Op = void (*)(const Statement&);

const std::map<std::string, Op>& operations() {
  static const auto& table = *new const std::map<std::string, Op>{
      // program
      {"repeat",
       [](const Statement& s) {
         for (long i = 0, n = static_cast<long>(s.number(1)); i < n; ++i) run(s.body);
       }},
      {"thread", start_thread},
      {"join", [](const Statement& s) { join(s.words.size() > 1 ? s.word(1) : ""); }},
      {"barrier", barrier},
      {"sleep",
       [](const Statement& s) { std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(s.number(1))); }},
      {"spin", [](const Statement& s) { busy_wait(s.number(1)); }},
      {"until_ended", [](const Statement& s) { until_ended(s.word(1)); }},
      {"print", [](const Statement& s) { std::printf("%s\n", s.word(1).c_str()); }},
      {"thread_name", [](const Statement& s) { pthread_setname_np(pthread_self(), s.word(1).substr(0, 15).c_str()); }},
      {"thread_exit", [](const Statement&) { pthread_exit(nullptr); }},
      {"thread_cancel", [](const Statement&) { pthread_cancel(pthread_self()); }},
      {"fork", fork_child},
      {"wait", [](const Statement&) { wait_children(); }},
      {"exec",
       [](const Statement& s) {
         std::fflush(stdout);
         std::vector<char*> arguments;
         for (std::size_t i = 1; i < s.words.size(); ++i) arguments.push_back(const_cast<char*>(s.words[i].c_str()));
         arguments.push_back(nullptr);
         execvp(s.word(1).c_str(), arguments.data());
         fail("exec " + s.word(1) + " failed");
       }},
      {"exit", [](const Statement& s) { std::exit(s.words.size() > 1 ? static_cast<int>(s.number(1)) : 0); }},
      {"_exit", [](const Statement& s) { _exit(s.words.size() > 1 ? static_cast<int>(s.number(1)) : 0); }},
      {"abort", [](const Statement&) { std::abort(); }},
      {"throw",
       [](const Statement& s) { throw std::runtime_error(s.words.size() > 1 ? s.word(1) : "thrown by the script"); }},
      {"raise", [](const Statement& s) { raise(signal_number(s.word(1))); }},
      {"close_fds",
       [](const Statement&) {
         for (int fd = 3; fd < 1024; ++fd) close(fd);
       }},
      {"setenv", [](const Statement& s) { setenv(s.word(1).c_str(), s.word(2).c_str(), 1); }},
      {"dlopen",
       [](const Statement& s) {
         void* l = dlopen(s.word(2).c_str(), RTLD_NOW | RTLD_LOCAL);
         const std::lock_guard lock(world().mutex);
         world().libraries[s.word(1)] = l;
         if (l == nullptr) fail(dlerror());
       }},
      {"dlclose",
       [](const Statement& s) {
         const std::lock_guard lock(world().mutex);
         dlclose(world().libraries[s.word(1)]);
       }},
      {"ignore_errors", [](const Statement&) { ignores_errors = true; }},
      {"foreign", foreign},
      // CUDA
      {"cuinit", [](const Statement& s) { check(CU(cuInit)(0), s); }},
      {"device",
       [](const Statement& s) {
         current_device = static_cast<int>(s.number(1));
         initialised = false;
       }},
      {"context_create",
       [](const Statement& s) {
         check(CU(cuInit)(0), s);
         CUcontext context = nullptr;
         auto* create = reinterpret_cast<CUresult (*)(CUcontext*, unsigned, CUdevice)>(driver_symbol("cuCtxCreate_v2"));
         check(create(&context, 0, current_device), s);
         initialised = true;
       }},
      {"context_destroy",
       [](const Statement& s) {
         CUcontext context = nullptr;
         check(CU(cuCtxGetCurrent)(&context), s);
         check(CU(cuCtxDestroy)(context), s);
         initialised = false;
       }},
      {"context_reset",
       [](const Statement& s) {
         check(CU(cuDevicePrimaryCtxReset)(current_device), s);
         const std::lock_guard lock(world().mutex);
         world().contexts.erase(current_device);
         world().streams.clear();
         world().functions.clear();
         world().memory = 0;
         initialised = false;
       }},
      {"kernel",
       [](const Statement& s) {
         std::string line;
         for (const auto& [key, value] : s.options) line += " " + key + "=" + value;
         const std::lock_guard lock(world().mutex);
         world().kernel_lines[s.word(1)] = line;
         world().functions.erase({current_device, s.word(1)});
       }},
      {"stream",
       [](const Statement& s) {
         need_context(s);
         const std::lock_guard lock(world().mutex);
         check(CU(cuStreamCreate)(&world().streams[s.word(1)], s.has("blocking") ? 0 : CU_STREAM_NON_BLOCKING), s);
       }},
      {"stream_destroy",
       [](const Statement& s) {
         const std::lock_guard lock(world().mutex);
         check(CU(cuStreamDestroy)(world().streams[s.word(1)]), s);
         world().streams.erase(s.word(1));
       }},
      {"alloc",
       [](const Statement& s) {
         need_context(s);
         CUdeviceptr memory = 0;
         check(CU(cuMemAlloc)(&memory, static_cast<std::size_t>(s.number(1))), s);
         check(CU(cuMemFree)(memory), s);
       }},
      {"launch", launch},
      {"memcpy", copy},
      {"memset",
       [](const Statement& s) {
         need_context(s);
         check(CU(cuMemsetD8Async)(scratch(s), 0, static_cast<std::size_t>(s.number(1)),
                                   stream_named(s, s.option("stream"))),
               s);
       }},
      {"sync",
       [](const Statement& s) {
         need_context(s);
         if (s.words.size() > 1) {
           check(CU(cuStreamSynchronize)(stream_named(s, s.word(1))), s);
         } else {
           check(CU(cuCtxSynchronize)(), s);
         }
       }},
      {"record",
       [](const Statement& s) {
         need_context(s), check(CU(cuEventRecord)(event_named(s, s.word(1)), stream_named(s, s.word(2))), s);
       }},
      {"wait_event",
       [](const Statement& s) {
         check(CU(cuStreamWaitEvent)(stream_named(s, s.word(2)), event_named(s, s.word(1)), 0), s);
       }},
      {"sync_event", [](const Statement& s) { check(CU(cuEventSynchronize)(event_named(s, s.word(1))), s); }},
      {"capture",
       [](const Statement& s) {
         need_context(s);
         check(CU(cuStreamBeginCapture)(stream_named(s, s.word(1)), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), s);
       }},
      {"end_capture",
       [](const Statement& s) {
         const std::lock_guard lock(world().mutex);
         check(CU(cuStreamEndCapture)(stream_named(s, s.word(1)), &world().graphs[s.word(2)].graph), s);
       }},
      {"instantiate",
       [](const Statement& s) {
         const std::lock_guard lock(world().mutex);
         GraphState& g = world().graphs[s.word(1)];
         check(CU(cuGraphInstantiateWithFlags)(&g.exec, g.graph, 0), s);
       }},
      {"graph_launch",
       [](const Statement& s) {
         need_context(s);
         CUgraphExec exec = nullptr;
         {
           const std::lock_guard lock(world().mutex);
           exec = world().graphs[s.word(1)].exec;
         }
         const CUstream stream = stream_named(s, s.option("stream"));
         const long count = std::strtol(s.option("count", "1").c_str(), nullptr, 10);
         for (long i = 0; i < count; ++i) {
           if (s.option("api") == "runtime") {
             check(static_cast<CUresult>(RT(cudaGraphLaunch)(exec, stream)), s);
           } else {
             check(CU(cuGraphLaunch)(exec, stream), s);
           }
         }
       }},
      {"graph_destroy",
       [](const Statement& s) {
         const std::lock_guard lock(world().mutex);
         GraphState& g = world().graphs[s.word(1)];
         if (g.exec != nullptr) check(CU(cuGraphExecDestroy)(g.exec), s);
         if (g.graph != nullptr) check(CU(cuGraphDestroy)(g.graph), s);
         world().graphs.erase(s.word(1));
       }},
      // NVTX
      {"push", push},
      {"pop", pop},
      {"start", start_range},
      {"end", end_range},
      {"mark", mark},
      {"domain", [](const Statement& s) { domain_named(s.word(1), s.has("wide")); }},
      {"domain_destroy",
       [](const Statement& s) {
         const std::lock_guard lock(world().mutex);
         nvtxDomainDestroy(world().domains[s.word(1)]);
         world().domains.erase(s.word(1));
       }},
      {"category_name",
       [](const Statement& s) {
         const auto id = static_cast<std::uint32_t>(s.number(1));
         if (s.options.contains("domain")) {
           nvtxDomainNameCategoryA(domain_named(s.option("domain")), id, s.word(2).c_str());
         } else {
           nvtxNameCategoryA(id, s.word(2).c_str());
         }
       }},
      {"nvtx_name_thread",
       [](const Statement& s) {
         nvtxNameOsThreadA(static_cast<std::uint32_t>(syscall(SYS_gettid)), s.word(1).c_str());
       }},
      {"nvtx_initialize", [](const Statement&) { nvtxInitialize(nullptr); }},
      {"ext_push", ext_push},
      {"ext_pop", [](const Statement& s) { nvtxDomainRangePop(domain_named(s.option("domain"))); }},
      {"ext_enabled",
       [](const Statement& s) { std::printf("enabled %d\n", nvtxDomainIsEnabled(domain_named(s.option("domain")))); }},
      {"dso_push",
       [](const Statement& s) {
         from_companion<void(const char*)>("libscenario_dso.so", "dso_push")(s.word(1).c_str());
       }},
      {"dso_pop", [](const Statement&) { from_companion<void()>("libscenario_dso.so", "dso_pop")(); }},
      {"dso_mark",
       [](const Statement& s) {
         from_companion<void(const char*)>("libscenario_dso.so", "dso_mark")(s.word(1).c_str());
       }},
      {"v2_push",
       [](const Statement& s) {
         if (s.options.contains("u64")) {
           from_companion<int(const char*, std::uint64_t)>("libscenario_nvtx_v2.so", "v2_push_payload")(
               s.word(1).c_str(), std::strtoull(s.option("u64").c_str(), nullptr, 10));
         } else if (s.option("text") == "wide") {
           from_companion<int(const wchar_t*)>("libscenario_nvtx_v2.so", "v2_push_wide")(wide(s.word(1)).c_str());
         } else {
           from_companion<int(const char*)>("libscenario_nvtx_v2.so", "v2_push")(s.word(1).c_str());
         }
       }},
      {"v2_pop", [](const Statement&) { from_companion<int()>("libscenario_nvtx_v2.so", "v2_pop")(); }},
      {"v2_mark",
       [](const Statement& s) {
         from_companion<void(const char*)>("libscenario_nvtx_v2.so", "v2_mark")(s.word(1).c_str());
       }},
      {"v2_start",
       [](const Statement& s) {
         const std::uint64_t id =
             from_companion<std::uint64_t(const char*)>("libscenario_nvtx_v2.so", "v2_start")(s.word(2).c_str());
         const std::lock_guard lock(world().mutex);
         world().v2_ranges[s.word(1)] = id;
       }},
      {"v2_end",
       [](const Statement& s) {
         std::uint64_t id = 0;
         {
           const std::lock_guard lock(world().mutex);
           id = world().v2_ranges[s.word(1)];
         }
         from_companion<void(std::uint64_t)>("libscenario_nvtx_v2.so", "v2_end")(id);
       }},
  };
  return table;
}

void run(const std::vector<Statement>& block) {
  const auto& table = operations();
  for (const Statement& s : block) {
    const auto it = table.find(s.words[0]);
    if (it == table.end()) fail("line " + std::to_string(s.line) + ": unknown statement `" + s.words[0] + "`");
    it->second(s);
  }
}

void check_words(const std::vector<Statement>& block) {
  for (const Statement& s : block) {
    if (!operations().contains(s.words[0]))
      fail("line " + std::to_string(s.line) + ": unknown statement `" + s.words[0] + "`");
    check_words(s.body);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string text;
  if (argc > 2 && std::strcmp(argv[1], "-c") == 0) {
    text = argv[2];
  } else if (argc > 1 && std::strcmp(argv[1], "-") != 0) {
    std::ifstream file(argv[1]);
    if (!file) fail(std::string("cannot read ") + argv[1]);
    text.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  } else {
    text.assign(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
  }
  // Leaked, as is all that threads use: `exit` leaves them running while static objects are destroyed.
  static const auto& script = *new const std::vector<Statement>(Parser(std::move(text)).block());
  check_words(script);
  run(script);
  join("");
  return 0;
}

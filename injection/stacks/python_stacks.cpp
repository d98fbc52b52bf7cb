#include "injection/stacks/python_stacks.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

#include "core/idle/line_table.h"

namespace mfu {
namespace {

constexpr std::uint32_t kNone = ~0u;
/// Offsets, in the order in which they are needed. kInterpreter: the main one, in _PyRuntime. kThreads: the newest, kGc
/// and in it kCollecting, in PyInterpreterState. kNext to kFrame in PyThreadState; kInner: the frame in what that
/// points to, or kNone. kPrevious to kInstruction in a frame, kFile to kBegin in PyCodeObject; kBegin: its
/// instructions, or kNone where kInstruction is an index. The rest in any object, in text and in bytes.
enum Field : std::uint8_t {
  // clang-format off
  kInterpreter, kThreads, kGc, kCollecting, kNext, kThread, kFrame, kInner, kPrevious, kCode, kInstruction, kFile, kName,
  kFirstLine, kLines, kBegin, kType, kTextLength, kText, kBytesLength, kBytes, kEnd
  // clang-format on
};

}  // namespace

// Of the headers of CPython: Include/cpython/pystate.h, code.h, unicodeobject.h, frameobject.h (3.9, 3.10);
// Include/internal/pycore_runtime.h, pycore_interp.h, pycore_gc.h, pycore_frame.h. A minor version keeps them.
constexpr PythonStacks::Offsets PythonStacks::kOffsets[] = {
    {40, 8, 0, 816, 8, 176, 24, kNone, 24, 32, 104, 104, 112, 40, 120, kNone, 8, 16, 48, 16, 32},
    {40, 8, 0, 816, 8, 176, 24, kNone, 24, 32, 96, 104, 112, 40, 120, kNone, 8, 16, 48, 16, 32},
    {48, 16, 0, 848, 8, 152, 56, 8, 48, 32, 56, 112, 128, 72, 136, 184, 8, 16, 48, 16, 32},
    {48, 72, 0, 312, 8, 136, 56, 0, 8, 0, 56, 112, 128, 68, 136, 192, 8, 16, 40, 16, 32},
};
// Include/internal/pycore_runtime.h (3.13), pycore_debug_offsets.h (3.14).
constexpr PythonStacks::Offsets PythonStacks::kDebugWords[] = {
    {5, 9, 10, 72, 21, 24, 23, kNone, 29, 30, 31, 35, 37, 39, 38, 43, 45, 69, 70, 65, 66},
    {5, 9, 11, 82, 24, 27, 26, kNone, 32, 33, 34, 40, 42, 44, 43, 48, 51, 79, 80, 75, 76},
};

bool OwnMemory::open() noexcept {
  file_ = ::open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  return file_ >= 0;
}

bool OwnMemory::read(std::uintptr_t at, void* to, std::size_t size) noexcept {
  for (auto* out = static_cast<std::byte*>(to); size != 0;) {
    const std::size_t from = at & (kPageBytes - 1), part = std::min(size, kPageBytes - from);
    const Page* page = page_at(at - from);
    if (page == nullptr) return false;
    std::memcpy(out, page->bytes.data() + from, part);
    at += part;
    out += part;
    size -= part;
  }
  return true;
}

const OwnMemory::Page* OwnMemory::page_at(std::uintptr_t at) noexcept {
  const auto end = pages_->begin() + static_cast<std::ptrdiff_t>(used_);
  if (const auto found = std::find_if(pages_->begin(), end, [at](const Page& p) { return p.at == at; }); found != end)
    return &*found;
  if (at == 0) return nullptr;
  if (used_ == kPages) used_ /= 2;  // a deep stack
  Page& page = (*pages_)[used_];
  if (::pread(file_, page.bytes.data(), kPageBytes, static_cast<::off_t>(at)) != kPageBytes) return nullptr;
  page.at = at;
  ++used_;
  return &page;
}

std::string PythonStacks::text(const char* text) {
  constexpr std::size_t kMost = 512;
  memory_.forget();
  std::string read;
  for (auto at = reinterpret_cast<std::uintptr_t>(text); read.size() < kMost; ++at) {
    const char c = memory_.get<char>(at);
    if (c == 0) break;
    read += c;
  }
  return read;
}

bool PythonStacks::find() noexcept {
  if (minor_ != 0) return known_;
  runtime_ = reinterpret_cast<std::uintptr_t>(::dlsym(RTLD_DEFAULT, "_PyRuntime"));
  code_type_ = reinterpret_cast<std::uintptr_t>(::dlsym(RTLD_DEFAULT, "PyCode_Type"));
  const auto version_of = reinterpret_cast<const char* (*)()>(::dlsym(RTLD_DEFAULT, "Py_GetVersion"));
  const std::string_view version = version_of != nullptr ? version_of() : "";
  if (runtime_ == 0 || code_type_ == 0 || !version.starts_with("3.")) return false;
  std::from_chars(version.data() + 2, version.data() + version.size(), minor_);
  constexpr unsigned kFirst = 9, kFirstWithWords = 13;
  if (minor_ >= kFirst && minor_ < kFirst + std::size(kOffsets)) {
    offsets_ = kOffsets[minor_ - kFirst];
    known_ = true;
  } else if (minor_ >= kFirstWithWords && minor_ < kFirstWithWords + std::size(kDebugWords)) {
    char cookie[8] = {};
    known_ = memory_.read(runtime_, cookie, sizeof cookie) && std::string_view(cookie, sizeof cookie) == "xdebugpy";
    std::transform(kDebugWords[minor_ - kFirstWithWords].begin(), kDebugWords[minor_ - kFirstWithWords].end(),
                   offsets_.begin(), [this](std::uint32_t word) {
                     return word == kNone ? kNone : memory_.get<std::uint32_t>(runtime_ + word * sizeof(std::uint64_t));
                   });
    offsets_[kInterpreter] += sizeof(void*);  // behind the newest one, which the word is of
  }
  return known_;
}

/// 0: the thread has none. The list has the newest first, so that the main thread is its last.
std::uintptr_t PythonStacks::thread_state(std::uintptr_t interpreter, std::uint64_t thread) noexcept {
  constexpr std::size_t kMostThreads = 4096;
  std::uintptr_t state = pointer(interpreter, kThreads);
  for (std::size_t i = 0; state != 0 && i < kMostThreads; ++i) {
    if (thread != 0 && memory_.get<std::uint64_t>(state + offsets_[kThread]) == thread) return state;
    const std::uintptr_t next = pointer(state, kNext);
    if (next == 0) return thread == 0 ? state : 0;
    state = next;
  }
  return 0;
}

bool PythonStacks::read(std::uint64_t thread, Stack& stack) {
  static_assert(kEnd == kFields);
  constexpr std::size_t kMostFrames = 256;  // torch.compile has some 150
  constexpr std::uintptr_t kTags = 7;       // 3.14 marks references in the lowest bits
  stack.places.clear();
  memory_.forget();
  const std::uintptr_t interpreter = pointer(runtime_, kInterpreter);
  if (interpreter == 0) return false;
  stack.collecting = memory_.get<std::int32_t>(interpreter + offsets_[kGc] + offsets_[kCollecting]) == 1;
  const std::uintptr_t state = thread_state(interpreter, thread);
  std::uintptr_t frame = state != 0 ? pointer(state, kFrame) : 0;
  if (frame != 0 && offsets_[kInner] != kNone) frame = pointer(frame, kInner);
  for (; frame != 0 && stack.places.size() < kMostFrames; frame = pointer(frame, kPrevious)) {
    const std::uintptr_t instruction = pointer(frame, kInstruction);
    stack.places.emplace_back(pointer(frame, kCode) & ~kTags,
                              offsets_[kBegin] != kNone ? instruction : static_cast<std::uint32_t>(instruction));
  }
  return !stack.places.empty();
}

std::uint64_t PythonStacks::Stack::key() const noexcept {
  std::uint64_t key = collecting ? 1 : 0;
  for (const auto& [code, instruction] : places)
    for (const std::uint64_t word : {code, instruction}) key = ((key ^ word) * 0x9E3779B97F4A7C15u) ^ (key >> 29);
  return key;
}

/// `?` for what is no ASCII text; the end of what is very long.
std::string PythonStacks::text_at(std::uintptr_t object) {
  constexpr std::size_t kLongest = 512;
  const auto length = memory_.get<std::size_t>(object + offsets_[kTextLength]);
  std::string text(std::min(length, kLongest) + 1, '\0');
  if (!memory_.read(object + offsets_[kText] + (length + 1 - text.size()), text.data(), text.size()) ||
      text.back() != '\0')
    return "?";
  text.pop_back();
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; }) ? text : "?";
}

std::uint32_t PythonStacks::line_at(std::uintptr_t code, std::uintptr_t instruction) {
  constexpr std::size_t kLongest = 1u << 16;
  constexpr unsigned kCountsInstructions = 10;
  const auto first = memory_.get<std::uint32_t>(code + offsets_[kFirstLine]);
  const std::uintptr_t bytes = pointer(code, kLines);
  const auto size = memory_.get<std::size_t>(bytes + offsets_[kBytesLength]);
  std::vector<std::uint8_t> table(size <= kLongest ? size : 0);
  if (!memory_.read(bytes + offsets_[kBytes], table.data(), table.size())) return first;
  const std::uintptr_t at = offsets_[kBegin] != kNone ? instruction - (code + offsets_[kBegin])
                                                      : instruction * (minor_ == kCountsInstructions ? 2 : 1);
  return line_of(minor_, table, first, at);
}

std::vector<PythonFrame> PythonStacks::frames(const Stack& stack) {
  std::vector<PythonFrame> frames;
  for (const auto& [code, instruction] : stack.places)
    if (pointer(code, kType) == code_type_)  // frames of the C stack have none
      frames.push_back({text_at(pointer(code, kFile)), text_at(pointer(code, kName)), line_at(code, instruction)});
  std::erase_if(frames, [](const PythonFrame& f) { return f.file == "<shim>"; });  // of 3.12: the same
  return frames;
}

}  // namespace mfu

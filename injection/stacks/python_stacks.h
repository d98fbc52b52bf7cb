// Where the Python code of this process is, read from its memory by a thread of the library.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/idle/host_work.h"

namespace mfu {

/// [one thread] Memory of the process that other threads change and free meanwhile: the kernel copies it, so that an
/// address with nothing behind it is an error and no fault. From /proc/self/mem, since a filter of system calls that
/// kills (systemd's, by default) may not know process_vm_readv, and knows pread.
class OwnMemory {
 public:
  /// [own thread, behind take_own_descriptors] False: the system does not let it.
  [[nodiscard]] bool open() noexcept;
  /// False: nothing is there. A page is copied once until forget().
  [[nodiscard]] bool read(std::uintptr_t at, void* to, std::size_t size) noexcept;
  /// 0 where it cannot be read.
  template <typename T>
  [[nodiscard]] T get(std::uintptr_t at) noexcept {
    T value{};
    return read(at, &value, sizeof value) ? value : T{};
  }
  void forget() noexcept { used_ = 0; }

 private:
  static constexpr std::size_t kPageBytes = 4096, kPages = 32;
  struct Page {
    std::uintptr_t at = 0;
    std::array<std::byte, kPageBytes> bytes;
  };
  [[nodiscard]] const Page* page_at(std::uintptr_t at) noexcept;

  std::unique_ptr<std::array<Page, kPages>> pages_ = std::make_unique<std::array<Page, kPages>>();
  std::size_t used_ = 0;
  int file_ = -1;
};

/// [one thread] No lock of the interpreter is taken and nothing of it is called: frames are followed as its headers lay
/// them out (CPython 3.9 to 3.14). They change while they are read; values that are no code and no text are left out.
/// Another interpreter, or another version, has no stacks.
class PythonStacks {
 public:
  struct Stack {
    std::vector<std::pair<std::uintptr_t, std::uintptr_t>> places;  ///< code and instruction, the innermost frame first
    bool collecting = false;                                        ///< the interpreter's garbage collector runs
    [[nodiscard]] std::uint64_t key() const noexcept;               ///< of equal stacks the same
  };

  /// As OwnMemory::open. Before anything else.
  [[nodiscard]] bool open() noexcept { return memory_.open(); }
  /// Looks for the interpreter: cheap once it was found.
  [[nodiscard]] bool find() noexcept;
  /// \param thread as pthread_self() gives it; 0: the main thread. False: it has no Python frame.
  [[nodiscard]] bool read(std::uint64_t thread, Stack& stack);
  /// The text at an address, up to its zero byte, 512 bytes at most.
  [[nodiscard]] std::string text(const char* text);
  /// Of the stack that was read last.
  [[nodiscard]] std::vector<PythonFrame> frames(const Stack& stack);

 private:
  static constexpr std::size_t kFields = 21;
  using Offsets = std::array<std::uint32_t, kFields>;
  static const Offsets kOffsets[];     ///< CPython 3.9 to 3.12
  static const Offsets kDebugWords[];  ///< 3.13 and 3.14: index of the word of _Py_DebugOffsets that has the offset

  [[nodiscard]] std::uintptr_t pointer(std::uintptr_t object, std::size_t field) noexcept {
    return memory_.get<std::uintptr_t>(object + offsets_[field]);
  }
  [[nodiscard]] std::uintptr_t thread_state(std::uintptr_t interpreter, std::uint64_t thread) noexcept;
  [[nodiscard]] std::string text_at(std::uintptr_t object);
  [[nodiscard]] std::uint32_t line_at(std::uintptr_t code, std::uintptr_t instruction);

  OwnMemory memory_;
  std::uintptr_t runtime_ = 0, code_type_ = 0;
  unsigned minor_ = 0;  ///< 0: no interpreter was found
  bool known_ = false;
  Offsets offsets_{};
};

}  // namespace mfu

// The functions of cuBLAS and cuBLASLt that ask for a matrix product, and what is called in their place.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

namespace mfu {

/// The functions that hooks call, all of one copy of the library, as addresses: each hook knows its own type.
struct BlasTarget {
  std::atomic<void*> function{nullptr};  ///< the function that the program would have called; set last
  void* math_mode = nullptr;             ///< cublasGetMathMode; nullptr: not known
  void* layout_attribute = nullptr;      ///< cublasLtMatrixLayoutGetAttribute
  void* desc_attribute = nullptr;        ///< cublasLtMatmulDescGetAttribute
};

/// One function, with a hook for each of its copies in the process: two versions of the library, or the one of another
/// tool in front of it. Hook i calls target i.
struct BlasEntry {
  static constexpr std::uint32_t kCopies = 3;
  enum class Library : std::uint8_t { kCublas, kCublasLt };

  const char* name;
  Library library;
  void* hooks[kCopies];
  BlasTarget* targets;  ///< kCopies
};

/// In the order of their names.
[[nodiscard]] std::span<const BlasEntry> blas_entries() noexcept;
/// nullptr for a name that is no entry.
[[nodiscard]] const BlasEntry* find_blas_entry(const char* name) noexcept;

namespace detail {
using FindHelper = void* (*)(const void* closure, const char* name);
[[nodiscard]] void* hook_for(const BlasEntry& entry, void* function, FindHelper find, const void* closure) noexcept;
}  // namespace detail

/// [any thread] The hook that calls `function`; nullptr once there are more copies of it than hooks, or while another
/// thread takes one: then the function is to be left as it is.
/// \param helper void*(const char* name): another function of the same library, nullptr where it has none
template <typename Helper>
[[nodiscard]] void* hook_for(const BlasEntry& entry, void* function, const Helper& helper) noexcept {
  return detail::hook_for(
      entry, function, [](const void* h, const char* name) { return (*static_cast<const Helper*>(h))(name); }, &helper);
}

}  // namespace mfu

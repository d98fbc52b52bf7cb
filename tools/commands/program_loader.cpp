#include "tools/commands/program_loader.h"

#include <elf.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

namespace mfu {
std::string in_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  if (path == nullptr || program.find('/') != std::string::npos) return program;
  std::istringstream folders(path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string file = (folder.empty() ? "." : folder) + "/" + program;
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return program;
}

namespace {

#if defined(__aarch64__)
constexpr Elf64_Half kMachine = EM_AARCH64;
#else
constexpr Elf64_Half kMachine = EM_X86_64;
#endif

template <typename T>
bool read_at(std::ifstream& file, std::uint64_t at, T* into, std::size_t bytes) {
  file.clear();
  file.seekg(static_cast<std::streamoff>(at));
  return static_cast<bool>(file.read(reinterpret_cast<char*>(into), static_cast<std::streamsize>(bytes)));
}

}  // namespace

std::string cannot_load_because(const std::string& program) {
  std::ifstream file(in_path(program), std::ios::binary);
  Elf64_Ehdr header{};
  if (!read_at(file, 0, &header, sizeof header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return "";
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_machine != kMachine)
    return "is for another processor than this library";
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > 1024) return "";
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  if (!read_at(file, header.e_phoff, segments.data(), segments.size() * sizeof(Elf64_Phdr))) return "";
  bool dynamic = false;
  for (const Elf64_Phdr& segment : segments) {
    dynamic = dynamic || segment.p_type == PT_DYNAMIC;
    if (segment.p_type != PT_INTERP || segment.p_filesz == 0 || segment.p_filesz > 4096) continue;
    std::string loader(segment.p_filesz - 1, '\0');  // ends in a NUL byte
    if (!read_at(file, segment.p_offset, loader.data(), loader.size())) return "";
    return loader.find("ld-musl") == loader.npos
               ? ""
               : "is linked against musl (" + loader + "), and the library needs glibc";
  }
  return dynamic ? "" : "is linked statically, and loads no library";
}

}  // namespace mfu

// Pages of this process, as it has mapped them itself.
#include "cuda/blas/read_only_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <random>
#include <vector>

namespace mfu {
namespace {

TEST(ReadOnlyMemory, KnowsWhichPagesMayNotBeWrittenTo) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  constexpr std::size_t kPages = 600;  // of changing rights: as many lines
  auto* memory =
      static_cast<char*>(::mmap(nullptr, kPages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  std::mt19937 random(1);
  std::vector<int> rights;
  for (std::size_t i = 0; i < kPages; ++i) {
    constexpr int kRights[] = {PROT_READ, PROT_READ | PROT_WRITE, PROT_READ | PROT_EXEC, PROT_NONE};
    int right = kRights[random() % 4];
    // On qemu's host both of these are pages to be read. Side by side they are one mapping there, and qemu 7.2 gives
    // the rights of its first page for all of it.
    const auto is_mapped_to_be_read = [](int r) { return r == PROT_READ || r == (PROT_READ | PROT_EXEC); };
    if (i != 0 && right != rights.back() && is_mapped_to_be_read(right) && is_mapped_to_be_read(rights.back()))
      right = PROT_READ | PROT_WRITE;
    rights.push_back(right);
    ASSERT_EQ(::mprotect(memory + i * page, page, rights.back()), 0);
  }
  const auto known = std::make_unique<ReadOnlyMemory>();
  const auto at = [&](std::size_t i) { return reinterpret_cast<std::uintptr_t>(memory + i * page); };
  for (std::size_t i = 0; i < kPages; ++i) {
    EXPECT_EQ(known->contains(at(i)), rights[i] == PROT_READ) << i;
    EXPECT_EQ(known->contains(at(i) + page - 1), rights[i] == PROT_READ) << i;
  }
  EXPECT_FALSE(known->contains(0));
  EXPECT_FALSE(known->contains(UINTPTR_MAX));
  // What was true stays until it is to be forgotten.
  for (std::size_t i = 0; i < kPages; ++i) ASSERT_EQ(::mprotect(memory + i * page, page, PROT_READ), 0);
  EXPECT_EQ(known->contains(at(0)), rights[0] == PROT_READ);
  known->forget();
  for (std::size_t i = 0; i < kPages; ++i) EXPECT_TRUE(known->contains(at(i))) << i;
  ::munmap(memory, kPages * page);
}

}  // namespace
}  // namespace mfu

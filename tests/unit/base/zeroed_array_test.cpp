#include "core/base/zeroed_array.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <new>

namespace mfu {
namespace {

/// Address space of this process [pages].
long mapped_pages() {
  long pages = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%ld", &pages) != 1) pages = 0;
  if (file != nullptr) std::fclose(file);
  return pages;
}

TEST(ZeroedArray, IsZeroAndHoldsWhatIsWritten) {
  ZeroedArray<std::uint64_t> array(100'000);
  ASSERT_EQ(array.size(), 100'000u);
  EXPECT_EQ(array.bytes(), 800'000u);
  EXPECT_EQ(array[99'999], 0u);
  array[99'999] = 7;
  EXPECT_EQ(array[99'999], 7u);
}

TEST(ZeroedArray, GivesItsMemoryBack) {
  const long before = mapped_pages();
  for (int i = 0; i < 1000; ++i) {  // 16 GiB in all
    LargeZeroedTable<char> table(16u << 20);
    table[i] = 1;
  }
  EXPECT_LT(mapped_pages() - before, 4096);  // the pages of one
}

TEST(ZeroedArray, SaysWhereThereIsNoMemory) {
  EXPECT_THROW(LargeZeroedTable<char>(std::size_t{1} << 60), std::bad_alloc);
  const ZeroedArray<char> array(std::size_t{1} << 60);
  EXPECT_EQ(array.data(), nullptr);
  EXPECT_EQ(array.size(), 0u);
  EXPECT_TRUE(array_was_refused());
}

}  // namespace
}  // namespace mfu

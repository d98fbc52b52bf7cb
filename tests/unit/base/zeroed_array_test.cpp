#include "core/base/zeroed_array.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>

namespace mfu {
namespace {

/// Whether any of [begin, begin + bytes) is mapped. Not by the size of the process: an emulator's own tables grow with
/// every mapping.
bool is_mapped(void* begin, std::size_t bytes) {
  constexpr std::size_t kPage = 65536;  // a multiple of all page sizes there are
  for (std::size_t at = 0; at < bytes; at += kPage)
    if (::msync(static_cast<char*>(begin) + at, 1, MS_ASYNC) == 0) return true;
  return false;
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
  constexpr std::size_t kBytes = 16u << 20;
  for (std::size_t i = 0; i < 100; ++i) {
    void* data = nullptr;
    {
      LargeZeroedTable<char> table(kBytes);
      table[i] = 1;
      data = table.data();
      ASSERT_TRUE(is_mapped(data, kBytes));
    }
    ASSERT_FALSE(is_mapped(data, kBytes)) << i;
  }
}

TEST(ZeroedArray, SaysWhereThereIsNoMemory) {
  EXPECT_THROW(LargeZeroedTable<char>(std::size_t{1} << 60), std::bad_alloc);
  const ZeroedArray<char> array(std::size_t{1} << 60);
  EXPECT_EQ(array.data(), nullptr);
  EXPECT_EQ(array.size(), 0u);
  EXPECT_TRUE(array_was_refused());
}

TEST(ZeroedArray, TakesNoMemoryWhereTheHostLocksAllThatItMaps) {
  if (::mlockall(MCL_FUTURE) != 0) GTEST_SKIP() << "memory may not be locked here";
  const ZeroedArray<char> table(std::size_t{4} << 20);
  ::munlockall();
  ASSERT_EQ(table.size(), std::size_t{4} << 20);
  EXPECT_EQ(table.resident_bytes(), 0u);
}

}  // namespace
}  // namespace mfu

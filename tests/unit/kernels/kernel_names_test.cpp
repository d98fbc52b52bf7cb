#include "core/kernels/kernel_names.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace mfu {
namespace {

class KernelNamesTest : public ::testing::Test {
 protected:
  Counters counters_;
  std::unique_ptr<KernelNames> names_ = std::make_unique<KernelNames>(counters_);
};

TEST_F(KernelNamesTest, TheSameTextIsTheSameIdWhereverItLies) {
  std::string one = "gemm_kernel", two = "gemm_kernel";
  const KernelNameId id = names_->intern(one.c_str());
  EXPECT_EQ(names_->intern(two.c_str()), id);
  one.assign(one.size(), 'x');  // the caller's memory may go
  EXPECT_EQ(names_->raw_name(id), "gemm_kernel");
  EXPECT_NE(names_->intern("gemm_kerne"), id);
  EXPECT_NE(names_->intern("gemm_kernel "), id);
  EXPECT_EQ(names_->size(), 4u);  // with kOther
}

TEST_F(KernelNamesTest, NullEmptyAndEndlessNames) {
  const KernelNameId none = names_->intern(nullptr);
  EXPECT_EQ(names_->raw_name(none), "(no name)");
  EXPECT_EQ(names_->raw_name(names_->intern("")), "");
  const std::string endless(20'000, 'k');
  const KernelNameId id = names_->intern(endless.c_str());
  EXPECT_EQ(names_->raw_name(id).size(), KernelNames::kMaxLength);
  EXPECT_EQ(names_->display(id).size(), 200u);
  EXPECT_EQ(names_->raw_name(static_cast<KernelNameId>(99'999)), "(unknown)");
}

TEST_F(KernelNamesTest, ClassesAndDisplayGoByTheDemangledName) {
  const KernelNameId gemm = names_->intern("ampere_bf16_s16816gemm_bf16_128x128");
  EXPECT_EQ(names_->class_of(gemm), KernelClass::kGemm);
  EXPECT_EQ(names_->class_of(names_->intern("ncclDevKernel_AllReduce_Sum_f32")), KernelClass::kComm);
  EXPECT_EQ(names_->class_of(KernelNameId::kOther), KernelClass::kOther);
  const KernelNameId mangled = names_->intern("_ZN2at6native6vectorIfEEvT_");
  EXPECT_EQ(names_->display(mangled), "void at::native::vector<float>(float)");
  EXPECT_EQ(names_->display(names_->intern("_Znonsense")), "_Znonsense");
}

TEST_F(KernelNamesTest, AFullTablePutsFurtherNamesIntoOtherAndKeepsTheKnown) {
  for (std::uint32_t i = 1; i < KernelNames::kCapacity; ++i)
    ASSERT_EQ(raw(names_->intern(("k" + std::to_string(i)).c_str())), i);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(names_->intern(("beyond" + std::to_string(i)).c_str()), KernelNameId::kOther);
  EXPECT_EQ(counters_.get(Counter::kKernelNamesFull), 10u);
  EXPECT_EQ(raw(names_->intern("k77")), 77u);
  EXPECT_EQ(names_->size(), KernelNames::kCapacity);
}

TEST_F(KernelNamesTest, LongNamesBeyondTheBudgetAreKeptShortButStayApart) {
  std::size_t kept = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::string name = std::string(8000, 'a') + std::to_string(i);
    kept += names_->raw_name(names_->intern(name.c_str())).size();
  }
  EXPECT_EQ(names_->size(), 1001u);
  EXPECT_LE(kept, KernelNames::kStoredBytes + 8192 + 1000 * 256);
}

TEST_F(KernelNamesTest, ThreadsThatSeeANameAtOnceAgreeOnItsId) {
  constexpr int kThreads = 4, kStrings = 500;
  std::vector<std::vector<KernelNameId>> ids(kThreads, std::vector<KernelNameId>(kStrings));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kStrings; ++i)
        ids[t][i] = names_->intern(("name" + std::to_string((i * (t + 1)) % kStrings)).c_str());
    });
  for (std::thread& t : threads) t.join();
  for (int t = 0; t < kThreads; ++t)
    for (int i = 0; i < kStrings; ++i)
      ASSERT_EQ(names_->raw_name(ids[t][i]), "name" + std::to_string((i * (t + 1)) % kStrings));
  EXPECT_EQ(names_->size(), 1u + kStrings);
}

}  // namespace
}  // namespace mfu

// Which libcupti may be called, told before the first call.
#include "cuda/cupti_versions.h"

#include <gtest/gtest.h>

#include <iterator>

namespace mfu {
namespace {

TEST(CuptiVersions, OneOf132IsCalledOnlyWhereItCanInitialise) {
  CuptiTraits found{true, 13, false};
  EXPECT_NE(unfit_cupti(found, 0), "");
  EXPECT_NE(unfit_cupti(found, 12080), "");
  EXPECT_NE(unfit_cupti(found, 13000), "");  // another copy may do; this one could die
  EXPECT_EQ(unfit_cupti(found, 13020), "");
  found.host_mapped = true;
  EXPECT_NE(unfit_cupti(found, 0), "");
  EXPECT_NE(unfit_cupti(found, 12080), "");
  EXPECT_EQ(unfit_cupti(found, 13000), "");
}

TEST(CuptiVersions, ACopyNewerThanTheDriverIsNotCalled) {
  EXPECT_EQ(unfit_cupti({false, 13, false}, 12080), "is CUPTI for CUDA 13, and the driver is for CUDA 12.8");
  EXPECT_EQ(unfit_cupti({false, 12, false}, 12080), "");
  EXPECT_EQ(unfit_cupti({false, 12, false}, 13000), "");
  EXPECT_EQ(unfit_cupti({false, 0, false}, 11080), "");
  EXPECT_EQ(unfit_cupti({false, 13, false}, 0), "");  // it answers that there is no driver
}

TEST(CuptiVersions, DefectsAreFoundByVersionAndRemedy) {
  EXPECT_NE(cupti_defect(22, CuptiRemedy::kSayIfNoRecords), nullptr);
  EXPECT_EQ(cupti_defect(23, CuptiRemedy::kSayIfNoRecords), nullptr);
  EXPECT_NE(cupti_defect(130000, CuptiRemedy::kOtherCopy), nullptr);
  EXPECT_EQ(cupti_defect(130001, CuptiRemedy::kOtherCopy), nullptr);
  EXPECT_NE(cupti_defect(130201, CuptiRemedy::kOtherCopy), nullptr);
  EXPECT_EQ(cupti_defect(130300, CuptiRemedy::kSayIfUntimed), nullptr);
  for (const CuptiDefect& defect : kCuptiDefects) EXPECT_LE(defect.first, defect.last);
}

}  // namespace
}  // namespace mfu

// A copy of the environment is true while other threads change it, and what is put into it stays.
#include "core/base/environment.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <stop_token>
#include <string>
#include <thread>

namespace mfu {
namespace {

TEST(EnvironmentCopy, HasWhatGetenvHas) {
  ::setenv("MFU_TEST_VALUE", "a=b", 1);
  ::setenv("MFU_TEST_EMPTY", "", 1);
  ::unsetenv("MFU_TEST");
  const EnvironmentCopy copy;
  EXPECT_STREQ(copy.find("MFU_TEST_VALUE"), "a=b");
  EXPECT_STREQ(copy.find("MFU_TEST_EMPTY"), "");
  EXPECT_EQ(copy.find("MFU_TEST"), nullptr) << "the beginning of a name is another name";
}

TEST(EnvironmentCopy, AppendsOnlyToWhatItIsACopyOf) {
  const EnvironmentCopy before;
  ::setenv("MFU_TEST_LATER", "1", 1);
  EXPECT_FALSE(before.append_to_process("MFU_TEST_APPENDED=1"));
  EXPECT_EQ(std::getenv("MFU_TEST_APPENDED"), nullptr);
  EXPECT_TRUE(EnvironmentCopy().append_to_process("MFU_TEST_APPENDED=2"));
  EXPECT_STREQ(std::getenv("MFU_TEST_APPENDED"), "2");
  EXPECT_STREQ(std::getenv("MFU_TEST_LATER"), "1");
  ::setenv("MFU_TEST_APPENDED", "3", 1);
  EXPECT_STREQ(std::getenv("MFU_TEST_APPENDED"), "3") << "the C library goes on from there";
}

/// A thread that sets and removes variables until it is destroyed, with or without a rest after every 20.
std::jthread set_variables(bool with_rests) {
  return std::jthread([with_rests](const std::stop_token& stop) {
    for (int i = 0; !stop.stop_requested(); i = (i + 1) % 2000) {
      const std::string name = "MFU_STORM_" + std::to_string(i);
      ::setenv(name.c_str(), "value", 1);
      if (i % 3 == 0) ::unsetenv(name.c_str());
      if (with_rests && i % 20 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
}

void expect_true(const EnvironmentCopy& copy) {
  const char* stays = copy.find("MFU_TEST_STAYS");
  ASSERT_STREQ(stays, "here");
  for (const char* const* entry = copy.block(); *entry != nullptr; ++entry)
    ASSERT_NE(std::strchr(*entry, '='), nullptr) << *entry;
}

TEST(EnvironmentCopy, IsTrueWhileAnotherThreadSetsVariables) {
  ::setenv("MFU_TEST_STAYS", "here", 1);
  const std::jthread other = set_variables(true);
  for (int i = 0; i < 300 && !HasFatalFailure(); ++i) expect_true(EnvironmentCopy());
}

/// Sanitizers slow reading down so much that the array changes during each try. Then the copy is empty.
TEST(EnvironmentCopy, IsTrueWhileAnotherThreadDoesNothingElse) {
  ::setenv("MFU_TEST_STAYS", "here", 1);
  const std::jthread other = set_variables(false);
  for (int i = 0; i < 300 && !HasFatalFailure(); ++i) {
    const EnvironmentCopy copy;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    if (*copy.block() == nullptr) continue;
#endif
    expect_true(copy);
  }
}

}  // namespace
}  // namespace mfu

#include "core/config/host_command.h"

#include <gtest/gtest.h>

#include <string>

#include "core/base/clock.h"

namespace mfu {
namespace {

using std::string_literals::operator""s;

TEST(HostCommand, IsWhatAShellWouldTake) {
  EXPECT_EQ(command_text("python\0train.py\0--lr=1e-4\0"s), "python train.py --lr=1e-4");
  EXPECT_EQ(command_text("python\0-c\0print('a b')\0\0"s), "python -c 'print('\\''a b'\\'')' ''");
  EXPECT_EQ(command_text("sh\0-c\0a\nb\tc\0"s), "sh -c 'a b c'");
  EXPECT_EQ(command_text(""), "");
  EXPECT_EQ(command_text("python"), "python");  // a program may have written over its arguments
}

TEST(HostCommand, SecretsAreLeftOut) {
  EXPECT_EQ(command_text("t\0--api-key\0abc\0--lr\0001\0"s), "t --api-key *** --lr 1");
  EXPECT_EQ(command_text("t\0--HF_Token=abc\0x\0"s), "t --HF_Token=*** x");
  EXPECT_EQ(command_text("t\0wandb.key=a=b\0"s), "t wandb.key=***");
  EXPECT_EQ(command_text("t\0--password\0--verbose\0"s), "t --password --verbose");
  EXPECT_EQ(command_text("t\0--num_key_value_heads\0008\0--keys\0a\0"s), "t --num_key_value_heads 8 --keys a");
}

TEST(HostCommand, SecretsWithinAnArgumentAreLeftOut) {
  EXPECT_EQ(command_text("t\0--url=https://me:PASSWORD@host/x?a=1\0"s), "t '--url=https://***@host/x?a=1'");
  EXPECT_EQ(command_text("t\0-H\0Authorization: Bearer abc.def\0x\0"s), "t -H 'Authorization: Bearer ***' x");
  EXPECT_EQ(command_text("t\0{\"api_key\": \"abc\", \"lr\": 1}\0"s), "t '{\"api_key\": \"***\", \"lr\": 1}'");
  EXPECT_EQ(command_text("t\0hf_0bcdefghijklmnopqrstuv\0"s), "t '***'");
}

TEST(HostCommand, IsBounded) {
  const std::string ends_inside =
      command_text("t\0"s + std::string(kMaxCommandBytes - 6, 'x') + "\xC3\xA4\xC3\xA4\xC3\xA4"s);
  EXPECT_LE(ends_inside.size(), kMaxCommandBytes);
  EXPECT_TRUE(ends_inside.ends_with("..."));
  EXPECT_NE(ends_inside[ends_inside.size() - 4], '\xC3');  // half a character is no UTF-8
  EXPECT_EQ(command_text(std::string(1'000'000, 'x')).size(), kMaxCommandBytes);
}

TEST(HostCommand, WhenItBegan) {
  EXPECT_EQ(start_ticks("7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 97000 20 21\n"), 97000);
  EXPECT_EQ(start_ticks("7 (a) S 1 2"), std::nullopt);
  EXPECT_EQ(start_ticks(""), std::nullopt);
  const DurationNs age = utc_now() - host_began_ns();
  EXPECT_GE(age, 0);
  EXPECT_LT(age, 600 * kNsPerSecond);
}

TEST(HostCommand, OfThisProcess) { EXPECT_NE(host_command().find("unit_config"), std::string::npos); }

}  // namespace
}  // namespace mfu

// What reaches a terminal, a table or a label.
#include "core/base/printable.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>

#include "core/base/say.h"

namespace mfu {
namespace {

TEST(Printable, OnlyValidUtf8Remains) {
  EXPECT_EQ(printable("plain", 200), "plain");
  EXPECT_EQ(printable("d\xc3\xa9j\xc3\xa0 \xe2\x82\xac \xf0\x9f\x98\x80", 200),
            "d\xc3\xa9j\xc3\xa0 \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(printable("a\xff"
                      "b\xc3",
                      200),
            "a?b?");
  EXPECT_EQ(printable("\xc0\xaf", 200), "??");            // overlong
  EXPECT_EQ(printable("\xed\xa0\x80", 200), "???");       // a surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80", 200), "????");  // beyond U+10FFFF
  EXPECT_EQ(printable("tab\tnew\n\x7f", 200), "tab?new??");
  EXPECT_EQ(printable("\xe2\x82\xac\xe2\x82\xac", 4), "\xe2\x82\xac");  // cut between characters
}

TEST(Printable, NothingThatATerminalObeys) {
  EXPECT_EQ(printable("a\x1b[31mred\x07"), "a?[31mred?");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "??31m");                             // C1 CSI as UTF-8
  EXPECT_EQ(printable("\xc2\xa0"), "\xc2\xa0");   // the first character behind C1
  EXPECT_EQ(printable("a\xe2\x80\xa8"), "a???");  // a line separator
  EXPECT_EQ(printable("a\xe2\x80\xae"
                      "b"),
            "a???b");  // right-to-left override
  EXPECT_EQ(printable("a\xe2\x81\xa6"
                      "b"),
            "a???b");                                    // isolate
  EXPECT_EQ(printable("\xe2\x80\x90"), "\xe2\x80\x90");  // a hyphen near them
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a?b");
}

TEST(Say, ValuesBeginNoLineOfTheirOwn) {
  EXPECT_EQ(plain_value("a\n[mfu] b\x1b"), "a?[mfu] b?");
  EXPECT_EQ(plain_value(Lines{"a\nb\x1b"}), "a\nb?");
  EXPECT_EQ(plain_value(3), 3);
}

TEST(Say, AShellReadsAWordBack) {
  EXPECT_EQ(shell_word("runs/a-1.jsonl"), "runs/a-1.jsonl");
  EXPECT_EQ(shell_word("-x"), "./-x");
  EXPECT_EQ(shell_word(""), "''");
  std::string all;
  for (int c = 1; c < 256; ++c) all += static_cast<char>(c);
  for (const std::string& text :
       {std::string("it's $HOME `x` \\ \"!\""), std::string("caf\xc3\xa9 *"), std::string("a\n\x1b'\\"), all}) {
    const std::string word = shell_word(text);
    EXPECT_EQ(printable(word), word);
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> shell(
        ::popen(("bash -c " + shell_word("printf %s " + word)).c_str(), "r"), ::pclose);
    std::string back(1024, '\0');
    back.resize(std::fread(back.data(), 1, back.size(), shell.get()));
    EXPECT_EQ(back, text);
  }
}

TEST(Printable, LinesStayLines) {
  EXPECT_EQ(printable_lines("a\x1b\nb\r\n"), "a?\nb?\n");
  EXPECT_EQ(printable_lines("\n\n"), "\n\n");
  EXPECT_EQ(printable_lines(""), "");
}

}  // namespace
}  // namespace mfu

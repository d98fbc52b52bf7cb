// Whole lines or none, in a process that is not ours: full disks, closed streams, broken pipes.
#include "core/base/line_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>

namespace {

// A file system that another machine keeps, as its calls answer here.
bool g_cuts_nothing = false;      ///< ftruncate is refused
bool g_numbers_anew = false;      ///< each look at a file gives another inode number
bool g_refuses_on_close = false;  ///< close says that the quota is used up

}  // namespace

extern "C" int ftruncate(int fd, off_t length) noexcept {
  if (!g_cuts_nothing) return static_cast<int>(::syscall(SYS_ftruncate, fd, length));
  errno = EIO;
  return -1;
}
extern "C" int fstat(int fd, struct stat* info) noexcept {
  static ::ino_t number = 1000;
  const int result = ::fstatat(fd, "", info, AT_EMPTY_PATH);
  if (g_numbers_anew && S_ISREG(info->st_mode)) info->st_ino = ++number;
  return result;
}
extern "C" int close(int fd) {
  const int result = static_cast<int>(::syscall(SYS_close, fd));
  if (!g_refuses_on_close) return result;
  errno = EDQUOT;
  return -1;
}

namespace mfu {
namespace {

class LineFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = (std::filesystem::temp_directory_path() / "line_file_XXXXXX").string();
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    folder_ = path;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  static std::string text(const std::string& path) {
    std::ostringstream all;
    all << std::ifstream(path).rdbuf();
    return all.str();
  }
  /// Exit status of `body` in a child of its own, 128 + signal when one killed it.
  template <typename Body>
  static int in_child(Body&& body) {
    const ::pid_t child = ::fork();
    if (child == 0) ::_exit(body());
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::filesystem::path folder_;
};

TEST_F(LineFileTest, AppendsLinesAndMakesMissingFolders) {
  LineFile file(path("a/b/run.jsonl"));
  EXPECT_EQ(file.kind(), LineFile::Kind::kFile);
  EXPECT_TRUE(file.append("one").ok());
  EXPECT_TRUE(file.append("").ok());
  EXPECT_TRUE(file.append("two").ok());
  EXPECT_EQ(text(file.target()), "one\n\ntwo\n");
}

TEST_F(LineFileTest, AFileThatWasTakenAwayIsMadeAnew) {
  LineFile file(path("x/log"));
  EXPECT_TRUE(file.append("one").ok());
  std::filesystem::remove_all(folder_ / "x");
  EXPECT_TRUE(file.append("two").ok());
  EXPECT_EQ(text(file.target()), "two\n");
}

TEST_F(LineFileTest, KindsByTarget) {
  EXPECT_EQ(LineFile("stderr").kind(), LineFile::Kind::kStderr);
  EXPECT_EQ(LineFile("stdout").kind(), LineFile::Kind::kStdout);
  EXPECT_EQ(LineFile("none").kind(), LineFile::Kind::kNone);
  EXPECT_EQ(LineFile("").kind(), LineFile::Kind::kNone);
  EXPECT_TRUE(LineFile("none").append("nobody reads this").ok());
}

TEST_F(LineFileTest, WhatCannotBeOpenedIsAnErrorThatNamesIt) {
  std::ofstream(path("plain")) << "x";
  LineFile file(path("plain/below"));
  const auto done = file.append("line");
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().message, path("plain/below") + ": cannot be opened: Not a directory");
  EXPECT_FALSE(LineFile(folder_.string()).append("line").ok());
}

TEST_F(LineFileTest, AShortWriteIsTakenBack) {
  const std::string target = path("limited");
  for (const bool ignored : {true, false}) {  // SIGXFSZ kills whoever does not expect it; a host of ours does not
    std::filesystem::remove(target);
    EXPECT_EQ(in_child([&] {
                ::signal(SIGXFSZ, ignored ? SIG_IGN : SIG_DFL);
                LineFile file(target);
                if (!file.append("123456789").ok()) return 1;
                const ::rlimit limit{25, 25};
                if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
                if (!file.append("abcdefghi").ok()) return 3;
                const auto full = file.append("this goes beyond the limit");  // 5 bytes of it fit
                if (full.ok() || full.error().message != target + ": cannot be written: no space left") return 4;
                ::sigset_t pending;
                ::sigpending(&pending);
                if (::sigismember(&pending, SIGXFSZ) != 0) return 5;
                return 0;
              }),
              0);
    EXPECT_EQ(text(target), "123456789\nabcdefghi\n");
  }
}

TEST_F(LineFileTest, AFullDeviceIsAnError) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full";
  const auto done = LineFile("/dev/full").append("line");
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().message, "/dev/full: cannot be written: No space left on device");
}

TEST_F(LineFileTest, AClosedStreamIsAnErrorAndNothingElse) {
  EXPECT_EQ(in_child([] {
              ::close(STDERR_FILENO);
              return LineFile("stderr").append("line").ok() ? 1 : 0;
            }),
            0);
}

TEST_F(LineFileTest, ABrokenPipeRaisesNoSignal) {
  EXPECT_EQ(in_child([] {
              int ends[2];
              if (::pipe(ends) != 0) return 1;
              ::dup2(ends[1], STDOUT_FILENO);
              ::close(ends[0]);
              ::signal(SIGPIPE, SIG_DFL);
              if (LineFile("stdout").append("line").ok()) return 2;
              ::sigset_t pending, mask;
              ::sigpending(&pending);
              ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
              return ::sigismember(&pending, SIGPIPE) == 0 && ::sigismember(&mask, SIGPIPE) == 0 ? 0 : 3;
            }),
            0);
}

TEST_F(LineFileTest, ASignalOfTheHostsOwnStaysPending) {
  EXPECT_EQ(in_child([] {
              ::sigset_t pipe;
              ::sigemptyset(&pipe);
              ::sigaddset(&pipe, SIGPIPE);
              ::pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
              ::raise(SIGPIPE);
              int ends[2];
              if (::pipe(ends) != 0) return 1;
              ::dup2(ends[1], STDOUT_FILENO);
              ::close(ends[0]);
              (void)LineFile("stdout").append("line");
              ::sigset_t pending;
              ::sigpending(&pending);
              return ::sigismember(&pending, SIGPIPE) == 1 ? 0 : 2;
            }),
            0);
}

TEST_F(LineFileTest, KeepsNoDescriptorOpen) {
  LineFile file(path("log"));
  const int before = ::dup(0);
  ::close(before);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(file.append("line").ok());
  const int after = ::dup(0);
  ::close(after);
  EXPECT_EQ(before, after);
}

// --- files whose names we made up, in a folder that others may write to

class OwnFileTest : public LineFileTest {
 protected:
  LineFile ours(const char* name) const { return LineFile(path(name), LineFile::Owner::kOurs); }
};

TEST_F(OwnFileTest, IsMadeOnceAndAppendedTo) {
  LineFile file = ours("run/host-0-1.jsonl");
  EXPECT_TRUE(file.append("one").ok());
  EXPECT_TRUE(file.append("two").ok());
  EXPECT_EQ(text(path("run/host-0-1.jsonl")), "one\ntwo\n");
  EXPECT_EQ(file.target(), path("run/host-0-1.jsonl"));
}

TEST_F(OwnFileTest, AFileOfThatNameIsLeftAlone) {
  std::ofstream(path("a.jsonl")) << "of an earlier process\n";
  LineFile first = ours("a.jsonl");
  EXPECT_TRUE(first.append("one").ok());
  EXPECT_EQ(first.target(), path("a-2.jsonl"));
  LineFile second = ours("a.jsonl");  // two at once: containers that share host name and pid
  EXPECT_TRUE(second.append("two").ok());
  EXPECT_TRUE(first.append("three").ok());
  EXPECT_EQ(text(path("a.jsonl")), "of an earlier process\n");
  EXPECT_EQ(text(path("a-2.jsonl")), "one\nthree\n");
  EXPECT_EQ(text(path("a-3.jsonl")), "two\n");
}

TEST_F(OwnFileTest, LinksAndPipesAreNotFollowed) {
  std::ofstream(path("victim")) << "precious";
  std::filesystem::create_symlink("victim", path("a.jsonl"));
  std::filesystem::create_symlink("nowhere", path("a-2.jsonl"));
  ASSERT_EQ(::mkfifo(path("a-3.jsonl").c_str(), 0666), 0);
  std::filesystem::create_directory(path("a-4.jsonl"));
  LineFile file = ours("a.jsonl");
  EXPECT_TRUE(file.append("line").ok());
  EXPECT_EQ(file.target(), path("a-5.jsonl"));
  EXPECT_EQ(text(path("victim")), "precious");
  EXPECT_FALSE(std::filesystem::exists(path("nowhere")));
}

TEST_F(OwnFileTest, WhatTakesItsPlaceLaterIsNotWrittenTo) {
  std::ofstream(path("victim")) << "precious";
  for (const auto& plant : std::initializer_list<std::function<void()>>{
           [&] { std::filesystem::create_symlink("victim", path("a.jsonl")); },
           [&] { ASSERT_EQ(::mkfifo(path("a.jsonl").c_str(), 0666), 0); },
           [&] { std::filesystem::create_hard_link(path("victim"), path("a.jsonl")); }}) {
    LineFile file = ours("a.jsonl");
    EXPECT_TRUE(file.append("one").ok());
    EXPECT_EQ(file.target(), path("a.jsonl"));
    std::filesystem::remove(path("a.jsonl"));
    plant();
    EXPECT_TRUE(file.append("two").ok());
    EXPECT_EQ(file.target(), path("a-2.jsonl"));
    EXPECT_EQ(text(path("a-2.jsonl")), "two\n");
    EXPECT_EQ(text(path("victim")), "precious");
    std::filesystem::remove(path("a.jsonl"));
    std::filesystem::remove(path("a-2.jsonl"));
  }
}

TEST_F(OwnFileTest, ADirectoryThatWasClearedGetsAFreshFile) {
  LineFile file = ours("run/a.jsonl");
  file.begins_with("start\n");
  EXPECT_TRUE(file.append_bytes("").ok());
  EXPECT_TRUE(file.append("one").ok());
  EXPECT_EQ(text(path("run/a.jsonl")), "start\none\n");
  std::filesystem::remove_all(path("run"));
  EXPECT_TRUE(file.append("two").ok());
  EXPECT_TRUE(file.append("three").ok());
  EXPECT_EQ(text(path("run/a.jsonl")), "start\ntwo\nthree\n");
}

/// Somebody clears the folder again and again, at any moment.
TEST_F(OwnFileTest, EveryFileBeginsWithItsFirstLineWheneverItIsTakenAway) {
  LineFile file = ours("run/a.jsonl");
  file.begins_with("start\n");
  std::atomic<bool> ended{false};
  std::atomic<std::size_t> seen{0};
  std::thread remover([&] {
    for (int n = 0; !ended; ++n) {
      const std::string away = path(("away" + std::to_string(n)).c_str());
      if (::rename(path("run/a.jsonl").c_str(), away.c_str()) == 0) {
        ++seen;
        EXPECT_TRUE(text(away).empty() || text(away).starts_with("start\n")) << text(away);
        std::filesystem::remove(away);
      }
    }
  });
  // On a machine that others use the two threads may run by turns.
  for (int i = 0; i < 20'000 || (seen <= 10 && i < 2'000'000); ++i) EXPECT_TRUE(file.append("line").ok());
  ended = true;
  remover.join();
  EXPECT_GT(seen, 10u);
}

// --- file systems of the network

TEST_F(LineFileTest, ALineBehindAHalfOneBeginsOnALineOfItsOwn) {
  const std::string target = path("limited");
  EXPECT_EQ(in_child([&] {
              LineFile file(target);
              if (!file.append("123456789").ok()) return 1;
              const ::rlimit most{15, RLIM_INFINITY};
              if (::setrlimit(RLIMIT_FSIZE, &most) != 0) return 2;
              g_cuts_nothing = true;
              if (file.append("abcdefghi").ok()) return 3;
              const ::rlimit more{RLIM_INFINITY, RLIM_INFINITY};
              if (::setrlimit(RLIMIT_FSIZE, &more) != 0) return 4;
              return file.append("end").ok() && file.append("more").ok() ? 0 : 5;
            }),
            0);
  EXPECT_EQ(text(target), "123456789\nabcde\nend\nmore\n");
}

TEST_F(OwnFileTest, AFileWhoseNumberChangesIsKnownByItsFirstLine) {
  LineFile file = ours("a.jsonl");
  EXPECT_TRUE(file.append(R"({"type":"start","t_ns":1})").ok());
  g_numbers_anew = true;
  EXPECT_TRUE(file.append("one").ok());
  EXPECT_TRUE(file.append("two").ok());
  EXPECT_EQ(file.target(), path("a.jsonl"));
  std::filesystem::remove(path("a.jsonl"));
  std::ofstream(path("a.jsonl")) << R"({"type":"start","t_ns":2})"
                                 << "\n";
  EXPECT_TRUE(file.append("three").ok());
  g_numbers_anew = false;
  EXPECT_EQ(file.target(), path("a-2.jsonl"));
  EXPECT_EQ(text(path("a.jsonl")), "{\"type\":\"start\",\"t_ns\":2}\n");
}

TEST_F(LineFileTest, AnErrorOfCloseIsOneOfTheLine) {
  LineFile file(path("log"));
  g_refuses_on_close = true;
  const auto done = file.append("line");
  g_refuses_on_close = false;
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().message, path("log") + ": cannot be written: Disk quota exceeded");
}

// --- what others do to a stream or a log

TEST_F(LineFileTest, AStreamThatBecameAnotherFileIsLeftAlone) {
  const std::string database = path("database");
  EXPECT_EQ(in_child([&] {
              LineFile log("stderr");
              ::close(STDERR_FILENO);
              if (::open(database.c_str(), O_WRONLY | O_CREAT, 0644) != STDERR_FILENO) return 1;
              if (log.append("line").ok()) return 2;
              // Closed from the start, opened by the host later.
              ::close(STDERR_FILENO);
              LineFile closed("stderr");
              if (::open(database.c_str(), O_WRONLY | O_CREAT, 0644) != STDERR_FILENO) return 3;
              return closed.append("line").ok() ? 4 : 0;
            }),
            0);
  EXPECT_EQ(text(database), "");
}

TEST_F(LineFileTest, APipeThatNobodyReadsHoldsNobody) {
  EXPECT_EQ(in_child([] {
              int ends[2];
              if (::pipe(ends) != 0) return 1;
              ::dup2(ends[1], STDERR_FILENO);
              LineFile log("stderr");
              const std::string line(1000, 'x');
              int written = 0;
              while (log.append(line).ok()) ++written;  // for ever, if it waited
              if (written < 10) return 2;
              if (log.append(line).ok()) return 3;
              std::string taken(1 << 20, ' ');
              if (::read(ends[0], taken.data(), taken.size()) <= 0) return 4;
              return log.append("again").ok() ? 0 : 5;
            }),
            0);
}

TEST_F(LineFileTest, AFifoThatNobodyReadsIsAnError) {
  ASSERT_EQ(::mkfifo(path("log").c_str(), 0666), 0);
  const auto done = LineFile(path("log")).append("line");
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().message, path("log") + ": cannot be opened: No such device or address");
}

}  // namespace
}  // namespace mfu

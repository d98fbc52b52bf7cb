// Who has CUPTI's records: a busy GPU is nobody's fault, a client that takes them is found, and we come back.
#include "injection/threads/cupti_health.h"

#include <gtest/gtest.h>

namespace mfu {
namespace {

using Action = ClientWatch::Action;
using State = ClientWatch::State;

class ClientWatchTest : public testing::Test {
 protected:
  /// One tick a quarter of a second later.
  ClientWatch::Verdict tick() {
    seen_.now += kNsPerSecond / 4;
    return watch_.look(seen_);
  }
  /// Ticks for `seconds`, with so many launches and records each; returns the last verdict that was not kNothing.
  ClientWatch::Verdict run(double seconds, std::uint64_t launches, std::uint64_t records) {
    ClientWatch::Verdict last;
    for (int i = 0; i < static_cast<int>(seconds * 4); ++i) {
      seen_.launches += launches;
      seen_.records += records;
      if (auto verdict = tick(); verdict.action != Action::kNothing) last = verdict;
    }
    return last;
  }

  /// Somebody else takes the records, and is silent from then on: how long until we register again.
  DurationNs yields_for() {
    run(2, 50, 50);
    ++seen_.refused_calls;
    const TimeNs since = seen_.now;
    EXPECT_EQ(tick().action, Action::kYield);
    ClientWatch::Verdict verdict;
    while (verdict.action == Action::kNothing) verdict = run(0.25, 10, 0);
    EXPECT_EQ(verdict.action, Action::kResume);
    return seen_.now - since;
  }

  ClientWatch watch_;
  CuptiLook seen_{.now = 1000 * kNsPerSecond, .room = 5000};
};

TEST_F(ClientWatchTest, RecordsThatComeAreOurs) {
  EXPECT_EQ(run(100, 50, 50).action, Action::kNothing);
  EXPECT_EQ(watch_.state(), State::kOurs);
}

TEST_F(ClientWatchTest, AnIdleProcessIsNotQuiet) {
  run(2, 50, 50);
  EXPECT_EQ(run(1000, 0, 0).action, Action::kNothing);
  EXPECT_EQ(watch_.state(), State::kOurs);
  EXPECT_EQ(run(1, 50, 0).action, Action::kNothing);  // the time before counts for nothing
  EXPECT_EQ(watch_.state(), State::kOurs);
}

TEST_F(ClientWatchTest, OneLongKernelIsSaidAndNothingElse) {
  run(2, 50, 50);
  const auto verdict = run(60, 10, 0);
  EXPECT_EQ(verdict.action, Action::kSay);
  EXPECT_EQ(verdict.text,
            "no records from CUPTI for 10 s though 410 launches were made: one long kernel, or another profiler");
  EXPECT_EQ(watch_.state(), State::kQuiet);
  EXPECT_EQ(run(1, 10, 10).action, Action::kNothing);
  EXPECT_EQ(watch_.state(), State::kOurs);
  // Said again only where it lasts twice as long.
  EXPECT_EQ(run(15, 10, 0).action, Action::kNothing);
  EXPECT_EQ(run(10, 10, 0).action, Action::kSay);
}

TEST_F(ClientWatchTest, MoreLaunchesThanCanWaitAreEvidence) {
  run(2, 50, 50);
  EXPECT_EQ(run(4, 300, 0).action, Action::kNothing);  // 4,800, and room for 5,000
  const TimeNs since = seen_.now - 4 * kNsPerSecond;
  const auto verdict = run(2, 300, 0);
  EXPECT_EQ(verdict.action, Action::kYield);
  EXPECT_EQ(verdict.since, since);
  EXPECT_EQ(watch_.state(), State::kYielded);
}

TEST_F(ClientWatchTest, ABurstThatIsLongerThanTheRoomIsNoEvidenceAtOnce) {
  run(2, 50, 50);
  seen_.launches += 100'000;  // records of these are a tick away
  EXPECT_EQ(tick().action, Action::kNothing);
  seen_.records += 100'000;
  EXPECT_EQ(tick().action, Action::kNothing);
}

TEST_F(ClientWatchTest, AForeignBufferIsEvidenceAtOnce) {
  run(2, 50, 50);
  seen_.foreign_buffers = 1;
  const auto verdict = tick();
  EXPECT_EQ(verdict.action, Action::kYield);
  EXPECT_EQ(verdict.since, seen_.now - kNsPerSecond / 4);
}

TEST_F(ClientWatchTest, ARefusedCallIsEvidence) {
  run(2, 50, 50);
  seen_.refused_calls = 1;
  EXPECT_EQ(tick().action, Action::kYield);
}

TEST_F(ClientWatchTest, FinishedWorkWithoutARecordIsEvidence) {
  run(2, 50, 50);
  seen_.finished_without_record = 2;  // two graphs without a node, say
  EXPECT_EQ(run(20, 10, 0).action, Action::kSay);
  seen_.finished_without_record = 3;
  EXPECT_EQ(tick().action, Action::kYield);
}

TEST_F(ClientWatchTest, FinishedWorkCountsOnlySinceTheLastRecord) {
  for (int i = 0; i < 100; ++i) {
    seen_.finished_without_record += 2;
    EXPECT_EQ(run(6, 1, 0).action, Action::kNothing);
    run(1, 1, 1);
  }
}

TEST_F(ClientWatchTest, RegistersAgainWhenTheOtherIsGone) {
  EXPECT_NEAR(static_cast<double>(yields_for()), 30e9, 1e9);
  ClientWatch::Verdict verdict = run(0.25, 10, 10);
  EXPECT_EQ(verdict.action, Action::kBack);
  EXPECT_EQ(watch_.state(), State::kOurs);
}

/// In the middle of a long session of Kineto's a registration of ours would take the rows of all that follows.
TEST_F(ClientWatchTest, WhereTheEndWouldBeSeenItIsWaitedForLonger) {
  seen_.ends_are_seen = true;
  EXPECT_NEAR(static_cast<double>(yields_for()), 600e9, 1e9);
}

TEST_F(ClientWatchTest, ABusyOtherIsLeftAlone) {
  run(2, 50, 50);
  for (int i = 0; i < 400; ++i) {
    ++seen_.foreign_buffers;
    EXPECT_NE(run(0.25, 10, 0).action, Action::kResume);
  }
}

TEST_F(ClientWatchTest, GivesUpAfterManyTriesInVainAndNotAfterManySessions) {
  for (int session = 0; session < 50; ++session) {  // a profiler that comes back every few minutes
    run(2, 50, 50);
    ++seen_.refused_calls;
    ASSERT_EQ(tick().action, Action::kYield);
    EXPECT_EQ(run(40, 10, 0).action, Action::kResume) << session;
    EXPECT_EQ(run(0.25, 10, 10).action, Action::kBack);
    run(70, 10, 10);
  }
  ++seen_.refused_calls;
  int tries = 0;
  for (int i = 0; i < 4 * 7200; ++i) tries += run(0.25, 10, 0).action == Action::kResume;
  EXPECT_EQ(tries, 20);
}

TEST_F(ClientWatchTest, TheEndOfASessionBringsUsBackAtOnce) {
  run(2, 50, 50);
  const TimeNs since = seen_.now;
  EXPECT_EQ(run(3, 50, 0).action, Action::kNothing);
  EXPECT_FALSE(watch_.records_are_lost(seen_.now));  // nothing says so yet
  seen_.ended_sessions = 1;
  const auto verdict = tick();
  EXPECT_EQ(verdict.action, Action::kReturn);
  EXPECT_EQ(verdict.since, since);
  EXPECT_EQ(verdict.text,
            "another profiler had CUPTI's records for 3.25 s and has finished: what ran meanwhile is not measured");
  EXPECT_EQ(watch_.state(), State::kOurs);
  EXPECT_EQ(run(100, 50, 50).action, Action::kNothing);
  // And each further one.
  seen_.ended_sessions = 2;
  EXPECT_EQ(tick().action, Action::kReturn);
  EXPECT_EQ(run(1, 50, 0).action, Action::kNothing);
}

TEST_F(ClientWatchTest, TheEndOfASessionThatWeMadeRoomForToo) {
  run(2, 50, 50);
  EXPECT_EQ(run(8, 300, 0).action, Action::kYield);
  EXPECT_TRUE(watch_.records_are_lost(seen_.now));
  seen_.ended_sessions = 1;
  EXPECT_EQ(tick().action, Action::kReturn);
  EXPECT_FALSE(watch_.records_are_lost(seen_.now));
  EXPECT_EQ(run(2, 50, 50).action, Action::kNothing);  // not said a second time
}

TEST_F(ClientWatchTest, AfterATryRecordsAreWaitedForAWhile) {
  run(2, 50, 50);
  EXPECT_EQ(run(8, 300, 0).action, Action::kYield);
  EXPECT_EQ(run(31, 10, 0).action, Action::kResume);
  while (seen_.now % kNsPerSecond != 0) tick();
  EXPECT_EQ(watch_.state(), State::kYielded);
  run(6, 10, 0);
  EXPECT_TRUE(watch_.records_are_lost(seen_.now));
}

}  // namespace
}  // namespace mfu

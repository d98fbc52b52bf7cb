// Jobs that never ran, whose every moment is known: attempts, parts of GPU time, and that they add up.
#include "tools/job/life.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <utility>

namespace mfu {
namespace {

constexpr TimeNs kStarted = 1'795'000'000 * kNsPerSecond;
constexpr double kRate = 1e15, kParams = 1e9;

TimeNs at(double s) { return kStarted + static_cast<DurationNs>(s * 1e9); }

RunInfo run_of(std::int64_t rank, double began_s, std::int64_t world = 4, std::size_t devices = 1) {
  RunInfo run;
  run.host = "node" + std::to_string(rank / 2);
  run.rank = rank;
  run.world_size = world;
  run.t_ns = run.began_ns = at(began_s);
  run.model_json = R"({"params": {"total": 1000000000}})";
  for (std::uint32_t d = 0; d < devices; ++d) {
    run.devices.emplace_back();
    run.devices.back().device = d;
    run.devices.back().peak_flop_per_s = kRate;
  }
  return run;
}

/// A process that does one thing after the other, in windows of a second.
class Process {
 public:
  explicit Process(const RunInfo& run, double length_s = 1)
      : run_(run), now_(seconds(run.t_ns - kStarted)), length_s_(length_s) {
    life_.start(run);
    opened_ = now_;
  }
  /// `what` for a while; "": nothing. \param mfu of a step. \param instance_s how long one takes.
  Process& does(const std::string& what, double s, double mfu = 0.5, double instance_s = 0.1) {
    for (const double end = now_ + s; now_ < end - 1e-9;) {
      const double until = std::min(end, opened_ + length_s_);
      if (!what.empty()) {
        RegionSummary& r = open_[what];
        r.region = what;
        const auto ns = static_cast<DurationNs>(std::llround((until - now_) * 1e9));
        r.elapsed_ns += ns;
        whole_[what] += (until - now_) / instance_s;
        const double ended = std::floor(whole_[what] + 1e-6);
        r.instances += static_cast<std::uint64_t>(ended);
        whole_[what] -= ended;
        r.flop = r.flop.value_or(0) + (what == "step" ? mfu * kRate * seconds(ns) : 0);
      }
      if (saves_in_) {
        const auto ns = static_cast<DurationNs>(std::llround((until - now_) * 1e9));
        for (const std::string& region : {*saves_in_, std::string("total")})
          if (!region.empty()) open_[region].idle_by.push_back({"torch.save", "train.py:7", "main", ns});
      }
      now_ = until;
      if (now_ >= opened_ + length_s_ - 1e-9) close();
    }
    return *this;
  }
  /// Saves a checkpoint in no region: in a call that the host was seen in, or by copies that it begins with.
  Process& calls_save(double s, const std::string& region = "") {
    saves_in_ = region;
    does(region, s);
    saves_in_.reset();
    return *this;
  }
  Process& copies(double s, double bytes) {
    to_host_bytes_ += bytes;
    return does("", s);
  }
  /// Its work does not end for a while, which is known after half a second.
  Process& stalls(double s, const std::string& region = "step") {
    const double since = now_;
    stalled_since_ = since;
    does(region, s, 0, 1e9);
    stalled_since_.reset();
    if (s > 100) return *this;  // its rows alone say so
    RunEvent stalled{at(since + 0.5), "stalled", ""}, resumed{at(now_), "resumed", ""};
    stalled.stall.emplace().since_ns = at(since);
    life_.event(stalled);
    life_.event(resumed);
    return *this;
  }
  /// Ends in peace, or is killed: then the open window is lost.
  const ProcessLife& end(bool in_peace = true) {
    if (in_peace) {
      close();
      life_.end(at(now_));
    }
    return life_;
  }
  [[nodiscard]] double now() const { return now_; }

 private:
  void close() {
    WindowSummary window;
    window.window = {at(opened_), at(now_)};
    if (stalled_since_ && now_ > *stalled_since_ + 0.5) window.stall.emplace().since_ns = at(*stalled_since_);
    open_["total"].to_host_bytes = std::exchange(to_host_bytes_, 0);
    for (auto& [name, row] : open_)
      for (const DeviceInfo& device : run_.devices) {
        window.regions.push_back(row);
        window.regions.back().region = name;
        window.regions.back().device = device.device;
      }
    open_.clear();
    opened_ = now_;
    if (window.window.length_ns() > 0) life_.window(window);
  }

  RunInfo run_;
  ProcessLife life_;
  double now_, opened_ = 0, length_s_;
  std::map<std::string, RegionSummary> open_;
  std::map<std::string, double> whole_;
  std::optional<std::string> saves_in_;
  std::optional<double> stalled_since_;
  double to_host_bytes_ = 0;
};

/// The parts add up to ranks x wall, to the nanosecond.
void expect_all_is_there(const JobLife& job) {
  Count sum = 0;
  for (const Count part : job.parts) sum += part;
  EXPECT_TRUE(sum == Count(job.wall_ns) * Count(static_cast<std::int64_t>(job.gpus)));
}

TEST(Life, KilledAndStartedAgain) {
  // 10 s of which the checkpoint at 6 s is the last one, dead for 8 s, 12 s more.
  Process first(run_of(0, 0, 1)), second(run_of(0, 18, 1));
  first.does("", 2).does("step", 3).does("checkpoint", 1).does("step", 4);
  second.does("", 3).does("step", 9);
  const JobLife job = job_life({&first.end(false), &second.end()});
  expect_all_is_there(job);
  ASSERT_EQ(job.attempts.size(), 2u);
  EXPECT_FALSE(job.attempts[0].ended);
  EXPECT_TRUE(job.attempts[1].ended);
  EXPECT_NEAR(job.gpu_s(LifePart::kRestart), 8, 1e-6);
  EXPECT_NEAR(job.gpu_s(LifePart::kStartUp), 5, 1e-6);
  EXPECT_NEAR(job.gpu_s(LifePart::kCheckpoint), 1, 1e-6);
  EXPECT_NEAR(job.gpu_s(LifePart::kRepeated), 4, 1e-6);
  EXPECT_NEAR(job.gpu_s(LifePart::kProductive), 12, 1e-6);
  EXPECT_NEAR(*job.mfu, 0.5, 1e-6);
  EXPECT_NEAR(*job.alive(), 22.0 / 30, 1e-6);
  EXPECT_NEAR(*job.productive(), 12.0 / 22, 1e-6);
  EXPECT_NEAR(*job.job_mfu(), 0.5 * 12 / 30, 1e-6);
  EXPECT_EQ(
      job.text(),
      "job MFU 20.0 % = 50.0 % in steps x 55 % productive x 73 % alive; 18 GPU-seconds lost: restarts 8, start-up 5, "
      "repeated steps 4, checkpoints 1");
}

TEST(Life, WithoutACheckpointMfuIsABound) {
  Process first(run_of(0, 0, 1)), second(run_of(0, 12, 1));
  first.does("step", 10);
  second.does("step", 8);
  const JobLife job = job_life({&first.end(false), &second.end()});
  EXPECT_FALSE(job.repeated_known);
  EXPECT_TRUE(job.text().starts_with("job MFU at most 45.0 % = ")) << job.text();
  EXPECT_TRUE(job.text().ends_with("; repeated steps unknown: no checkpoint was seen")) << job.text();
}

TEST(Life, ACheckpointIsKnownByItsCallAndByItsCopies) {
  for (const int how : {0, 1, 2}) {
    Process first(run_of(0, 0, 1)), second(run_of(0, 18, 1));
    first.does("", 2).does("step", 3);
    if (how == 0) first.calls_save(1);
    if (how == 1) first.calls_save(1, "step");
    if (how == 2) first.copies(1, 2 * kParams);
    first.does("step", 4);
    second.does("", 3).does("step", 9);
    const JobLife job = job_life({&first.end(false), &second.end()});
    expect_all_is_there(job);
    EXPECT_NEAR(job.gpu_s(LifePart::kCheckpoint), 1, 1e-6) << how;
    EXPECT_NEAR(job.gpu_s(LifePart::kRepeated), 4, 1e-6) << how;
    EXPECT_TRUE(job.repeated_known);
  }
}

TEST(Life, CopiesAreACheckpointWhereThoseOfAllRanksAddUpToTheWeights) {
  for (const double bytes_per_param : {0.5, 1.0, 16.0}) {
    std::deque<Process> all;
    std::vector<const ProcessLife*> lives;
    for (int rank = 0; rank < 4; ++rank) {
      Process& p = all.emplace_back(run_of(rank, 0));
      // A loss of four bytes per step, and samples for a log.
      for (int i = 0; i < 4; ++i) p.does("step", 2.5).copies(0.5, 4);
      // Written for long after the copies, which two windows have.
      p.does("step", 2.5)
          .copies(0.5, bytes_per_param * kParams / 8)
          .copies(4, bytes_per_param * kParams / 8)
          .does("step", 5);
      lives.push_back(&p.end());
    }
    const JobLife job = job_life(lives);
    expect_all_is_there(job);
    EXPECT_NEAR(job.gpu_s(LifePart::kCheckpoint), bytes_per_param < 1 ? 0 : 4 * 4.5, 1e-6) << bytes_per_param;
    EXPECT_NEAR(job.gpu_s(LifePart::kOutside), 4 * (bytes_per_param < 1 ? 6.5 : 2), 1e-6) << bytes_per_param;
  }
}

TEST(Life, WhatIsSwappedOutIsNoCheckpoint) {
  Process offloads(run_of(0, 0, 1)), serves(run_of(0, 0, 1));
  for (int i = 0; i < 20; ++i) offloads.does("step", 0.5).copies(0.5, 2 * kParams);
  serves.does("decode", 5).copies(1, 2 * kParams).does("decode", 5);
  for (Process* p : {&offloads, &serves}) {
    const JobLife job = job_life({&p->end()});
    expect_all_is_there(job);
    EXPECT_EQ(job.checkpoints, 0u);
    EXPECT_NEAR(job.gpu_s(LifePart::kCheckpoint), 0, 1e-6);
  }
}

TEST(Life, WorkThatDoesNotEndIsAStall) {
  Process hung(run_of(0, 0, 2)), waits(run_of(1, 0, 2)), again(run_of(0, 30, 2)), too(run_of(1, 30, 2));
  hung.does("", 2).does("step", 4.5).stalls(12.5);
  waits.does("", 2).does("step", 5).stalls(12, "");
  again.does("step", 10);
  too.does("step", 9).does("", 1).stalls(150, "");
  const JobLife job = job_life({&hung.end(false), &waits.end(false), &again.end(), &too.end(false)});
  expect_all_is_there(job);
  EXPECT_NEAR(job.gpu_s(LifePart::kStalled), 24.5 + 150, 1e-6);
  EXPECT_NEAR(job.gpu_s(LifePart::kRestart), 22, 1e-6);
  EXPECT_NEAR(job.gpu_s(LifePart::kProductive), 28.5, 1e-6);  // no checkpoint: nothing is known to be repeated
  EXPECT_NE(job.text().find("stalls 2.91"), std::string::npos) << job.text();
}

TEST(Life, WhoWaitsForACheckpointIsNotStalled) {
  Process saves(run_of(0, 0, 2)), waits(run_of(1, 0, 2));
  saves.does("step", 5).does("checkpoint", 6).does("step", 5);
  waits.does("step", 5).stalls(8).does("step", 3);
  const JobLife job = job_life({&saves.end(), &waits.end()});
  expect_all_is_there(job);
  EXPECT_NEAR(job.gpu_s(LifePart::kCheckpoint), 12, 1e-6);
  EXPECT_NEAR(job.gpu_s(LifePart::kStalled), 2, 1e-6);
  EXPECT_NEAR(job.gpu_s(LifePart::kProductive), 18, 1e-6);
}

TEST(Life, ManyCheckpointsAreCounted) {
  for (const int many : {10, 100, 1000}) {
    std::deque<Process> all;
    std::vector<const ProcessLife*> lives;
    for (int rank = 0; rank < 3; ++rank) {
      Process& p = all.emplace_back(run_of(rank, 0, 3));
      for (int i = 0; i < many; ++i) p.does("step", 17).does(rank == 0 ? "checkpoint" : "", 3);
      lives.push_back(&p.end());
    }
    const JobLife job = job_life(lives);
    expect_all_is_there(job);
    EXPECT_EQ(job.checkpoints, static_cast<std::uint64_t>(many));
    EXPECT_NEAR(*job.checkpoint_period_s, 20, 1e-6);
    EXPECT_NEAR(job.gpu_s(LifePart::kCheckpoint), 3 * 3 * many, 1e-6);
  }
}

TEST(Life, OthersMayGoOnWhileOneSaves) {
  Process saves(run_of(0, 0, 2)), goes_on(run_of(1, 0.3, 2));
  saves.does("step", 5).does("checkpoint", 2.5).does("step", 5);
  goes_on.does("step", 12);
  const JobLife job = job_life({&saves.end(), &goes_on.end()});
  expect_all_is_there(job);
  EXPECT_NEAR(job.gpu_s(LifePart::kCheckpoint), 2.5, 1e-6);
  EXPECT_NEAR(job.gpu_s(LifePart::kProductive), 22, 1e-6);
  EXPECT_EQ(job.checkpoints, 1u);
}

TEST(Life, WorkThatDoesNotEndBeforeTheFirstStep) {
  Process p(run_of(0, 0, 1)), never(run_of(1, 0, 1));
  p.does("", 2).stalls(5, "").does("step", 5);
  never.does("", 2).stalls(10, "");
  const JobLife job = job_life({&p.end(), &never.end(false)});
  expect_all_is_there(job);
  EXPECT_NEAR(job.gpu_s(LifePart::kStalled), 15, 1e-6);
  EXPECT_NEAR(job.gpu_s(LifePart::kStartUp), 4, 1e-6);
}

TEST(Life, OneRankWritesTheCheckpointOfAll) {
  std::deque<Process> all;
  std::vector<const ProcessLife*> lives;
  for (int attempt = 0; attempt < 2; ++attempt)
    for (int rank = 0; rank < 4; ++rank) {
      Process& p = all.emplace_back(run_of(rank, attempt * 20));
      p.does("step", 4).does(rank == 0 ? "save_checkpoint" : "", 2).does("step", 4);
      lives.push_back(&p.end(attempt == 1));
    }
  const JobLife job = job_life(lives);
  expect_all_is_there(job);
  EXPECT_EQ(job.attempts.size(), 2u);
  EXPECT_NEAR(job.gpu_s(LifePart::kRepeated), 4 * 4, 1e-6);
  EXPECT_NEAR(job.gpu_s(LifePart::kCheckpoint), 2 * 2 * 4, 1e-6);  // the others wait
  EXPECT_NEAR(job.gpu_s(LifePart::kOutside), 0, 1e-6);
  EXPECT_EQ(job.checkpoints, 2u);
  EXPECT_NEAR(*job.checkpoint_period_s, 20, 1e-6);
  EXPECT_NEAR(job.gpu_s(LifePart::kRestart), 4 * 10, 1e-6);
}

TEST(Life, ALauncherSaysWhichProcessesBeganTogether) {
  // Rank 1 of the second start comes so late that rank 0 of the third is there already, by its clock.
  std::deque<Process> all;
  std::vector<const ProcessLife*> lives;
  for (const auto& [rank, begin, restart] :
       {std::tuple(0, 0, 0), {1, 0, 0}, {0, 20, 1}, {1, 31, 1}, {0, 30, 2}, {1, 40, 2}}) {
    RunInfo run = run_of(rank, begin, 2);
    run.job_id = "slurm-7";
    run.restart = restart;
    lives.push_back(&all.emplace_back(run).does("step", 8).end(false));
  }
  const JobLife job = job_life(lives);
  expect_all_is_there(job);
  ASSERT_EQ(job.attempts.size(), 3u);
  for (const Attempt& a : job.attempts) EXPECT_EQ(a.processes, 2u);
}

TEST(Life, BetweenTwoJobsOfASchedulerNothingIsLost) {
  for (const bool same : {true, false}) {
    RunInfo a = run_of(0, 0, 1), b = run_of(0, 100, 1);
    a.job_id = "slurm-7";
    b.job_id = same ? "slurm-7" : "slurm-8";
    Process first(a), second(b);
    first.does("step", 10);
    second.does("step", 10);
    const JobLife job = job_life({&first.end(), &second.end()});
    expect_all_is_there(job);
    EXPECT_NEAR(job.gpu_s(same ? LifePart::kRestart : LifePart::kAway), 90, 1e-6);
    EXPECT_NEAR(*job.alive(), same ? 20.0 / 110 : 1, 1e-6);
  }
}

TEST(Life, RanksThatComeAndGo) {
  // Four ranks, then two, then four again.
  std::deque<Process> all;
  std::vector<const ProcessLife*> lives;
  const auto attempt = [&](double begin, int world) {
    for (int rank = 0; rank < world; ++rank)
      lives.push_back(&all.emplace_back(run_of(rank, begin, world)).does("step", 10).end(false));
  };
  attempt(0, 4);
  attempt(12, 2);
  attempt(24, 4);
  const JobLife job = job_life(lives);
  expect_all_is_there(job);
  EXPECT_EQ(job.attempts.size(), 3u);
  EXPECT_NEAR(job.gpu_s(LifePart::kAway), 2 * 10, 1e-6);
  EXPECT_NEAR(job.gpu_s(LifePart::kRestart), 4 * 4, 1e-6);
}

TEST(Life, WarmUpIsTheTimeBeyondTheMedian) {
  Process p(run_of(0, 0, 1));
  p.does("", 5).does("step", 20, 0.01, 20).does("step", 40);
  const JobLife job = job_life({&p.end()});
  expect_all_is_there(job);
  EXPECT_NEAR(job.gpu_s(LifePart::kWarmUp), 20, 1);
  EXPECT_NEAR(job.gpu_s(LifePart::kStartUp), 5, 1e-6);
}

TEST(Life, EvaluationAndGenerationBetweenSteps) {
  Process p(run_of(0, 0, 1));
  p.does("step", 10).does("eval", 3).does("decode", 2).does("", 1).does("step", 10);
  const JobLife job = job_life({&p.end()});
  EXPECT_NEAR(job.gpu_s(LifePart::kEvaluation), 5, 1e-6);
  EXPECT_NEAR(job.gpu_s(LifePart::kOutside), 1, 1e-6);
}

TEST(Life, AServerIsInItsPasses) {
  Process p(run_of(0, 0, 1));
  p.does("", 4).does("prefill", 2).does("decode", 6).does("", 8);
  const JobLife job = job_life({&p.end()});
  EXPECT_NEAR(job.gpu_s(LifePart::kProductive), 8, 1e-6);
  EXPECT_NEAR(job.gpu_s(LifePart::kStartUp), 4, 1e-6);
  EXPECT_NEAR(job.gpu_s(LifePart::kOutside), 8, 1e-6);
}

TEST(Life, SeveralDevicesCountAsSeveral) {
  Process p(run_of(0, 0, 1, 8));
  p.does("step", 10);
  const JobLife job = job_life({&p.end()});
  EXPECT_EQ(job.gpus, 8u);
  EXPECT_NEAR(job.gpu_s(LifePart::kProductive), 80, 1e-6);
  EXPECT_NEAR(*job.job_mfu(), 0.5, 1e-6);
}

TEST(Life, TwoProgramsOfOneRankAtATimeAreNoAttempts) {
  Process a(run_of(0, 0, 1)), b(run_of(0, 3, 1));
  a.does("step", 10);
  b.does("step", 10);
  const JobLife job = job_life({&a.end(), &b.end()});
  EXPECT_EQ(job.attempts.size(), 1u);
  EXPECT_EQ(job.gpus, 2u);
  EXPECT_NEAR(job.gpu_s(LifePart::kRestart), 0, 1e-6);
}

TEST(Life, NothingOfAJobThatHasNoProcess) {
  const JobLife job = job_life({});
  EXPECT_EQ(job.text(), "");
  EXPECT_FALSE(job.job_mfu());
  ProcessLife only_started;
  only_started.start(run_of(0, 0));
  EXPECT_EQ(job_life({&only_started}).text(), "");
}

/// Any job at all: the parts add up, none is negative, each is what happened to within a window of each of its
/// processes, and the order of the files and the clock of a host change nothing.
TEST(Life, EveryJobAddsUp) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    const auto in = [&](double low, double high) { return std::uniform_real_distribution<>(low, high)(random); };
    const auto upto = [&](int most) { return std::uniform_int_distribution<>(0, most)(random); };
    const int attempts = 1 + upto(3), world = 1 + upto(7);
    const double length = in(0.2, 2);
    const int how = upto(2);
    std::deque<Process> all;
    std::array<double, kLifeParts> truth{};
    const auto of = [&](LifePart part) -> double& { return truth[static_cast<std::size_t>(part)]; };
    double begin = 0, last_end = 0;
    std::vector<double> before(static_cast<std::size_t>(world), 0);
    for (int a = 0; a < attempts; ++a) {
      const bool last = a + 1 == attempts;
      double end = begin;
      const double load = in(1, 5), save = in(0.2, 3);
      const int rounds = 1 + upto(3);
      std::vector<double> stretches;
      for (int i = 0; i <= rounds; ++i) stretches.push_back(in(2, 15));
      std::vector<double> stalls;
      for (int i = 0; i < rounds; ++i) stalls.push_back(upto(3) == 0 ? in(3, 20) : 0);
      for (int rank = 0; rank < world; ++rank) {
        const double late = rank == 0 ? 0 : in(0, 1);
        Process& p = all.emplace_back(run_of(rank, begin + late, world), length);
        of(a == 0 ? LifePart::kStartUp : LifePart::kRestart) += begin + late - before[static_cast<std::size_t>(rank)];
        p.does("", load - late);
        of(LifePart::kStartUp) += load - late;
        for (int i = 0; i <= rounds; ++i) {
          p.does("step", stretches[static_cast<std::size_t>(i)]);
          const bool lost = i == rounds && !last;
          of(lost ? LifePart::kRepeated : LifePart::kProductive) += stretches[static_cast<std::size_t>(i)];
          if (i == rounds) break;
          if (how == 0 || rank != 0) p.does(rank == 0 ? "checkpoint" : "", save);
          if (how == 1 && rank == 0) p.calls_save(save);
          if (how == 2 && rank == 0) p.copies(save, 2 * kParams);
          of(LifePart::kCheckpoint) += save;  // the others wait
          const double stalled = stalls[static_cast<std::size_t>(i)];
          if (stalled == 0) continue;
          p.does("step", 2).stalls(stalled);
          of(i + 1 == rounds && !last ? LifePart::kRepeated : LifePart::kProductive) += 2;
          of(LifePart::kStalled) += stalled;
        }
        (void)p.end(last);
        end = std::max(end, p.now());
        before[static_cast<std::size_t>(rank)] = p.now();
      }
      last_end = end;
      begin = end + in(0.5, 30);
    }
    std::vector<const ProcessLife*> lives;
    for (Process& p : all) lives.push_back(&p.end(false));
    const JobLife job = job_life(lives);
    expect_all_is_there(job);
    EXPECT_EQ(job.attempts.size(), static_cast<std::size_t>(attempts)) << seed;
    EXPECT_EQ(job.gpus, static_cast<std::uint64_t>(world));
    EXPECT_NEAR(seconds(job.wall_ns), last_end, length + 1e-6);
    // A window at each end of each process, and at each checkpoint.
    const double room = length * world * attempts * 4 + 1e-6;
    for (std::size_t part = 0; part < kLifeParts; ++part)
      EXPECT_NEAR(job.gpu_s(static_cast<LifePart>(part)), truth[part], room)
          << kLifePartNames[part] << ", seed " << seed;
    std::shuffle(lives.begin(), lives.end(), random);
    const JobLife shuffled = job_life(lives);
    EXPECT_TRUE(shuffled.parts == job.parts) << seed;
    EXPECT_EQ(shuffled.text(), job.text());
  }
}

}  // namespace
}  // namespace mfu

// Jobs that never ran, whose every moment is known: attempts, parts of GPU time, and that they add up.
#include "tools/job/life.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>

namespace mfu {
namespace {

constexpr TimeNs kStarted = 1'795'000'000 * kNsPerSecond;
constexpr double kRate = 1e15;

TimeNs at(double s) { return kStarted + static_cast<DurationNs>(s * 1e9); }

RunInfo run_of(std::int64_t rank, double began_s, std::int64_t world = 4, std::size_t devices = 1) {
  RunInfo run;
  run.host = "node" + std::to_string(rank / 2);
  run.rank = rank;
  run.world_size = world;
  run.t_ns = run.began_ns = at(began_s);
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
      now_ = until;
      if (now_ >= opened_ + length_s_ - 1e-9) close();
    }
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
    for (auto& [name, row] : open_)
      for (const DeviceInfo& device : run_.devices) {
        window.regions.push_back(row);
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
  EXPECT_NEAR(job.gpu_s(LifePart::kCheckpoint), 2 * 2, 1e-6);
  EXPECT_NEAR(job.gpu_s(LifePart::kOutside), 2 * 2 * 3, 1e-6);
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
          p.does(rank == 0 ? "checkpoint" : "", save);
          of(rank == 0 ? LifePart::kCheckpoint : LifePart::kOutside) += save;
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

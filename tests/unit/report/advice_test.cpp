// What a report says without being asked: ranks that stand out, and what is worth doing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <map>

#include "tests/unit/report/fake_job.h"
#include "tests/unit/trace/trace_text.h"
#include "tools/report/opportunities.h"
#include "tools/report/rank_notes.h"
#include "tools/report/run_source.h"

namespace mfu {
namespace {

using testing_job::history;
using testing_job::job_of;

TEST(RankNotes, NameTheSlowestThoseThatDifferAndThoseWithoutMfu) {
  std::vector<RunHistory> ranks;
  for (int r = 0; r < 12; ++r) ranks.push_back(history(r, {60, 20, 0, 0, 20}, r == 7 ? 0.25 : r == 3 ? 0.55 : 0.50));
  for (WindowSummary* window :
       {&ranks[5].windows[0], &ranks[5].windows[1], &ranks[5].windows[2], &ranks[5].windows[3], &*ranks[5].end})
    for (RegionSummary& r : window->regions) r.flop = r.mfu = r.hfu = std::nullopt;
  const std::vector<std::string> notes = rank_notes(job_of(ranks));
  ASSERT_EQ(notes.size(), 3u);
  EXPECT_EQ(notes[0], "slowest: rank 7 gpu0 (node) with 25.0 % in step; the median is 50.0 %");
  EXPECT_EQ(notes[1], "differ from the others: rank 7 gpu0 (node) 25.0 %, rank 3 gpu0 (node) 55.0 %");
  EXPECT_EQ(notes[2], "1 of 12 ranks have no MFU");
  EXPECT_TRUE(rank_notes(job_of({history(0, {60, 20, 0, 0, 20}, 0.5)})).empty()) << "one rank has no others";
  EXPECT_TRUE(rank_notes(job_of({ranks[0], ranks[1], ranks[2]})).empty()) << "all alike";
  EXPECT_TRUE(rank_notes(Job{}).empty());
}

TEST(Opportunities, SayWhatARegionWouldGainWithoutAClass) {
  // 55 % matmul of which 40 points are MFU, 20 % other, 25 % idle: 15 points of matmul loss.
  const Job job = job_of({history(0, {55, 20, 0, 0, 25}, 0.4)});
  const std::vector<Opportunity> found = opportunities(job);
  ASSERT_EQ(found.size(), 3u);
  std::map<TimeClass, const Opportunity*> by_class;
  for (const Opportunity& o : found) by_class[o.time_class] = &o;
  EXPECT_NEAR(*by_class.at(TimeClass::kIdle)->gain, 1 / 0.75, 1e-9);
  EXPECT_NEAR(*by_class.at(TimeClass::kMatmul)->gain, 1 / 0.85, 1e-9);
  EXPECT_EQ(found.back().time_class, TimeClass::kMatmul) << "least time last";
  EXPECT_EQ(by_class.at(TimeClass::kIdle)->what, "idle 25.0 %");
  EXPECT_EQ(by_class.at(TimeClass::kOther)->what, "other kernels 20.0 %; softmax alone is 20.0 %, 16 ms each");
  EXPECT_EQ(
      opportunity_text(*by_class.at(TimeClass::kMatmul)),
      "step: matmuls below the peak 15.0 %: they reach 72.7 % of it, the longest is gemm, 22 ms each, up to 1.18x");
  EXPECT_TRUE(opportunities(job_of({history(0, {99, 0, 1, 0, 0}, 0.985)})).empty()) << "nothing of 2 %";
  EXPECT_TRUE(opportunities(Job{}).empty());
}

/// The advice on one class of a run whose rows `change` makes; empty: none.
std::string advice_on(TimeClass c, std::array<int, kTimeClasses> share, double mfu,
                      const std::function<void(RegionSummary&)>& change) {
  RunHistory h = history(0, share, mfu);
  for (RegionSummary& r : h.end->regions) change(r);
  for (const Opportunity& o : opportunities(job_of({h})))
    if (o.time_class == c) return o.what + " " + o.advice;
  return "";
}

IdleGaps gaps_of(const RegionSummary& r, double under_20us, double under_1ms, double before, double after) {
  const auto idle = static_cast<double>(r.time_ns[static_cast<std::size_t>(TimeClass::kIdle)]);
  IdleGaps gaps;
  gaps.under_20us = std::llround(under_20us * idle);
  gaps.under_1ms = std::llround(under_1ms * idle);
  gaps.before = std::llround(before * idle);
  gaps.after = std::llround(after * idle);
  gaps.fit(std::llround(idle));
  return gaps;
}

TEST(Opportunities, IdleTimeIsAdvisedByItsGaps) {
  const auto idle = [](double under_20us, double under_1ms, double before, double after) {
    return advice_on(TimeClass::kIdle, {60, 20, 0, 0, 20}, 0.3,
                     [&](RegionSummary& r) { r.idle_gaps = gaps_of(r, under_20us, under_1ms, before, after); });
  };
  const std::string starved = idle(0.03, 0.2, 0.73, 0);
  EXPECT_NE(starved.find("73.0 % of it before the first kernel of an instance, mostly in gaps of 1 ms"),
            std::string::npos)
      << starved;
  EXPECT_NE(starved.find("data-loader"), std::string::npos) << starved;
  EXPECT_EQ(starved.find("CUDA graphs"), std::string::npos) << "a starved GPU has no launches to spare: " << starved;
  const std::string launches = idle(0.9, 0.1, 0.1, 0);
  EXPECT_NE(launches.find("90.0 % of it in gaps below 20 µs; 22 launches per instance"), std::string::npos) << launches;
  EXPECT_NE(launches.find("CUDA graphs"), std::string::npos) << launches;
  EXPECT_EQ(launches.find("data-loader"), std::string::npos) << launches;
  const std::string slow_host = idle(0.1, 0.8, 0, 0);
  EXPECT_NE(slow_host.find("90.0 % of it in gaps below 1 ms"), std::string::npos) << slow_host;
  const std::string at_the_end = idle(0, 0.1, 0.1, 0.8);
  EXPECT_NE(at_the_end.find("80.0 % of it behind the last kernel"), std::string::npos) << at_the_end;
  const std::string inside = idle(0, 0.1, 0.2, 0.2);
  EXPECT_NE(inside.find("90.0 % of it in gaps of 1 ms and more The host stops in between"), std::string::npos)
      << inside;
  EXPECT_EQ(inside.find("data-loader"), std::string::npos) << inside;
  // Rows of older versions do not say.
  const std::string unknown =
      advice_on(TimeClass::kIdle, {60, 20, 0, 0, 20}, 0.3, [](RegionSummary& r) { r.idle_gaps.reset(); });
  EXPECT_NE(unknown.find("how long its gaps were is not known"), std::string::npos) << unknown;
}

/// Its instances begin with the GPU idle, too, but no data loader is late.
TEST(Opportunities, ARegionThatIsACheckpointWaitsForNoInput) {
  const std::string text = advice_on(TimeClass::kIdle, {0, 0, 0, 0, 100}, 0, [](RegionSummary& r) {
    if (r.region == "step") r.region = "save_checkpoint";
    r.idle_gaps = gaps_of(r, 0, 0, 1, 0);
  });
  EXPECT_NE(text.find("Checkpoints stop the GPU"), std::string::npos) << text;
  EXPECT_EQ(text.find("data-loader"), std::string::npos) << text;
}

TEST(Opportunities, IdleTimeIsAdvisedByItsCause) {
  const auto idle = [](const std::string& cause, int percent) {
    return advice_on(TimeClass::kIdle, {60, 20, 0, 0, 20}, 0.3, [&](RegionSummary& r) {
      r.idle_gaps = gaps_of(r, 0.9, 0, 0, 0);
      r.idle_by = {{cause, "train.py:57", "main", r.elapsed_ns * percent / 100},
                   {"launching", "", "", r.elapsed_ns * (20 - percent) / 100}};
    });
  };
  const std::string loader = idle("DataLoader.__next__", 15);
  EXPECT_TRUE(loader.starts_with("idle 20.0 %: DataLoader.__next__ train.py:57 15.0, launching 5.0 ")) << loader;
  EXPECT_NE(loader.find("num_workers"), std::string::npos) << loader;
  EXPECT_NE(idle("gc", 15).find("gc.freeze()"), std::string::npos);
  EXPECT_NE(idle("load_batch", 15).find("The program is busy there"), std::string::npos);
  for (const char* save : {"torch.save", "dist.checkpoint", "Trainer._save_checkpoint", "model.save_pretrained"})
    EXPECT_NE(idle(save, 15).find("Checkpoints stop the GPU"), std::string::npos) << save;
  EXPECT_EQ(idle("pyplot.savefig", 15).find("Checkpoints"), std::string::npos);
  // A small part of the idle time, or none that the program has a part in: by the gaps.
  EXPECT_NE(idle("gc", 2).find("gaps below 20 µs"), std::string::npos);
  EXPECT_NE(idle("", 15).find("gaps below 20 µs"), std::string::npos);
}

/// ResNet-50 of the PyTorch profiler's tutorial: DataLoader.__next__ takes 62 to 73 ms of each step, and the GPU waits.
TEST(Opportunities, ATraceThatWaitsForItsDataLoaderIsSentThere) {
  JobBuilder builder("trace", true);
  const std::string path = std::string(MFU_TEST_DATA) + "/traces/kineto_resnet50_v100_w0.json.gz";
  const auto done = for_each_process(
      {path, {}, nullptr},
      [&](RunHistory&& h) -> Result<void> {
        builder.add(h);
        return {};
      },
      [](const std::string&) {});
  ASSERT_TRUE(done.ok()) << done.error().message;
  const Job job = builder.finish();
  const RegionSummary& step = job.find("step")->sum();
  const DurationNs idle_ns = step.time_ns[static_cast<std::size_t>(TimeClass::kIdle)];
  ASSERT_TRUE(step.idle_gaps.has_value());
  EXPECT_EQ(step.idle_gaps->under_20us + step.idle_gaps->under_1ms + step.idle_gaps->longer, idle_ns);
  EXPECT_EQ(step.idle_gaps->before + step.idle_gaps->inside + step.idle_gaps->after, idle_ns);
  EXPECT_GT(step.idle_gaps->longer, idle_ns / 10 * 7) << "five gaps of 48 to 62 ms";
  EXPECT_LT(step.idle_gaps->under_20us, idle_ns / 20);
  const std::vector<Opportunity> found = opportunities(job);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].time_class, TimeClass::kIdle);
  EXPECT_NE(found[0].what.find("before the first kernel"), std::string::npos) << found[0].what;
  EXPECT_NE(found[0].advice.find("data-loader"), std::string::npos) << found[0].advice;
  EXPECT_EQ(found[0].advice.find("CUDA graphs"), std::string::npos) << found[0].advice;
}

TEST(Opportunities, OtherKernelsAreFusedWhereTheyAreManyAndShort) {
  const auto other = [](std::uint64_t count) {
    return advice_on(TimeClass::kOther, {60, 20, 0, 0, 20}, 0.3,
                     [&](RegionSummary& r) { r.top_kernels[1].count = count; });
  };
  const std::string many = other(80'000);
  EXPECT_NE(many.find("80,000 of 10 µs on average, softmax most of all"), std::string::npos) << many;
  EXPECT_NE(many.find("Fuse element-wise work"), std::string::npos) << many;
  const std::string one = other(40);
  EXPECT_NE(one.find("softmax alone is 20.0 %, 20 ms each"), std::string::npos) << one;
  EXPECT_EQ(one.find("Fuse"), std::string::npos) << "one kernel has nothing to be fused with: " << one;
}

TEST(Opportunities, CommunicationIsOverlappedOnlyWhereItIsNotYet) {
  const auto comm = [](double hidden) {
    return advice_on(TimeClass::kComm, {60, 10, 20, 0, 10}, 0.3, [&](RegionSummary& r) {
      r.comm_kernels = 400;
      r.comm_sum_ns = std::llround(static_cast<double>(r.time_ns[2]) / (1 - hidden));
    });
  };
  const std::string exposed = comm(0);
  EXPECT_NE(exposed.find("100.0 % of the time of 400 kernels of 2 ms each, with no compute beside them"),
            std::string::npos)
      << exposed;
  EXPECT_NE(exposed.find("Overlap it"), std::string::npos) << exposed;
  const std::string hidden = comm(0.8);
  EXPECT_NE(hidden.find("20.0 % of the time of 400 kernels"), std::string::npos) << hidden;
  EXPECT_EQ(hidden.find("Overlap it"), std::string::npos) << hidden;
}

/// Five steps of 2 ms: 1 ms of matmul, and a copy of 1 ms on another stream that begins `late_us` after it.
std::vector<Opportunity> advised_with_copies(long late_us) {
  TraceText trace;
  for (int i = 0; i < 5; ++i) {
    const long at = 10'000 + 2'000 * i;
    trace.range("ProfilerStep#" + std::to_string(i), at, at + 2'000);
    trace.launch(2 * i + 1, at).kernel("ampere_sgemm_128x64", at, at + 1'000, 2 * i + 1);
    trace.launch(2 * i + 2, at + 1, 1, "cudaMemcpyAsync").copy(at + late_us, at + late_us + 1'000, 2 * i + 2, 8);
  }
  const std::string path = testing::TempDir() + "copies.json";
  std::ofstream(path) << trace.text();
  JobBuilder builder("trace", true);
  const auto done = for_each_process(
      {path, {}, nullptr},
      [&](RunHistory&& h) -> Result<void> {
        builder.add(h);
        return {};
      },
      [](const std::string&) {});
  EXPECT_TRUE(done.ok());
  return opportunities(builder.finish());
}

TEST(Opportunities, CopiesAreAdvisedOnlyWhereNothingRunsBesideThem) {
  const auto about = [](const std::vector<Opportunity>& found, TimeClass c) {
    const auto it = std::find_if(found.begin(), found.end(), [c](const Opportunity& o) { return o.time_class == c; });
    return it == found.end() ? std::string() : it->what + " " + it->advice;
  };
  const auto exposed = advised_with_copies(1'000);
  EXPECT_NE(about(exposed, TimeClass::kMemcpy).find("copies 50.0 %: nothing else ran beside them Pinned memory"),
            std::string::npos)
      << about(exposed, TimeClass::kMemcpy);
  // As many bytes in as much time, beside the kernel: only the idle time that is left can be gained.
  const auto hidden = advised_with_copies(0);
  EXPECT_EQ(about(hidden, TimeClass::kMemcpy), "");
  EXPECT_NE(about(hidden, TimeClass::kIdle), "");
}

/// What `mfu advise` puts first: what keeps a figure from being right, then the work, then time, then ranks.
TEST(Advice, WhatMakesFiguresWrongComesFirst) {
  RunHistory h = history(0, {55, 20, 0, 0, 25}, 0.4);
  for (RegionSummary& r : h.end->regions) {
    if (r.region != "step") continue;
    r.findings = {{"padding", "128 rows for every 100 tokens"}, {"config", "the config is not the model that runs"}};
  }
  Job job = job_of({h});
  job.rank_notes = {"slowest: rank 7"};
  std::vector<std::string> kinds;
  for (const Advice& a : advice(job)) {
    kinds.emplace_back(a.kind);
    EXPECT_FALSE(a.evidence.empty());
    EXPECT_FALSE(a.action.empty()) << a.evidence;
    EXPECT_EQ(a.gain.has_value(), a.kind == "time");
    EXPECT_EQ(a.region.empty(), a.kind == "rank");
  }
  EXPECT_EQ(kinds, (std::vector<std::string>{"config", "work", "time", "time", "time", "rank"}));
  for (RegionSummary& r : h.end->regions)
    if (r.region == "step") r.suspect = "mfu_above_one: a batch that is counted twice";
  EXPECT_EQ(advice(job_of({h})).front().kind, "measure");
  RunHistory unknown = history(0, {55, 20, 0, 0, 25}, 0.4);
  unknown.run.model_json = "{}";
  for (RegionSummary& r : unknown.end->regions) r.flop = r.mfu = r.hfu = std::nullopt;
  const Advice first = advice(job_of({unknown})).front();
  EXPECT_EQ(first.kind, "measure");
  EXPECT_NE(first.evidence.find("MFU is not known"), std::string::npos) << first.evidence;
  EXPECT_TRUE(advice(job_of({history(0, {99, 0, 1, 0, 0}, 0.985)})).empty()) << "nothing to gain, nothing to say";
}

TEST(Opportunities, MatmulsAreAdvisedByWhatTheyReachAndHowLongTheyAre) {
  const auto matmul = [](double mfu, std::uint64_t count, double clock) {
    return advice_on(TimeClass::kMatmul, {80, 10, 0, 0, 10}, mfu, [&](RegionSummary& r) {
      r.top_kernels[0].count = count;
      r.clock_ratio = clock;
    });
  };
  EXPECT_EQ(matmul(0.70, 100, 1), "") << "87 % of the peak is as good as it gets";
  const std::string slow = matmul(0.4, 100, 1);
  EXPECT_NE(slow.find("they reach 50.0 % of it"), std::string::npos) << slow;
  EXPECT_NE(slow.find("aligned shapes"), std::string::npos) << slow;
  const std::string tiny = matmul(0.4, 200'000, 1);
  EXPECT_NE(tiny.find("gemm, 16 µs each They are too short"), std::string::npos) << tiny;
  EXPECT_EQ(tiny.find("aligned"), std::string::npos) << tiny;
  const std::string hot = matmul(0.4, 100, 0.7);
  EXPECT_NE(hot.find("the clock was at 70 % of the peak's Power or heat"), std::string::npos) << hot;
  EXPECT_EQ(hot.find("aligned"), std::string::npos) << hot;
}

TEST(Opportunities, KernelNamesLoseTheirArguments) {
  EXPECT_EQ(short_kernel_name("void at::native::vectorized_elementwise_kernel<4, at::F<float>, X>(int, float*)", 60),
            "at::native::vectorized_elementwise_kernel");
  EXPECT_EQ(short_kernel_name("gemm"), "gemm");
  EXPECT_EQ(short_kernel_name("<unnamed>"), "<unnamed>");
  EXPECT_EQ(short_kernel_name("abcdefghij", 8), "abcde...");
}

}  // namespace
}  // namespace mfu

// Graphs that are timed as a whole are split by what their nodes take elsewhere, and left whole where that is not
// known.
#include "core/drain/graph_inside.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace mfu {
namespace {

constexpr std::uint64_t kHandle = 0x7f0000001000, kExec = 0x7f0000002000;

struct MadeNode {
  const char* name;
  std::uint64_t extent;
  DurationNs takes;
};

class GraphInsideTest : public ::testing::Test {
 protected:
  ActivityRecord kernel(const char* name, std::uint64_t extent, DurationNs takes) {
    ActivityRecord r;
    r.begin_ns = 1'000'000;
    r.end_ns = r.begin_ns + takes;
    r.name = names_.intern(name);
    r.extent = extent;
    return r;
  }
  static ActivityRecord whole(DurationNs took) {
    ActivityRecord r;
    r.kind = ActivityKind::kGraph;
    r.begin_ns = 5'000'000;
    r.end_ns = r.begin_ns + took;
    r.graph = GraphId{7};
    r.correlation = CorrelationId{42};
    r.stream = StreamId{3};
    return r;
  }
  void note(GraphNote::What what, std::uint64_t graph) {
    GraphNote n;
    n.what = what;
    n.graph = graph;
    contents_.note(n);
  }
  void begin(std::uint64_t graph = kHandle) { note(GraphNote::What::kBegins, graph); }
  void node(const MadeNode& made, ProductTag product = {}, std::uint64_t graph = kHandle) {
    GraphNote n;
    n.what = GraphNote::What::kNode;
    n.graph = graph;
    n.name = names_.intern(made.name);
    n.extent = made.extent;
    n.product = product;
    contents_.note(n);
  }
  GraphNumber instantiate(std::uint64_t graph = kHandle, std::uint64_t exec = kExec) {
    contents_.runs(exec, graph);
    inside_.follow();
    return contents_.number_of(exec);
  }
  GraphNumber made(const std::vector<MadeNode>& nodes) {
    begin();
    for (const MadeNode& n : nodes) node(n);
    return instantiate();
  }
  /// Time of the records by class of their kernels [ns].
  std::map<KernelClass, DurationNs> by_class(std::span<const ActivityRecord> records) {
    std::map<KernelClass, DurationNs> sums;
    for (const ActivityRecord& r : records) sums[names_.class_of(r.name)] += r.end_ns - r.begin_ns;
    return sums;
  }

  Counters counters_;
  KernelNames names_{counters_};
  GraphContents contents_;
  GraphInside inside_{contents_, names_};
};

TEST_F(GraphInsideTest, NodesThatRanOutsideTakeWhatTheyTookThere) {
  const std::vector<MadeNode> nodes{
      {"sgemm_128x64", 8, 20'000}, {"elementwise", 4, 5'000}, {"sgemm_128x64", 8, 20'000}};
  inside_.learn(kernel("sgemm_128x64", 8, 20'000));
  inside_.learn(kernel("sgemm_128x64", 99, 70'000));  // another grid is another kernel
  inside_.learn(kernel("elementwise", 4, 5'000));
  const auto records = inside_.of(whole(45'000 + 2 * 800), made(nodes));
  ASSERT_EQ(records.size(), 3u);
  const DurationNs begins[] = {0, 20'800, 26'600};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(records[i].begin_ns, 5'000'000 + begins[i]);
    EXPECT_EQ(records[i].end_ns - records[i].begin_ns, nodes[i].takes);
    EXPECT_EQ(records[i].kind, ActivityKind::kKernel);
    EXPECT_EQ(records[i].name, names_.intern(nodes[i].name));
    EXPECT_EQ(records[i].extent, nodes[i].extent);
    EXPECT_EQ(records[i].correlation, CorrelationId{42});
    EXPECT_EQ(records[i].stream, StreamId{3});
    EXPECT_EQ(records[i].graph, GraphId{7});
  }
  EXPECT_EQ(inside_.figures().graphs_ns, 46'600);
  EXPECT_EQ(inside_.figures().known_ns, 46'600);
  EXPECT_DOUBLE_EQ(inside_.figures().error, 0);
}

TEST_F(GraphInsideTest, ProductsComeWithTheirNodes) {
  inside_.learn(kernel("sgemm", 8, 20'000));
  begin();
  node({"sgemm", 8, 0}, ProductTag::first_of(ProductId{5}));
  node({"sgemm", 8, 0}, ProductTag::first_of(ProductId{5}).further());
  const auto records = inside_.of(whole(41'000), instantiate());
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].product, ProductId{5});
  EXPECT_TRUE(records[0].first_of_product);
  EXPECT_EQ(records[1].product, ProductId{5});
  EXPECT_FALSE(records[1].first_of_product);
}

TEST_F(GraphInsideTest, NodesOfOneClassThatNeverRanOutsideShareWhatIsLeft) {
  inside_.learn(kernel("sgemm", 8, 20'000));
  const auto records = inside_.of(whole(20'000 + 2 * 7'000 + 2 * GraphInside::kUsualGap),
                                  made({{"sgemm", 8, 0}, {"elementwise", 1, 0}, {"softmax", 1, 0}}));
  ASSERT_EQ(records.size(), 3u);
  const auto sums = by_class(records);
  EXPECT_EQ(sums.at(KernelClass::kGemm), 20'000);
  EXPECT_EQ(sums.at(KernelClass::kOther), 14'000);
}

TEST_F(GraphInsideTest, WholeWhereItIsNotKnown) {
  // Two classes whose times are unknown.
  EXPECT_TRUE(inside_.of(whole(50'000), made({{"sgemm", 8, 0}, {"elementwise", 1, 0}})).empty());
  // A graph that took far less or far more than its nodes, which are of several classes.
  inside_.learn(kernel("sgemm", 8, 20'000));
  inside_.learn(kernel("elementwise", 1, 20'000));
  const GraphNumber known = contents_.number_of(kExec);
  EXPECT_FALSE(inside_.of(whole(40'000), known).empty());
  EXPECT_TRUE(inside_.of(whole(20'000), known).empty());
  EXPECT_TRUE(inside_.of(whole(80'000), known).empty());
  // A number that was never given, and none.
  EXPECT_TRUE(inside_.of(whole(40'000), GraphNumber{1000}).empty());
  EXPECT_TRUE(inside_.of(whole(40'000), GraphNumber::kNone).empty());
  // Nodes whose work is unknown.
  begin();
  node({"sgemm", 8, 0});
  note(GraphNote::What::kOpaque, kHandle);
  EXPECT_TRUE(inside_.of(whole(20'000), instantiate()).empty());
  // A graph that was built before the library looked.
  EXPECT_TRUE(inside_.of(whole(20'000), instantiate(0x1234)).empty());
  EXPECT_EQ(inside_.figures().known_ns, 40'000);
  EXPECT_GT(inside_.figures().graphs_ns, 40'000);
}

TEST_F(GraphInsideTest, NodesOfOneClassAreSplitHoweverLongTheyTook) {
  inside_.learn(kernel("spin", 1, 400'000));  // how long it takes is in its arguments
  const auto records = inside_.of(whole(100'000), made({{"spin", 1, 0}, {"spin", 1, 0}}));
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(by_class(records).at(KernelClass::kOther), 100'000);
  EXPECT_EQ(inside_.figures().error, 0);
  inside_.learn(kernel("softmax", 1, 400'000));
  EXPECT_EQ(inside_.of(whole(100'000), made({{"spin", 1, 0}, {"softmax", 1, 0}})).size(), 2u);
  EXPECT_EQ(inside_.figures().error, 0.5);  // the time of one graph in two may be another kernel's
}

TEST_F(GraphInsideTest, AChangeOfSomeGraphMakesAllUnknownThatAreBeingBuilt) {
  inside_.learn(kernel("sgemm", 8, 20'000));
  const GraphNumber before = made({{"sgemm", 8, 0}});
  note(GraphNote::What::kOpaque, 0);
  const GraphNumber after = instantiate(kHandle, kExec + 16);
  EXPECT_FALSE(inside_.of(whole(20'000), before).empty());
  EXPECT_TRUE(inside_.of(whole(20'000), after).empty());
}

TEST_F(GraphInsideTest, ACopyHasTheNodesOfItsOriginalAndThenItsOwn) {
  inside_.learn(kernel("sgemm", 8, 20'000));
  made({{"sgemm", 8, 0}});
  constexpr std::uint64_t kCopy = 0x7f0000009000;
  GraphNote copies;
  copies.what = GraphNote::What::kCopies;
  copies.graph = kCopy;
  copies.extent = kHandle;
  contents_.note(copies);
  note(GraphNote::What::kEnds, kHandle);
  EXPECT_EQ(inside_.of(whole(20'000), instantiate(kCopy, kExec + 16)).size(), 1u);
  node({"sgemm", 8, 0}, {}, kCopy);
  EXPECT_EQ(inside_.of(whole(40'000), instantiate(kCopy, kExec + 32)).size(), 2u);
  EXPECT_EQ(inside_.of(whole(20'000), contents_.number_of(kExec)).size(), 1u);
  EXPECT_EQ(inside_.of(whole(20'000), contents_.number_of(kExec + 16)).size(), 1u);
}

TEST_F(GraphInsideTest, ALittleTimeOfSeveralUnknownClassesIsSharedAndCountsAsError) {
  inside_.learn(kernel("sgemm", 8, 100'000));
  const auto records = inside_.of(whole(100'000 + 4'000 + 2 * GraphInside::kUsualGap),
                                  made({{"sgemm", 8, 0}, {"elementwise", 1, 0}, {"flash_fwd_kernel", 1, 0}}));
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[1].end_ns - records[1].begin_ns, 2'000);
  EXPECT_NEAR(inside_.figures().error, 4.0 / 106.0, 1e-9);
}

TEST_F(GraphInsideTest, AHandleThatIsUsedAgainIsAnotherGraph) {
  inside_.learn(kernel("sgemm", 8, 20'000));
  inside_.learn(kernel("elementwise", 1, 5'000));
  const GraphNumber first = made({{"sgemm", 8, 0}});
  note(GraphNote::What::kEnds, kHandle);
  contents_.forget(kExec);
  EXPECT_EQ(contents_.number_of(kExec), GraphNumber::kNone);
  const GraphNumber second = made({{"elementwise", 1, 0}});
  EXPECT_NE(first, second);
  // Records of launches from before may still come.
  EXPECT_EQ(by_class(inside_.of(whole(20'000), first)).at(KernelClass::kGemm), 20'000);
  EXPECT_EQ(by_class(inside_.of(whole(5'000), second)).at(KernelClass::kOther), 5'000);
}

TEST_F(GraphInsideTest, NoMemoryIsKeptOfGraphsThatAreGone) {
  const std::vector<MadeNode> nodes(4096, {"sgemm", 8, 0});
  inside_.learn(kernel("sgemm", 8, 1'000));
  for (int i = 0; i < 2000; ++i) {  // 31 times what there is room for at once
    begin();
    for (const MadeNode& n : nodes) node(n);
    inside_.follow();
    const GraphNumber number = instantiate();
    if (i % 100 == 0 || i > 1990) {
      EXPECT_EQ(inside_.of(whole(4'096'000), number).size(), nodes.size()) << i;
    }
    contents_.forget(kExec);
    note(GraphNote::What::kEnds, kHandle);
  }
}

TEST_F(GraphInsideTest, WhatTheQueueHasNoRoomForIsUnknownAndNoGuess) {
  inside_.learn(kernel("sgemm", 8, 20'000));
  begin();
  for (std::uint32_t i = 0; i < GraphContents::kNotes + 10; ++i) node({"sgemm", 8, 0});
  EXPECT_GT(contents_.lost(), 0u);
  EXPECT_TRUE(inside_.of(whole(20'000), instantiate()).empty());
  // Later graphs are known again.
  EXPECT_FALSE(inside_.of(whole(20'000), made({{"sgemm", 8, 0}})).empty());
}

/// Random graphs of kernels that all ran before: the records fill the graph's time in order, and each class has its
/// share.
TEST_F(GraphInsideTest, AnyGraphOfKnownNodesHasTheSharesOfItsNodes) {
  std::mt19937_64 random(20261125);
  const char* const kinds[] = {"sgemm_64x64", "elementwise", "flash_fwd_kernel", "ncclDevKernel_AllReduce", "softmax"};
  for (int round = 0; round < 200; ++round) {
    std::vector<MadeNode> nodes(1 + random() % 60);
    std::map<KernelClass, DurationNs> truth;
    DurationNs span = 0;
    const auto gap = static_cast<DurationNs>(random() % 2000);
    for (MadeNode& n : nodes) {
      const std::size_t which = random() % 5;
      n = {kinds[which], random() % 4, 0};
      n.takes = static_cast<DurationNs>(2'000 + 3'000 * which + 700 * n.extent);
      inside_.learn(kernel(n.name, n.extent, n.takes));
      truth[names_.class_of(names_.intern(n.name))] += n.takes;
      span += n.takes + gap;
    }
    span -= gap;
    const auto records = inside_.of(whole(span), made(nodes));
    ASSERT_EQ(records.size(), nodes.size());
    TimeNs before = 5'000'000;
    for (const ActivityRecord& r : records) {
      EXPECT_GE(r.begin_ns, before);
      EXPECT_GE(r.end_ns, r.begin_ns);
      before = r.end_ns;
    }
    EXPECT_EQ(records.front().begin_ns, 5'000'000);
    EXPECT_EQ(records.back().end_ns, 5'000'000 + span);
    for (const auto& [its_class, time] : by_class(records))
      EXPECT_NEAR(static_cast<double>(time), static_cast<double>(truth.at(its_class)),
                  0.001 * static_cast<double>(span));
    contents_.forget(kExec);
  }
}

TEST_F(GraphInsideTest, ThreadsThatBuildGraphsAtOnceGetTheirOwn) {
  inside_.learn(kernel("sgemm", 8, 20'000));
  constexpr std::uint64_t kThreads = 4, kGraphs = 50;
  const KernelNameId name = names_.intern("sgemm");
  std::vector<std::thread> threads;
  for (std::uint64_t t = 1; t <= kThreads; ++t)
    threads.emplace_back([&, t] {
      for (std::uint64_t g = 0; g < kGraphs; ++g) {
        GraphNote n;
        n.graph = (t << 32) + g * 64;
        contents_.note(n);
        n.what = GraphNote::What::kNode;
        n.name = name;
        n.extent = 8;
        for (std::uint64_t i = 0; i < t; ++i) contents_.note(n);
        contents_.runs(n.graph + 16, n.graph);
      }
    });
  for (std::thread& thread : threads) thread.join();
  inside_.follow();
  for (std::uint64_t t = 1; t <= kThreads; ++t)
    for (std::uint64_t g = 0; g < kGraphs; ++g) {
      const auto records =
          inside_.of(whole(static_cast<DurationNs>(20'000 * t)), contents_.number_of((t << 32) + g * 64 + 16));
      EXPECT_EQ(records.size(), t);
    }
}

}  // namespace
}  // namespace mfu

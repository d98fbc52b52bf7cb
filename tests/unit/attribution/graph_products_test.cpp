#include "core/attribution/graph_products.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

namespace mfu {
namespace {

ProductTag tag(std::uint32_t product, bool first = true) {
  const ProductTag t = ProductTag::first_of(ProductId{product});
  return first ? t : t.further();
}

TEST(GraphProducts, NodesHaveTheProductTheyWereGivenAndOthersHaveNone) {
  auto nodes = std::make_unique<GraphProducts>();
  EXPECT_FALSE(nodes->find(7));
  nodes->set(7, tag(1));
  nodes->set(8, tag(1, false));
  nodes->set(std::uint64_t{3} << 32 | 7, tag(2));
  EXPECT_EQ(nodes->find(7).word(), tag(1).word());
  EXPECT_EQ(nodes->find(8).word(), tag(1, false).word());
  EXPECT_EQ(nodes->find(std::uint64_t{3} << 32 | 7).word(), tag(2).word());
  EXPECT_FALSE(nodes->find(9));
  EXPECT_FALSE(nodes->find(0));
  nodes->set(7, tag(5));
  EXPECT_EQ(nodes->find(7).product(), ProductId{5});
  nodes->forget(7);
  EXPECT_FALSE(nodes->find(7));
  EXPECT_TRUE(nodes->find(8));
}

// As many nodes as a server captures for its batch sizes, numbered through or per graph.
TEST(GraphProducts, HoldsTheNodesOfAServersGraphs) {
  for (const bool per_graph : {false, true}) {
    auto nodes = std::make_unique<GraphProducts>();
    std::unordered_map<std::uint64_t, std::uint32_t> expected;
    for (std::uint64_t graph = 1; graph <= 70; ++graph)
      for (std::uint64_t node = 0; node < 700; ++node) {
        const std::uint64_t id = per_graph ? graph << 32 | node : graph * 700 + node;
        expected[id] = static_cast<std::uint32_t>(graph * 1000 + node % 5);
        nodes->set(id, tag(expected[id]));
      }
    std::size_t lost = 0;
    for (const auto& [id, product] : expected) {
      const ProductTag found = nodes->find(id);
      if (!found)
        ++lost;
      else
        ASSERT_EQ(found.product(), ProductId{product});  // never another one's
    }
    EXPECT_LE(lost, expected.size() / 100) << per_graph;
  }
}

TEST(GraphProducts, OnceFullTheOldestNodesAreForgotten) {
  auto nodes = std::make_unique<GraphProducts>();
  constexpr std::uint64_t kNodes = 3 * GraphProducts::kCapacity;
  for (std::uint64_t id = 1; id <= kNodes; ++id) nodes->set(id, tag(static_cast<std::uint32_t>(id % 60'000 + 1)));
  EXPECT_FALSE(nodes->find(1));
  for (std::uint64_t id = kNodes - 1000; id <= kNodes; ++id)
    ASSERT_EQ(nodes->find(id).product(), ProductId{static_cast<std::uint32_t>(id % 60'000 + 1)});
}

TEST(GraphProducts, OnceAProgramChangesGraphsNoSizeIsKnown) {
  auto nodes = std::make_unique<GraphProducts>();
  nodes->set(7, tag(1));
  nodes->graphs_changed();
  nodes->set(8, tag(2, false));
  EXPECT_EQ(nodes->find(7).product(), ProductTable::kFull);
  EXPECT_TRUE(nodes->find(7).first());
  EXPECT_EQ(nodes->find(8).product(), ProductTable::kFull);
  EXPECT_FALSE(nodes->find(8).first());
  EXPECT_FALSE(nodes->find(9));
}

TEST(GraphProducts, ReadersBesideWritersSeeANodesOwnProduct) {
  auto nodes = std::make_unique<GraphProducts>();
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 1; i <= 100'000; ++i) {
        const std::uint64_t id = 2 * i + static_cast<std::uint64_t>(t);
        nodes->set(id, tag(static_cast<std::uint32_t>(id % 60'000 + 1)));
        if (i % 3 == 0) nodes->forget(id - 20);
      }
    });
  std::thread reader([&] {
    while (!done)
      for (std::uint64_t id = 1; id <= 200'000; id += 7)
        if (const ProductTag found = nodes->find(id)) {
          ASSERT_EQ(found.product(), ProductId{static_cast<std::uint32_t>(id % 60'000 + 1)});
        }
  });
  for (std::thread& t : threads) t.join();
  done = true;
  reader.join();
}

}  // namespace
}  // namespace mfu

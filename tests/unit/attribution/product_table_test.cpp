#include "core/attribution/product_table.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <thread>
#include <unordered_map>
#include <vector>

namespace mfu {
namespace {

Product random_product(std::mt19937_64& random) {
  Product p;
  p.m = random() % 100'000 + 1;
  p.n = random() >> (random() % 60);
  p.k = random() % 65'536;
  p.batch = static_cast<std::uint32_t>(random());
  p.operands = static_cast<DType>(random() % 13);
  p.result = static_cast<DType>(random() % 13);
  p.transpose_a = random() % 2 != 0;
  p.transpose_b = random() % 2 != 0;
  p.kind = random() % 8 == 0 ? Product::Kind::kUnsized : Product::Kind::kSized;
  return p;
}

TEST(ProductTable, GivesBackWhatWasNumbered) {
  auto table = std::make_unique<ProductTable>();
  std::mt19937_64 random(1);
  std::vector<std::pair<ProductId, Product>> given;
  for (int i = 0; i < 20'000; ++i) {
    const Product p = random_product(random);
    given.emplace_back(table->number_of(p), p);
  }
  EXPECT_EQ(table->size(), given.size());
  for (const auto& [id, p] : given) {
    ASSERT_NE(id, ProductId::kNone);
    ASSERT_TRUE(table->find(id).has_value());
    EXPECT_EQ(*table->find(id), p);
    EXPECT_EQ(table->number_of(p), id);
  }
  EXPECT_FALSE(table->find(ProductId::kNone).has_value());
}

/// A thread's own look-up gives the table's numbers, whatever comes between and however often it comes again.
TEST(RecentProducts, GivesTheNumbersOfTheTable) {
  auto table = std::make_unique<ProductTable>();
  RecentProducts recent;
  std::mt19937_64 random(3);
  std::vector<Product> known;
  for (int i = 0; i < 100; ++i) {
    Product p = random_product(random);
    p.complex = random() % 2 != 0;
    for (int k = 0; k < 8; ++k) {  // neighbours that differ in one thing each
      known.push_back(p);
      if (k == 0) ++p.m;
      if (k == 1) ++p.n;
      if (k == 2) ++p.k;
      if (k == 3) ++p.batch;
      if (k == 4) p.transpose_a = !p.transpose_a;
      if (k == 5) p.complex = !p.complex;
      if (k == 6) p.kind = p.kind == Product::Kind::kSized ? Product::Kind::kUnsized : Product::Kind::kSized;
    }
  }
  Product zero;
  zero.batch = 0;
  zero.operands = zero.result = DType{};
  known.push_back(zero);
  for (int i = 0; i < 100'000; ++i) {
    const std::size_t around = i / 100 * 5 % known.size();  // some dozens at a time, then others
    const Product& p = known[(around + random() % 40) % known.size()];
    const ProductId number = recent.number_of(ProductWords(p), *table);
    ASSERT_NE(number, ProductId::kNone);
    ASSERT_EQ(number, table->number_of(p));
    ASSERT_EQ(table->find(number), p);
  }
}

TEST(ProductTable, OnceFullEveryNewProductIsOneOfUnknownSize) {
  auto table = std::make_unique<ProductTable>();
  Product p;
  for (p.m = 1; p.m < 3 * ProductTable::kCapacity; ++p.m) (void)table->number_of(p);
  EXPECT_GT(table->size(), ProductTable::kCapacity * 9 / 10);
  EXPECT_EQ(table->number_of(p), ProductTable::kFull);
  const std::optional<Product> unknown = table->find(ProductTable::kFull);
  ASSERT_TRUE(unknown.has_value());
  EXPECT_EQ(unknown->flop(), 0);
  EXPECT_EQ(unknown->kind, Product::Kind::kUnsized);
}

TEST(ProductTable, ThreadsThatNumberTheSameProductsReadTheSameSizes) {
  auto table = std::make_unique<ProductTable>();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&table] {
      std::mt19937_64 random(7);  // the same products on every thread
      for (int i = 0; i < 5'000; ++i) {
        const Product p = random_product(random);
        EXPECT_EQ(*table->find(table->number_of(p)), p);
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_GE(table->size(), 5'000u);
  EXPECT_LE(table->size(), 20'000u);
}

TEST(Product, FlopAreTwoPerElementProduct) {
  Product p;
  p.m = 3;
  p.n = 5;
  p.k = 7;
  p.batch = 2;
  EXPECT_EQ(p.flop(), 420.0);
}

}  // namespace
}  // namespace mfu

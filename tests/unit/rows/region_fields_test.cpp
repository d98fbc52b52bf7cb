// The table of a row's fields, and the documentation that is made from it.
#include "core/rows/region_fields.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace mfu {
namespace {

const char* unit_word(Unit unit) {
  switch (unit) {
    case Unit::kNone:
      return "";
    case Unit::kCount:
      return "count";
    case Unit::kToken:
      return "token";
    case Unit::kSeconds:
      return "s";
    case Unit::kMoment:
      return "ns";
    case Unit::kFlop:
      return "FLOP";
    case Unit::kByte:
      return "B";
    case Unit::kRatio:
      return "0..1";
  }
  return "?";
}

const char* sum_words(AddsUp how) {
  switch (how) {
    case AddsUp::kSum:
      return "sum";
    case AddsUp::kHull:
      return "first to last";
    case AddsUp::kAny:
      return "any";
    case AddsUp::kAll:
      return "all";
    case AddsUp::kSame:
      return "where all agree";
    case AddsUp::kFirst:
      return "first";
    case AddsUp::kLatest:
      return "latest";
    case AddsUp::kLongest:
      return "of the longest row";
    case AddsUp::kMean:
      return "mean over time";
    case AddsUp::kQuotient:
      return "from the sums";
    case AddsUp::kMerged:
      return "merged";
    case AddsUp::kOneRow:
      return "of one row only";
  }
  return "?";
}

const char* null_words(Null null) {
  switch (null) {
    case Null::kNever:
      return "";
    case Null::kUnknown:
      return "unknown";
    case Null::kNoDeviceActivity:
      return "no device activity";
    case Null::kAbsent:
      return "left out where empty";
  }
  return "?";
}

template <typename T>
std::string keys_of() {
  std::string keys;
  for_each_field<T>([&](const auto& field) { keys += (keys.empty() ? "" : ", ") + std::string(field.key); });
  return "{" + keys + "}";
}

/// What is inside: ` {p50_s, ...}` of a histogram, ` [{...}]` of a list, the classes of a waterfall.
template <typename T>
std::string inside(std::string_view key) {
  if constexpr (kIsByClass<T>) {
    return " {matmul, other, comm, memcpy, idle}";
  } else if constexpr (std::is_same_v<T, LatencySummary>) {
    const std::string s(quantile_suffix(key));
    return " {count, p50" + s + ", p90" + s + ", p99" + s + ", max" + s + ", histogram [[upper_s, count]]}";
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::string>) {
    return "";
  } else if constexpr (requires(T value) { value.has_value(); }) {
    return inside<typename T::value_type>(key);
  } else if constexpr (kHasFields<T>) {
    return " " + keys_of<T>();
  } else if constexpr (kHasFields<typename T::value_type>) {
    return " [" + keys_of<typename T::value_type>() + "]";
  } else {
    return " {key: word}";
  }
}

std::vector<std::string> documented_rows() {
  std::vector<std::string> rows;
  for_each_field<RegionSummary>([&](const auto& field) {
    using T = std::remove_cvref_t<decltype(field.of(std::declval<const RegionSummary&>()))>;
    const std::string extra = inside<T>(field.key);
    std::ostringstream row;
    row << "| `" << field.key << "` | " << unit_word(field.unit) << " | " << sum_words(field.adds_up) << " | "
        << null_words(field.null) << " | " << field.meaning << (extra.empty() ? "" : ":" + extra) << " |";
    rows.push_back(row.str());
  });
  return rows;
}

TEST(RegionFields, TheReferenceHasEachOfThem) {
  std::ifstream file(MFU_TEST_DATA "/../../docs/reference.md");
  ASSERT_TRUE(file);
  std::vector<std::string> found, wanted = documented_rows();
  bool inside_section = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) inside_section = line == "## A row of a window";
    if (inside_section && line.starts_with("| `")) found.push_back(line);
  }
  std::string all;
  for (const std::string& row : wanted) all += row + "\n";
  EXPECT_EQ(found, wanted) << "docs/reference.md, section \"A row of a window\", should have the rows\n" << all;
}

TEST(RegionFields, NoKeyStandsTwice) {
  std::set<std::string> keys, metrics;
  for_each_field<RegionSummary>([&](const auto& field) {
    EXPECT_TRUE(keys.insert(std::string(field.key)).second) << field.key;
    EXPECT_FALSE(field.meaning.empty()) << field.key;
    if (field.metric.kind == Metric::Kind::kNone) return;
    EXPECT_TRUE(metrics.insert(field.metric.name).second) << field.metric.name;
    EXPECT_EQ(std::string(field.metric.name).ends_with("_total"), field.metric.kind == Metric::Kind::kCounter);
  });
}

TEST(RegionFields, EveryWordOfAnEnumIsItsOwn) {
  const auto distinct = [](const auto& words) { return std::set<std::string_view>(words.begin(), words.end()).size(); };
  EXPECT_EQ(distinct(kWords<Bound>), kWords<Bound>.size());
  EXPECT_EQ(distinct(kWords<NamedBy>), kWords<NamedBy>.size());
  EXPECT_EQ(distinct(kWords<KernelClass>), kWords<KernelClass>.size());
  for (const KernelClass c : {KernelClass::kGemm, KernelClass::kAttention, KernelClass::kComm, KernelClass::kOther})
    EXPECT_EQ(word(c), name(c));
}

}  // namespace
}  // namespace mfu

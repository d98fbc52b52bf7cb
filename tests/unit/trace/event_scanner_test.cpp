// The structural scanner against a whole parse: random JSON, cut into random pieces.
#include "tools/trace/event_scanner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

namespace mfu {
namespace {

using Json = nlohmann::json;

/// Where the elements of `text` (the inside of an array and its `]`) end, scanned in the given pieces.
struct Outcome {
  std::vector<std::size_t> last_ends;
  std::size_t array_end = 0;
  std::uint64_t elements = 0;
};

Outcome scan(const std::string& text, const std::vector<std::size_t>& cuts) {
  EventScanner scanner;
  Outcome out;
  std::size_t at = 0;
  for (std::size_t i = 0; i <= cuts.size() && out.array_end == 0; ++i) {
    const std::size_t end = i < cuts.size() ? cuts[i] : text.size();
    const EventScanner::Found found = scanner.scan(std::string_view(text).substr(at, end - at));
    if (found.last_end != 0) out.last_ends.push_back(at + found.last_end);
    if (found.array_end != 0) out.array_end = at + found.array_end;
    at = end;
  }
  EventScanner by_bytes;  // each byte is a piece, so that no two elements end in one
  for (std::size_t i = 0; i < text.size(); ++i) {
    const EventScanner::Found found = by_bytes.scan(std::string_view(text).substr(i, 1));
    out.elements += found.last_end != 0 ? 1 : 0;
    if (found.array_end != 0) break;
  }
  return out;
}

TEST(EventScanner, FindsTheEndOfAnArray) {
  const std::string text = R"({"a": 1}, {"b": [1, 2]} ] , "rest": [])";
  const Outcome out = scan(text, {});
  EXPECT_EQ(out.array_end, text.find("] ,") + 1);
  EXPECT_EQ(out.elements, 2u);
}

TEST(EventScanner, BracketsInStringsDoNotCount) {
  const std::string text = R"({"a": "}]{[", "b\"}": "\\"},{"c":"\\\"]"}])";
  const Outcome out = scan(text, {});
  EXPECT_EQ(out.array_end, text.size());
  EXPECT_EQ(out.elements, 2u);
}

TEST(EventScanner, AnOpenArrayReportsTheLastWholeElement) {
  const std::string text = R"({"a": 1}, {"b": 2}, {"c": "}")";
  const Outcome out = scan(text, {});
  EXPECT_EQ(out.array_end, 0u);
  ASSERT_EQ(out.last_ends.size(), 1u);
  EXPECT_EQ(out.last_ends[0], text.find(", {\"c\""));
}

TEST(EventScanner, AnEmptyArrayEndsAtOnce) { EXPECT_EQ(scan("  ]", {}).array_end, 3u); }

std::string random_string(std::mt19937& random) {
  static const std::string kAlphabet = "ab{}[]\"\\,: \n\t/u0\xC3\xBC";
  std::string out;
  for (int i = std::uniform_int_distribution<int>(0, 90)(random); i > 0; --i) {
    const auto pick = std::uniform_int_distribution<std::size_t>(0, kAlphabet.size() - 2)(random);
    if (kAlphabet[pick] == '\xC3') {
      out += "\xC3\xBC";
    } else {
      out += kAlphabet[pick];
    }
  }
  return out;
}

Json random_value(std::mt19937& random, int depth) {
  switch (std::uniform_int_distribution<int>(0, depth > 0 ? 5 : 3)(random)) {
    case 0:
      return std::uniform_int_distribution<int>(-1000, 1000)(random);
    case 1:
      return nullptr;
    case 2:
      return 1.5;
    case 3:
      return random_string(random);
    case 4: {
      Json out = Json::array();
      for (int i = std::uniform_int_distribution<int>(0, 4)(random); i > 0; --i) {
        out.push_back(random_value(random, depth - 1));
      }
      return out;
    }
    default: {
      Json out = Json::object();
      for (int i = std::uniform_int_distribution<int>(0, 4)(random); i > 0; --i) {
        out[random_string(random)] = random_value(random, depth - 1);
      }
      return out;
    }
  }
}

TEST(EventScanner, AgreesWithAWholeParseHoweverTheTextIsCut) {
  std::mt19937 random(20240611);
  for (int round = 0; round < 300; ++round) {
    Json array = Json::array();
    for (int i = std::uniform_int_distribution<int>(0, 6)(random); i > 0; --i) {
      Json object = Json::object();
      object[random_string(random)] = random_value(random, 3);
      array.push_back(object);
    }
    const std::string text = array.dump(round % 3 - 1, ' ', round % 2 == 0).substr(1);
    std::string followed = text;
    followed += random_string(random);
    std::vector<std::size_t> cuts;
    for (int i = std::uniform_int_distribution<int>(0, 12)(random); i > 0; --i) {
      cuts.push_back(std::uniform_int_distribution<std::size_t>(0, followed.size())(random));
    }
    std::sort(cuts.begin(), cuts.end());
    const Outcome out = scan(followed, cuts);
    ASSERT_EQ(out.array_end, text.size()) << followed;
    ASSERT_EQ(out.elements, array.size()) << followed;
    for (const std::size_t end : out.last_ends) {
      std::string closed(1, '[');
      closed.append(text, 0, end).append(1, ']');
      const Json part = Json::parse(closed, nullptr, false);
      ASSERT_FALSE(part.is_discarded()) << followed << "\nup to " << end;
      for (std::size_t i = 0; i < part.size(); ++i) ASSERT_EQ(part[i], array[i]);
    }
  }
}

}  // namespace
}  // namespace mfu

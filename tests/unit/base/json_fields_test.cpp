#include "core/base/json_fields.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace mfu {
namespace {

using nlohmann::json;

std::string nested(std::size_t depth, const char* open, const char* close, const std::string& inside = "1") {
  std::string text;
  for (std::size_t i = 0; i < depth; ++i) text += open;
  text += inside;
  for (std::size_t i = 0; i < depth; ++i) text += close;
  return text;
}

TEST(ParseJson, NestingIsBounded) {
  EXPECT_TRUE(parse_json(nested(kMaxNesting, "[", "]"), "job.json").ok());
  EXPECT_TRUE(parse_json(nested(kMaxNesting, R"({"a":)", "}"), "job.json").ok());
  for (const std::string& text : {nested(kMaxNesting + 1, "[", "]"), nested(kMaxNesting + 1, R"({"a":)", "}"),
                                  nested(1'000'000, "[", "]"), nested(1'000'000, "[", ""), nested(40, "[{\"a\":", "}]"),
                                  R"({"x": "\"", "y": )" + nested(65, "[", "]") + "}"}) {
    const auto parsed = parse_json(text, "job.json");
    ASSERT_FALSE(parsed.ok());
    EXPECT_EQ(parsed.error().message, "job.json: expected JSON that is nested at most 64 deep, got more");
  }
}

TEST(ParseJson, BracketsInStringsAndCommentsDoNotNest) {
  const std::string many(1000, '[');
  for (const std::string& text :
       {R"({"a": ")" + many + R"("})", R"({"a": "\")" + many + R"("})", R"({"a": "\\", "b": ")" + many + R"("})",
        "{ // " + many + "\n}", "{ /* " + many + " */ }", "// " + many + "\n{}"}) {
    EXPECT_TRUE(parse_json(text, "x").ok()) << text.substr(0, 40);
  }
}

TEST(ParseJson, CommentsAndPythonNumbersAreRead) {
  const auto parsed = parse_json("{\"a\": NaN, \"b\": -Infinity, /* c */ \"c\": \"NaN\"}", "x");
  ASSERT_TRUE(parsed.ok());
  EXPECT_TRUE((*parsed)["a"].is_null());
  EXPECT_TRUE((*parsed)["b"].is_null());
  EXPECT_EQ((*parsed)["c"], "NaN");
}

TEST(ParseJson, ErrorsNameTheLine) {
  const auto parsed = parse_json("{\"a\": 1,\n\"b\": }", "job.json");
  ASSERT_FALSE(parsed.ok());
  EXPECT_EQ(parsed.error().message,
            "job.json: expected a JSON object, got text that is not valid JSON near line 2, column 6: unexpected '}'");
}

TEST(ParseJson, EmptyTextIsCalledEmpty) {
  for (const char* text : {"", " \n\t"})
    EXPECT_EQ(parse_json(text, "job.json").error().message, "job.json: expected a JSON object, but it is empty");
}

TEST(RepeatedKeys, AreThoseOfOneObject) {
  EXPECT_TRUE(repeated_keys(R"({"a": {"b": 1}, "b": [{"a": 1}, {"a": 2}]})").empty());
  EXPECT_EQ(repeated_keys(R"({"a": 1, "x": {"b": 1, "b": 2, "c": "a"}, "a": 3})"),
            (std::vector<std::string>{"b", "a"}));
}

class FieldsTest : public ::testing::Test {
 protected:
  Fields of(const char* text) {
    object_ = json::parse(text);
    problem_.reset();
    return {object_, "job.json: ", &problem_};
  }
  std::string said() const { return problem_ ? problem_->message : std::string(); }

  json object_;
  std::optional<Error> problem_;
};

TEST_F(FieldsTest, IntegersMayBeWrittenAsReals) {
  const Fields f = of(R"({"a": 7, "b": 4096.0, "c": 7e9, "d": 1.5, "e": 18446744073709551615, "f": null})");
  EXPECT_EQ(f.integer("a"), 7);
  EXPECT_EQ(f.integer("b"), 4096);
  EXPECT_EQ(f.integer("c", 0, INT64_MAX), 7'000'000'000);
  EXPECT_EQ(f.integer("f"), std::nullopt);  // null is as good as missing
  EXPECT_FALSE(f.failed());
  EXPECT_EQ(f.integer("d"), std::nullopt);
  EXPECT_EQ(said(), "job.json: d: expected an integer >= 0, at most 2^31, got 1.5");
  EXPECT_EQ(f.integer("e"), std::nullopt);
  EXPECT_EQ(said(), "job.json: d: expected an integer >= 0, at most 2^31, got 1.5") << "the first problem is kept";
}

TEST_F(FieldsTest, AlternativesInTheOrderGiven) {
  const Fields f = of(R"({"num_hidden_layers": 3, "n_layer": 2, "n_head": null, "heads": 4})");
  EXPECT_EQ(f.require("n_layer|num_hidden_layers"), 2);
  EXPECT_EQ(f.require("num_hidden_layers|n_layer"), 3);
  EXPECT_EQ(f.require("n_head|heads"), 4);
  EXPECT_TRUE(f.mentions("n_head"));
  EXPECT_EQ(f.require("width|n_embd"), 1);
  EXPECT_EQ(said(), "job.json: width: expected an integer > 0, but it is missing");
}

TEST_F(FieldsTest, EachTypeSaysWhatItExpects) {
  for (const auto& [text, read, expected] :
       std::initializer_list<std::tuple<const char*, void (*)(const Fields&), const char*>>{
           {R"({"k": "yes"})", [](const Fields& f) { EXPECT_TRUE(f.flag("k", true)); }, "true or false, got \"yes\""},
           {R"({"k": 0})", [](const Fields& f) { EXPECT_FALSE(f.number("k", 0)); }, "a number > 0, got 0"},
           {R"({"k": []})", [](const Fields& f) { EXPECT_EQ(f.text_or("k", "x"), "x"); }, "text, got a list"},
           {R"({"k": 3})", [](const Fields& f) { EXPECT_EQ(f.child("k").integer("a"), std::nullopt); },
            "an object, got 3"}}) {
    read(of(text));
    EXPECT_EQ(said(), std::string("job.json: k: expected ") + expected);
  }
}

TEST_F(FieldsTest, UnknownKeysAndChildren) {
  const Fields f = of(R"({"a": {"b": {"c": -1}}, "z": 1})");
  EXPECT_EQ(f.unknown_keys({"a"}), std::vector<std::string>{"z"});
  EXPECT_EQ(f.child("a").child("b").integer("c"), std::nullopt);
  EXPECT_EQ(said(), "job.json: a.b.c: expected an integer >= 0, at most 2^31, got -1");
}

TEST_F(FieldsTest, LongValuesAreCutShort) {
  const Fields f = of((R"({"k": ")" + std::string(5000, 'x') + "\"}").c_str());
  (void)f.integer("k");
  EXPECT_LT(said().size(), 200u);
}

}  // namespace
}  // namespace mfu

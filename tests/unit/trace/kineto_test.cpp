// What the Kineto reader makes of odd, old and broken files.
#include "tools/trace/kineto.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <string>

#include "tools/replay/trace_figures.h"

namespace mfu {
namespace {

Result<Trace> read(std::string_view text) { return read_kineto_text(text, "t.json"); }

/// A kernel and the call that launched it.
constexpr std::string_view kPair =
    R"({"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":9,"tid":9,"ts":10,"dur":2,"args":{"correlation":5}},)"
    R"({"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":14,"dur":3,"args":{"device":0,"stream":7,"correlation":5}})";

std::string array_of(std::string_view events) {
  std::string out(1, '[');
  return out.append(events).append(1, ']');
}

std::uint64_t note(const Trace& trace, const std::string& name) {
  const auto found = trace.processes[0].notes.find(name);
  return found == trace.processes[0].notes.end() ? 0 : found->second;
}

TEST(ParseUsAsNs, IsExact) {
  EXPECT_EQ(parse_us_as_ns("0"), 0);
  EXPECT_EQ(parse_us_as_ns("12"), 12000);
  EXPECT_EQ(parse_us_as_ns("1712195495519689.047"), 1712195495519689047);  // more digits than a double holds
  EXPECT_EQ(parse_us_as_ns("1365627865801.65"), 1365627865801650);
  EXPECT_EQ(parse_us_as_ns("-3.5"), -3500);
  EXPECT_EQ(parse_us_as_ns("0.0004"), 0);
  EXPECT_EQ(parse_us_as_ns("0.0005"), 1);
  EXPECT_EQ(parse_us_as_ns("1.5e3"), 1500000);
  EXPECT_EQ(parse_us_as_ns("15E-1"), 1500);
  EXPECT_EQ(parse_us_as_ns("1.00000000000000000000000000001"), 1000);
  EXPECT_EQ(parse_us_as_ns("9223372036854775.807"), 9223372036854775807);
}

TEST(ParseUsAsNs, RefusesWhatIsNoTime) {
  for (const char* text : {"", "-", "NaN", "Infinity", "inf", "1.2.3", "12x", "1e", "9223372036854775.808", "1e30",
                           "1e999999999", ".", "\"\""}) {
    EXPECT_FALSE(parse_us_as_ns(text).has_value()) << text;
  }
}

TEST(Kineto, BareArrayAndObjectAreTheSame) {
  const auto bare = read(array_of(kPair));
  std::string text = R"({"schemaVersion": 1, "traceEvents": )";
  const auto object = read(text.append(array_of(kPair)).append(R"(, "traceName": "x"})"));
  ASSERT_TRUE(bare.ok()) << bare.error().message;
  ASSERT_TRUE(object.ok()) << object.error().message;
  for (const auto* trace : {&bare.value(), &object.value()}) {
    ASSERT_EQ(trace->activities.size(), 1u);
    EXPECT_EQ(trace->activities[0].begin_ns, 14000);
    EXPECT_EQ(trace->activities[0].launch, 0u);
    EXPECT_EQ(trace->events, 2u);
  }
  EXPECT_EQ(object->top_level_keys, (std::vector<std::string>{"schemaVersion", "traceName"}));
}

TEST(Kineto, ArgumentsBeforeTheCategory) {
  const auto trace = read(
      R"([{"args":{"stream":3,"device":1,"correlation":4},"cat":"kernel","dur":1.5,"name":"k","ph":"X","pid":0,"tid":0,"ts":2}])");
  ASSERT_TRUE(trace.ok());
  ASSERT_EQ(trace->streams.size(), 1u);
  EXPECT_EQ(trace->streams[0].label, "3");
  EXPECT_EQ(trace->devices[0].label, "1");
  EXPECT_EQ(trace->activities[0].end_ns, 3500);
}

TEST(Kineto, GridsAndDirections) {
  const auto trace = read(R"json([
    {"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":1,"args":{"correlation":1,"grid":[300,2,1],"block":[128,1,1]}},
    {"args":{"grid" : [ 2147483647 ,65535 , 65535 ] ,"correlation":2},"cat":"kernel","name":"k","ph":"X","pid":0,"tid":7,"ts":2,"dur":1},
    {"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":3,"dur":1,"args":{"correlation":3,"grid":[1,100000,4294967295]}},
    {"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":4,"dur":1,"args":{"correlation":4}},
    {"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":5,"dur":1,"args":{"correlation":5,"grid":[1,2]}},
    {"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":6,"dur":1,"args":{"correlation":6,"grid":"8"}},
    {"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":7,"dur":1,"args":{"correlation":7,"grid":[1,-2,1]}},
    {"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":7,"dur":1,"args":{"correlation":8,"grid":[1,2,3,4]}},
    {"ph":"X","cat":"gpu_memcpy","name":"Memcpy HtoD (Pinned -> Device)","pid":0,"tid":7,"ts":8,"dur":1,"args":{
  "bytes" : 64}},
    {"ph":"X","cat":"gpu_memcpy","name":"Memcpy DtoH (Device -> Pageable)","pid":0,"tid":7,"ts":9,"dur":1,"args":{"bytes":64}},
    {"ph":"X","cat":"gpu_memcpy","name":"Memcpy PtoP (Device -> Device)","pid":0,"tid":7,"ts":10,"dur":1,"args":{"bytes":64}},
    {"ph":"X","cat":"gpu_memset","name":"Memset (Device)","pid":0,"tid":7,"ts":11,"dur":1,"args":{"bytes":32}}])json");
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  ASSERT_EQ(trace->activities.size(), 12u);
  const auto record = [&](std::size_t i) { return to_kernel_record(*trace, trace->activities[i]); };
  EXPECT_EQ(record(0).grid(), (Grid{300, 2, 1}));
  EXPECT_EQ(record(1).grid(), (Grid{2'147'483'647, 65'535, 65'535}));
  EXPECT_EQ(record(2).grid(), (Grid{1, 65'535, 65'535}));  // beyond what CUDA allows
  for (std::size_t i = 3; i < 8; ++i) EXPECT_EQ(record(i).grid(), Grid{}) << i;
  EXPECT_EQ(record(8).direction, CopyDirection::kToDevice);
  EXPECT_EQ(record(9).direction, CopyDirection::kToHost);
  EXPECT_EQ(record(10).direction, CopyDirection::kWithin);
  EXPECT_EQ(record(11).direction, CopyDirection::kUnknown);
  EXPECT_EQ(record(8).extent, 64u);
  EXPECT_EQ(record(8).grid(), Grid{});
  EXPECT_EQ(record(11).extent, 32u);
}

TEST(Kineto, WordsForPidsAndStreamsOfOldFiles) {
  const auto trace = read(
      R"([{"ph":"X","cat":"Kernel","name":"k","pid":0,"tid":"stream 7","ts":1,"dur":1,"args":{"device":0,"stream":7,"correlation":1}},
          {"ph":"X","cat":"Runtime","name":"r","pid":"a'b","tid":"main","ts":0,"dur":1,"args":{"correlation":1}},
          {"ph":"X","cat":"Operator","name":"ProfilerStep#3","pid":1,"tid":2,"ts":0,"dur":9}])");
  ASSERT_TRUE(trace.ok());
  EXPECT_EQ(trace->streams[0].label, "7");
  EXPECT_EQ(trace->threads[0].label, R"(("a'b", 'main'))");
  ASSERT_EQ(trace->ranges.size(), 1u);
  EXPECT_EQ(trace->strings.at(trace->ranges[0].name), "ProfilerStep#3");
}

TEST(Kineto, NamesKeepTheirEscapes) {
  const auto trace =
      read(R"([{"ph":"X","cat":"user_annotation","name":"a\"\\\u00fc\ud83d\ude00\n","pid":1,"tid":1,"ts":0,"dur":1}])");
  ASSERT_TRUE(trace.ok());
  EXPECT_EQ(trace->strings.at(trace->ranges[0].name), "a\"\\\xC3\xBC\xF0\x9F\x98\x80\n");
}

TEST(Kineto, InfAndNanWhereNothingIsReadFromThem) {
  const auto trace = read(R"json([
      {"ph":"X","cat":"gpu_memcpy","name":"Memcpy","pid":0,"tid":7,"ts":1,"dur":0,
       "args":{"memory bandwidth (GB/s)": inf,"bytes":16,"stream":7}},
      {"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":NaN,"dur":1},
      {"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":"Infinity"},
      {"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":[2]},
      {"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1}])json");
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  ASSERT_EQ(trace->activities.size(), 1u);
  EXPECT_EQ(trace->activities[0].extent, 16u);
  EXPECT_EQ(note(trace.value(), "events_with_unusable_time"), 4u);
}

TEST(Kineto, OdditiesAreCountedNotLost) {
  std::string text =
      R"([{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":5,"dur":-2,"args":{"correlation":"x"}}, 3, null, "e", [1],)";
  text.append(kPair).append(",").append(kPair).append("] trailing");
  const auto trace = read(text);
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_EQ(note(trace.value(), "negative_durations"), 1u);
  EXPECT_EQ(note(trace.value(), "correlation_ids_that_are_no_number"), 1u);
  EXPECT_EQ(note(trace.value(), "elements_that_are_no_events"), 4u);
  EXPECT_EQ(note(trace.value(), "duplicate_correlation_on_host"), 1u);
  EXPECT_EQ(note(trace.value(), "text_after_the_end"), 1u);
  EXPECT_EQ(trace->activities.size(), 3u);
}

TEST(Kineto, NumbersBeyondSixtyThreeBits) {
  const auto trace = read(
      R"([{"ph":"X","cat":"cuda_runtime","name":"r","pid":1,"tid":1,"ts":0,"dur":1,"args":{"correlation":18446744073709551615}},
          {"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":1,"args":{"correlation":18446744073709551615,"Comms Id":99999999999999999999999}}])");
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_EQ(trace->activities[0].launch, 0u);
}

TEST(Kineto, BytesThatAreNotUtf8) {
  const auto trace =
      read("[{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\xFF\xC3\",\"pid\":0,\"tid\":7,\"ts\":1,\"dur\":1}]");
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_EQ(trace->strings.at(trace->activities[0].name), "k??");
  EXPECT_EQ(note(trace.value(), "bytes_not_utf8"), 2u);
}

TEST(Kineto, ALineBreakInsideAName) {
  const auto trace =
      read("[{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"a\nb\",\"pid\":0,\"tid\":7,\"ts\":1,\"dur\":1}]");
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_EQ(trace->strings.at(trace->activities[0].name), "a b");
  EXPECT_EQ(note(trace.value(), "pieces_with_control_characters"), 1u);
}

// Every prefix of a file: an Error, or the whole events before the cut and a note.
TEST(Kineto, CutAnywhere) {
  std::string text = R"({"schemaVersion": 1, "traceEvents": [)";
  text.append(kPair).append(R"(], "traceName": "a"})");
  const std::size_t first_end = text.find("}},") + 2;
  const std::size_t second_end = text.find("}}]") + 2;
  for (std::size_t length = 0; length < text.size(); ++length) {
    const auto trace = read(std::string_view(text).substr(0, length));
    if (length < text.find('[') + 1) {
      ASSERT_FALSE(trace.ok()) << length;
      continue;
    }
    ASSERT_TRUE(trace.ok()) << length << ' ' << trace.error().message;
    EXPECT_EQ(note(trace.value(), "cut_off"), 1u) << length;
    EXPECT_EQ(trace->launches.size(), length >= first_end ? 1u : 0u) << length;
    EXPECT_EQ(trace->activities.size(), length >= second_end ? 1u : 0u) << length;
  }
}

TEST(Kineto, ErrorsNameFilePlaceAndExpectation) {
  const auto message = [](std::string_view text) {
    const auto trace = read(text);
    return trace.ok() ? std::string("no error") : trace.error().message;
  };
  EXPECT_EQ(message("hello"), "t.json: byte 0: found \"hello\": expected { or [, the start of a Kineto JSON trace");
  EXPECT_EQ(message("   "), "t.json: holds no text: expected a Kineto JSON trace");
  EXPECT_EQ(message("{}"), "t.json: has no \"traceEvents\" array: expected a Kineto trace");
  EXPECT_EQ(message(R"({"traceEvents": 3})"), "t.json: byte 16: \"traceEvents\" is \"3}\": expected an array");
  EXPECT_EQ(message(R"({"a" 1})"), "t.json: byte 5: found '1': expected : after the key \"a\"");
  EXPECT_EQ(message(R"({"a": 1 "b": 2})"), "t.json: byte 8: found '\"': expected , or } after a value");
  EXPECT_EQ(message(R"({a: 1})"), "t.json: byte 1: found 'a': expected a key in quotes");
  EXPECT_NE(message(R"([{"ph":"X"} {"ph":"X"}])").find("t.json: byte "), std::string::npos);
  EXPECT_NE(message(R"([{"ph" "X"}])").find("is not valid JSON"), std::string::npos);
}

std::string gzip(std::string_view text) {
  z_stream zip{};
  deflateInit2(&zip, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&zip, text.size()) + 64, '\0');
  zip.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  zip.avail_in = static_cast<uInt>(text.size());
  zip.next_out = reinterpret_cast<Bytef*>(out.data());
  zip.avail_out = static_cast<uInt>(out.size());
  deflate(&zip, Z_FINISH);
  out.resize(zip.total_out);
  deflateEnd(&zip);
  return out;
}

TEST(Kineto, Gzip) {
  const std::string packed = gzip(array_of(kPair));
  const auto whole = read(packed);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  EXPECT_EQ(whole->activities.size(), 1u);
  EXPECT_TRUE(whole->processes[0].notes.empty());

  const auto joined = read(gzip("[").append(gzip(kPair)).append(gzip("]")));
  ASSERT_TRUE(joined.ok()) << joined.error().message;
  EXPECT_EQ(joined->activities.size(), 1u);

  const auto cut = read(std::string_view(packed).substr(0, packed.size() - 12));
  ASSERT_TRUE(cut.ok()) << cut.error().message;
  EXPECT_EQ(note(cut.value(), "cut_off"), 1u);

  const auto garbage = read("\x1F\x8Bnot gzip at all");
  ASSERT_FALSE(garbage.ok());
  EXPECT_NE(garbage.error().message.find("cannot be unpacked"), std::string::npos);
}

// Events around and beyond the size of the reader's pieces.
TEST(Kineto, EventsOfAnySize) {
  for (const std::size_t size : {1000u, 500'000u, 524'288u, 3'000'000u}) {
    std::string text = R"([{"ph":"X","cat":"cpu_op","name":"big","pid":1,"tid":1,"ts":0,"dur":1,"args":{"x":")";
    text.append(size, 'x').append("\"}},").append(kPair).append("]");
    const auto trace = read(text);
    ASSERT_TRUE(trace.ok()) << trace.error().message;
    EXPECT_EQ(trace->events, 3u);
    EXPECT_EQ(trace->activities.size(), 1u);
  }
}

/// The reader takes half a megabyte at a time; events that end at, before and behind the edge of a piece.
TEST(Kineto, AnEventThatEndsWithAPiece) {
  constexpr std::size_t kPiece = 512 * 1024;
  for (std::size_t end = kPiece - 3; end <= kPiece + 3; ++end) {
    std::string text(R"([{"ph":"X","cat":"cpu_op","name":")");
    constexpr std::string_view kTail = R"(","pid":9,"tid":9,"ts":1,"dur":2})";
    text.append(end - text.size() - kTail.size(), 'x').append(kTail);
    ASSERT_EQ(text.size(), end);
    text.append(",").append(kPair).append("]");
    const auto trace = read(text);
    ASSERT_TRUE(trace.ok()) << end << ": " << trace.error().message;
    EXPECT_EQ(trace->activities.size(), 1u) << end;
  }
}

TEST(Kineto, AFolderAndAMissingFileAreErrors) {
  EXPECT_FALSE(ByteSource::open(MFU_TEST_DATA).ok());
  EXPECT_FALSE(ByteSource::open(std::string(MFU_TEST_DATA) + "/none.json").ok());
}

}  // namespace
}  // namespace mfu

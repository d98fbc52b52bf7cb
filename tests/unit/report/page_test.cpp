// Text of a report that others' names are in: the page, and Markdown.
#include "tools/report/page/page.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/unit/report/fake_job.h"
#include "tools/report/escape.h"
#include "tools/report/outputs/markdown.h"

namespace mfu {
namespace {

using nlohmann::json;
using testing_job::history;
using testing_job::job_of;
using testing_job::kStart;

TEST(Markdown, NamesAreText) {
  RunHistory h = history(0, {60, 20, 0, 0, 20}, 0.5);
  h.end->regions[0].region = "a|b\n# <b>";
  const std::string text = job_markdown(job_of({h}));
  EXPECT_NE(text.find("| a\\|b # \\<b\\> |"), std::string::npos) << text;
}

TEST(Markdown, EscapesWhatWouldBeMarkupAndNothingElse) {
  EXPECT_EQ(markdown_text("demo_softmax (-40.6 %) at 12:30!"), "demo_softmax (-40.6 %) at 12:30!");
  EXPECT_EQ(markdown_text("_a_ __init__ a_ _b"), "\\_a\\_ \\_\\_init\\_\\_ a\\_ \\_b");
  EXPECT_EQ(markdown_text("# head # none"), "\\# head # none");
  EXPECT_EQ(markdown_text("[x](http://y) `code` *b* ~~s~~"), "\\[x\\](http://y) \\`code\\` \\*b\\* \\~\\~s\\~\\~");
}

TEST(Page, NothingInItCanEndItsScript) {
  EXPECT_EQ(script_safe("{\"a\":\"</script><!--\"}"), "{\"a\":\"\\u003c/script>\\u003c!--\"}");
  EXPECT_EQ(json::parse(script_safe("{\"a\":\"</script>\"}"))["a"], "</script>");
  EXPECT_EQ(html_text("<a href=\"x\">'&"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;");
  RunHistory h = history(0, {60, 20, 0, 0, 20}, 0.5);
  const std::string evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)> @DATA@ @STYLE@";
  h.end->regions[0].region = evil;
  h.end->regions[0].top_kernels[0].name = evil;
  h.run.host = h.run.devices[0].name = evil;
  JobBuilder builder(evil, false);
  builder.add(h);
  const std::string page = run_page(builder.finish(), "0");
  const auto times = [&page](std::string_view what) {
    std::size_t n = 0;
    for (std::size_t at = page.find(what); at != std::string::npos; at = page.find(what, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(times("</script"), 3u);  // data, library, ours
  EXPECT_EQ(times("<script"), 3u);
  EXPECT_EQ(times("<img"), 0u);
  EXPECT_EQ(times("<style>"), 1u);
}

TEST(Page, StaysSmallForManyRanksAndLongRuns) {
  JobBuilder builder("dir", false);
  RunHistory h = history(0, {60, 20, 0, 0, 20}, 0.5);
  for (int rank = 0; rank < 1000; ++rank) {
    h.run.rank = rank;
    h.run.pid = rank;
    builder.add(h);
  }
  RunHistory long_run = history(1000, {60, 20, 0, 0, 20}, 0.5);
  for (int w = 4; w < 20000; ++w) {
    WindowSummary window = long_run.windows[0];
    window.window = {kStart + w * kNsPerSecond, kStart + (w + 1) * kNsPerSecond};
    for (RegionSummary& r : window.regions) r.window = window.window;
    long_run.windows.push_back(std::move(window));
  }
  builder.add(long_run);
  const Job job = builder.finish();
  EXPECT_LT(run_page(job, "0").size(), 2u << 20u);
  const json data = json::parse(run_page_data(job, "0"));
  EXPECT_EQ(data["rows"].size(), 2002u);
  EXPECT_LE(data["series"]["regions"]["step"]["bin"].size(), static_cast<std::size_t>(TimeGrid::kMaxBins));
}

}  // namespace
}  // namespace mfu

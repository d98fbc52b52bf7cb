#include "tools/report/page/page.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "core/sinks/region_json.h"

extern "C" {  // page_embedded.cpp.in
extern const char mfu_page_html[], mfu_page_html_end[];
extern const char mfu_page_css[], mfu_page_css_end[];
extern const char mfu_page_common_js[], mfu_page_common_js_end[];
extern const char mfu_page_run_js[], mfu_page_run_js_end[];
extern const char mfu_page_regions_js[], mfu_page_regions_js_end[];
extern const char mfu_page_card_js[], mfu_page_card_js_end[];
extern const char mfu_page_charts_js[], mfu_page_charts_js_end[];
extern const char mfu_page_tables_js[], mfu_page_tables_js_end[];
extern const char mfu_page_timeline_js[], mfu_page_timeline_js_end[];
extern const char mfu_page_compare_js[], mfu_page_compare_js_end[];
extern const char mfu_page_live_js[], mfu_page_live_js_end[];
extern const char mfu_page_chart_js[], mfu_page_chart_js_end[];
}

namespace mfu {

namespace {

using Json = nlohmann::ordered_json;

std::string_view embedded(const char* begin, const char* end) { return {begin, static_cast<std::size_t>(end - begin)}; }

/// The template with every @NAME@ replaced, in one pass: what is put in is not looked at again.
std::string filled(std::string_view text, const std::map<std::string_view, std::string_view>& values) {
  std::string out;
  while (!text.empty()) {
    const std::size_t at = text.find('@');
    out += text.substr(0, at);
    if (at == std::string_view::npos) break;
    const std::size_t end = text.find('@', at + 1);
    const auto value = end == std::string_view::npos ? values.end() : values.find(text.substr(at + 1, end - at - 1));
    if (value == values.end()) {
      out += '@';
      text.remove_prefix(at + 1);
    } else {
      out += value->second;
      text.remove_prefix(end + 1);
    }
  }
  return out;
}

std::string page(const std::string& title, const std::string& data, int refresh_s = 0) {
  const std::string safe_title = html_text(title);
  const std::string safe_data = script_safe(data);
  // With JavaScript the page reloads itself (live.js).
  const std::string refresh =
      refresh_s > 0 ? fmt::format("<noscript><meta http-equiv=\"refresh\" content=\"{}\"></noscript>\n", refresh_s)
                    : std::string();
  std::string script(embedded(mfu_page_common_js, mfu_page_common_js_end));
  script += embedded(mfu_page_regions_js, mfu_page_regions_js_end);
  script += embedded(mfu_page_card_js, mfu_page_card_js_end);
  script += embedded(mfu_page_charts_js, mfu_page_charts_js_end);
  script += embedded(mfu_page_tables_js, mfu_page_tables_js_end);
  script += embedded(mfu_page_timeline_js, mfu_page_timeline_js_end);
  script += embedded(mfu_page_run_js, mfu_page_run_js_end);
  script += embedded(mfu_page_compare_js, mfu_page_compare_js_end);
  if (refresh_s > 0) script += embedded(mfu_page_live_js, mfu_page_live_js_end);
  return filled(embedded(mfu_page_html, mfu_page_html_end),
                {{"TITLE", safe_title},
                 {"REFRESH", refresh},
                 {"CONNECT", refresh_s > 0 ? "; connect-src 'self'" : ""},
                 {"STYLE", embedded(mfu_page_css, mfu_page_css_end)},
                 {"DATA", safe_data},
                 {"CHART", embedded(mfu_page_chart_js, mfu_page_chart_js_end)},
                 {"SCRIPT", script}});
}

}  // namespace

std::string script_safe(std::string_view json) {
  std::string out;
  out.reserve(json.size() + json.size() / 64);
  for (const char c : json) {
    if (c == '<')
      out += "\\u003c";
    else
      out.push_back(c);
  }
  return out;
}

std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

std::string run_page(const Job& job, std::string_view version, const PageOptions& options) {
  return page(run_page_title(job), run_page_data(job, version, options), options.refresh_s);
}

std::string compare_page(const Comparison& comparison, std::string_view version) {
  Json j = Json::parse(comparison_json(comparison));
  j["kind"] = "compare";
  j["version"] = std::string(version);
  // The page shows what is compared; the two jobs are in --json.
  for (const char* side : {"a", "b"}) j[side] = Json::object({{"path", j[side]["path"]}});
  j["title"] = comparison_title(comparison);
  j["markdown"] = comparison_markdown(comparison);
  return page(comparison_title(comparison), text_of(j));
}

}  // namespace mfu

#include "tools/report/page/page.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "core/sinks/region_json.h"

namespace mfu {

// The files of this folder and the chart library (cmake/MfuEmbed.cmake).
std::string_view embedded_page_html() noexcept;
std::string_view embedded_page_css() noexcept;
std::string_view embedded_page_common_js() noexcept;
std::string_view embedded_page_run_js() noexcept;
std::string_view embedded_page_regions_js() noexcept;
std::string_view embedded_page_card_js() noexcept;
std::string_view embedded_page_charts_js() noexcept;
std::string_view embedded_page_tables_js() noexcept;
std::string_view embedded_page_timeline_js() noexcept;
std::string_view embedded_page_compare_js() noexcept;
std::string_view embedded_page_live_js() noexcept;
std::string_view embedded_page_chart_js() noexcept;

namespace {

using Json = nlohmann::ordered_json;

/// The template with every @NAME@ replaced, in one pass: inserted text is not looked at again.
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
  std::string script(embedded_page_common_js());
  script += embedded_page_regions_js();
  script += embedded_page_card_js();
  script += embedded_page_charts_js();
  script += embedded_page_tables_js();
  script += embedded_page_timeline_js();
  script += embedded_page_run_js();
  script += embedded_page_compare_js();
  if (refresh_s > 0) script += embedded_page_live_js();
  return filled(embedded_page_html(), {{"TITLE", safe_title},
                                       {"REFRESH", refresh},
                                       {"CONNECT", refresh_s > 0 ? "; connect-src 'self'" : ""},
                                       {"STYLE", embedded_page_css()},
                                       {"DATA", safe_data},
                                       {"CHART", embedded_page_chart_js()},
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

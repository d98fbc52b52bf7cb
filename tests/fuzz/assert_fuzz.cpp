// Any bytes as `--assert`: an Error of printable text, or a bound that can be checked against a job.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tools/report/assertion.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

mfu::Job job() {
  mfu::RunHistory history;
  history.source = "a";
  mfu::RegionSummary row;
  row.region = "step";
  row.device = 0;
  row.instances = 3;
  row.elapsed_ns = 9;
  row.time_ns = {9, 0, 0, 0, 0};
  row.mfu = 0.5;
  row.window = {0, 10};
  mfu::WindowSummary window;
  window.window = {0, 10};
  window.settled = true;
  window.regions = {row};
  history.windows.push_back(std::move(window));
  mfu::JobBuilder builder("a", false);
  builder.add(history);
  return builder.finish();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const mfu::Job kJob = job();
  const auto assertion = mfu::parse_assertion({reinterpret_cast<const char*>(data), size});
  if (!assertion) {
    require(!assertion.error().message.empty());
    return 0;
  }
  require(assertion->bound == assertion->bound);
  for (const auto& verdict : {mfu::check(*assertion, kJob), mfu::check_change(*assertion, kJob, kJob)})
    require(!(verdict ? verdict->message : verdict.error().message).empty());
  return 0;
}

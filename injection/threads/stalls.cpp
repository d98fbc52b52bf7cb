#include "injection/threads/stalls.h"

#include <string>
#include <utility>
#include <vector>

namespace mfu {

/// A launch without a name may be one that leaves no record: it counts only while the host waits for the device.
std::optional<RunEvent> Stalls::look(const Drain& drain, const Attribution& attribution, bool records_come,
                                     std::uint64_t records, LookThread* host) {
  const std::optional<CorrelationId> launch = records_come ? drain.oldest_waiting() : std::nullopt;
  const ThreadState* const launcher = attribution.last_launcher();
  const char* const call = launcher != nullptr ? launcher->waits_in.load(std::memory_order_relaxed) : nullptr;
  const auto kernels = [&] { return attribution.kernels_since(*launch); };
  waits_ = launch && (call != nullptr || !kernels().empty());
  const TimeNs now = monotonic_ns(), since = watch_.since();
  const StallWatch::Change change = watch_.look(now, attribution.launches_seen() + records, waits_);
  if (change == StallWatch::Change::kNone) return std::nullopt;
  const std::string length = std::to_string((now - since) / kNsPerSecond) + " s";
  stall_.reset();
  if (change == StallWatch::Change::kEnds) return RunEvent{0, "resumed", "the GPU's work goes on after " + length};
  Stall& stall = stall_.emplace();
  stall.since_ns = utc_now() - (now - since);
  for (const auto& [_, ended] : comm_kernels_) stall.comm_kernels += ended;
  const auto launches = kernels();
  std::vector<const char*> names;
  for (const auto& [_, name] : launches) names.push_back(name);
  const LookThread::Place place = host != nullptr ? host->look_now(std::move(names)) : LookThread::Place{};
  for (std::size_t i = 0; i < place.kernels.size(); ++i) {
    const std::string name = demangle(place.kernels[i]);
    const bool comm = classify_kernel(name) == KernelClass::kComm;
    stall.comm_kernels += comm;
    if (stall.kernel.empty() || (comm && !stall.comm)) stall.kernel = printable(name, 200);
    if (comm && !stall.comm) stall.collective = comm_kernels_[attribution.map().place_of(launches[i].first).lane()] + 1;
    stall.comm = stall.comm || comm;
  }
  for (const std::string& part : {std::string(call != nullptr ? call : ""), place.work.cause, place.work.where})
    if (!part.empty() && part != stall.host) stall.host += (stall.host.empty() ? "" : ", ") + part;
  std::string text = "no work has ended on the GPU for " + length;
  if (stall.comm)
    text += "; " + stall.kernel + " (number " + std::to_string(stall.collective) + " on its stream) is under way";
  else if (!stall.kernel.empty())
    text += "; " + stall.kernel + " or a kernel launched after it is under way";
  if (!stall.host.empty()) text += "; the host is in " + stall.host;
  return RunEvent{0, "stalled", std::move(text), stall};
}

}  // namespace mfu

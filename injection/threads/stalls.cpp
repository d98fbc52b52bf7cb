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
  const auto names = [&] { return attribution.kernels_since(*launch); };
  waits_ = launch && (call != nullptr || !names().empty());
  const TimeNs now = monotonic_ns(), since = watch_.since();
  const StallWatch::Change change = watch_.look(now, attribution.launches_seen() + records, waits_);
  if (change == StallWatch::Change::kNone) return std::nullopt;
  const std::string length = std::to_string((now - since) / kNsPerSecond) + " s";
  stall_.reset();
  if (change == StallWatch::Change::kEnds) return RunEvent{0, "resumed", "the GPU's work goes on after " + length};
  Stall& stall = stall_.emplace();
  stall.since_ns = utc_now() - (now - since);
  stall.comm_kernels = comm_kernels_;
  const LookThread::Place place = host != nullptr ? host->look_now(names()) : LookThread::Place{};
  for (const std::string& name : place.kernels) {
    const bool comm = classify_kernel(demangle(name)) == KernelClass::kComm;
    stall.comm_kernels += comm;
    if (stall.kernel.empty() || (comm && !stall.comm)) stall.kernel = printable(demangle(name), 200);
    stall.comm = stall.comm || comm;
  }
  for (const std::string& part : {std::string(call != nullptr ? call : ""), place.work.cause, place.work.where})
    if (!part.empty()) stall.host += (stall.host.empty() ? "" : ", ") + part;
  std::string text = "no work has ended on the GPU for " + length;
  if (stall.comm)
    text += "; " + stall.kernel + " (communication kernel " + std::to_string(stall.comm_kernels) + ") is under way";
  else if (!stall.kernel.empty())
    text += "; " + stall.kernel + " or a kernel launched after it is under way";
  if (!stall.host.empty()) text += "; the host is in " + stall.host;
  return RunEvent{0, "stalled", std::move(text), stall};
}

}  // namespace mfu

#include "core/recording/recording_ring.h"

#include <algorithm>
#include <limits>

namespace mfu {

void RecordingRing::on_record(const ActivityRecord& record, InstanceId owner, bool first_of_launch) {
  const auto [stream, fresh] =
      stream_index_.try_emplace(raw(record.stream), static_cast<std::uint32_t>(streams_.size()));
  if (fresh) {
    if (streams_.size() < kMaxStreams)
      streams_.push_back(record.stream);
    else
      stream->second = kMaxStreams - 1;  // shares a line with another; times and owners stay right
  }
  TracedActivity activity{};
  activity.begin_ns = record.begin_ns;
  activity.length_ns = static_cast<std::uint64_t>(record.end_ns - record.begin_ns);
  activity.device = std::min<std::uint32_t>(raw(record.device), 255);
  activity.stream = stream->second;
  activity.kind = static_cast<std::uint64_t>(record.kind) & 3u;
  activity.first = first_of_launch;
  activity.correlation = record.correlation;
  activity.owner = owner;
  activity.name = raw(record.name) & (KernelNames::kCapacity - 1);
  activity.product = raw(record.product) & ((1u << 17) - 1);
  activity.first_of_product = record.first_of_product ? 1 : 0;
  activity.direction = static_cast<std::uint32_t>(record.direction) & 3u;
  activity.graph = record.graph;
  activity.extent = record.extent;
  activities_.push(activity);
}

void RecordingRing::on_open(const InstanceSlot& slot, TimeNs at) {
  open_[raw(slot.id)] = {
      at, std::numeric_limits<TimeNs>::max(), slot.id, slot.os_thread, slot.region, slot.rule, slot.kind, slot.shape};
}

void RecordingRing::on_close(const InstanceSlot& slot, TimeNs at) {
  const auto found = open_.find(raw(slot.id));
  if (found == open_.end()) return;
  found->second.close_ns = at;
  instances_.push(found->second);
  open_.erase(found);
}

void RecordingRing::on_finished(const Instance& instance, std::uint32_t device, double share_of_work) {
  const InstanceOnDevice& share = instance.shares[device];
  TracedWork work{};
  work.begin_ns = share.begin_ns;
  work.end_ns = share.end_ns;
  work.flop = instance.phase != Phase::kNone && instance.work.flop_known ? instance.work.flop * share_of_work : -1;
  work.bytes = instance.phase != Phase::kNone && instance.work.bytes_known ? instance.work.bytes * share_of_work : -1;
  work.region = instance.region;
  work.device = static_cast<std::uint8_t>(std::min<std::uint32_t>(device, 255));
  works_.push(work);
}

TraceSnapshot RecordingRing::snapshot(TimeNs now) const {
  TraceSnapshot out;
  out.origin_ns = origin_ns_;
  out.end_ns = now;
  out.streams = streams_;
  const TimeNs from = now - keep_ns_;
  out.activities.reserve(activities_.size());
  activities_.for_each([&](const TracedActivity& a) {
    if (a.begin_ns >= from)
      out.activities.push_back(a);
    else
      out.whole_run = false;
  });
  out.instances.reserve(instances_.size() + open_.size());
  instances_.for_each([&](const TracedInstance& i) {
    if (i.close_ns >= from)
      out.instances.push_back(i);
    else
      out.whole_run = false;
  });
  for (const auto& [id, instance] : open_) out.instances.push_back(instance);
  works_.for_each([&](const TracedWork& w) {
    if (w.end_ns >= from) out.works.push_back(w);
  });
  out.left_out = activities_.overwritten();
  out.whole_run = out.whole_run && activities_.overwritten() == 0 && instances_.overwritten() == 0;
  return out;
}

std::size_t RecordingRing::resident_bytes() const noexcept {
  return activities_.resident_bytes() + instances_.resident_bytes() + works_.resident_bytes() +
         open_.size() * (sizeof(TracedInstance) + 32) + streams_.capacity() * sizeof(StreamId) +
         stream_index_.size() * 32;
}

}  // namespace mfu

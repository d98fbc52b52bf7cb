#include "tools/simgpu/driver/engine_state.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace mfu::sim {

namespace {

constexpr double kPcieBytesPerSecond = 50e9;     // PCIe 5 x16 as it is measured, both directions alike
constexpr std::int64_t kTransferSetupNs = 1200;  // the time of a tiny copy or set

std::int64_t scaled(double ns) { return std::max<std::int64_t>(1, std::llround(ns * settings().time_scale)); }

/// Puts the work into the graph that the stream captures. The context's mutex is held.
CUresult capture_work(Stream& stream, CUgraphNodeType type, const Activity& work, std::int64_t duration_ns) {
  current_call().captured = true;
  if (!capturing(stream)) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  Node node;
  node.type = type;
  node.work = work;
  node.duration_ns = duration_ns;
  capture_node(stream, std::move(node));
  return CUDA_SUCCESS;
}

}  // namespace

std::int64_t transfer_duration(const Activity& work, const DeviceSpec& device) {
  const bool on_device = work.kind == ActivityKind::kMemset || work.copy_kind == 8;
  const double rate = on_device ? device.bytes_per_s / 2 : kPcieBytesPerSecond;
  return scaled(static_cast<double>(kTransferSetupNs) + static_cast<double>(work.bytes) / rate * 1e9);
}

std::int64_t kernel_duration(const KernelCost& cost, const DeviceSpec& device, const LaunchShape& shape) {
  if (cost.fixed_ns > 0) return scaled(static_cast<double>(cost.fixed_ns));
  if (cost.ns_param >= 0 && shape.params != nullptr) {
    std::uint32_t ns = 0;
    std::memcpy(&ns, shape.params[cost.ns_param], sizeof ns);
    return scaled(ns);
  }
  const auto factor = [&](int index) {
    std::uint32_t value = 1;
    if (index >= 0 && shape.params != nullptr) std::memcpy(&value, shape.params[index], sizeof value);
    return static_cast<double>(value);
  };
  const double flop_per_block = cost.flop_per_block * factor(cost.flop_param);
  const double bytes_per_block = cost.bytes_per_block * factor(cost.bytes_param);
  const double blocks = static_cast<double>(shape.grid[0]) * shape.grid[1] * shape.grid[2];
  if (cost.flop_per_block <= 0 && cost.bytes_per_block <= 0) {
    const double threads = blocks * shape.block[0] * shape.block[1] * shape.block[2];
    const double by_threads = threads * settings().bytes_per_thread / device.bytes_per_s * 1e9;
    return scaled(std::max(static_cast<double>(settings().default_kernel_ns), by_threads));
  }
  // One block runs on one SM: a small grid cannot use the whole device.
  const double share = std::min(1.0, blocks / device.sm_count);
  const double by_flop = blocks * flop_per_block / (device.flop_per_s * cost.efficiency * share);
  const double by_bytes = blocks * bytes_per_block / (device.bytes_per_s * cost.efficiency);
  return scaled(std::max(1500.0, std::max(by_flop, by_bytes) * 1e9));
}

void emit(Activity& activity, bool to_tool) {
  const Tool* t = tool();
  const bool handed_over = t != nullptr && to_tool && wanted().kinds.wants(activity.seen_as());
  if (truth_activity != nullptr) activity.truth = truth_activity(activity, handed_over ? Fate::kNone : Fate::kUnwanted);
  if (handed_over) t->activity(activity);
}

void finish_before_exit(std::int64_t end_ns) {
  if (!settings().kernel_before_exit) return;
  sleep_until(end_ns);
  if (const Tool* t = tool(); t != nullptr) t->deliver_now();
}

void burn_launch_cost(std::size_t traced_nodes) noexcept {
  const Settings& s = settings();
  const bool traced = tool() != nullptr && wanted().kinds.wants(ActivityKind::kKernel);
  burn(s.launch_cost_ns + (traced ? s.traced_launch_ns : 0) +
       s.traced_node_ns * static_cast<std::int64_t>(traced_nodes));
}

CUresult scripted_launch_failure() {
  const Settings& s = settings();
  if (s.fail_launch_rate <= 0) return CUDA_SUCCESS;
  const std::uint64_t n = process().launches.fetch_add(1, std::memory_order_relaxed);
  return hit(s.fail_launch_rate, n, 1) ? static_cast<CUresult>(s.fail_launch_error) : CUDA_SUCCESS;
}

bool valid(const LaunchShape& shape) {
  const std::uint64_t threads = static_cast<std::uint64_t>(shape.block[0]) * shape.block[1] * shape.block[2];
  const std::uint64_t blocks = static_cast<std::uint64_t>(shape.grid[0]) * shape.grid[1] * shape.grid[2];
  return threads > 0 && threads <= 1024 && blocks > 0;
}

Activity kernel_work(const Function& function, const LaunchShape& shape, const LaunchOptions& options) {
  Activity work;
  work.kind = ActivityKind::kKernel;
  work.name = function.name;
  work.launch_type = options.cooperative ? 1 : 0;
  work.shared_bytes = shape.shared_bytes;
  std::copy(std::begin(shape.grid), std::end(shape.grid), std::begin(work.grid));
  std::copy(std::begin(shape.block), std::end(shape.block), std::begin(work.block));
  return work;
}

void place(Activity& work, const Stream& stream, std::int64_t begin_ns, std::int64_t duration_ns) {
  work.begin_ns = begin_ns;
  work.end_ns = begin_ns + duration_ns;
  work.device = static_cast<std::uint32_t>(stream.context->device->ordinal);
  work.context = stream.context->uid;
  work.stream = stream.id;
  work.correlation = current_call().correlation;
}

CUresult launch_kernel(Stream& stream, Function& function, const LaunchShape& shape, const LaunchOptions& options) {
  current_call().launch = true;
  if (!valid(shape)) return CUDA_ERROR_INVALID_VALUE;
  burn_launch_cost();
  if (const CUresult failure = scripted_launch_failure(); failure != CUDA_SUCCESS) return failure;
  std::int64_t duration = kernel_duration(function.cost, *stream.context->device->spec, shape);
  Activity work = kernel_work(function, shape, options);
  std::int64_t room_at = 0;
  {
    const std::lock_guard lock(stream.context->mutex);
    if (stream.capture != nullptr) return capture_work(stream, CU_GRAPH_NODE_TYPE_KERNEL, work, duration);
    const std::int64_t now = now_ns();
    std::int64_t begin = earliest_start(stream, now);
    if (options.programmatic && ready_at(stream) == stream.tail_ns) {
      begin = std::max(
          {now + settings().launch_latency_ns, stream.last_begin_ns, stream.tail_ns - settings().pdl_overlap_ns});
    }
    if (function.cost.until_param >= 0 && shape.params != nullptr) {
      std::int64_t until = 0;
      std::memcpy(&until, shape.params[function.cost.until_param], sizeof until);
      duration = std::max(duration, until - begin);
    }
    place(work, stream, begin, duration);
    stream.last_begin_ns = begin;
    stream.tail_ns = std::max(stream.tail_ns, work.end_ns);
    room_at = enqueue(stream, work.end_ns);
  }
  emit(work, true);
  finish_before_exit(work.end_ns);
  if (room_at != 0) sleep_until(room_at);
  return CUDA_SUCCESS;
}

Activity make_copy(std::uint64_t bytes, std::uint8_t copy_kind) {
  // CUpti_ActivityMemcpyKind: 1 HtoD, 2 DtoH, 8 DtoD, 9 HtoH, 10 PtoP; CUpti_ActivityMemoryKind: 1 pageable, 3 device.
  const auto from = static_cast<std::uint8_t>(copy_kind == 1 || copy_kind == 9 ? 1 : 3);
  const auto to = static_cast<std::uint8_t>(copy_kind == 2 || copy_kind == 9 ? 1 : 3);
  return {.kind = ActivityKind::kMemcpy, .copy_kind = copy_kind, .src_kind = from, .dst_kind = to, .bytes = bytes};
}

Activity make_set(std::uint64_t bytes, std::uint32_t value) {
  return {.kind = ActivityKind::kMemset, .dst_kind = 3, .bytes = bytes, .value = value};
}

CUresult launch_transfer(Stream& stream, Activity work, bool wait) {
  current_call().launch = true;
  const std::int64_t duration = transfer_duration(work, *stream.context->device->spec);
  std::int64_t room_at = 0;
  {
    const std::lock_guard lock(stream.context->mutex);
    if (stream.capture != nullptr) {
      if (wait && capturing(stream)) {
        current_call().captured = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
      }
      const bool copies = work.kind == ActivityKind::kMemcpy;
      return capture_work(stream, copies ? CU_GRAPH_NODE_TYPE_MEMCPY : CU_GRAPH_NODE_TYPE_MEMSET, work, duration);
    }
    place(work, stream, earliest_start(stream, now_ns()), duration);
    stream.tail_ns = work.end_ns;
    room_at = enqueue(stream, work.end_ns);
  }
  emit(work, true);
  finish_before_exit(work.end_ns);
  if (wait) sleep_until(work.end_ns);
  if (room_at != 0) sleep_until(room_at);
  return CUDA_SUCCESS;
}

}  // namespace mfu::sim

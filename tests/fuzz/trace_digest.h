// A number for all that a trace holds, by which a fuzzer knows what it has followed before.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "tools/trace/trace.h"

/// [one thread]
class TraceDigest {
 public:
  explicit TraceDigest(const mfu::Trace& trace) {
    // A field that is added is added here too.
    static_assert(sizeof(mfu::TraceRange) == 56 && sizeof(mfu::TraceLaunch) == 32 && sizeof(mfu::TraceActivity) == 48 &&
                  sizeof(mfu::TraceOperator) == 64 && sizeof(mfu::TraceProduct) == 56 &&
                  sizeof(mfu::TraceFacts::Recording) == 40);
    add_facts(trace);
    for (std::uint32_t i = 0; i < trace.strings.size(); ++i) text(trace.strings.at(i));
    all(trace.processes, [&](const mfu::TraceProcess& p) {
      text(p.name);
      notes(p.notes);
    });
    all(trace.threads, [&](const mfu::TraceThread& t) {
      numbers(t.process, t.tid);
      text(t.label);
    });
    all(trace.devices, [&](const mfu::TraceDevice& d) {
      numbers(d.process, d.id, d.facts.sm_count, d.facts.clock_khz, d.facts.cc_major, d.facts.cc_minor,
              d.facts.memory_clock_khz, d.facts.memory_bus_bits, d.facts.memory_bytes);
      text(d.label);
      text(d.facts.name);
      real(d.memory_bytes_per_s);
    });
    all(trace.streams, [&](const mfu::TraceStream& s) {
      numbers(s.device, s.id);
      text(s.label);
    });
    all(trace.ranges, [&](const mfu::TraceRange& r) {
      numbers(r.begin_ns, r.end_ns, r.name, r.key, r.domain, r.thread, r.payload, r.has_payload, r.recorded, r.region,
              r.kind);
    });
    all(trace.launches, [&](const mfu::TraceLaunch& l) {
      numbers(l.begin_ns, l.end_ns, l.correlation, l.name, l.thread, l.graph, l.memcpy, l.memset, l.kernel, l.capture,
              l.counted);
    });
    all(trace.activities, [&](const mfu::TraceActivity& a) {
      numbers(a.begin_ns, a.end_ns, a.extent, a.correlation, a.name, a.launch, a.stream, a.process, a.kind, a.nccl,
              a.has_correlation, a.direction);
    });
    all(trace.operators, [&](const mfu::TraceOperator& o) {
      numbers(o.begin_ns, o.end_ns, o.thread);
      product(o.product);
    });
    all(trace.product_of_activity, [&](const mfu::TraceProduct& p) {
      numbers(p.product.has_value(), p.first);
      if (p.product) product(*p.product);
    });
  }

  [[nodiscard]] std::uint64_t value() const noexcept { return hash_; }

 private:
  void add_facts(const mfu::TraceFacts& f) {
    text(f.path);
    numbers(f.format, f.rank.has_value(), f.rank.value_or(0), f.world_size.has_value(), f.world_size.value_or(0),
            f.base_ns, f.events, f.recording.has_value());
    for (const auto* list : {&f.gpu_names, &f.top_level_keys, &f.nvtx_domains, &f.tables})
      all(*list, [&](const std::string& entry) { text(entry); });
    all(f.export_info, [&](const auto& row) {
      text(row.first);
      text(row.second);
    });
    if (f.recording)
      numbers(f.recording->origin_ns, f.recording->end_ns, f.recording->whole_run, f.recording->pid,
              f.recording->products);
    notes(f.notes);
  }
  void product(const mfu::Product& p) {
    numbers(p.m, p.n, p.k, p.batch, p.operands, p.result, p.transpose_a, p.transpose_b, p.complex, p.kind);
  }
  void notes(const mfu::TraceNotes& notes) {
    all(notes, [&](const auto& note) {
      text(note.first);
      numbers(note.second);
    });
  }
  template <typename List, typename Each>
  void all(const List& list, Each&& each) {
    numbers(list.size());
    for (const auto& entry : list) each(entry);
  }
  template <typename... Values>
  void numbers(Values... values) {
    (mix(static_cast<std::uint64_t>(values)), ...);
  }
  void real(double value) { mix(__builtin_bit_cast(std::uint64_t, value)); }
  void text(std::string_view text) { numbers(text.size(), std::hash<std::string_view>()(text)); }
  void mix(std::uint64_t value) noexcept {
    const auto product = static_cast<unsigned __int128>(hash_ ^ value) * 0x9E3779B97F4A7C15ull;
    hash_ = static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64) ^ 0xD6E8FEB86659FD93ull;
  }

  std::uint64_t hash_ = 0;
};

/// What is made of a trace depends on nothing else: most changes to a file's bytes are read as the same trace, or as
/// one that came before, and to follow it again would show nothing. Of traces that came long ago some are forgotten.
inline bool came_before(const mfu::Trace& trace) {
  static std::array<std::uint64_t, 1u << 16> seen{};
  const std::uint64_t digest = TraceDigest(trace).value();
  std::uint64_t& slot = seen[digest % seen.size()];
  const bool before = slot == digest;
  slot = digest;
  return before;
}

// The one thread that writes: log, run directory, TensorBoard, traces. It may wait for a disk; no thread waits for it.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/kernels/kernel_names.h"
#include "core/ranges/region_rules.h"
#include "core/recording/recording_ring.h"
#include "core/recording/recording_writer.h"
#include "core/sinks/sink.h"
#include "core/sinks/sink_jsonl.h"
#include "core/sinks/sink_text.h"
#include "injection/threads/log_thread.h"
#include "injection/threads/wakeup.h"

namespace mfu {

/// [mfu-sink] runs loop(), and alone touches the sinks. It has a separate table of descriptors, so that no number
/// that the host sees is ever its. Others leave messages in a queue of bounded length: a disk that hangs costs the
/// oldest windows, and no other thread a moment. Messages wait until the start line is among them, so a process that
/// never works on a GPU writes nothing.
///
/// The queue's mutex is held for a move of a message, never while something is written.
class SinkThread {
 public:
  SinkThread(const Config& config, const RegionRules& rules, const KernelNames& names);
  /// Opens the sinks. Before start(); `run` names the files.
  void open(const RunInfo& run);
  [[nodiscard]] bool start();

  /// [any thread] One event, stamped with the system's time.
  void say(std::string kind, std::string text, std::optional<Stall> stall = {});
  /// [mfu-drain, or before the threads start] The start line; again when a device has joined.
  void announce(RunInfo run);
  [[nodiscard]] bool announced() const;
  /// [mfu-drain]
  void send(WindowSummary&& window);
  void send_trace(std::string path, TraceSnapshot trace, TraceHeader header);
  /// [mfu-drain] There is something to write; once per tick.
  void wake();
  /// [mfu-drain] Nothing more will come. Without a start line nothing is written at all.
  void close();
  /// A file in the run directory that asks every process of the run for something each time it is touched.
  class Request {
   public:
    explicit Request(const char* name) : name_(name) {}
    [[nodiscard]] bool asked() const noexcept { return wanted_.load(std::memory_order_relaxed); }
    /// [mfu-drain] Whether it was touched since it was taken, and that is more than so many calls ago.
    [[nodiscard]] bool take(int calls = 0) noexcept {
      if (!asked() || calls_++ < calls) return false;
      calls_ = 0;
      return wanted_.exchange(false, std::memory_order_relaxed);
    }
    /// [mfu-sink] \return whether it was touched since the last call, and since `begin`.
    bool look(const std::string& directory, TimeNs begin);

   private:
    const char* name_;
    ::timespec seen_{};
    std::atomic<bool> wanted_{false};
    int calls_ = 0;
  };
  /// The last seconds, as a trace; the run so far.
  [[nodiscard]] Request& trace() noexcept { return trace_; }
  [[nodiscard]] Request& so_far() noexcept { return so_far_; }
  /// `poke` is called by [mfu-sink] when the run so far is wanted. Before start().
  void when_asked(std::function<void()> poke) { poke_ = std::move(poke); }

  /// [exiting thread] From now on the host waits for us: a trace gets 1 s instead of 30.
  void hurry() noexcept { hurry_.store(true, std::memory_order_relaxed); }
  /// [exiting thread] False when `patience` passed and not everything is written.
  [[nodiscard]] bool wait_written(DurationNs patience);

  /// [any thread] Lines written so far; CPU time of the thread [s].
  [[nodiscard]] std::uint64_t lines() const noexcept { return lines_.load(std::memory_order_relaxed); }
  [[nodiscard]] double cpu_s() const noexcept { return cpu_s_.load(std::memory_order_relaxed); }

 private:
  struct Message {
    enum class Kind { kStart, kWindow, kEvent, kTrace } kind = Kind::kEvent;
    RunInfo run;
    WindowSummary window;
    TraceSnapshot trace;
    TraceHeader trace_header;
    std::string path;  ///< of the trace
    RunEvent event;    ///< of a start line and a trace its time alone
  };
  static constexpr std::size_t kMostWaiting = 256;

  void push(Message&& message);
  void loop();
  void write(Message& message);
  void say_notices();
  void write_trace_file(const Message& message);

  const Config& config_;
  const RegionRules& rules_;
  const KernelNames& names_;
  TimeNs run_begin_ns_ = 0;

  Wakeup wake_, written_wake_;
  mutable std::mutex mutex_;
  std::deque<Message> messages_;
  bool open_ = false;    ///< the start line is among the messages: they may go out
  bool closed_ = false;  ///< nothing more will come
  bool written_ = false;
  std::atomic<bool> hurry_{false};
  Request trace_{"trace"}, so_far_{"now"};
  std::function<void()> poke_;
  std::atomic<std::uint64_t> lines_{0};
  std::atomic<double> cpu_s_{0};

  std::optional<LogThread> log_thread_;  ///< where the log is a standard stream
  bool own_descriptors_ = false;

  // [mfu-sink]
  std::optional<TextSink> text_;
  std::optional<JsonlSink> json_log_;              ///< instead of text_
  std::vector<std::unique_ptr<Sink>> file_sinks_;  ///< those that write into the run directory alone
  std::vector<std::string> sinks_failed_;
  bool other_root_said_ = false;
};

}  // namespace mfu

// Everything that runs inside a host: built in one order, started once, stopped once, never destroyed.
#pragma once

namespace mfu {

/// The library as one process has it. All its parts are leaked on purpose: host threads may be inside our callbacks
/// until the process is gone, and CUPTI's own thread may call us after the last exit handler.
///
/// Who may do what:
/// - host threads run callbacks: no lock, no allocation, no driver call;
/// - mfu-drain attributes and accounts, mfu-flush asks CUPTI, mfu-sink writes (injection/README.md);
/// - the thread that exits waits for the three, with a deadline.
class Guest {
 public:
  /// [inside cuInit, or on one of the library's threads] Once per process; further calls return at once. Reads the
  /// configuration, opens CUPTI, subscribes. No thread is started before there is a context, if there is a CUPTI.
  static void start();
  /// NVTX is in use and the library was not started: the driver never will if CUDA was initialised before us.
  static void start_late() noexcept;
  [[nodiscard]] static bool started() noexcept;
};

}  // namespace mfu

// The one thread that writes to the host's standard streams.
#pragma once

#include <deque>
#include <mutex>
#include <string>

#include "core/base/line_file.h"
#include "injection/threads/wakeup.h"

namespace mfu {

/// [mfu-log] runs loop(); [mfu-sink] hands texts over. Standard streams are in the host's table of descriptors, which
/// mfu-sink has left; and a terminal or pipe that takes its time holds up no file.
class LogThread final : public LineCarrier {
 public:
  [[nodiscard]] bool start();
  /// [mfu-sink] \return what the last write came to: this one is still to come. An Error too when so much waits already
  /// that seems to have no reader.
  [[nodiscard]] Result<void> carry(LineFile& file, std::string text) override;
  /// [mfu-sink] Nothing more will come. False when `patience` passed and not everything is written.
  bool finish(DurationNs patience);

 private:
  struct Text {
    LineFile* file;
    std::string text;
  };
  static constexpr std::size_t kMostBytes = 1u << 20;

  void loop();

  Wakeup wake_, written_wake_;
  std::mutex mutex_;
  std::deque<Text> texts_;
  std::size_t waiting_bytes_ = 0;
  std::string last_error_;
  bool closed_ = false, written_ = false;
};

}  // namespace mfu

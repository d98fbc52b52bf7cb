#include "injection/threads/log_thread.h"

#include <utility>

#include "injection/guards/own_thread.h"

namespace mfu {

bool LogThread::start() {
  return start_own_thread(
      "mfu-log", [](void* self) { static_cast<LogThread*>(self)->loop(); }, this);
}

Result<void> LogThread::carry(LineFile& file, std::string text) {
  std::string error;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_bytes_ + text.size() > kMostBytes) return Error{file.target() + ": nobody reads it"};
    waiting_bytes_ += text.size();
    texts_.push_back({&file, std::move(text)});
    error = std::exchange(last_error_, {});
  }
  wake_.notify([] {});
  if (!error.empty()) return Error{std::move(error)};
  return {};
}

bool LogThread::finish(DurationNs patience) {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  wake_.notify([] {});
  return written_wake_.wait(patience, [this] { return written_; });
}

void LogThread::loop() {
  for (bool finished = false; !finished;) {
    wake_.wait(3600 * kNsPerSecond, [this] {
      const std::lock_guard lock(mutex_);
      return closed_ || !texts_.empty();
    });
    while (true) {
      Text next;
      {
        const std::lock_guard lock(mutex_);
        if (texts_.empty()) {
          finished = closed_;
          break;
        }
        next = std::move(texts_.front());
        texts_.pop_front();
        waiting_bytes_ -= next.text.size();
      }
      if (const auto done = next.file->write_now(next.text); !done) {
        const std::lock_guard lock(mutex_);
        last_error_ = done.error().message;
      }
    }
  }
  written_wake_.notify([this] { written_ = true; });
}

}  // namespace mfu

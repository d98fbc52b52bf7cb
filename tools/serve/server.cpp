// The server behind `mfu serve`: prometheus-cpp over the job's files. They are read on request.
#include <prometheus/text_serializer.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <sstream>

#include "core/base/clock.h"
#include "core/base/say.h"
#include "tools/serve/exposition.h"
#include "tools/serve/http_server.h"
#include "tools/serve/server_module.h"

namespace mfu {
namespace {

constexpr DurationNs kOldEnough = kNsPerSecond / 2;  ///< several scrapers at once read the files once

/// [any thread]
class JobMetrics {
 public:
  JobMetrics(const ServeOptions& options, std::string label)
      : job_(options.directories, RunFile::From::kBeginning), label_(std::move(label)), per_rank_(options.per_rank) {
    job_.set_price(options.gpu_hour);
  }

  Result<void> refresh() {
    const std::lock_guard lock(mutex_);
    return refresh_locked();
  }

  /// Prints the files that cannot be used, for a person who waits. \return whether no file can be.
  bool say_problems() const {
    const std::lock_guard lock(mutex_);
    for (const std::string& problem : job_.problems()) say_error("serve", problem);
    const auto unreadable = [](const Rank* rank) { return rank->state == RankState::kUnreadable; };
    return !job_.ranks().empty() && std::all_of(job_.ranks().begin(), job_.ranks().end(), unreadable);
  }

  /// All metrics as text. One rendering is for all who ask within kOldEnough: with 400 ranks it is megabytes.
  [[nodiscard]] HttpAnswer answer() const {
    const std::lock_guard lock(mutex_);
    const TimeNs now = time_of(CLOCK_MONOTONIC);
    if (made_ns_ == 0 || now - made_ns_ >= kOldEnough) {
      answer_ = http_answer(200, "text/plain; version=0.0.4; charset=utf-8", text_locked());
      made_ns_ = time_of(CLOCK_MONOTONIC);
    }
    return answer_;
  }

  [[nodiscard]] std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_locked();
  }

 private:
  std::string text_locked() const {
    std::ostringstream text;
    prometheus::TextSerializer().Serialize(text, collect_locked());
    return text.str();
  }

  std::vector<prometheus::MetricFamily> collect_locked() const {
    const Result<void> read = refresh_locked();
    prometheus::MetricFamily up{
        "mfu_run_directory_up", "1: the run directory can be listed", prometheus::MetricType::Gauge, {}};
    up.metric.emplace_back();
    up.metric.back().label = {{"job", label_}};
    up.metric.back().gauge.value = read ? 1 : 0;
    if (!read) return {up};
    auto families = exposition(job_, label_, per_rank_);
    families.push_back(std::move(up));
    return families;
  }

  Result<void> refresh_locked() const {
    const TimeNs now = time_of(CLOCK_MONOTONIC);
    if (read_ns_ != 0 && now - read_ns_ < kOldEnough) return {};
    const auto done = job_.refresh(now, time_of(CLOCK_REALTIME));
    if (!done) return done.error();
    read_ns_ = now;
    return {};
  }

  mutable std::mutex mutex_;
  mutable LiveJob job_;
  mutable TimeNs read_ns_ = 0;
  mutable HttpAnswer answer_;
  mutable TimeNs made_ns_ = 0;  ///< when answer_ was
  std::string label_;
  PerRank per_rank_;
};

/// The report of what the job has written so far; made anew at most every few seconds. [any thread]
class LivePage {
 public:
  explicit LivePage(const std::function<Result<std::string>()>& make) : make_(make) {}

  [[nodiscard]] HttpAnswer answer() {
    const std::lock_guard lock(mutex_);
    const TimeNs now = time_of(CLOCK_MONOTONIC);
    // A large job takes a while to read: no more than a tenth of the time goes there.
    if (made_ns_ == 0 || now - made_ns_ > std::max<DurationNs>(5 * kNsPerSecond, 10 * took_ns_)) {
      const Result<std::string> page = make_ ? make_() : Error{"this mfu has no page"};
      answer_ = page ? http_answer(200, "text/html; charset=utf-8", *page)
                     : http_answer(503, "text/plain; charset=utf-8", page.error().message + "\n");
      made_ns_ = time_of(CLOCK_MONOTONIC);
      took_ns_ = made_ns_ - now;
    }
    return answer_;
  }

 private:
  std::mutex mutex_;
  const std::function<Result<std::string>()>& make_;
  HttpAnswer answer_;
  TimeNs made_ns_ = 0;
  DurationNs took_ns_ = 0;
};

int fail(const std::string& message) { return say_error("serve", message); }

int write_textfile(const ServeOptions& options, const JobMetrics& metrics, const ::sigset_t& ends) {
  while (true) {
    if (const auto done = options.replace(options.textfile, metrics.text()); !done) return fail(done.error().message);
    if (options.once) return metrics.say_problems() ? 1 : 0;
    const auto whole = static_cast<std::time_t>(options.every_s);
    const ::timespec pause{whole, static_cast<long>((options.every_s - static_cast<double>(whole)) * 1e9)};
    if (::sigtimedwait(&ends, nullptr, &pause) > 0) return 0;
  }
}

int serve(const ServeOptions& options) {
  // Before any thread is there, so that sigwait gets the signals.
  ::sigset_t ends;
  ::sigemptyset(&ends);
  ::sigaddset(&ends, SIGINT);
  ::sigaddset(&ends, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  std::string label = options.job;
  if (label.empty()) {
    std::error_code error;
    const auto path = std::filesystem::weakly_canonical(options.directories.front(), error);
    label = error || path.filename().empty() ? options.directories.front() : path.filename().string();
  }
  const auto metrics = std::make_shared<JobMetrics>(options, std::move(label));
  if (const auto read = metrics->refresh(); !read) return fail(read.error().message);
  if (!options.textfile.empty()) return write_textfile(options, *metrics, ends);

  const std::string address = options.address.find(':') != std::string::npos && options.address.front() != '['
                                  ? "[" + options.address + "]"
                                  : options.address;
  const std::string at = address + ":" + std::to_string(options.port);
  HttpServer server(options.allowed_hosts);
  server.handle("/metrics", [&metrics] { return metrics->answer(); });
  LivePage page(options.page);
  server.handle("/", [&page] { return page.answer(); });
  const Result<int> port = server.listen(at);
  if (!port) return fail(at + ": cannot listen there: it is taken by another program, or no address of this machine");
  say("mfu serve: the live page is http://{}:{}/, for Prometheus http://{}:{}/metrics\n", address, *port, address,
      *port);
  std::fflush(stdout);
  int signal = 0;
  ::sigwait(&ends, &signal);
  return 0;
}

}  // namespace

}  // namespace mfu

extern "C" __attribute__((visibility("default"))) int mfu_serve(const mfu::ServeOptions& options) {
  return mfu::serve(options);
}

#include "tools/job/live_job.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>
#include <tuple>

namespace mfu {

namespace {

constexpr DurationNs kDefaultInterval = 10 * kNsPerSecond;
constexpr int kStaleAfterWindows = 3;
constexpr DurationNs kCertainlyOver = 600 * kNsPerSecond;  ///< clocks of one site differ by less
constexpr DurationNs kListAtLeastEvery =
    5 * kNsPerSecond;  ///< a directory's time may lag behind on a shared file system
constexpr std::size_t kFilesPerThread = 64;
constexpr unsigned kMostThreads = 8;

/// Upper median; `values` is reordered, not empty.
TimeNs median(std::vector<TimeNs>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::int64_t modified_ns(const std::string& path) {
  struct ::stat at {};
  if (::stat(path.c_str(), &at) != 0) return -1;
  return static_cast<std::int64_t>(at.st_mtim.tv_sec) * kNsPerSecond + at.st_mtim.tv_nsec;
}

}  // namespace

Result<void> LiveJob::list(TimeNs mono_ns) {
  std::vector<std::int64_t> times;
  for (const std::string& path : paths_) times.push_back(modified_ns(path));
  if (!first_ && times == directory_times_ && mono_ns - listed_mono_ns_ < kListAtLeastEvery) return {};
  for (auto& [path, entry] : entries_) entry->listed = false;
  for (const std::string& path : paths_) {
    auto files = list_run_files(path);
    if (!files) return files.error();
    for (std::string& file : *files) {
      auto& entry = entries_[file];
      if (!entry) {
        entry = std::make_unique<Entry>(file, from_);
        entry->grew_mono_ns = mono_ns;
      }
      entry->listed = true;
    }
  }
  // A file that is gone takes its rank with it: the directory is the only truth.
  std::erase_if(entries_, [](const auto& item) { return !item.second->listed; });
  directory_times_ = std::move(times);
  listed_mono_ns_ = mono_ns;
  return {};
}

bool LiveJob::poll(TimeNs mono_ns) {
  std::vector<Entry*> all;
  for (auto& [path, entry] : entries_) all.push_back(entry.get());
  std::atomic<std::size_t> next{0};
  std::atomic<bool> changed{false};
  const auto work = [&] {
    for (std::size_t i = next++; i < all.size(); i = next++) {
      Entry& e = *all[i];
      bool met = false;
      const auto read = e.file.poll([&](RunLine&& line) {
        if (!met && e.file.restarted()) {
          Rank fresh;
          fresh.path = std::move(e.rank.path);
          e.rank = std::move(fresh);
        }
        met = true;
        e.rank.take(std::move(line));
      });
      e.failure = read ? "" : read.error().message;
      if (read && *read != 0) {
        e.grew_mono_ns = mono_ns;
        e.seen_growing = e.looked_at;
        changed = true;
      }
      e.looked_at = true;
    }
  };
  // Only the first look is work; later ones read what a window appended.
  const std::size_t wanted = first_ ? std::min<std::size_t>(all.size() / kFilesPerThread, kMostThreads) : 0;
  std::vector<std::thread> helpers;
  for (std::size_t i = 1; i < std::min<std::size_t>(wanted, std::thread::hardware_concurrency()); ++i)
    helpers.emplace_back(work);
  work();
  for (std::thread& helper : helpers) helper.join();
  return changed;
}

Result<bool> LiveJob::refresh(TimeNs mono_ns, TimeNs utc_ns) {
  const std::size_t before = entries_.size();
  std::vector<RankState> states;
  for (const Rank* rank : sorted_) states.push_back(rank->state);
  if (auto listed = list(mono_ns); !listed) return listed.error();
  bool changed = poll(mono_ns) || before != entries_.size() || first_;
  settle(mono_ns, utc_ns);
  first_ = false;
  if (states.size() != sorted_.size()) return true;
  for (std::size_t i = 0; i < sorted_.size(); ++i) changed = changed || sorted_[i]->state != states[i];
  return changed;
}

void LiveJob::settle(TimeNs mono_ns, TimeNs utc_ns) {
  sorted_.clear();
  skews_.clear();
  TimeNs newest_line = 0;
  std::string newest_path;
  DurationNs longest_age = 0;
  DurationNs interval = 0;
  for (auto& [path, entry] : entries_) {
    Rank& rank = entry->rank;
    sorted_.push_back(&rank);
    rank.problems.clear();
    rank.bad_lines = entry->file.bad_lines();
    for (const RunFile::Oddity& oddity : entry->file.oddities()) rank.problems.push_back(oddity.message);
    if (entry->file.bad_lines() > entry->file.oddities().size())
      rank.problems.push_back(fmt::format("{}: {} bad lines in all", path, entry->file.bad_lines()));
    if (entry->file.newer_lines() != 0)
      rank.problems.push_back(fmt::format("{}: {} lines are of a newer version: read as far as their keys are known",
                                          path, entry->file.newer_lines()));
    if (!entry->failure.empty()) rank.problems.push_back(entry->failure);
    if (!rank.run) {
      rank.state = RankState::kUnreadable;
      if (rank.problems.empty())
        rank.problems.push_back(rank.last_line_ns == 0 ? path + ": no line yet"
                                                       : path + ": no start line: rank, device and peak are not known");
      continue;
    }
    rank.state = rank.end ? RankState::kEnded : rank.last ? RankState::kLive : RankState::kStarting;
    if (rank.last_line_ns > newest_line) {
      newest_line = rank.last_line_ns;
      newest_path = path;
    }
    longest_age = std::max(longest_age, rank.last_line_ns - rank.run->t_ns);
    interval = std::max(interval, rank.interval_ns);
  }
  if (interval == 0) interval = kDefaultInterval;

  // A process is its host, pid and start: a second file of it is a copy, of which the longest counts.
  std::map<std::tuple<std::string, std::int64_t, std::int64_t, TimeNs>, Entry*> processes;
  for (auto& [path, entry] : entries_) {
    if (!entry->rank.run) continue;
    const RunInfo& run = *entry->rank.run;
    const auto [at, fresh] = processes.try_emplace({run.host, run.rank, run.pid, run.t_ns}, entry.get());
    if (fresh) continue;
    const auto length = [](const Entry* e) { return std::tuple(e->rank.end.has_value(), e->rank.windows); };
    Entry* copy = entry.get();
    if (length(copy) > length(at->second)) std::swap(copy, at->second);
    copy->rank.state = RankState::kReplaced;
    copy->rank.problems.push_back(copy->rank.path + ": is of the same process as " + at->second->rank.path +
                                  ": left out");
  }

  // A rank that was started again: the figures of its earlier process are history.
  std::map<std::int64_t, std::vector<Entry*>> by_rank;
  for (auto& [path, entry] : entries_)
    if (entry->rank.run) by_rank[entry->rank.run->rank].push_back(entry.get());
  for (auto& [number, same] : by_rank)
    for (Entry* a : same)
      for (const Entry* b : same)
        if (a != b && b->rank.run->t_ns >= a->rank.last_line_ns && b->rank.run->world_size == a->rank.run->world_size &&
            (a->rank.run->world_size > 1 || b->rank.run->host == a->rank.run->host))
          a->rank.state = RankState::kReplaced;

  silent_s_ = 0;
  if (newest_line != 0 && utc_ns - newest_line > 0) {
    // The file's time is by another clock than the line's, as a rule: only what both say is believed.
    const DurationNs by_line = utc_ns - newest_line, by_file = utc_ns - modified_ns(newest_path);
    silent_s_ = std::max(0.0, seconds(std::min(by_line, by_file)));
  }

  // Clocks first: a host whose lines are shifted at their beginning and at their end alike has another clock.
  std::vector<TimeNs> starts, lasts;
  std::map<std::string, std::vector<TimeNs>> host_starts, host_lasts;
  for (const Rank* rank : sorted_) {
    if (rank->state != RankState::kLive && rank->state != RankState::kStarting) continue;
    starts.push_back(rank->run->t_ns);
    lasts.push_back(rank->last_line_ns);
    host_starts[rank->run->host].push_back(rank->run->t_ns);
    host_lasts[rank->run->host].push_back(rank->last_line_ns);
  }
  std::map<std::string, DurationNs> ahead_of;
  if (!starts.empty()) {
    const TimeNs start = median(starts), last = median(lasts);
    const DurationNs limit = kStaleAfterWindows * interval;
    for (auto& [host, times] : host_lasts) {
      const DurationNs ahead = median(times) - last, ahead_start = median(host_starts[host]) - start;
      if (std::abs(ahead) <= limit || std::abs(ahead - ahead_start) > limit) continue;
      skews_.push_back({host, ahead});
      ahead_of[host] = ahead;
    }
  }
  const auto settled_line = [&ahead_of](const Rank& rank) {
    const auto at = ahead_of.find(rank.run->host);
    return rank.last_line_ns - (at != ahead_of.end() ? at->second : 0);
  };
  TimeNs newest_settled = 0;
  for (const Rank* rank : sorted_)
    if (rank->run) newest_settled = std::max(newest_settled, settled_line(*rank));

  for (auto& [path, entry] : entries_) {
    Rank& rank = entry->rank;
    if (rank.state != RankState::kLive && rank.state != RankState::kStarting) continue;
    const DurationNs own = rank.interval_ns != 0 ? rank.interval_ns : interval;
    const DurationNs allowed = kStaleAfterWindows * own;
    const DurationNs watched = mono_ns - entry->grew_mono_ns;
    const DurationNs behind = newest_settled - settled_line(rank);
    const DurationNs short_of = longest_age - (rank.last_line_ns - rank.run->t_ns);
    rank.quiet_s = 0;
    // What was seen to grow is not judged by anybody's clock.
    const bool left_behind = !entry->seen_growing && behind > allowed && short_of > allowed;
    const bool over = !entry->seen_growing && silent_s_ > seconds(std::max(10 * own, kCertainlyOver));
    if (watched > allowed || left_behind || over) {
      rank.state = RankState::kStale;
      rank.quiet_s = seconds(watched + (left_behind ? std::min(behind, short_of) : 0)) + (over ? silent_s_ : 0);
    }
  }

  const auto key = [](const Rank* r) {
    return std::tuple(!r->run, r->run ? r->run->rank : 0, r->run ? r->run->host : r->path, r->run ? r->run->pid : 0);
  };
  std::sort(sorted_.begin(), sorted_.end(), [&](const Rank* a, const Rank* b) { return key(a) < key(b); });
}

std::vector<std::string> LiveJob::problems() const {
  std::vector<std::string> all;
  for (const Rank* rank : sorted_) all.insert(all.end(), rank->problems.begin(), rank->problems.end());
  for (const ClockSkew& skew : skews_)
    all.push_back(
        fmt::format("host {}: its clock is {:.0f} s {} the others'; its lines are laid beside theirs by "
                    "the difference",
                    skew.host, seconds(std::abs(skew.ahead_ns)), skew.ahead_ns > 0 ? "ahead of" : "behind"));
  return all;
}

}  // namespace mfu

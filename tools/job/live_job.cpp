#include "tools/job/live_job.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
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

std::int64_t modified_ns(const std::string& path) {
  struct ::stat at {};
  if (::stat(path.c_str(), &at) != 0) return -1;
  return static_cast<std::int64_t>(at.st_mtim.tv_sec) * kNsPerSecond + at.st_mtim.tv_nsec;
}

/// `work(i)` for each i below `count`, on a few threads where there are many.
template <class Work>
void in_parallel(std::size_t count, const Work& work) {
  std::atomic<std::size_t> next{0};
  const auto some = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  const std::size_t wanted = std::min<std::size_t>(count / kFilesPerThread, kMostThreads);
  std::vector<std::thread> helpers;
  for (std::size_t i = 1; i < std::min<std::size_t>(wanted, std::thread::hardware_concurrency()); ++i)
    helpers.emplace_back(some);
  some();
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace

Result<void> LiveJob::list(TimeNs mono_ns) {
  std::vector<std::int64_t> times;
  for (const std::string& path : paths_) times.push_back(modified_ns(path));
  if (!first_ && times == directory_times_ && mono_ns - listed_mono_ns_ < kListAtLeastEvery) return {};
  std::map<std::string, ProcessLines::Source*> known;
  for (auto& [path, entry] : entries_) {
    for (ProcessLines::Source& source : entry->lines.sources) {
      source.listed = false;
      known.emplace(source.file.path(), &source);
    }
  }
  std::vector<std::string> fresh;
  for (const std::string& path : paths_) {
    auto files = list_run_files(path);
    if (!files) return files.error();
    for (std::string& file : *files) {
      const auto at = known.find(file);
      if (at != known.end())
        at->second->listed = true;
      else
        fresh.push_back(std::move(file));
    }
  }
  add_files(fresh, mono_ns);
  // A file that is gone takes its rank with it, unless it goes on under another name: the directory is the only truth.
  for (auto& [path, entry] : entries_)
    std::erase_if(entry->lines.sources, [](const auto& source) { return !source.listed; });
  std::erase_if(entries_, [](const auto& item) { return item.second->lines.sources.empty(); });
  directory_times_ = std::move(times);
  listed_mono_ns_ = mono_ns;
  return {};
}

void LiveJob::add_files(const std::vector<std::string>& paths, TimeNs mono_ns) {
  std::vector<FileBegin> begins(paths.size());
  in_parallel(paths.size(), [&](std::size_t i) { begins[i] = begin_of_file(paths[i]); });
  std::map<ProcessId, Entry*> processes;
  for (auto& [path, entry] : entries_)
    if (entry->lines.id) processes.emplace(*entry->lines.id, entry.get());
  for (std::size_t i = 0; i < paths.size(); ++i) {
    Entry* entry = nullptr;
    if (begins[i].id)
      if (const auto at = processes.find(*begins[i].id); at != processes.end()) entry = at->second;
    if (entry == nullptr) {
      auto& place = entries_[paths[i]];
      place = std::make_unique<Entry>();
      entry = place.get();
      entry->rank.path = paths[i];
      if (change_) entry->change = change_();
      entry->lines.id = begins[i].id;
      entry->grew_mono_ns = mono_ns;
      if (entry->lines.id) processes.emplace(*entry->lines.id, entry);
    }
    entry->lines.add({RunFile(paths[i], from_), begins[i].seq});
  }
}

/// \return whether it has new lines.
bool LiveJob::poll_entry(Entry& entry, TimeNs mono_ns) {
  const TimeNs last_before = entry.rank.last_line_ns;
  const std::size_t fresh = entry.lines.poll([&entry](RunLine&& line) {
    if (entry.change) entry.change(line);
    entry.rank.take(std::move(line));
  });
  const bool grew = fresh != 0 || entry.rank.last_line_ns != last_before;
  if (grew) {
    entry.grew_mono_ns = mono_ns;
    entry.seen_growing = entry.looked_at;
  }
  entry.looked_at = true;
  return grew;
}

/// A process one of whose files was made anew is read again, and its files are looked at again for whose they are.
bool LiveJob::read_anew(TimeNs mono_ns) {
  std::vector<std::string> paths;
  std::erase_if(entries_, [&](const auto& item) {
    const auto& sources = item.second->lines.sources;
    if (std::ranges::none_of(sources, &ProcessLines::Source::made_anew)) return false;
    for (const auto& source : sources) paths.push_back(source.file.path());
    return true;
  });
  if (paths.empty()) return false;
  add_files(paths, mono_ns);
  for (auto& [path, entry] : entries_)
    if (!entry->looked_at || std::ranges::find(paths, path) != paths.end()) {
      (void)poll_entry(*entry, mono_ns);
      entry->seen_growing = true;
    }
  return true;
}

bool LiveJob::poll(TimeNs mono_ns) {
  std::vector<Entry*> all;
  for (auto& [path, entry] : entries_) all.push_back(entry.get());
  std::atomic<bool> changed{false};
  const auto look = [&](std::size_t i) {
    if (poll_entry(*all[i], mono_ns)) changed = true;
  };
  // Only the first look is work; later ones read what a window appended.
  if (first_)
    in_parallel(all.size(), look);
  else
    for (std::size_t i = 0; i < all.size(); ++i) look(i);
  return read_anew(mono_ns) || changed;
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
  const JobTimes times = find_problems();
  find_restarts();
  find_silence(times, utc_ns);
  find_clocks(times.interval);
  find_stale(times, mono_ns);
  const auto key = [](const Rank* r) {
    return std::tuple(!r->run, r->run ? r->run->rank : 0, r->run ? r->run->host : r->path, r->run ? r->run->pid : 0);
  };
  std::sort(sorted_.begin(), sorted_.end(), [&](const Rank* a, const Rank* b) { return key(a) < key(b); });
}

LiveJob::JobTimes LiveJob::find_problems() {
  sorted_.clear();
  JobTimes times;
  for (auto& [path, entry] : entries_) {
    Rank& rank = entry->rank;
    sorted_.push_back(&rank);
    rank.problems = entry->lines.remarks();
    rank.bad_lines = 0;
    for (const ProcessLines::Source& source : entry->lines.sources) rank.bad_lines += source.file.bad_lines();
    if (const ProcessLines::Source* used = entry->lines.used()) rank.path = used->file.path();
    if (!rank.run) {
      rank.state = RankState::kUnreadable;
      if (rank.problems.empty())
        rank.problems.push_back(
            path + (rank.last_line_ns == 0 ? ": no line yet" : ": no start line: rank, device and peak are not known"));
      continue;
    }
    rank.state = rank.end ? RankState::kEnded : rank.last ? RankState::kLive : RankState::kStarting;
    if (rank.last_line_ns > times.newest_line) {
      times.newest_line = rank.last_line_ns;
      times.newest_path = rank.path;
    }
    times.longest_age = std::max(times.longest_age, rank.last_line_ns - rank.run->t_ns);
    times.interval = std::max(times.interval, rank.interval_ns);
  }
  if (times.interval == 0) times.interval = kDefaultInterval;
  return times;
}

/// A rank that was started again: the figures of its earlier process are history.
void LiveJob::find_restarts() {
  std::map<std::int64_t, std::vector<Entry*>> by_rank;
  for (auto& [path, entry] : entries_)
    if (entry->rank.run) by_rank[entry->rank.run->rank].push_back(entry.get());
  for (auto& [number, same] : by_rank)
    for (Entry* a : same)
      for (const Entry* b : same)
        if (a != b && b->rank.run->t_ns >= a->rank.last_line_ns && b->rank.run->world_size == a->rank.run->world_size &&
            (a->rank.run->world_size > 1 || b->rank.run->host == a->rank.run->host))
          a->rank.state = RankState::kReplaced;
}

void LiveJob::find_silence(const JobTimes& times, TimeNs utc_ns) {
  silent_s_ = 0;
  if (times.newest_line == 0 || utc_ns - times.newest_line <= 0) return;
  // The file's time is by another clock than the line's, as a rule: only what both say is believed.
  const DurationNs by_line = utc_ns - times.newest_line, by_file = utc_ns - modified_ns(times.newest_path);
  silent_s_ = std::max(0.0, seconds(std::min(by_line, by_file)));
}

void LiveJob::find_clocks(DurationNs interval) {
  std::vector<ProcessTimes> processes;
  for (const Rank* rank : sorted_)
    if (rank->state == RankState::kLive || rank->state == RankState::kStarting)
      processes.push_back({rank->run->host, rank->run->t_ns, rank->last_line_ns});
  clocks_ = mfu::find_clocks(processes, kStaleAfterWindows * interval);
}

void LiveJob::find_stale(const JobTimes& times, TimeNs mono_ns) {
  const auto settled_line = [this](const Rank& rank) { return rank.last_line_ns - ahead_of(clocks_, rank.run->host); };
  TimeNs newest_settled = 0;
  for (const Rank* rank : sorted_)
    if (rank->run) newest_settled = std::max(newest_settled, settled_line(*rank));
  for (auto& [path, entry] : entries_) {
    Rank& rank = entry->rank;
    if (rank.state != RankState::kLive && rank.state != RankState::kStarting) continue;
    const DurationNs own = rank.interval_ns != 0 ? rank.interval_ns : times.interval;
    const DurationNs allowed = kStaleAfterWindows * own;
    const DurationNs watched = mono_ns - entry->grew_mono_ns;
    const DurationNs behind = newest_settled - settled_line(rank);
    const DurationNs short_of = times.longest_age - (rank.last_line_ns - rank.run->t_ns);
    rank.quiet_s = 0;
    // A file that was seen to grow needs no clock.
    const bool left_behind = !entry->seen_growing && behind > allowed && short_of > allowed;
    const bool over = !entry->seen_growing && silent_s_ > seconds(std::max(10 * own, kCertainlyOver));
    if (watched > allowed || left_behind || over) {
      rank.state = RankState::kStale;
      rank.quiet_s = seconds(watched + (left_behind ? std::min(behind, short_of) : 0)) + (over ? silent_s_ : 0);
    }
  }
}

JobLife LiveJob::life() const {
  std::vector<const ProcessLife*> lives;
  for (const Rank* rank : sorted_)
    if (rank->run) lives.push_back(&rank->life);
  return job_life(lives, clocks_);
}

std::vector<std::string> LiveJob::problems() const {
  std::vector<std::string> all;
  for (const Rank* rank : sorted_) all.insert(all.end(), rank->problems.begin(), rank->problems.end());
  for (const auto& [host, ahead] : clocks_) all.push_back(clock_text(host, ahead));
  return all;
}

}  // namespace mfu

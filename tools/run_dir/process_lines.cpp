#include "tools/run_dir/process_lines.h"

#include <fmt/format.h>

#include <algorithm>

namespace mfu {

void ProcessLines::add(Source source) {
  sources.push_back(std::move(source));
  std::ranges::stable_sort(sources, {}, &Source::first_seq);
}

std::size_t ProcessLines::poll(const std::function<void(RunLine&&)>& on_line) {
  std::size_t fresh = 0;
  for (Source& source : sources) {
    const auto read = source.file.poll([&](RunLine&& line) {
      source.made_anew = source.made_anew || source.file.restarted();
      const auto* run = std::get_if<RunInfo>(&line.what);
      if (run != nullptr) {
        const ProcessId its_own(*run);
        if (!id) id = its_own;
        source.another = line.seq == 0 && its_own != *id;  // files that were put together
      }
      if (source.another) {
        ++source.foreign;
        return;
      }
      // No line but the first start line has seq 0: these have none.
      const bool is_new = (line.seq == 0 && run == nullptr) || seen_.insert(line.seq);
      if (run == nullptr) {
        ++(is_new ? source.fresh : source.again);
        fresh += is_new ? 1 : 0;
      }
      if (is_new || run != nullptr) on_line(std::move(line));
    });
    source.failure = read ? "" : read.error().message;
  }
  return fresh;
}

const ProcessLines::Source* ProcessLines::used() const noexcept {
  const auto last = std::find_if(sources.rbegin(), sources.rend(), [](const Source& s) { return s.fresh != 0; });
  return last == sources.rend() ? nullptr : &*last;
}

std::vector<std::string> ProcessLines::remarks() const {
  std::vector<std::string> said;
  const Source* before = nullptr;
  std::size_t pieces = 0;
  for (const Source& source : sources) {
    const RunFile& file = source.file;
    const std::string where =
        source.line == 0 ? file.path() : fmt::format("{} from line {} on", file.path(), source.line + 1);
    said.insert(said.end(), file.oddities().begin(), file.oddities().end());
    if (file.bad_lines() > file.oddities().size())
      said.push_back(fmt::format("{}: {} bad lines in all", where, file.bad_lines()));
    if (file.newer_lines() != 0)
      said.push_back(fmt::format("{}: {} lines are of a newer version: read as far as their keys are known", where,
                                 file.newer_lines()));
    if (!source.failure.empty()) said.push_back(source.failure);
    if (source.foreign != 0)
      said.push_back(
          fmt::format("{}: {} lines of another process, behind a second start line, are left out; mfu report has them",
                      where, source.foreign));
    if (source.fresh == 0 && source.again != 0 && before != nullptr)
      said.push_back(fmt::format("{}: nothing but what {} has as well: left out", where, before->file.path()));
    else if (source.again != 0)
      said.push_back(fmt::format("{}: {} lines came twice and count once", where, source.again));
    if (source.fresh == 0) continue;
    before = &source;
    ++pieces;
  }
  if (pieces > 1)
    said.push_back(fmt::format("{}: one process in {} pieces, put together", before->file.path(), pieces));
  return said;
}

}  // namespace mfu

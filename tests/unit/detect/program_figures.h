// What a detector says of a made-up program, and how much of it is right.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/detect/step_detector.h"
#include "core/detect/step_phases.h"
#include "tests/unit/detect/programs/writer.h"

namespace mfu::programs {

struct Reported {
  std::uint64_t begin = 0, end = 0;
  StepKind kind = StepKind::kNone;
};

/// The steps that a detector reported, and what it knew at the end.
class Heard final : public StepListener {
 public:
  explicit Heard(const std::vector<Launch>& stream, DetectionLog* log = nullptr) {
    StepDetector detector(*this, 0, log);
    for (const Launch& launch : stream) {
      detector.add(launch);
      ++launches_;
    }
    detector.finish();
    findings_ = detector.findings();
  }
  void on_boundary(const StepBoundary& boundary) override {
    if (boundaries_.empty()) first_at_ = launches_;
    boundaries_.push_back(boundary);
  }
  [[nodiscard]] std::vector<Reported> steps() const {
    std::vector<Reported> steps;
    for (std::size_t i = 1; i < boundaries_.size(); ++i)
      if (boundaries_[i].kind != StepKind::kNone)
        steps.push_back({boundaries_[i - 1].launch, boundaries_[i].launch, boundaries_[i].kind});
    return steps;
  }
  [[nodiscard]] const StepFindings& findings() const { return findings_; }
  [[nodiscard]] std::uint64_t first_at() const { return first_at_; }  ///< launches until the first boundary that stands

 private:
  std::vector<StepBoundary> boundaries_;
  std::uint64_t launches_ = 0, first_at_ = 0;
  StepFindings findings_;
};

/// How many of the reported steps are true ones, when all may be cut at one constant distance from the true place. A
/// line of the log between two steps may belong to either.
struct Score {
  static constexpr std::int64_t kLogLine = 16;  ///< launches

  Score(const Program& program, const std::vector<Reported>& reported) : Score(program, program.steps, reported) {
    if (program.finer.empty()) return;
    const Score finer(program, program.finer, reported);
    if (finer.right > right && finer.wrong <= wrong) *this = finer;
  }
  Score(const Program& program, const std::vector<TrueStep>& steps, const std::vector<Reported>& reported)
      : of(steps.size()) {
    const auto near = [&](std::int64_t at) {
      const auto after = std::upper_bound(steps.begin(), steps.end(), at, [](std::int64_t x, const TrueStep& s) {
        return x < static_cast<std::int64_t>(s.end);
      });
      return static_cast<std::size_t>(after - steps.begin());
    };
    std::map<std::int64_t, int> offsets;
    double mean = 0;
    for (const TrueStep& s : steps) mean += static_cast<double>(s.end - s.begin) / static_cast<double>(steps.size());
    for (const Reported& r : reported) {
      const std::size_t i = near(static_cast<std::int64_t>(r.begin));
      if (i == steps.size()) continue;
      ++offsets[static_cast<std::int64_t>(r.begin) - static_cast<std::int64_t>(steps[i].begin)];
      ++offsets[static_cast<std::int64_t>(r.begin) - static_cast<std::int64_t>(steps[i].end)];
      // What begins where a step ends lies before the next one already.
      if (i > 0 && steps[i - 1].end != steps[i].begin)
        ++offsets[static_cast<std::int64_t>(r.begin) - static_cast<std::int64_t>(steps[i - 1].end)];
    }
    // A whole step away is another step.
    std::erase_if(offsets, [&](const auto& o) { return static_cast<double>(std::abs(o.first)) > mean / 2; });
    int most = 0;
    for (const auto& [distance, count] : offsets) {
      if (count < most || (count == most && std::abs(distance) >= std::abs(offset))) continue;
      most = count;
      offset = distance;
    }
    const std::int64_t tolerance = std::max<std::int64_t>(2, static_cast<std::int64_t>(mean / 64));
    for (const Reported& r : reported) {
      // Where a training loop generates text, its iterations are no steps, and are not told as such.
      const auto holds = [&](const TrueStep& g) { return r.begin + kLogLine >= g.begin && r.end <= g.end + kLogLine; };
      if (r.kind != StepKind::kStep && std::any_of(program.generated.begin(), program.generated.end(), holds)) continue;
      const std::int64_t begin = static_cast<std::int64_t>(r.begin) - offset;
      const std::int64_t end = static_cast<std::int64_t>(r.end) - offset;
      bool is_right = false;
      const std::size_t here = near(begin);
      for (std::size_t i = here > 0 ? here - 1 : 0; !is_right && i < std::min(steps.size(), here + 2); ++i) {
        const auto true_begin = static_cast<std::int64_t>(steps[i].begin),
                   true_end = static_cast<std::int64_t>(steps[i].end);
        const std::int64_t before = i > 0 ? static_cast<std::int64_t>(steps[i - 1].end) : 0;
        const std::int64_t next =
            i + 1 < steps.size() ? static_cast<std::int64_t>(steps[i + 1].begin) : true_end + kLogLine;
        const bool begins = std::abs(begin - true_begin) <= tolerance ||
                            (begin <= true_begin && begin >= before - tolerance && true_begin - before <= kLogLine);
        const bool ends = std::abs(end - true_end) <= tolerance || std::abs(end - next) <= tolerance ||
                          (end >= true_end && end <= true_end + kLogLine && end <= next + tolerance);
        if (!begins || !ends) continue;
        is_right = true;
        if (i >= program.prefill.size() || program.prefill[i] == 2) continue;
        ++of_known_kind;
        wrong_kind += r.kind != (program.prefill[i] == 1 ? StepKind::kPrefillOrMixed : StepKind::kDecode);
      }
      ++(is_right ? right : wrong);
    }
  }

  std::size_t of = 0;  ///< true steps
  std::size_t right = 0, wrong = 0, wrong_kind = 0, of_known_kind = 0;
  std::int64_t offset = 0;
};

/// How many of the boundaries that were told are where a true step begins or ends, once all are moved by one distance,
/// or one launch beside it; and how far off the worst is [launch].
struct Places {
  std::size_t told = 0, near = 0;
  std::int64_t worst = 0;

  void add(const Program& program, const std::vector<Reported>& reported, std::int64_t offset) {
    std::vector<std::int64_t> places;
    for (const TrueStep& step : program.steps)
      places.insert(places.end(), {static_cast<std::int64_t>(step.begin), static_cast<std::int64_t>(step.end)});
    for (const TrueStep& step : program.finer)
      places.insert(places.end(), {static_cast<std::int64_t>(step.begin), static_cast<std::int64_t>(step.end)});
    for (const TrueStep& step : program.generated)
      places.insert(places.end(), {static_cast<std::int64_t>(step.begin), static_cast<std::int64_t>(step.end)});
    std::sort(places.begin(), places.end());
    for (const Reported& r : reported) {
      const std::int64_t at = static_cast<std::int64_t>(r.begin) - offset;
      const auto after = std::lower_bound(places.begin(), places.end(), at);
      std::int64_t off = after == places.end() ? at - places.back() : *after - at;
      if (after != places.begin()) off = std::min(off, at - *std::prev(after));
      // Of the text that a training loop generates, no single token's place is noted.
      if (r.kind != StepKind::kStep && !program.generated.empty()) continue;
      ++told;
      near += off <= 1 ? 1 : 0;
      worst = std::max(worst, off);
    }
  }
};

/// The share of launches of the told steps that StepPhases gives to another pass than they are of; launches between
/// two steps are of none. Negative: nothing was cut.
inline double share_in_wrong_phase(const Program& program, const std::vector<Reported>& reported) {
  StepPhases phases;
  std::vector<bool> inside(program.stream.size());
  for (const TrueStep& step : program.steps)
    std::fill(inside.begin() + static_cast<std::ptrdiff_t>(step.begin),
              inside.begin() + static_cast<std::ptrdiff_t>(step.end), true);
  std::size_t all = 0, wrong = 0;
  for (const Reported& r : reported) {
    if (r.kind != StepKind::kStep) continue;
    if (phases.cut(std::span(program.stream).subspan(r.begin, r.end - r.begin)) == PhaseRule::kNone) continue;
    for (const PhaseSpan& span : phases.spans())
      for (std::uint64_t i = r.begin + span.begin; i < r.begin + span.end; ++i) {
        if (!inside[i]) continue;
        ++all;
        wrong += program.phases[i] != span.phase ? 1 : 0;
      }
  }
  return all == 0 ? -1 : static_cast<double>(wrong) / static_cast<double>(all);
}

/// Of one kind of program: how many are right, and what was reported with high confidence.
struct Figures {
  std::size_t programs = 0, right = 0, partial = 0, not_sure = 0, wrong = 0, high = 0, wrong_high = 0, wrong_kinds = 0;
  std::size_t iterations = 0, iterations_of_wrong_kind = 0;
  std::vector<std::size_t> found_after;  ///< true steps that had ended
  std::vector<double> wrong_phases;      ///< of the right programs whose steps are cut into passes
  Places places;                         ///< of the right programs

  void add(const Program& program, const std::string& what) {
    const Heard heard(program.stream);
    const std::vector<Reported> reported = heard.steps();
    const Score score(program, reported);
    const bool is_high = heard.findings().confidence == StepConfidence::kHigh;
    ++programs;
    const char* verdict = nullptr;
    if (reported.empty()) {
      ++not_sure;
      verdict = "not sure";
    } else if (score.wrong * 20 > reported.size()) {
      ++wrong;
      wrong_high += is_high ? 1 : 0;
      verdict = "wrong";
    } else if (score.right * 5 < score.of * 4) {
      ++partial;
      verdict = "partial";
    } else {
      ++right;
      high += is_high ? 1 : 0;
      places.add(program, reported, score.offset);
      if (const double share = program.phases_known && heard.findings().rule != BoundaryRule::kAnywhere
                                   ? share_in_wrong_phase(program, reported)
                                   : -1;
          share >= 0) {
        wrong_phases.push_back(share);
        if (share > 0.01) verdict = "in wrong phases";
      }
    }
    iterations += score.of_known_kind;
    iterations_of_wrong_kind += score.wrong_kind;
    if (score.wrong_kind * 100 > 3 * score.of_known_kind) {
      ++wrong_kinds;
      verdict = verdict == nullptr ? "of wrong kinds" : verdict;
    }
    if (!reported.empty())
      found_after.push_back(static_cast<std::size_t>(std::count_if(
          program.steps.begin(), program.steps.end(), [&](const TrueStep& s) { return s.end <= heard.first_at(); })));
    if (verdict != nullptr && std::getenv("MFU_TEST_VERBOSE") != nullptr)
      std::printf("%s: %s: %s: period %u, %s, %s; %zu of %zu right, %zu wrong\n", what.c_str(), program.what.c_str(),
                  verdict, heard.findings().period_launches, std::string(name(heard.findings().confidence)).c_str(),
                  std::string(name(heard.findings().rule)).c_str(), score.right, score.of, score.wrong);
  }
  void print(const char* kind) {
    std::sort(found_after.begin(), found_after.end());
    std::printf(
        "%s: %zu programs: %zu right (%zu high), %zu partial, %zu not sure, %zu wrong (%zu high), %zu of wrong "
        "kinds, found after %zu (median)\n",
        kind, programs, right, high, partial, not_sure, wrong, wrong_high, wrong_kinds,
        found_after.empty() ? 0 : found_after[found_after.size() / 2]);
    std::printf("  boundaries: %zu of %zu on the launch or the one beside, worst %lld away\n", places.near, places.told,
                static_cast<long long>(places.worst));
    if (iterations != 0)
      std::printf("  iterations: %zu of %zu of the wrong kind\n", iterations_of_wrong_kind, iterations);
    if (wrong_phases.empty()) return;
    std::sort(wrong_phases.begin(), wrong_phases.end());
    std::printf("  launches in the wrong phase, of %zu programs: %.2f %% (median), %.2f %% (p90), %.2f %% (worst)\n",
                wrong_phases.size(), 100 * wrong_phases[wrong_phases.size() / 2], 100 * wrong_phase(0.9),
                100 * wrong_phases.back());
  }
  /// Of all programs whose steps were cut into passes, sorted: the share of launches in the wrong one.
  [[nodiscard]] double wrong_phase(double quantile) const {
    return wrong_phases.empty()
               ? 0
               : wrong_phases[static_cast<std::size_t>(quantile * static_cast<double>(wrong_phases.size() - 1))];
  }
};

}  // namespace mfu::programs

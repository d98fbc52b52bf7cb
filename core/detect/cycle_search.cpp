#include "core/detect/cycle_search.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "core/base/bit_mix.h"
#include "core/detect/thresholds.h"

namespace mfu {
namespace {

constexpr const Thresholds& kT = kThresholds;
constexpr std::uint32_t kGramSlotBits = 13;
constexpr std::uint32_t kGramSlots = 1u << kGramSlotBits;
constexpr std::uint32_t kMaxGramAnchors = 6144;
constexpr std::uint32_t kGram = 8;  ///< [launch]
constexpr std::uint32_t kMaxGrams = 8192;

/// The hash of the last eight keys: of each, rotated by how long ago it came.
class GramHash {
 public:
  /// \return the hash after `h`; the first kGram - 1 are of fewer keys
  std::uint64_t add(std::uint32_t i, std::uint64_t h) noexcept {
    hash_ = ((hash_ << 7) | (hash_ >> 57)) ^ h;
    std::uint64_t& oldest = recent_[i % kGram];
    hash_ ^= (oldest << 56) | (oldest >> 8);  // rotated by 7 eight times
    oldest = h;
    return hash_;
  }

 private:
  std::uint64_t hash_ = 0;
  std::array<std::uint64_t, kGram> recent_{};
};

}  // namespace

std::uint32_t repeats_of_stack(double coverage) noexcept {
  if (coverage >= kT.coverage_all) return kT.repeats_stack_all;
  if (coverage >= kT.coverage_most) return kT.repeats_stack_most;
  return coverage >= kT.coverage_half ? kT.repeats_stack_half : kT.repeats_stack;
}

CycleSearch::CycleSearch(const LaunchHistory& history, Explainer& explain)
    : history_(history),
      explain_(explain),
      name_anchors_(LaunchHistory::kKeys),
      gram_anchors_(kGramSlots),
      tallies_(LaunchHistory::kKeys),
      grams_(kMaxGrams) {
  seen_.reserve(LaunchHistory::kKeys);
}

std::size_t CycleSearch::held_bytes() const noexcept {
  const auto bytes = [](const auto& v) { return v.capacity() * sizeof(v[0]); };
  return name_anchors_.bytes() + bytes(seen_) + gram_anchors_.bytes() + bytes(tallies_) + bytes(grams_) +
         counts_.held_bytes();
}

std::optional<CycleCandidate> CycleSearch::find(std::uint32_t window) {
  const Position n = history_.end();
  const Position begin = std::max(history_.oldest(), n > window ? n - window : 0);
  if (n - begin < 16) return std::nullopt;
  std::optional<CycleCandidate> best = best_of(begin, history_.names());
  if (!history_.families_seen() || (best && best->optimizer)) return best;
  // Where shapes change from step to step, names return with a part of a step, or with several steps, alone.
  std::optional<CycleCandidate> other = best_of(begin, history_.families());
  bool by_family = !best;
  if (best && other && !equal_periods(other->period, best->period)) {
    const bool longer = other->period > best->period;
    by_family = holds_more(longer ? *other : *best, longer ? *best : *other, history_.families()) == longer;
  }
  // Names that return with two turns alone, where the operations are the same in both, are shapes.
  if (best && !other && several_turns_ != 0 && equal_periods(several_turns_, best->period)) {
    explain_.say_of(best->period, "shapes",
                    "a cycle of " + std::to_string(best->period) +
                        " launches is refused: by its operations it is several turns of something shorter");
    return std::nullopt;
  }
  if (!by_family) return best;
  if (other) other->by_family = true;
  return other;
}

std::optional<CycleCandidate> CycleSearch::best_of(Position begin, const Keys& keys) {
  collect_returns(begin, keys);
  std::vector<CycleCandidate> candidates = candidates_of_returns(static_cast<std::uint32_t>(history_.end() - begin));
  add_burst_candidates(begin, candidates);
  for (CycleCandidate& candidate : candidates) evaluate(candidate, begin, keys);
  refuse_multiples(candidates, keys);
  std::optional<CycleCandidate> best = choose(candidates, keys);
  if (explain_.wanted())
    for (const CycleCandidate& candidate : candidates) explain(candidate);
  if (!best) return best;
  const std::uint32_t whole = best->period;
  best = without_shorter(*best, begin, keys);
  if (!best)
    explain_.say_of(whole, "part", "a part of the cycle of " + std::to_string(whole) + " launches repeats too");
  return best;
}

void CycleSearch::explain(const CycleCandidate& c) {
  if (c.period < kT.shortest_period || (c.refused == nullptr && !c.accepted)) return;
  const auto percent = [](double share) { return std::to_string(static_cast<int>(100 * share + 0.5)) + " %"; };
  std::string text = "a cycle of " + std::to_string(c.period) + " launches ";
  text += c.accepted ? "may be a step: " : std::string("is refused: ") + c.refused + " (";
  text += "two turns agree to " + percent(c.similarity);
  if (c.coverage > 0) text += ", holds " + percent(c.coverage) + " of the names";
  if (c.optimizer) text += ", an optimizer";
  if ((c.trait_flags & kFlagBackward) != 0) text += ", a backward pass";
  if ((c.trait_flags & kFlagSampling) != 0) text += ", a sample";
  if (c.needed != 0) text += ", " + std::to_string(c.repeats) + " of " + std::to_string(c.needed) + " turns";
  explain_.say_of(c.period, c.accepted ? "accepted" : c.refused, c.accepted ? text : text + ")");
}

/// Notes at what distances names, returns of names after an absence, and 8-grams come back.
void CycleSearch::collect_returns(Position begin, const Keys& keys) {
  constexpr std::int32_t kUnseen = -(1 << 20);
  const auto length = static_cast<std::uint32_t>(history_.end() - begin);
  std::fill(gram_anchors_.begin(), gram_anchors_.end(), GramAnchor{});
  gram_anchors_used_ = 0;
  seen_.clear();
  std::uint32_t sample = 3;  // of the 8-grams whose hash has these bits clear
  while (length / (sample + 1) > kMaxGramAnchors) sample = sample * 2 + 1;
  KeyCounts& last_seen = counts_;
  last_seen.fill(kUnseen);
  GramHash gram;
  for (std::uint32_t i = 0; i < length; ++i) {
    const Key key = keys[begin + i];
    NameAnchors& name = name_anchors_[key];
    const auto here = static_cast<std::int32_t>(i);
    const std::int32_t before = std::exchange(last_seen[key], here);
    if (before == kUnseen) {
      seen_.push_back(key);
      name.of.fill({i, 0, 0, 0});
    } else {
      name.of[0].returns(i);
      // A name that comes in bursts has irregular gaps; its returns after an absence are regular.
      const auto absent = static_cast<std::uint32_t>(here - before);
      for (std::uint32_t level = 0; level < kAbsences && absent > (64u << (3 * level)); ++level)
        name.of[1 + level].returns(i);
    }
    const std::uint64_t hash = gram.add(i, mix(key + 1u));
    if (i < kGram) continue;
    const std::uint64_t g = mix(hash);
    if ((g >> 40 & sample) == 0) touch_gram(g | 1u, i);
  }
  last_seen.fill(0);
}

void CycleSearch::Anchor::returns(std::uint32_t here) noexcept {
  const std::uint32_t now = here - std::exchange(last, here);
  if (gap != 0 && equal_periods(now, gap)) {
    ++run;
    return;
  }
  prev = std::max(prev, run);
  run = 1;
  gap = now;
}

void CycleSearch::touch_gram(std::uint64_t gram, std::uint32_t here) {
  auto at = static_cast<std::uint32_t>(gram >> (64 - kGramSlotBits));
  while (gram_anchors_[at].gram != 0 && gram_anchors_[at].gram != gram) at = (at + 1) % kGramSlots;
  GramAnchor& known = gram_anchors_[at];
  if (known.gram != 0) {
    known.anchor.returns(here);
  } else if (gram_anchors_used_ < kMaxGramAnchors) {
    ++gram_anchors_used_;
    known = {gram, {here, 0, 0, 0}};
  }
}

/// A candidate for every distance that two anchors share. A layer's runs break at the same length in every step, so
/// that its run never exceeds the one before.
std::vector<CycleCandidate> CycleSearch::candidates_of_returns(std::uint32_t length) {
  std::vector<std::uint32_t> gaps;
  shortest_ = 0;
  const auto take = [&](const Anchor& anchor) {
    if (anchor.run < 2) return;
    if (anchor.run <= anchor.prev || length - anchor.last > anchor.gap + anchor.gap / 4 + 2) return;
    if (anchor.gap >= kT.shortest_period) gaps.push_back(anchor.gap);
  };
  for (const Key key : seen_)
    for (const Anchor& anchor : name_anchors_[key].of) take(anchor);
  for (const GramAnchor& gram : gram_anchors_)
    if (gram.gram != 0) take(gram.anchor);
  std::sort(gaps.begin(), gaps.end());
  std::vector<CycleCandidate> candidates;
  for (std::size_t i = 0; i < gaps.size();) {
    std::size_t j = i, best_at = i, best_count = 0;
    while (j < gaps.size() && gaps[j] <= gaps[i] + std::max(gaps[i] / 32, 1u)) {
      std::size_t k = j;
      while (k < gaps.size() && gaps[k] == gaps[j]) ++k;
      if (k - j > best_count) {
        best_count = k - j;
        best_at = j;
      }
      j = k;
    }
    if (j - i >= 2) {
      if (shortest_ == 0) shortest_ = gaps[best_at];
      CycleCandidate candidate;
      candidate.period = gaps[best_at];
      candidate.members = static_cast<std::uint32_t>(j - i);
      candidates.push_back(candidate);
    }
    i = j;
  }
  constexpr std::size_t kTried = 12;
  if (candidates.size() > kTried) {
    std::nth_element(candidates.begin(), candidates.begin() + kTried, candidates.end(),
                     [](const CycleCandidate& a, const CycleCandidate& b) { return a.members > b.members; });
    candidates.resize(kTried);
  }
  return candidates;
}

/// Distances between bursts of marks, whatever lies between them: from the last burst to each of the few before it.
void CycleSearch::add_burst_candidates(Position begin, std::vector<CycleCandidate>& candidates) const {
  constexpr std::size_t kKinds = 4, kBack = 5;
  struct Bursts {
    std::array<Position, kBack> starts{};
    std::size_t count = 0;
    Position last = 0;
  };
  std::array<Bursts, kKinds> kinds{};
  for (Position i = begin; i < history_.end(); ++i) {
    const std::uint8_t f = history_.flags(i);
    if (f == 0) continue;
    const std::array<bool, kKinds> has{history_.is_optimizer(i), (f & kFlagSampling) != 0, (f & kFlagToDevice) != 0,
                                       (f & kFlagToHost) != 0};
    for (std::size_t k = 0; k < kKinds; ++k) {
      if (!has[k]) continue;
      Bursts& b = kinds[k];
      if (b.count == 0 || i - b.last > kT.burst) {
        std::shift_right(b.starts.begin(), b.starts.end(), 1);
        b.starts[0] = i;
        b.count = std::min(b.count + 1, kBack);
      }
      b.last = i;
    }
  }
  for (const Bursts& b : kinds) {
    for (std::size_t k = 1; k < b.count; ++k) {
      const auto period = static_cast<std::uint32_t>(b.starts[0] - b.starts[k]);
      const auto is_known = [&](const CycleCandidate& c) { return c.period == period; };
      if (period < kT.shortest_period || std::any_of(candidates.begin(), candidates.end(), is_known)) continue;
      CycleCandidate candidate;
      candidate.period = period;
      candidates.push_back(candidate);
    }
  }
}

/// Several turns of something shorter are refused; the shorter one is judged on its own.
void CycleSearch::refuse_multiples(std::vector<CycleCandidate>& candidates, const Keys& keys) {
  several_turns_ = 0;
  for (CycleCandidate& longer : candidates) {
    if (!longer.accepted) continue;
    for (const CycleCandidate& shorter : candidates) {
      const std::uint32_t turns = (longer.period + shorter.period / 2) / shorter.period;
      if (turns < 2 || turns > 16 || shorter.similarity < longer.similarity - kT.equally_similar) continue;
      const std::uint32_t whole = turns * shorter.period, tolerance = turns * (shorter.period / 64 + 2);
      if (whole > longer.period + tolerance || longer.period > whole + tolerance) continue;
      if (holds_more(longer, shorter, keys)) continue;
      longer.accepted = false;
      longer.refused = "several turns of something shorter";
      several_turns_ = std::max(several_turns_, longer.period);
    }
  }
}

std::optional<CycleCandidate> CycleSearch::choose(const std::vector<CycleCandidate>& candidates, const Keys& keys) {
  std::optional<CycleCandidate> best;
  double highest = 0;
  for (const CycleCandidate& c : candidates)
    if (c.accepted) highest = std::max(highest, c.similarity_by_name);
  for (const CycleCandidate& candidate : candidates) {
    if (!candidate.accepted || candidate.similarity_by_name < highest - kT.equally_similar) continue;
    if (!best) {
      best = candidate;
      continue;
    }
    const CycleCandidate& shorter = candidate.period < best->period ? candidate : *best;
    const CycleCandidate& longer = candidate.period < best->period ? *best : candidate;
    best = holds_more(longer, shorter, keys) ? longer : shorter;
  }
  return best;
}

/// `best`, or a part of it that is a cycle although nothing pointed to it.
std::optional<CycleCandidate> CycleSearch::without_shorter(CycleCandidate best, Position begin, const Keys& keys) {
  for (std::uint32_t turns = 2; turns <= 5; ++turns) {
    CycleCandidate part;
    part.period = best.period / turns;
    evaluate(part, begin, keys);
    if (part.similarity < best.similarity - kT.equally_similar || holds_more(best, part, keys)) continue;
    if (!part.accepted) return std::nullopt;
    best = part;
    turns = 1;
  }
  return best;
}

// ---------------------------------------------------------------------------------------------- comparing two turns

/// Walks back through the `period` launches before `end` and says of each, to `visit(key, found)`, whether it returns
/// what was there a period before. A drift is followed, so that a stray launch costs itself alone.
/// \return false where the first few hundred agree so little that the rest was not looked at
template <typename Visit>
bool CycleSearch::align(Position end, std::uint32_t period, const Keys& keys, Visit&& visit) const {
  constexpr std::int32_t kReach = 12;
  const Position begin = end - period;
  const auto reach = std::min<std::int32_t>(kReach, static_cast<std::int32_t>(period / 8));
  // `at` counts from the beginning of the turn before.
  const auto is = [&](std::int64_t at, Key wanted) {
    return at >= 0 && at < static_cast<std::int64_t>(period) &&
           keys[begin - period + static_cast<Position>(at)] == wanted;
  };
  // Where so few of the first agree, what follows is shifted by more than the reach, or is something else.
  constexpr Position kFirstTrial = 128, kTrial = 512;
  std::int32_t drift = 0;
  std::uint32_t agreeing = 0;
  for (Position i = end; i-- > begin;) {
    if (end - i == kFirstTrial && agreeing < kFirstTrial / 8) return false;
    if (end - i == kTrial && agreeing < kTrial / 4) return false;
    const Key k = keys[i];
    const auto partner = static_cast<std::int64_t>(i - begin) - drift;
    bool found = is(partner, k);
    for (std::int32_t d = 1; !found && d <= reach; ++d) {
      for (const std::int32_t shift : {d, -d}) {
        if (!is(partner - shift, k)) continue;
        // The neighbours must agree before all that follows is taken for shifted; two places away is a swap.
        if (i > begin + 2 && is(partner - shift - 1, keys[i - 1]) && is(partner - shift - 2, keys[i - 2]))
          drift += shift;
        else if (d > 2)
          continue;
        found = true;
        break;
      }
    }
    agreeing += found ? 1 : 0;
    visit(k, found);
  }
  return true;
}

/// How much of the last turn before `end` returns, in order.
CycleSearch::Alignment CycleSearch::alignment(Position end, std::uint32_t period, const Keys& keys) {
  std::uint32_t equal = 0;
  const bool whole = align(end, period, keys, [&](Key k, bool found) {
    Tally& tally = tallies_[k];
    ++tally.count;
    if (!found) ++tally.unlike;
    equal += found ? 1 : 0;
  });
  if (!whole) {
    for (Position i = end - period; i < end; ++i) tallies_[keys[i]] = {};
    return {};
  }
  for (Position i = end - 2 * period; i < end - period; ++i) ++tallies_[keys[i]].before;
  double unlike = 0;
  std::uint32_t names = 0;
  for (Position i = end - 2 * period; i < end; ++i) {
    Tally& tally = tallies_[keys[i]];
    // Launches that come by chance seldom come equally often; what comes equally often has its place.
    const std::uint32_t most = std::max(tally.count, tally.before), least = std::min(tally.count, tally.before);
    if (least > 0 && least * 10 >= most * 9) {
      ++names;
      unlike += static_cast<double>(tally.unlike) / tally.count;
    }
    tally = {};
  }
  return {static_cast<double>(equal) / period, names == 0 ? 0 : 1.0 - unlike / names};
}

/// True where the longer cycle has launches that return with it and are not in every turn of the shorter one: then the
/// shorter is a part of it, as a micro-step is of a step.
bool CycleSearch::holds_more(const CycleCandidate& longer, const CycleCandidate& shorter, const Keys& keys) {
  const std::uint32_t s = shorter.period, l = longer.period;
  const Position n = history_.end();
  // A turn and a little more, so that nothing is missed for lying across the edge of a turn with strays in it.
  const std::uint32_t turn = s + s / 16 + 8;
  const Position first = n - std::min<Position>(2 * turn, n - history_.oldest());
  for (Position i = first; i < n; ++i) counts_[keys[i]] |= i + turn < n ? 2 : 1;
  Position here = n;
  std::uint32_t to_host = 0, to_device = 0, optimizer = 0, logged = 0;
  const auto talks = [&](Position p) {
    constexpr Position kNear = 8;
    for (Position i = p - std::min<Position>(kNear, p - history_.oldest()); i < std::min(p + kNear, n); ++i)
      if ((history_.flags(i) & kFlagToHost) != 0) return true;
    return false;
  };
  align(n, l, keys, [&](Key k, bool found) {
    --here;
    if (counts_[k] == 3) return;
    Tally& tally = tallies_[k];
    ++tally.count;
    if (!found) ++tally.unlike;
    if (found && (history_.flags(here) & kFlagToHost) != 0) ++to_host;
    if (found && (history_.flags(here) & kFlagToDevice) != 0) ++to_device;
    if (found && talks(here)) ++logged;
    if (found && history_.is_optimizer(here)) ++optimizer;
  });
  for (Position i = first; i < n; ++i) counts_[keys[i]] = 0;
  // Where shapes change, a library runs a helper beside its matmuls now and then, each alone.
  constexpr Position kAlone = 3;
  const Key matmul = LaunchHistory::key_of_family(traits_of(KernelRole::kGemm).family);
  std::uint32_t more = 0;
  Position previous = n;
  bool held_back = false;
  for (Position i = n - l; i < n; ++i) {
    const Tally& tally = tallies_[keys[i]];
    if (tally.count == 0 || tally.unlike * 10 > tally.count) continue;
    const bool alone = previous == n || i - previous > kAlone;
    if (!alone && held_back) ++more;
    held_back = alone && history_.families()[i] == matmul;
    if (!held_back) ++more;
    previous = i;
  }
  for (Position i = n - l; i < n; ++i) tallies_[keys[i]] = {};
  if (optimizer > 0) return true;
  if (more < 3) return false;
  // What takes its input from the host is a whole, and what lies between two inputs is a part of it.
  if (to_device > 0 && !history_.training()) return true;
  // Logging returns as well: a few launches after many steps, around a copy of the loss to the host.
  if ((to_host > 0 || logged * 2 > more) && more < s / 8) return false;
  return l <= 9 * s || more >= l / 50;
}

// ---------------------------------------------------------------------------------------------- judging a candidate

void CycleSearch::evaluate(CycleCandidate& c, Position begin, const Keys& keys) {
  const std::uint32_t p = c.period;
  const Position n = history_.end();
  if (p < kT.shortest_period || p > kMaxPeriod || n - begin < 2 * p) return;
  const auto similarity = [&](Position end) {
    const Alignment aligned = alignment(end, p, keys);
    c.similarity_by_name = aligned.by_name;
    if (aligned.share >= kT.nearly_equal) return aligned.share;
    return std::max(aligned.share,
                    multiset_similarity(keys, end - p, end, end - 2 * p, end - p, counts_) - kT.multiset_penalty);
  };
  c.similarity = similarity(n);
  if (c.similarity < kT.similar) {
    c.refused = "the last two turns do not agree";
    return;
  }
  const double by_name = c.similarity_by_name;
  look_at_marks(c, begin);
  c.refused = refused_at_sight(c);
  constexpr std::uint8_t kNamed = kFlagBackward | kFlagLoss | kFlagSampling;
  const bool named = c.optimizer || (c.trait_flags & kNamed) != 0;
  if (c.refused == nullptr && !named && (c.trait_flags & kFlagGraph) == 0 && names_in_turn(p, keys) < kT.few_names)
    c.refused = "so few names repeat in anything";
  if (c.refused != nullptr) return;
  c.coverage = coverage_of(p, keys);
  c.composite = composite_of(p, keys);
  const auto [needed, never] = repeats_needed(c);
  if (never == nullptr && !named && returning_stretches(p, begin, keys) < kT.similar_stretches) {
    c.refused = "the same names come in another order";
    return;
  }
  c.needed = needed;
  c.refused = never != nullptr ? never : needed > (n - begin) / p ? "not seen often enough" : nullptr;
  if (c.refused != nullptr) return;
  for (Position end = n; c.repeats < needed && end >= begin + 2 * p && (end == n || similarity(end) >= kT.similar);
       end -= p)
    ++c.repeats;
  c.similarity_by_name = by_name;
  // Where other work comes between, as an update without a name does after some passes, turns count from there.
  if (needed > kT.few_repeats && !c.optimizer && (c.trait_flags & kFlagSampling) == 0)
    c.repeats = std::min(c.repeats, longest_undisturbed(p, begin, keys) / p);
  c.accepted = c.repeats >= needed;
  if (!c.accepted) c.refused = "not seen often enough";
}

/// Flags in both of the last two turns, and whether the optimizer returns where it was.
void CycleSearch::look_at_marks(CycleCandidate& c, Position begin) const {
  const std::uint32_t p = c.period;
  const Position n = history_.end();
  const auto is_optimizer = [&](Position i) { return history_.is_optimizer(i); };
  std::uint8_t last = 0, before = 0;
  std::uint32_t updates = 0, updates_before = 0, returning = 0;
  const std::uint32_t tolerance = p / 64 + 8;
  const Key matmul = LaunchHistory::key_of_family(traits_of(KernelRole::kGemm).family);
  for (Position i = n - p; i < n; ++i) {
    last |= history_.flags(i);
    before |= history_.flags(i - p);
    c.matmuls = c.matmuls || history_.families()[i] == matmul;
    if (is_optimizer(i - p)) ++updates_before;
    if (!is_optimizer(i)) continue;
    ++updates;
    bool found = is_optimizer(i - p);
    for (std::uint32_t d = 1; !found && d <= tolerance; ++d)
      found = (i - p + d < n && is_optimizer(i - p + d)) || (i >= begin + p + d && is_optimizer(i - p - d));
    returning += found ? 1 : 0;
  }
  c.trait_flags = last & before;
  // The update must return where it was: under accumulation most distances put it against a micro-step.
  c.optimizer = updates > 0 && returning * 10 >= updates * 9 && updates_before * 10 >= updates * 9 &&
                updates * 10 >= updates_before * 9;
  c.updates = updates;
}

/// Share of the remembered names that occur in the last turn, or just before it.
double CycleSearch::coverage_of(std::uint32_t p, const Keys& keys) {
  const Position n = history_.end();
  std::uint32_t inside = 0, remembered = 0;
  const Position from = n - std::min<Position>(n - history_.oldest(), p + p / 10);
  // Several names may share a key.
  history_.for_each_name([&](Position last) { counts_[keys[last]] |= last >= from ? 3 : 1; });
  history_.for_each_name([&](Position last) {
    const std::int32_t where = std::exchange(counts_[keys[last]], 0);
    remembered += where != 0 ? 1 : 0;
    inside += where == 3 ? 1 : 0;
  });
  return static_cast<double>(inside) / remembered;
}

/// Different ones in the last turn, as far as kT.few_names.
std::uint32_t CycleSearch::names_in_turn(std::uint32_t p, const Keys& keys) {
  std::uint32_t names = 0;
  Position i = history_.end();
  while (i > history_.end() - p && names < kT.few_names) names += counts_[keys[--i]]++ == 0 ? 1 : 0;
  for (; i < history_.end(); ++i) counts_[keys[i]] = 0;
  return names;
}

/// Share of the 8-grams in the last turn that are there more than once.
double CycleSearch::composite_of(std::uint32_t p, const Keys& keys) {
  if (p < 2 * kGram) return 0;
  std::uint32_t sample = 0;
  while (p / (sample + 1) > kMaxGrams / 2) sample = sample * 2 + 1;
  std::uint32_t count = 0;
  GramHash gram;
  for (std::uint32_t i = 0; i < p; ++i) {
    const std::uint64_t hash = gram.add(i, mix(keys[history_.end() - p + i] + 1u));
    if (i < kGram) continue;
    const std::uint64_t g = mix(hash);
    if ((g >> 40 & sample) == 0 && count < kMaxGrams) grams_[count++] = static_cast<std::uint32_t>(g);
  }
  std::sort(grams_.begin(), grams_.begin() + count);
  const auto distinct = std::unique(grams_.begin(), grams_.begin() + count) - grams_.begin();
  return count > 0 ? 1.0 - static_cast<double>(distinct) / count : 0;
}

/// Share of the last turn's stretches of a few launches that were in the turn before, too; of short turns, of several.
/// Where few names come in any order, much agrees in order by chance, but little of this.
double CycleSearch::returning_stretches(std::uint32_t period, Position first, const Keys& keys) {
  constexpr std::uint32_t kLongest = 24, kTurns = 4;
  constexpr std::uint64_t kFactor = 0x9E37'79B9'7F4A'7C15u;
  const bool is_short = period < 4 * kLongest;
  const auto seen = static_cast<std::uint32_t>((history_.end() - first) / (2 * period));
  const std::uint32_t p = period * (is_short ? std::clamp(seen, 1u, kTurns) : 1);
  const std::uint32_t length = is_short ? std::min(kLongest, period / 2) : kLongest;
  if (length < kGram / 2) return 1;
  std::uint64_t oldest = 1;  // what a key is multiplied by when it leaves
  for (std::uint32_t i = 0; i < length; ++i) oldest *= kFactor;
  std::uint32_t sample = 0;
  while (p / (sample + 1) > kMaxGrams / 2) sample = sample * 2 + 1;
  const Position begin = history_.end() - 2 * p;
  std::uint32_t before = 0, now = 0, returned = 0;
  std::uint64_t hash = 0;
  for (std::uint32_t i = 0; i < 2 * p; ++i) {
    hash = hash * kFactor + mix(keys[begin + i] + 1u);
    if (i >= length) hash -= oldest * mix(keys[begin + i - length] + 1u);
    if (i + 1 < length) continue;
    const std::uint64_t g = mix(hash);
    if ((g >> 40 & sample) != 0) continue;
    if (i < p) {
      if (before < kMaxGrams) grams_[before++] = static_cast<std::uint32_t>(g);
      continue;
    }
    if (now++ == 0) std::sort(grams_.begin(), grams_.begin() + before);
    returned += std::binary_search(grams_.begin(), grams_.begin() + before, static_cast<std::uint32_t>(g)) ? 1 : 0;
  }
  return now == 0 ? 1 : static_cast<double>(returned) / now;
}

/// The longest stretch since `begin` [launch] without a burst of what the last turn does not hold.
std::uint32_t CycleSearch::longest_undisturbed(std::uint32_t period, Position begin, const Keys& keys) {
  const Position n = history_.end();
  const Position from = n - std::min<Position>(n - begin, period + period / 10);
  for (Position i = from; i < n; ++i) counts_[keys[i]] = 1;
  Position longest = 0, start = begin, last = 0;
  std::uint32_t burst = 0;
  for (Position i = begin; i < from; ++i) {
    if (counts_[keys[i]] != 0) continue;
    burst = burst != 0 && i - last <= kT.burst ? burst + 1 : 1;
    last = i;
    if (burst < 3) continue;
    longest = std::max(longest, i - start);
    start = i;
  }
  longest = std::max(longest, n - start);
  for (Position i = from; i < n; ++i) counts_[keys[i]] = 0;
  return static_cast<std::uint32_t>(longest);
}

bool CycleSearch::holds_update(const CycleCandidate& c) noexcept {
  return c.optimizer && (c.trait_flags & (kFlagBackward | kFlagOptimizer)) != 0;
}

/// Why no number of turns would do, as far as it shows before coverage and repetition, which take longer, are known.
const char* CycleSearch::refused_at_sight(const CycleCandidate& c) const noexcept {
  if (holds_update(c)) return nullptr;
  if (history_.optimizer_known()) return "no optimizer in it, and the program has one";
  if (c.similarity_by_name < kT.similar_by_name) return "some names do not return in their places";
  return nullptr;
}

CycleSearch::Needed CycleSearch::repeats_needed(const CycleCandidate& c) const noexcept {
  const bool copies = (c.trait_flags & (kFlagToDevice | kFlagToHost)) != 0;
  const bool structured = c.composite >= kT.structured || copies;
  const std::uint32_t fresh = history_.newest_name() + c.period > history_.end() ? 1 : 0;
  if (holds_update(c)) {
    // An optimizer that runs inside the backward pass makes a cycle of one layer; its forward pass is then left out.
    const bool backward = (c.trait_flags & kFlagBackward) != 0;
    if (!backward && (!structured || !c.matmuls))
      return {0, "an optimizer alone: a loop over parameters, or a benchmark"};
    if (c.coverage >= kT.coverage_all) return {kT.repeats_optimizer_all + fresh};
    if (!structured) return {kT.repeats_optimizer_alone};
    return {(c.coverage >= kT.coverage_more ? kT.repeats_optimizer_more : kT.repeats_optimizer) + fresh};
  }
  if ((c.trait_flags & kFlagSampling) != 0 && copies && !history_.training()) {
    if (c.coverage >= kT.coverage_all) return {2 + fresh};
    if (c.coverage >= kT.coverage_more) return {3 + fresh};
    return {(c.coverage >= kT.coverage_some ? 4 : 6) + fresh};
  }
  // A loss ends the forward pass of every micro-step.
  if ((c.trait_flags & kFlagLoss) != 0 && (c.coverage >= kT.coverage_more || structured))
    return {repeats_of_stack(c.coverage) + fresh};
  if (c.similarity < kT.nearly_equal) return {0, "two turns are not equal enough for a cycle without a name"};
  // Neither a pass goes backward nor is anything said to or heard from the host: a solver, a quantiser or a benchmark
  // repeats as well.
  if (!copies && (c.trait_flags & (kFlagBackward | kFlagGraph)) == 0)
    return {0, "no backward pass, no graph, and nothing goes to or comes from the host"};
  // Nothing in it says what it is. A stack of layers repeats inside; a layer does not, a group of layers little.
  if (c.composite >= kT.structured) {
    const bool stack = c.composite >= kT.stack;
    if (c.coverage >= kT.coverage_all) {
      if (c.period < kT.long_period) return {kT.repeats_short + fresh};
      return {(stack ? repeats_of_stack(c.coverage) : kT.repeats_group_of_layers) + fresh};
    }
    if (c.coverage >= kT.coverage_half) return {(stack ? repeats_of_stack(c.coverage) : kT.repeats_stack) + fresh};
    return {0, "it holds less than half of the names that run"};
  }
  if (copies && c.coverage >= kT.coverage_more) return {kT.repeats_copies + fresh};
  return {0, "nothing repeats inside: a layer, or a loop"};
}

}  // namespace mfu

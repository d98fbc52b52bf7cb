#include "core/detect/step_detector.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>

#include "core/base/bit_mix.h"

namespace mfu {
namespace {

constexpr std::uint32_t kFamilies = 64;  ///< keys after the vocabulary's, one per family
constexpr std::uint32_t kIndexSlots = 2 * StepDetector::kVocabulary;
constexpr std::uint32_t kAnchorSlots = 8192;
constexpr std::uint32_t kMaxAnchors = 6144;
constexpr std::uint32_t kSearchEvery = 1024;    ///< [launch]
constexpr std::uint32_t kSmallWindow = 4096;    ///< [launch]
constexpr std::uint32_t kMiddleWindow = 16384;  ///< [launch]
constexpr std::uint32_t kSeldom = 32;           ///< a window is searched at least once in this many times its launches
constexpr std::uint32_t kGram = 8;              ///< [launch]
constexpr std::uint32_t kMaxGrams = 8192;
constexpr std::uint32_t kBurst = 12;  ///< marks this close belong together [launch]
constexpr double kAlike = 0.8;        ///< two cycles that share this much are the same
constexpr std::uint32_t kNever = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint32_t kFewRepeats = 4;  ///< more are asked of what holds little of all that was seen

StepKind kind_of(ServingKind kind) noexcept {
  switch (kind) {
    case ServingKind::kDecode:
      return StepKind::kDecode;
    case ServingKind::kPrefillOrMixed:
      return StepKind::kPrefillOrMixed;
    case ServingKind::kUnknown:
      break;
  }
  return StepKind::kIteration;
}

bool equal_gaps(std::uint32_t a, std::uint32_t b) noexcept {
  const std::uint32_t tolerance = std::max(std::max(a, b) / 32, 2u);
  return a > b ? a - b <= tolerance : b - a <= tolerance;
}

}  // namespace

std::string_view name(StepKind kind) noexcept {
  switch (kind) {
    case StepKind::kStep:
      return "step";
    case StepKind::kDecode:
      return "decode";
    case StepKind::kPrefillOrMixed:
      return "prefill_or_mixed";
    case StepKind::kIteration:
      return "iteration";
    case StepKind::kNone:
      break;
  }
  return "none";
}

std::string_view name(StepConfidence confidence) noexcept {
  switch (confidence) {
    case StepConfidence::kHigh:
      return "high";
    case StepConfidence::kMedium:
      return "medium";
    case StepConfidence::kLow:
      return "low";
    case StepConfidence::kNotSure:
      break;
  }
  return "not_sure";
}

std::string_view name(BoundaryRule rule) noexcept {
  switch (rule) {
    case BoundaryRule::kOptimizer:
      return "optimizer";
    case BoundaryRule::kSampling:
      return "sampling";
    case BoundaryRule::kCopies:
      return "h2d";
    case BoundaryRule::kGraph:
      return "graph";
    case BoundaryRule::kIdle:
      return "idle";
    case BoundaryRule::kAnywhere:
      break;
  }
  return "anywhere";
}

StepDetector::StepDetector(StepListener& listener, std::uint64_t first)
    : listener_(listener),
      ids_(kRing),
      families_(kRing),
      flags_(kRing),
      begins_(kRing),
      words_(kVocabulary),
      word_index_(kIndexSlots),
      anchors_(kAnchorSlots),
      counts_(kVocabulary + kFamilies),
      tallies_(kVocabulary + kFamilies),
      grams_(kMaxGrams),
      cost_(2 * (kMaxPeriod / 32 + 16) + 2 * kSurroundings + 2),
      mark_(cost_.size()),
      first_(first),
      n_(first),
      serving_(first) {
  search_anew();
  next_work_ = next_search_;
}

std::size_t StepDetector::held_bytes() const noexcept {
  const auto bytes = [](const auto& v) { return v.capacity() * sizeof(v[0]); };
  return sizeof(*this) + bytes(ids_) + bytes(families_) + bytes(flags_) + bytes(begins_) + bytes(words_) +
         bytes(word_index_) + bytes(anchors_) + bytes(counts_) + bytes(tallies_) + bytes(grams_) + bytes(cost_) +
         bytes(mark_);
}

// ---------------------------------------------------------------------------------------------- every launch

StepDetector::Key StepDetector::intern(std::uint32_t name) {
  for (std::uint32_t at = static_cast<std::uint32_t>(mix(name)) % kIndexSlots;; at = (at + 1) % kIndexSlots) {
    const Key entry = word_index_[at];
    if (entry == 0) break;
    const auto known = static_cast<Key>(entry - 1);
    if (words_[known].name == name) {
      words_[known].last = n_;
      return known;
    }
  }
  if (word_count_ == kVocabulary) forget_words();
  while (words_[free_word_].used) free_word_ = (free_word_ + 1) % kVocabulary;
  const auto fresh = static_cast<Key>(free_word_);
  words_[fresh] = {name, true, n_};
  ++word_count_;
  newest_word_ = n_;
  std::uint32_t at = static_cast<std::uint32_t>(mix(name)) % kIndexSlots;
  while (word_index_[at] != 0) at = (at + 1) % kIndexSlots;
  word_index_[at] = static_cast<Key>(fresh + 1);
  return fresh;
}

/// About half of the vocabulary, the longest unseen, makes way: the median of a sample divides it.
void StepDetector::forget_words() {
  std::array<Position, kVocabulary / 16> lasts;
  for (std::uint32_t i = 0; i < lasts.size(); ++i) lasts[i] = words_[16 * i].last;
  std::nth_element(lasts.begin(), lasts.begin() + lasts.size() / 2, lasts.end());
  const Position keep_from = lasts[lasts.size() / 2];
  std::fill(word_index_.begin(), word_index_.end(), Key{0});
  word_count_ = 0;
  for (std::uint32_t i = 0; i < kVocabulary; ++i) {
    Word& word = words_[i];
    word.used = word.last > keep_from;
    if (!word.used) continue;
    ++word_count_;
    std::uint32_t at = static_cast<std::uint32_t>(mix(word.name)) % kIndexSlots;
    while (word_index_[at] != 0) at = (at + 1) % kIndexSlots;
    word_index_[at] = static_cast<Key>(i + 1);
  }
}

void StepDetector::add(const Launch& launch) {
  const Key word = intern(launch.name);
  const std::uint32_t at = slot(n_);
  ids_[at] = word;
  families_[at] =
      launch.traits.family != 0 ? static_cast<Key>(kVocabulary + std::min(launch.traits.family, kFamilies) - 1) : word;
  families_seen_ |= launch.traits.family != 0;
  flags_[at] = launch.traits.flags;
  begins_[at] = launch.begin_ns;
  if ((launch.traits.flags & (kFlagBackward | kFlagOptimizer | kFlagForeach)) != 0) note_training(launch.traits.flags);
  const bool ended = serving_.add(launch.traits, n_);
  ++n_;
  if (ended) iteration_ended();
  if (n_ >= next_work_) work(false);
}

/// A backward pass or an optimizer.
void StepDetector::note_training(std::uint8_t flags) {
  constexpr std::uint32_t kEnough = 3;  // one may be a misread name
  if ((flags & kFlagBackward) != 0 && backward_seen_ < kEnough) ++backward_seen_;
  if ((flags & kFlagOptimizer) != 0 && optimizer_seen_ < kEnough) ++optimizer_seen_;
  const bool was = training_;
  training_ = training_ || backward_seen_ == kEnough || optimizer_seen_ == kEnough;
  if (!training_) return;
  if ((flags & (kFlagOptimizer | kFlagForeach)) != 0) optimizer_known_ = true;
  if (was && (flags & (kFlagBackward | kFlagOptimizer)) != 0)
    training_gap_ = std::max(training_gap_, static_cast<std::uint32_t>(std::min<Position>(n_ - last_trained_, kRing)));
  if (!was || (flags & (kFlagBackward | kFlagOptimizer)) != 0) last_trained_ = n_;
  if (serving_.ended() != 0) serving_ = ServingIterations(n_);  // losses that were copied to the host
}

/// Iterations of a server have taken its place: reinforcement learning alternates, and a script may do one thing after
/// the other.
bool StepDetector::training_is_over() const noexcept {
  constexpr std::uint32_t kLeast = 64;
  return serving_.found() && n_ - last_trained_ > 3 * std::max<Position>(training_gap_, kLeast);
}

void StepDetector::iteration_ended() {
  ends_[serving_.ended() % ends_.size()] = serving_.last();
  if (training_) {
    if (!training_is_over()) return;
    training_ = optimizer_known_ = false;
    backward_seen_ = optimizer_seen_ = training_gap_ = 0;
    told_before_ = last_told_;  // its steps stand
    first_told_ = 0;
    unlock();
  }
  if (serving_found_) {
    emit(serving_.last().launch, kind_of(serving_.last().kind));
  } else if (serving_.found()) {
    // Samples tell more than a period does, and need none.
    serving_found_ = true;
    withdraw(first_told_);
    unlock();
    const std::uint64_t known = std::min<std::uint64_t>(serving_.ended(), ends_.size());
    for (std::uint64_t i = serving_.ended() + 1 - known; i <= serving_.ended(); ++i) {
      const ServingIterations::End& end = ends_[i % ends_.size()];
      // Where the first of them began nobody knows.
      if (end.launch >= oldest())
        emit(end.launch, i + known == serving_.ended() + 1 ? StepKind::kNone : kind_of(end.kind));
    }
  }
  judge();
}

void StepDetector::finish() {
  work(true);
  judge();
}

void StepDetector::work(bool final) {
  if (serving_found_) {
    // Training after all, or sampling ended long ago: then the search goes on.
    const Position quiet = n_ - last_told_;
    if (training_ || quiet > std::max<Position>(kRing / 2, static_cast<Position>(64 * serving_.mean_launches()))) {
      serving_found_ = false;
      serving_ = ServingIterations(n_);
    }
    next_work_ = n_ + kSearchEvery;
    judge();
    return;
  }
  for (bool progress = true; progress && locked_;) progress = in_step_ ? follow(final) : scan(final);
  // A lock that no longer follows anything is searched past: another loop may have begun.
  const bool lost = locked_ && !in_step_ && n_ - last_told_ > 4u * cycle_.period;
  // What is not known by a name may turn out to be a part of something larger.
  const bool unnamed = locked_ && !cycle_.optimizer && (training_ || (cycle_.marks & kFlagSampling) == 0);
  if (unnamed && newest_word_ >= cover_checked_) check_cover();
  if (!locked_ || lost || unnamed) {
    const std::uint32_t window = window_to_search(locked_ && !lost, final);
    if (window != 0) search(window);
    for (bool progress = window != 0; progress && locked_;) progress = in_step_ ? follow(final) : scan(final);
  }
  if (!locked_)
    next_work_ = n_ + kSearchEvery;
  else if (in_step_)
    next_work_ = std::max(n_ + 1, step_begin_ + cycle_.period + slack() + surroundings());
  else
    next_work_ = n_ + std::clamp<std::uint32_t>(cycle_.period / 8, 16, kSearchEvery);
  judge();
}

// ---------------------------------------------------------------------------------------------- the search

/// How far back to search now; 0: not now. The launches searched cost tens of ns each, so what has been in vain for
/// long is tried seldom.
std::uint32_t StepDetector::window_to_search(bool followed, bool final) {
  if (!followed) notice_change();
  const Position age = n_ - searching_since_;
  const auto wait = [&](Position age_share, std::uint32_t least, std::uint32_t window) {
    return n_ + std::clamp<Position>(age <= kRing ? age / age_share : 2 * age, least, kSeldom * window);
  };
  if (final || n_ >= next_full_search_) {
    next_full_search_ = wait(followed ? 2 : 4, kSearchEvery, kRing);
    return kRing;
  }
  if (followed) return 0;
  if (n_ >= next_middle_search_) {
    next_middle_search_ = wait(8, 4 * kSearchEvery, kMiddleWindow);
    return kMiddleWindow;
  }
  if (n_ < next_search_) return 0;
  next_search_ = wait(8, kSearchEvery, kSmallWindow);
  return kSmallWindow;
}

/// Names never seen before after a long time without any, or no more of them after a long time with many: something
/// else began, and is searched for as at the start. Not often, or what never rests would cost as much as a start.
void StepDetector::notice_change() {
  constexpr std::uint32_t kQuiet = 8 * kSearchEvery;
  const bool quiet = n_ - newest_word_ > kQuiet;
  if (std::exchange(quiet_, quiet) == quiet || n_ - searching_since_ < kRing) return;
  search_anew();
  next_search_ = next_middle_search_ = next_full_search_ = n_;
}

void StepDetector::search(std::uint32_t window) {
  const Position begin = std::max(oldest(), n_ > window ? n_ - window : 0);
  if (n_ - begin < 16) return;
  std::optional<Candidate> best = best_candidate(begin, ids_);
  bool by_family = false;
  if (families_seen_ && !(best && best->optimizer)) {
    // Where shapes change from step to step, names return with a part of a step, or with several steps, alone.
    const std::optional<Candidate> other = best_candidate(begin, families_);
    if (!best) {
      by_family = true;
    } else if (other && !equal_gaps(other->period, best->period)) {
      const bool longer = other->period > best->period;
      by_family = holds_more(longer ? *other : *best, longer ? *best : *other, families_) == longer;
    }
    if (by_family) best = other;
  }
  if (!best) return;
  if (locked_ && (equal_gaps(best->period, cycle_.period) || (in_step_ && best->period * 10 < cycle_.period * 19)))
    return;
  lock(*best, by_family);
}

std::optional<StepDetector::Candidate> StepDetector::best_candidate(Position begin, const std::vector<Key>& keys) {
  const auto length = static_cast<std::uint32_t>(n_ - begin);
  std::fill(anchors_.begin(), anchors_.end(), Anchor{});
  std::uint32_t used = 0;
  std::uint32_t sample = 3;  // of the 8-grams whose hash has these bits clear
  while (length / (sample + 1) > kMaxAnchors) sample = sample * 2 + 1;
  const auto touch = [&](std::uint64_t key, std::uint32_t here) {
    std::uint32_t at = static_cast<std::uint32_t>(key) % kAnchorSlots;
    while (anchors_[at].key != 0 && anchors_[at].key != key) at = (at + 1) % kAnchorSlots;
    Anchor& anchor = anchors_[at];
    if (anchor.key == 0) {
      if (used == kMaxAnchors) return;
      ++used;
      anchor.key = key;
      anchor.last = here;
      return;
    }
    const std::uint32_t gap = here - anchor.last;
    anchor.last = here;
    if (anchor.gap != 0 && equal_gaps(gap, anchor.gap)) {
      ++anchor.run;
    } else {
      anchor.prev = std::max(anchor.prev, anchor.run);
      anchor.run = 1;
      anchor.gap = gap;
    }
  };
  std::vector<std::int32_t>& last_seen = counts_;
  std::fill(last_seen.begin(), last_seen.end(), -(1 << 20));
  std::uint64_t gram = 0;  // the last eight keys, 16 bits each, hashed by rotation: position in the gram counts
  std::array<std::uint64_t, kGram> recent{};
  for (std::uint32_t i = 0; i < length; ++i) {
    const Key key = keys[slot(begin + i)];
    const std::uint64_t h = mix(key + 1u);
    touch(h | 1u, i);
    // A name that comes in bursts has irregular gaps; its returns after an absence are regular.
    const auto here = static_cast<std::int32_t>(i);
    const auto absent = static_cast<std::uint32_t>(here - std::exchange(last_seen[key], here));
    for (std::uint32_t level = 0; level < 3; ++level)
      if (absent > (64u << (3 * level))) touch(mix(h + 2 * level + 3) | 1u, i);
    gram = ((gram << 7) | (gram >> 57)) ^ h;
    std::uint64_t& oldest_of_gram = recent[i % kGram];
    gram ^= (oldest_of_gram << 56) | (oldest_of_gram >> 8);  // rotated by 7 eight times
    oldest_of_gram = h;
    if (i >= kGram) {
      const std::uint64_t g = mix(gram);
      if ((g >> 40 & sample) == 0) touch(g & ~std::uint64_t{1}, i);
    }
  }

  std::fill(counts_.begin(), counts_.end(), 0);

  std::vector<std::uint32_t> gaps;
  shortest_ = 0;
  for (const Anchor& anchor : anchors_) {
    if (anchor.key == 0 || anchor.run < 2) continue;
    if (anchor.run <= anchor.prev || length - anchor.last > anchor.gap + anchor.gap / 4 + 2) continue;
    if (anchor.gap >= 4) gaps.push_back(anchor.gap);
  }
  std::sort(gaps.begin(), gaps.end());
  std::vector<Candidate> candidates;
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
      Candidate candidate;
      candidate.period = gaps[best_at];
      candidate.members = static_cast<std::uint32_t>(j - i);
      candidates.push_back(candidate);
    }
    i = j;
  }
  constexpr std::size_t kTried = 12;
  if (candidates.size() > kTried) {
    std::nth_element(candidates.begin(), candidates.begin() + kTried, candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.members > b.members; });
    candidates.resize(kTried);
  }
  add_burst_candidates(begin, candidates);
  for (Candidate& candidate : candidates) evaluate(candidate, begin, keys);
  // Several turns of something shorter, which then has to show for itself what it is.
  for (Candidate& longer : candidates) {
    if (!longer.locks) continue;
    for (const Candidate& shorter : candidates) {
      const std::uint32_t turns = (longer.period + shorter.period / 2) / shorter.period;
      if (turns < 2 || turns > 16 || shorter.alike < longer.alike - 0.02) continue;
      const std::uint32_t whole = turns * shorter.period, tolerance = turns * (shorter.period / 64 + 2);
      if (whole > longer.period + tolerance || longer.period > whole + tolerance) continue;
      if (!holds_more(longer, shorter, keys)) longer.locks = false;
    }
  }
  std::optional<Candidate> best;
  double highest = 0;
  for (const Candidate& c : candidates)
    if (c.locks) highest = std::max(highest, c.by_name);
  for (const Candidate& candidate : candidates) {
    if (!candidate.locks || candidate.by_name < highest - 0.02) continue;
    if (!best) {
      best = candidate;
      continue;
    }
    const Candidate& shorter = candidate.period < best->period ? candidate : *best;
    const Candidate& longer = candidate.period < best->period ? *best : candidate;
    best = holds_more(longer, shorter, keys) ? longer : shorter;
  }
  // A part of it may be a cycle that nothing pointed to.
  for (std::uint32_t turns = 2; best && turns <= 5; ++turns) {
    Candidate part;
    part.period = best->period / turns;
    evaluate(part, begin, keys);
    if (part.alike >= best->alike - 0.02 && !holds_more(*best, part, keys)) {
      if (!part.locks) return std::nullopt;
      best = part;
      turns = 1;
    }
  }
  return best;
}

/// Distances between bursts of marks, whatever lies between them: from the last burst to each of the few before it.
void StepDetector::add_burst_candidates(Position begin, std::vector<Candidate>& candidates) const {
  constexpr std::size_t kKinds = 4, kBack = 5;
  struct Bursts {
    std::array<Position, kBack> starts{};
    std::size_t count = 0;
    Position last = 0;
  };
  std::array<Bursts, kKinds> kinds{};
  for (Position i = begin; i < n_; ++i) {
    const std::uint8_t f = flags(i);
    if (f == 0) continue;
    const std::array<bool, kKinds> has{is_optimizer(i), (f & kFlagSampling) != 0, (f & kFlagToDevice) != 0,
                                       (f & kFlagToHost) != 0};
    for (std::size_t k = 0; k < kKinds; ++k) {
      if (!has[k]) continue;
      Bursts& b = kinds[k];
      if (b.count == 0 || i - b.last > kBurst) {
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
      if (period < 4 ||
          std::any_of(candidates.begin(), candidates.end(), [&](const Candidate& c) { return c.period == period; }))
        continue;
      Candidate candidate;
      candidate.period = period;
      candidates.push_back(candidate);
    }
  }
}

/// Walks back through the `period` launches before `end` and says of each, to `visit(key, found)`, whether it returns
/// what was there a period before. A drift is followed, so that a stray launch costs itself alone.
/// False where the first few hundred agree so little that the rest was not looked at.
template <typename Visit>
bool StepDetector::align(Position end, std::uint32_t period, const std::vector<Key>& keys, Visit&& visit) const {
  constexpr std::int32_t kReach = 12;
  const auto key = [&](Position i) { return keys[slot(i)]; };
  const Position begin = end - period;
  const auto reach = std::min<std::int32_t>(kReach, static_cast<std::int32_t>(period / 8));
  // `at` counts from the beginning of the cycle before.
  const auto is = [&](std::int64_t at, Key wanted) {
    return at >= 0 && at < static_cast<std::int64_t>(period) &&
           key(begin - period + static_cast<Position>(at)) == wanted;
  };
  constexpr Position kTrial = 512;
  std::int32_t drift = 0;
  std::uint32_t agreeing = 0;
  for (Position i = end; i-- > begin;) {
    if (end - i == kTrial && agreeing < kTrial / 4) return false;
    const Key k = key(i);
    const auto partner = static_cast<std::int64_t>(i - begin) - drift;
    bool found = is(partner, k);
    for (std::int32_t d = 1; !found && d <= reach; ++d) {
      for (const std::int32_t shift : {d, -d}) {
        if (!is(partner - shift, k)) continue;
        // The neighbours must agree before all that follows is taken for shifted; two places away is a swap.
        if (i > begin + 2 && is(partner - shift - 1, key(i - 1)) && is(partner - shift - 2, key(i - 2)))
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

/// How much of the last cycle before `end` returns, in order.
StepDetector::Alignment StepDetector::alignment(Position end, std::uint32_t period, const std::vector<Key>& keys) {
  std::uint32_t equal = 0;
  const bool whole = align(end, period, keys, [&](Key k, bool found) {
    Tally& tally = tallies_[k];
    ++tally.count;
    if (!found) ++tally.unlike;
    equal += found ? 1 : 0;
  });
  if (!whole) {
    for (Position i = end - period; i < end; ++i) tallies_[keys[slot(i)]] = {};
    return {};
  }
  for (Position i = end - 2 * period; i < end - period; ++i) ++tallies_[keys[slot(i)]].before;
  double unlike = 0;
  std::uint32_t names = 0;
  for (Position i = end - 2 * period; i < end; ++i) {
    Tally& tally = tallies_[keys[slot(i)]];
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
bool StepDetector::holds_more(const Candidate& longer, const Candidate& shorter, const std::vector<Key>& keys) {
  const std::uint32_t s = shorter.period, l = longer.period;
  // A turn and a little more, so that nothing is missed for lying across the edge of a turn with strays in it.
  const std::uint32_t turn = s + s / 16 + 8;
  const Position first = n_ - std::min<Position>(2 * turn, n_ - oldest());
  for (Position i = first; i < n_; ++i) counts_[keys[slot(i)]] |= i + turn < n_ ? 2 : 1;
  Position here = n_;
  std::uint32_t to_host = 0, optimizer = 0;
  align(n_, l, keys, [&](Key k, bool found) {
    --here;
    if (counts_[k] == 3) return;
    Tally& tally = tallies_[k];
    ++tally.count;
    if (!found) ++tally.unlike;
    if (found && (flags(here) & kFlagToHost) != 0) ++to_host;
    if (found && is_optimizer(here)) ++optimizer;
  });
  for (Position i = first; i < n_; ++i) counts_[keys[slot(i)]] = 0;
  std::uint32_t more = 0;
  for (Position i = n_ - l; i < n_; ++i) {
    Tally& tally = tallies_[keys[slot(i)]];
    if (tally.unlike * 10 <= tally.count) more += tally.count;
    tally = {};
  }
  if (optimizer > 0) return true;
  if (more < 3) return false;
  // Logging returns as well: a few launches after many steps, or a copy of the loss to the host.
  if (to_host > 0 && more < s / 8) return false;
  return l <= 9 * s || more >= l / 50;
}

void StepDetector::evaluate(Candidate& c, Position begin, const std::vector<Key>& keys) {
  const std::uint32_t p = c.period;
  if (p < 4 || p > kMaxPeriod || n_ - begin < 2 * p) return;
  const auto alike = [&](Position end) {
    const Alignment aligned = alignment(end, p, keys);
    c.by_name = aligned.by_name;
    return aligned.share >= 0.96 ? aligned.share
                                 : std::max(aligned.share, bag_alike(end - p, end, end - 2 * p, end - p, keys) - 0.02);
  };
  c.alike = alike(n_);
  if (c.alike < kAlike) return;
  const double by_name = c.by_name;

  std::uint8_t last = 0, before = 0;
  std::uint32_t updates = 0, updates_before = 0, returning = 0;
  const std::uint32_t tolerance = p / 64 + 8;
  for (Position i = n_ - p; i < n_; ++i) {
    last |= flags(i);
    before |= flags(i - p);
    if (is_optimizer(i - p)) ++updates_before;
    if (!is_optimizer(i)) continue;
    ++updates;
    bool found = is_optimizer(i - p);
    for (std::uint32_t d = 1; !found && d <= tolerance; ++d)
      found = (i - p + d < n_ && is_optimizer(i - p + d)) || (i >= begin + p + d && is_optimizer(i - p - d));
    returning += found ? 1 : 0;
  }
  c.marks = last & before;
  // The update must return where it was: under accumulation most distances put it against a micro-step.
  c.optimizer = updates > 0 && returning * 10 >= updates * 9 && updates_before * 10 >= updates * 9 &&
                updates * 10 >= updates_before * 9;
  c.updates = updates;

  std::uint32_t inside = 0, remembered = 0;
  const Position from = n_ - std::min<Position>(n_ - oldest(), p + p / 10);
  const auto seen = [&](const Word& word) { return word.used && word.last >= oldest(); };
  for (const Word& word : words_)  // several words may share a key
    if (seen(word)) counts_[keys[slot(word.last)]] |= word.last >= from ? 3 : 1;
  for (const Word& word : words_) {
    if (!seen(word)) continue;
    const std::int32_t where = std::exchange(counts_[keys[slot(word.last)]], 0);
    remembered += where != 0 ? 1 : 0;
    inside += where == 3 ? 1 : 0;
  }
  c.cover = static_cast<double>(inside) / remembered;

  if (p >= 16) {
    std::uint32_t sample = 0;
    while (p / (sample + 1) > kMaxGrams / 2) sample = sample * 2 + 1;
    std::uint32_t count = 0;
    std::uint64_t gram = 0;
    std::array<std::uint64_t, kGram> recent{};
    for (std::uint32_t i = 0; i < p; ++i) {
      const std::uint64_t h = mix(keys[slot(n_ - p + i)] + 1u);
      gram = ((gram << 7) | (gram >> 57)) ^ h;
      std::uint64_t& oldest_of_gram = recent[i % kGram];
      gram ^= (oldest_of_gram << 56) | (oldest_of_gram >> 8);
      oldest_of_gram = h;
      if (i < kGram) continue;
      const std::uint64_t g = mix(gram);
      if ((g >> 40 & sample) == 0 && count < kMaxGrams) grams_[count++] = static_cast<std::uint32_t>(g);
    }
    std::sort(grams_.begin(), grams_.begin() + count);
    const auto distinct = std::unique(grams_.begin(), grams_.begin() + count) - grams_.begin();
    if (count > 0) c.composite = 1.0 - static_cast<double>(distinct) / count;
  }
  const std::uint32_t needed = repeats_needed(c);
  if (needed == kNever || needed > (n_ - begin) / p) return;
  for (Position end = n_; c.repeats < needed && end >= begin + 2 * p && (end == n_ || alike(end) >= kAlike); end -= p)
    ++c.repeats;
  c.by_name = by_name;
  // Where other work comes between, as an update without a name does after some passes, turns count from there.
  if (needed > kFewRepeats && !c.optimizer && (c.marks & kFlagSampling) == 0)
    c.repeats = std::min(c.repeats, longest_undisturbed(p, begin, keys) / p);
  c.locks = c.repeats >= needed;
}

/// The longest stretch since `begin` [launch] without a burst of what the last cycle does not hold.
std::uint32_t StepDetector::longest_undisturbed(std::uint32_t period, Position begin, const std::vector<Key>& keys) {
  const Position from = n_ - std::min<Position>(n_ - begin, period + period / 10);
  for (Position i = from; i < n_; ++i) counts_[keys[slot(i)]] = 1;
  Position longest = 0, start = begin, last = 0;
  std::uint32_t burst = 0;
  for (Position i = begin; i < from; ++i) {
    if (counts_[keys[slot(i)]] != 0) continue;
    burst = burst != 0 && i - last <= kBurst ? burst + 1 : 1;
    last = i;
    if (burst < 3) continue;
    longest = std::max(longest, i - start);
    start = i;
  }
  longest = std::max(longest, n_ - start);
  for (Position i = from; i < n_; ++i) counts_[keys[slot(i)]] = 0;
  return static_cast<std::uint32_t>(longest);
}

namespace {

/// What repeats inside, and has no other mark of a step, must come this often; `cover` as in Candidate. Few accumulate
/// more passes than eight, so that nine in a row are steps.
std::uint32_t repeats_of_stack(double cover) noexcept {
  return cover >= 0.9 ? 3 : cover >= 0.8 ? 5 : cover >= 0.5 ? 10 : 200;
}

}  // namespace

std::uint32_t StepDetector::repeats_needed(const Candidate& c) const noexcept {
  const bool copies = (c.marks & (kFlagToDevice | kFlagToHost)) != 0;
  const bool structured = c.composite >= 0.3 || copies;
  const std::uint32_t fresh = newest_word_ + c.period > n_ ? 1 : 0;
  if (c.optimizer && ((c.marks & kFlagBackward) != 0 || (c.marks & kFlagOptimizer) != 0)) {
    // An optimizer that runs inside the backward pass makes a cycle of one layer; its forward pass is then left out.
    const bool backward = (c.marks & kFlagBackward) != 0;
    if (!backward && !structured) return kNever;  // a loop over parameters
    if (c.cover >= 0.9) return 2 + fresh;
    if (structured) return (c.cover >= 0.6 ? 3 : 4) + fresh;
    return 140;
  }
  if (optimizer_known_) return kNever;  // every step has one
  if (c.by_name < 0.9) return kNever;
  if ((c.marks & kFlagSampling) != 0 && copies && !training_)
    return (c.cover >= 0.9 ? 2 : c.cover >= 0.6 ? 3 : c.cover >= 0.4 ? 4 : 6) + fresh;
  // A loss ends the forward pass of every micro-step.
  if ((c.marks & kFlagLoss) != 0 && (c.cover >= 0.6 || structured)) return repeats_of_stack(c.cover) + fresh;
  if (c.alike < 0.96) return kNever;
  // Nothing in it says what it is. A stack of layers repeats inside; a layer does not, a group of layers little.
  if (c.composite >= 0.3) {
    const bool many = c.composite >= 0.8;
    if (c.cover >= 0.9) return (c.period >= 256 ? (many ? repeats_of_stack(c.cover) : 24) : 64) + fresh;
    if (c.cover >= 0.5) return (many ? repeats_of_stack(c.cover) : 200) + fresh;
    return kNever;
  }
  if (copies && c.cover >= 0.6) return 40 + fresh;
  return kNever;
}

// ---------------------------------------------------------------------------------------------- lock

void StepDetector::lock(const Candidate& c, bool by_family) {
  const std::uint32_t p = c.period;
  if (locked_ && !cycle_.optimizer && c.period > cycle_.period + cycle_.period / 2 && is_part_of(c.period))
    withdraw(first_told_);
  locked_ = true;
  search_anew();
  cycle_ = {};
  cycle_.period = p;
  cycle_.marks = c.marks;
  cycle_.optimizer = c.optimizer;
  cycle_.cover = c.cover;
  cycle_.by_family = by_family;
  const Position room = std::min<Position>(surroundings(), n_ - 2 * p);
  const Position boundary = place_boundary(n_ - p - room, p, cycle_.rule);
  set_reference(boundary - p, boundary);
  in_step_ = false;
  scan_ = std::max(last_told_, oldest());
  first_told_ = 0;
  told_before_ = last_told_;
  steps_ = 0;
  last_length_ = 0;
  same_length_ = exact_ = 0;
  micro_steps_ = micro_length_ = 0;
  measure_agreement();
  find_micro_steps();
  one_update_ = !cycle_.optimizer || longest_without_update() * 20 > p * 11;
}

/// In the reference step, taken for a circle [launch].
std::uint32_t StepDetector::longest_without_update() const noexcept {
  Position first = 0, previous = 0, longest = 0;
  bool any = false;
  for (Position i = cycle_.begin; i < cycle_.end; ++i) {
    if (!is_optimizer(i)) continue;
    if (any)
      longest = std::max(longest, i - previous);
    else
      first = i;
    any = true;
    previous = i;
  }
  const Position length = cycle_.end - cycle_.begin;
  return static_cast<std::uint32_t>(any ? std::max(longest, first + length - previous) : length);
}

/// The cycle that was followed is in the last `period` launches, by its names.
bool StepDetector::is_part_of(std::uint32_t period) {
  for (Position i = n_ - period; i < n_; ++i) counts_[family(i)] = 1;
  std::uint32_t inside = 0;
  const Position begin = std::max(cycle_.begin, oldest());
  for (Position i = begin; i < cycle_.end; ++i) inside += static_cast<std::uint32_t>(counts_[family(i)]);
  for (Position i = n_ - period; i < n_; ++i) counts_[family(i)] = 0;
  return begin < cycle_.end && inside * 10 >= (cycle_.end - begin) * 9;
}

/// What was never seen before came after the lock: is the cycle still most of all there is?
void StepDetector::check_cover() {
  cover_checked_ = n_;
  if (cycle_.begin < oldest()) return;
  const auto key = [&](Position i) { return cycle_.by_family ? family(i) : id(i); };
  for (Position i = cycle_.begin; i < cycle_.end; ++i) counts_[key(i)] = 2;
  std::uint32_t inside = 0, remembered = 0;
  const auto visit = [&](auto&& take) {
    for (const Word& word : words_)
      if (word.used && word.last >= oldest()) take(counts_[key(word.last)]);
  };
  visit([&](std::int32_t& count) { count |= 1; });
  visit([&](std::int32_t& count) {
    remembered += count & 1;
    inside += count == 3 ? 1 : 0;
    count &= 2;
  });
  for (Position i = cycle_.begin; i < cycle_.end; ++i) counts_[key(i)] = 0;
  if (steps_ >= repeats_of_stack(static_cast<double>(inside) / remembered)) return;
  withdraw(first_told_);
  unlock();
}

/// How well one boundary's surroundings agree with another's: less than 1 where streams swap or shapes vary.
void StepDetector::measure_agreement() {
  const double score = find_boundary(cycle_.begin, slack(), kBoth).score;
  cycle_.agreement = std::clamp(0.85 * score, 0.6, 0.85);
}

void StepDetector::unlock() {
  locked_ = false;
  in_step_ = false;
  search_anew();
}

void StepDetector::search_anew() {
  searching_since_ = n_;
  next_search_ = next_middle_search_ = next_full_search_ = n_ + kSearchEvery;
}

std::uint32_t StepDetector::surroundings() const noexcept { return std::min(kSurroundings, cycle_.period / 2); }

/// Where in [begin, begin + period), taken for a circle, a step begins.
StepDetector::Position StepDetector::place_boundary(Position begin, std::uint32_t p, BoundaryRule& rule) const {
  const auto on_circle = [&](std::uint32_t offset) { return begin + offset % p; };
  /// After the longest stretch (on the circle) without a mark: offset of the mark that ends it, and of the one before.
  struct Stretch {
    std::uint32_t after = 0, before = 0, length = 0;
    bool any = false;
  };
  const auto longest_without = [&](auto&& marked) {
    Stretch best;
    std::uint32_t first = kNever, previous = 0;
    for (std::uint32_t i = 0; i < p; ++i) {
      if (!marked(begin + i)) continue;
      if (first == kNever)
        first = i;
      else if (i - previous > best.length)
        best = {i, previous, i - previous, true};
      previous = i;
    }
    if (first != kNever && first + p - previous > best.length) best = {first, previous, first + p - previous, true};
    return best;
  };
  const auto to_device = [&](Position i) { return (flags(i) & kFlagToDevice) != 0; };
  const auto to_host = [&](Position i) { return (flags(i) & kFlagToHost) != 0; };
  /// The fullest run of copies to the device that begins in the `reach` launches from `offset`; `offset` if none does.
  const auto move_to_copies = [&](std::uint32_t offset, std::uint32_t reach) {
    std::uint32_t best = offset, most = 0;
    for (std::uint32_t i = 0; i < reach; ++i) {
      if (!to_device(on_circle(offset + i))) continue;
      std::uint32_t count = 0, last = i;
      const std::uint32_t start = i;
      for (; i < reach && i - last <= 3; ++i) {
        if (to_device(on_circle(offset + i))) {
          ++count;
          last = i;
        }
      }
      // A lone copy far from where the optimizer ends is more likely a scalar on its way than a batch.
      if (count > 4 * most && (count > 1 || start <= p / 8)) {
        most = count;
        best = offset + start;
      }
    }
    return best;
  };
  if (cycle_.optimizer) {
    const Stretch free = longest_without([&](Position i) { return is_optimizer(i); });
    rule = BoundaryRule::kOptimizer;
    return on_circle(move_to_copies(free.before + 1, p / 2));
  }
  if (!training_ && (cycle_.marks & kFlagSampling) != 0) {
    const Stretch free = longest_without([&](Position i) { return (flags(i) & kFlagSampling) != 0; });
    const std::uint32_t sampled = free.before + 1;
    std::uint32_t end = sampled;
    for (std::uint32_t i = end; i < end + kBurst && i < end + p; ++i)
      if (to_host(on_circle(i))) end = i + 1;
    // A sample that stays on the device is a part of a model.
    if (end > sampled) {
      rule = BoundaryRule::kSampling;
      return on_circle(move_to_copies(end, p / 8));
    }
  }
  if ((cycle_.marks & kFlagToDevice) != 0 && (cycle_.marks & kFlagToHost) != 0) {
    // Results go to the host, and the next input comes from there.
    const Stretch free = longest_without(to_host);
    const std::uint32_t end = free.before + 1, input = move_to_copies(end, p / 8);
    if (free.length > p / 3 && to_device(on_circle(input))) {
      rule = BoundaryRule::kCopies;
      return on_circle(input);
    }
  }
  if ((cycle_.marks & kFlagToDevice) != 0) {
    const Stretch free = longest_without(to_device);
    if (free.length > p / 3) {
      rule = BoundaryRule::kCopies;
      return on_circle(free.after);
    }
  }
  std::uint32_t graphs = 0, graph = 0;
  for (std::uint32_t i = 0; i < p; ++i) {
    if ((flags(begin + i) & kFlagGraph) == 0) continue;
    if (graphs++ == 0) graph = i;
  }
  if (graphs == 1 || graphs == 2) {
    rule = BoundaryRule::kGraph;
    return begin + graph;
  }
  // The place is anyone's guess; where the repetition itself began is a better one than most.
  rule = BoundaryRule::kAnywhere;
  Position start = begin + p;
  std::uint32_t unlike = 0;
  while (start > oldest() + p && unlike < 16) {
    --start;
    unlike = family(start) == family(start - p) ? 0 : unlike + 1;
  }
  start = start - p + unlike;
  return begin + (p - (begin - start) % p) % p;
}

// ---------------------------------------------------------------------------------------------- following

double StepDetector::bag_alike(Position a, Position a_end, Position b, Position b_end,
                               const std::vector<Key>& keys) const {
  for (Position i = a; i < a_end; ++i) ++counts_[keys[slot(i)]];
  for (Position i = b; i < b_end; ++i) --counts_[keys[slot(i)]];
  std::uint64_t unlike = 0;
  const auto take = [&](Position i) {
    std::int32_t& count = counts_[keys[slot(i)]];
    unlike += static_cast<std::uint64_t>(std::abs(count));
    count = 0;
  };
  for (Position i = a; i < a_end; ++i) take(i);
  for (Position i = b; i < b_end; ++i) take(i);
  const std::uint64_t both = (a_end - a) + (b_end - b);
  const std::uint64_t longer = std::max(a_end - a, b_end - b);
  return longer == 0 ? 0 : static_cast<double>(both - unlike) / 2 / static_cast<double>(longer);
}

/// The place near `expected` whose surroundings are most like those of the boundary cycle_.end: the surroundings are
/// aligned with the stream (edit distance with free ends), and where the boundary falls is the answer. Inserted
/// launches are put before it.
StepDetector::Found StepDetector::find_boundary(Position expected, std::uint32_t reach, Side side) const {
  const Position reference = cycle_.end;
  const std::uint32_t w = surroundings();
  const Position low = oldest();
  std::uint32_t before = 0, after = 0;
  if ((side & kBefore) != 0 && reference > low && expected > low)
    before = static_cast<std::uint32_t>(std::min<Position>({w, reference - low, expected - low}));
  if ((side & kAfter) != 0 && n_ > expected)
    after = static_cast<std::uint32_t>(std::min<Position>({w, n_ - reference, n_ - expected}));
  const std::uint32_t rows = before + after;
  if (rows < std::min(w, 8u)) return {expected, 0};
  const std::int32_t* weights = &weights_[kSurroundings - before];
  std::int32_t unlike = 0, total = 0;
  for (std::uint32_t i = 0; i < rows; ++i) {
    total += weights[i];
    if (family(reference - before + i) != family(expected - before + i)) unlike += weights[i];
  }
  if (unlike == 0 || reach == 0) return {expected, 1.0 - static_cast<double>(unlike) / total};

  const Position target = expected - std::min<Position>(before + reach, expected - low);
  const auto columns = static_cast<std::uint32_t>(std::min<Position>(expected + after + reach, n_) - target);
  for (std::uint32_t j = 0; j <= columns; ++j) {
    cost_[j] = 0;
    mark_[j] = static_cast<std::int32_t>(j);
  }
  const std::int32_t inserted = std::max(1, total / static_cast<std::int32_t>(rows));
  for (std::uint32_t i = 0; i < rows; ++i) {
    const Key key = family(reference - before + i);
    const std::int32_t weight = weights[i];
    std::int32_t diagonal = cost_[0];
    std::int32_t diagonal_mark = mark_[0];
    cost_[0] += weight;
    for (std::uint32_t j = 1; j <= columns; ++j) {
      const std::int32_t up = cost_[j];
      const std::int32_t up_mark = mark_[j];
      std::int32_t best = diagonal + (key == family(target + j - 1) ? 0 : weight);
      // Up to the boundary a mark is the column reached; it stays what it was where the first launch after it is taken.
      std::int32_t best_mark = i < before ? static_cast<std::int32_t>(j) : diagonal_mark;
      if (up + weight < best) {
        best = up + weight;
        best_mark = i < before ? static_cast<std::int32_t>(j) : up_mark;
      }
      if (cost_[j - 1] + inserted < best) {
        best = cost_[j - 1] + inserted;
        best_mark = i < before ? static_cast<std::int32_t>(j) : mark_[j - 1];
      }
      diagonal = up;
      diagonal_mark = up_mark;
      cost_[j] = best;
      mark_[j] = best_mark;
    }
  }
  Found found{expected, -1};
  for (std::uint32_t j = 0; j <= columns; ++j) {
    const double score = 1.0 - static_cast<double>(cost_[j]) / total;
    const Position here = target + static_cast<std::uint32_t>(mark_[j]);
    const auto distance = [&](Position p) { return p > expected ? p - expected : expected - p; };
    if (score > found.score || (score == found.score && distance(here) < distance(found.at))) found = {here, score};
  }
  return found;
}

/// The cycle's optimizer, if it has one, runs as far before `p` as before cycle_.end: where passes are accumulated,
/// every pass begins like a step.
bool StepDetector::ends_with_update(Position p) const noexcept {
  if (!cycle_.optimizer) return true;
  const Position reach = cycle_.period / 2 + surroundings();
  Position distance = 1;
  while (distance <= reach && cycle_.end >= oldest() + distance && !is_optimizer(cycle_.end - distance)) ++distance;
  if (distance > reach || cycle_.end < oldest() + distance) return true;
  const Position tolerance = distance / 32 + kBurst;
  const Position nearest = distance - std::min(distance - 1, tolerance);
  for (Position d = nearest; d <= distance + tolerance && p >= oldest() + d; ++d)
    if (is_optimizer(p - d)) return true;
  return false;
}

bool StepDetector::starts_like_step(Position p) const noexcept {
  const std::uint32_t w = std::min(32u, surroundings());
  std::int32_t equal = 0, total = 0;
  for (std::uint32_t i = 0; i < w; ++i) {
    const std::int32_t weight = weights_[kSurroundings + i];
    total += weight;
    if (family(p + i) == family(cycle_.end + i)) equal += weight;
    if (i == 7 && equal * 4 < total) return false;
  }
  return equal * 3 >= total * 2;
}

/// Makes [begin, end) what others are compared with. In the surroundings of its end, a name weighs as much in all as
/// any other: in a run of 200 memsets the few kernels that are something else say where one is.
void StepDetector::set_reference(Position begin, Position end) {
  cycle_.begin = begin;
  cycle_.end = end;
  const std::uint32_t w = surroundings();
  const Position from = end - std::min<Position>(w, end - oldest());
  const Position to = std::min<Position>(end + w, n_);
  for (Position i = from; i < to; ++i) ++counts_[family(i)];
  weights_.fill(1);
  for (Position i = from; i < to; ++i) weights_[kSurroundings + i - end] = std::max(1, 64 / counts_[family(i)]);
  for (Position i = from; i < to; ++i) counts_[family(i)] = 0;
}

/// The step that begins at step_begin_. True: there may be more to do.
bool StepDetector::follow(bool final) {
  const Position expected = step_begin_ + cycle_.period;
  if (n_ < expected + slack() + surroundings() && !final) return false;
  if (n_ < expected + std::min(surroundings(), 8u)) return false;
  Found found = find_boundary(expected, slack(), kBoth);
  const auto alike = [&](Position end) {
    return end > step_begin_ ? bag_alike(cycle_.begin, cycle_.end, step_begin_, end, families_) : 0.0;
  };
  if (found.score >= cycle_.agreement && ends_with_update(found.at) && alike(found.at) >= kAlike) {
    const Position begin = step_begin_;
    step_begin_ = found.at;
    emit(found.at, kind_of_cycle());
    return step_seen(begin, found.at, true);
  }
  // Something else begins where the next step should: the step itself may have been whole.
  found = find_boundary(expected, slack(), kBefore);
  in_step_ = false;
  scan_ = step_begin_ + 1;
  if (found.score >= 0.85 && ends_with_update(found.at) && alike(found.at) >= 0.95) {
    scan_ = found.at + 1;
    emit(found.at, kind_of_cycle());
    return step_seen(step_begin_, found.at, false);
  }
  return true;
}

/// Looks for the next place from which a whole step runs.
bool StepDetector::scan(bool final) {
  const std::uint32_t p = cycle_.period;
  const std::uint32_t room = final ? std::min(surroundings(), 8u) : slack() + surroundings();
  scan_ = std::max(scan_, oldest());
  for (; scan_ + p + room <= n_; ++scan_) {
    if (!starts_like_step(scan_)) continue;
    Found start = find_boundary(scan_, std::min(8u, p / 4), kAfter);
    if (start.score < cycle_.agreement) continue;
    const Found next = find_boundary(start.at + p, slack(), kBoth);
    if (next.score < cycle_.agreement || next.at <= start.at || !ends_with_update(next.at)) continue;
    if (bag_alike(cycle_.begin, cycle_.end, start.at, next.at, families_) < kAlike) continue;
    // An evaluation's passes begin like a step as well: what begins one cycle before the end is nearer to the truth.
    if (next.at > start.at + p) {
      const Found later = find_boundary(next.at - p, slack(), kAfter);
      if (later.score >= start.score && later.at > start.at && later.at < next.at) start = later;
    }
    const Position before = last_told_;
    // Of the very first one nobody saw what came before it; before a later one ran a step all the same, or other work.
    const bool whole = before != 0 && start.at > before && start.at - before <= p + slack() &&
                       start.at - before + slack() >= p &&
                       bag_alike(cycle_.begin, cycle_.end, before, start.at, families_) >= kAlike;
    if (before != 0) emit(start.at, whole ? kind_of_cycle() : StepKind::kNone);
    in_step_ = true;
    step_begin_ = next.at;
    emit(next.at, kind_of_cycle());
    if (steps_ > 0 && before != 0 && start.at > before && holds_optimizer(before, start.at)) return true;
    return step_seen(start.at, next.at, true);
  }
  return false;
}

bool StepDetector::step_seen(Position begin, Position end, bool another_follows) {
  const auto length = static_cast<std::uint32_t>(end - begin);
  ++steps_;
  if (holds_optimizer(begin, end)) return true;
  const double exact = bag_alike(cycle_.begin, cycle_.end, begin, end, ids_);
  const double weight = std::max(1.0 / static_cast<double>(steps_), 1.0 / 16);
  exact_ += weight * (exact - exact_);
  same_length_ += weight * ((length == cycle_.period ? 1.0 : 0.0) - same_length_);
  const bool usual = length == cycle_.period || length == last_length_;
  if (length == last_length_ && length != cycle_.period) cycle_.period = length;
  last_length_ = length;
  // What steps are compared with moves along, so that slow changes do not add up.
  if (another_follows && end + surroundings() <= n_ &&
      (usual || cycle_.begin < oldest() + (oldest() > 0 ? kRing / 8 : 0))) {
    set_reference(begin, end);
  }
  return true;
}

/// Work between two steps. True: it holds an optimizer, and the lock is gone.
bool StepDetector::holds_optimizer(Position begin, Position end) {
  if (cycle_.optimizer) return false;
  for (Position i = std::max(begin, oldest()); i < end; ++i) {
    if (!is_optimizer(i)) continue;
    // An optimizer runs after some of the cycles only: they were parts of a step.
    withdraw(first_told_);
    unlock();
    return true;
  }
  return false;
}

/// Passes inside the cycle: where its beginning comes again, and all in between with it.
void StepDetector::find_micro_steps() {
  micro_steps_ = cycle_.optimizer ? 1 : 0;
  if (!cycle_.optimizer) return;
  const std::uint32_t p = cycle_.period;
  const std::uint32_t w = std::min(32u, surroundings());
  for (std::uint32_t m = std::max(w, p / 64); m <= p / 2 + 1 && m < p; ++m) {
    std::uint32_t equal = 0;
    for (std::uint32_t i = 0; i < w; ++i) {
      equal += family(cycle_.begin + i) == family(cycle_.begin + m + i) ? 1 : 0;
      if (i == 7 && equal < 4) break;
    }
    if (equal * 10 < w * 8) continue;
    const std::uint32_t passes = p / m;
    std::uint32_t same = 0;
    const std::uint32_t compared = (passes - 1) * m;
    for (std::uint32_t i = 0; i < compared; ++i)
      same += family(cycle_.begin + i) == family(cycle_.begin + m + i) ? 1 : 0;
    if (same * 10u < compared * 9u) continue;
    micro_steps_ = passes;
    micro_length_ = m;
    return;
  }
}

// ---------------------------------------------------------------------------------------------- what is told

void StepDetector::emit(Position p, StepKind kind) {
  if (p == 0 || p <= last_told_ || p >= n_) return;
  if (first_told_ == 0) first_told_ = p;
  last_told_ = p;
  listener_.on_boundary({p, begins_[slot(p)], kind});
}

void StepDetector::withdraw(Position from) {
  if (from == 0 || last_told_ < from) return;
  listener_.on_withdrawal(from);
  last_told_ = told_before_;
  first_told_ = 0;
}

StepKind StepDetector::kind_of_cycle() const noexcept {
  if (training_ || cycle_.optimizer) return StepKind::kStep;
  return StepKind::kIteration;
}

void StepDetector::judge() {
  findings_ = {};
  findings_.shortest_repeat = shortest_;
  if (serving_found_) {
    findings_.kind = kind_of(serving_.usual_kind());
    findings_.rule = BoundaryRule::kSampling;
    findings_.period_launches = static_cast<std::uint32_t>(serving_.mean_launches() + 0.5);
    const bool known = serving_.recurring() >= 0.95 && serving_.ended() >= 32;
    findings_.confidence = known ? StepConfidence::kHigh : StepConfidence::kMedium;
    return;
  }
  if (!locked_ || steps_ == 0) {
    // What was told stands, but nothing has followed since.
    if (last_told_ != 0 && n_ - last_told_ < kRing) {
      findings_ = followed_;
      findings_.confidence = StepConfidence::kLow;
    }
    return;
  }
  findings_.kind = kind_of_cycle();
  findings_.rule = cycle_.rule;
  findings_.period_launches = cycle_.period;
  findings_.micro_steps = micro_steps_;
  findings_.micro_step_launches = micro_length_;
  const bool named = cycle_.optimizer || cycle_.rule == BoundaryRule::kSampling;
  const bool steady = same_length_ >= 0.6;
  // Where more than half of the launches are of something else, the cycle may be but a part of what runs.
  const bool mostly = steps_ >= 2 && steps_ * cycle_.period * 2 >= last_told_ - std::min(first_told_, last_told_);
  if (named && one_update_ && cycle_.cover >= 0.9 && exact_ >= 0.98 && steady && steps_ >= 2)
    findings_.confidence = StepConfidence::kHigh;
  else if (exact_ >= 0.9 && cycle_.cover >= 0.6 && same_length_ >= 0.4 && (named || mostly))
    findings_.confidence = StepConfidence::kMedium;
  else
    findings_.confidence = StepConfidence::kLow;
  followed_ = findings_;
}

}  // namespace mfu

#include "core/program/own_caches.h"

#include <algorithm>

namespace mfu {
namespace {

/// A pass of the same sequences, as far as is known.
bool is_of_sequences(const ProgramFact& fact, const ProgramFact& pass) noexcept {
  const auto batch = [](const ProgramFact& f) { return f.shape.value[ShapeWords::kBatch]; };
  return fact.kind == FactKind::kPassBegin && fact.subject == pass.subject && batch(fact) == batch(pass) &&
         (fact.mode & (ProgramFact::kGradients | ProgramFact::kCache)) == 0;
}

bool has_one_token(const ProgramFact& pass) noexcept { return pass.shape.value[ShapeWords::kSeqLen] == 1; }

}  // namespace

std::optional<std::size_t> end_of(const std::deque<ProgramFact>& facts, std::size_t begin) {
  for (std::size_t i = begin, depth = 0; i < facts.size(); ++i) {
    if (begins(facts[i].kind)) ++depth;
    if (ends(facts[i].kind) && --depth == 0) return i;
  }
  return std::nullopt;
}

void OwnCaches::note(const ProgramFact& end, std::deque<ProgramFact>& facts) {
  std::optional<ProgramFact> last;
  for (auto fact = facts.rbegin(); fact != facts.rend(); ++fact) {
    if (fact->kind != FactKind::kPassBegin) continue;
    if (!last) last = *fact;
    if (last->subject != end.subject || !is_of_sequences(*fact, *last)) return;
    keep_.insert(end.subject);
    fact->mode |= ProgramFact::kCache;
    if (!has_one_token(*fact)) return;
  }
}

bool OwnCaches::wait_for_more(const std::deque<ProgramFact>& facts, std::size_t end) {
  const ProgramFact& pass = facts.front();
  const bool one = has_one_token(pass);
  if (!is_of_sequences(pass, pass) || !pass.shape.has(ShapeWords::kSeqLen) || pass.range != InstanceId::kNone ||
      (keep_.contains(pass.subject) ? one : looked_ == kMostLooks))
    return false;
  for (int behind = 0; behind < (one ? 1 : 2); ++behind) {
    while (++end < facts.size() && !begins(facts[end].kind)) {
    }
    if (end == facts.size()) return true;
    if (!is_of_sequences(facts[end], pass) || !has_one_token(facts[end])) break;
    const std::optional<std::size_t> its_end = end_of(facts, end);
    if (!its_end) return true;
    end = *its_end;
  }
  looked_ = std::min(looked_ + 1, kMostLooks);
  return false;
}

}  // namespace mfu

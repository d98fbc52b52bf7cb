#include "core/account/layer_splitter.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/account/ledger.h"

namespace mfu {
namespace {

constexpr std::uint32_t kFirstId = 1u << 30;  ///< no launch has such an owner

using Places = std::map<ProductId, std::vector<std::size_t>>;

/// The number of which most products are multiples, by their occurrences; 0: of no number above one.
std::size_t times_of_most(const Places& places, std::size_t& covered) {
  std::size_t best = 0;
  covered = 0;
  for (const auto& [product, at] : places) {
    if (at.size() < 2) continue;
    std::size_t sum = 0;
    for (const auto& [other, others] : places) sum += others.size() % at.size() == 0 ? others.size() : 0;
    if (sum < covered || (sum == covered && at.size() < best)) continue;
    best = at.size();
    covered = sum;
  }
  return best;
}

Places places_of(std::span<const ProductId> products) {
  Places places;
  for (std::size_t i = 0; i < products.size(); ++i) places[products[i]].push_back(i);
  return places;
}

/// A layer has q, k, v and o of one size, but not several products three times each.
bool is_of_several(std::span<const ProductId> layer) {
  std::size_t kinds = 0, covered = 0, common = 0;
  for (const auto& [product, at] : places_of(layer)) {
    if (at.size() < 2) continue;
    common = std::gcd(common, at.size());
    covered += at.size();
    ++kinds;
  }
  return kinds > 1 && common > 2 && 2 * covered >= layer.size();
}

}  // namespace

std::vector<std::size_t> find_layers(std::span<const ProductId> products) {
  const Places places = places_of(products);
  std::size_t covered = 0;
  const std::size_t count = times_of_most(places, covered);
  if (count == 0 || 2 * covered < products.size()) return {};
  std::vector<std::size_t> begins(count, products.size());
  for (const auto& [product, at] : places) {
    if (at.size() % count != 0 && at.size() > count) return {};  // there are more layers than these
    for (std::size_t i = 0; i < count && at.size() % count == 0; ++i)
      begins[i] = std::min(begins[i], at[at.size() / count * i]);
  }
  if (!std::ranges::is_sorted(begins, std::less_equal<>())) return {};
  // Around the first and the last one a compiler may move products; the others are alike.
  const auto layer = [&](std::size_t i) { return products.subspan(begins[i], begins[i + 1] - begins[i]); };
  const std::span<const ProductId> usual = layer((count - 1) / 2);
  std::size_t others = 0;
  for (std::size_t i = 1; i + 1 < count; ++i) others += std::ranges::equal(layer(i), usual) ? 0 : 1;
  return 10 * others > count || is_of_several(usual) ? std::vector<std::size_t>{} : begins;
}

bool LayerSplitter::take(const ActivityRecord& record, const Instance& instance, bool first_of_launch) {
  if (releasing_ || rules_.layer_in(instance.region, 0) == RegionId::kNone) return false;
  Pass& pass = passes_[instance.id];
  if (pass.given_up) return false;
  pass.begin_ns = pass.held.empty() ? record.begin_ns : std::min(pass.begin_ns, record.begin_ns);
  pass.held.push_back({record, first_of_launch});
  ++held_;
  return true;
}

TimeNs LayerSplitter::release(LiveInstances& live, TimeNs watermark, bool all) {
  releasing_ = true;
  TimeNs until = watermark;
  for (auto it = passes_.begin(); it != passes_.end();) {
    auto& [id, pass] = *it;
    const Instance* const instance = live.find(id);
    const bool over = all || instance == nullptr || (instance->closed && !instance->awaited);
    const bool late = held_ > kMostHeld || watermark - pass.begin_ns > ledger_.window_ns();
    if (!over && !late && !pass.given_up) {
      until = std::min(until, pass.begin_ns);
      ++it;
      continue;
    }
    held_ -= pass.held.size();
    if (over && instance != nullptr)
      split(*instance, pass.held);
    else
      give(id, pass.held);
    pass.held.clear();
    pass.given_up = true;
    it = over ? passes_.erase(it) : std::next(it);
  }
  releasing_ = false;
  return until;
}

void LayerSplitter::give(InstanceId owner, std::span<const Held> held) {
  for (const Held& one : held) ledger_.add(one.record, owner, one.first_of_launch);
}

/// A layer begins with its first product and goes on to that of the next one, the last one for as many products and
/// records as the last but one.
void LayerSplitter::split(const Instance& pass, std::vector<Held>& held) {
  std::ranges::stable_sort(held, {}, [](const Held& one) { return one.record.begin_ns; });
  std::vector<ProductId> products;
  std::vector<std::size_t> places;  // of their records
  for (std::size_t i = 0; i < held.size(); ++i) {
    if (!held[i].record.first_of_product || held[i].record.product == ProductId::kNone) continue;
    products.push_back(held[i].record.product);
    places.push_back(i);
  }
  std::vector<std::size_t> begins = find_layers(products);
  const std::size_t count = begins.size();
  if (count == 0 || count > RegionRules::kMostLayers) return give(pass.id, held);
  places.push_back(held.size());
  const std::size_t behind = std::min(places.size() - 1, 2 * begins[count - 1] - begins[count - 2]);
  for (std::size_t& begin : begins) begin = places[begin];
  begins.push_back(std::min(places[behind], 2 * begins[count - 1] - begins[count - 2]));
  begins.push_back(held.size());
  std::size_t from = 0;
  for (std::size_t i = 0; i < begins.size(); from = begins[i++]) {
    if (from == begins[i]) continue;
    const bool outside = i == 0 || i > count;
    const std::size_t layer = pass.region == rules_.detected().backward ? count + 1 - i : i;
    InstanceSlot slot;
    slot.id = static_cast<InstanceId>(kFirstId + next_id_++ % kFirstId);
    slot.parent = pass.id;
    slot.opener = static_cast<ThreadSerial>(pass.thread);
    slot.region = rules_.layer_in(pass.region, outside ? 0 : static_cast<std::uint32_t>(layer));
    slot.kind = InstanceKind::kDetected;
    ledger_.open(slot, std::max(held[from].record.begin_ns, ledger_.now()));
    give(slot.id, std::span(held).subspan(from, begins[i] - from));
    const TimeNs end = begins[i] < held.size() ? held[begins[i]].record.begin_ns : pass.close_ns;
    ledger_.close(slot, std::max(end, ledger_.now()), std::nullopt);
  }
}

}  // namespace mfu

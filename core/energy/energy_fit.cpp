#include "core/energy/energy_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace mfu {
namespace {

constexpr double kLeastShare = 0.005;  ///< of all time; below it a kind of work is left out
constexpr double kMostError = 0.25;    ///< relative: watts that are less well known are unknown

using Row = std::array<double, EnergyFit::kMostKinds>;

/// The inverse of a symmetric positive matrix of n rows, by Gauss and Jordan. False: it has none to speak of.
bool invert(std::array<Row, EnergyFit::kMostKinds> a, std::array<Row, EnergyFit::kMostKinds>& inverse, std::size_t n) {
  constexpr double kSingular = 1e-6;  // of a matrix whose diagonal is 1
  for (std::size_t i = 0; i < n; ++i) {
    inverse[i] = {};
    inverse[i][i] = 1;
  }
  for (std::size_t i = 0; i < n; ++i) {
    if (!(a[i][i] > kSingular)) return false;
    const double by = 1 / a[i][i];
    for (std::size_t j = 0; j < n; ++j) {
      a[i][j] *= by;
      inverse[i][j] *= by;
    }
    for (std::size_t k = 0; k < n; ++k) {
      if (k == i) continue;
      const double times = a[k][i];
      for (std::size_t j = 0; j < n; ++j) {
        a[k][j] -= times * a[i][j];
        inverse[k][j] -= times * inverse[i][j];
      }
    }
  }
  return true;
}

/// Student's t for 95 % on both sides, to 2 % from 3 degrees of freedom on.
double student(double freedom) { return 1.96 + 2.4 / freedom + 4 / (freedom * freedom); }

}  // namespace

void EnergyFit::add(Span span) {
  spans_.push_back(std::move(span));
  if (spans_.size() > kMostSpans) spans_.pop_front();
  solve();
}

std::optional<EnergyFit::Watts> EnergyFit::of(std::uint32_t kind) const {
  const auto found = std::find_if(solved_.begin(), solved_.end(), [kind](const auto& s) { return s.first == kind; });
  if (found == solved_.end() || !(found->second.mean > 0) || found->second.error > kMostError * found->second.mean)
    return std::nullopt;
  return found->second;
}

void EnergyFit::solve() {
  constexpr std::size_t kLeastFreedom = 4;
  solved_.clear();
  std::map<std::uint32_t, double> totals, squares;
  double all = 0;
  for (const Span& span : spans_)
    for (const auto& [kind, s] : span.seconds) {
      totals[kind] += s;
      squares[kind] += s * s;
      all += s;
    }
  std::vector<std::uint32_t> kinds;
  for (const auto& [kind, s] : totals)
    if (s > kLeastShare * all) kinds.push_back(kind);
  const std::size_t n = kinds.size();
  if (n == 0 || n > kMostKinds || spans_.size() < n + kLeastFreedom) return;
  // Each column over its own length, so that pivots say how far columns differ.
  const auto column = [&](const Span& span, std::size_t i) {
    const auto at =
        std::find_if(span.seconds.begin(), span.seconds.end(), [&](const auto& s) { return s.first == kinds[i]; });
    return at == span.seconds.end() ? 0.0 : at->second / std::sqrt(squares[kinds[i]]);
  };
  std::array<Row, kMostKinds> normal{}, inverse{};
  Row right{}, watts{};
  double noise = 0;
  for (const Span& span : spans_) {
    Row x{};
    for (std::size_t i = 0; i < n; ++i) x[i] = column(span, i);
    for (std::size_t i = 0; i < n; ++i) {
      right[i] += x[i] * span.joules;
      for (std::size_t j = 0; j < n; ++j) normal[i][j] += x[i] * x[j];
    }
    noise += span.error * span.error / 6;  // of the difference of two readings, each late by anything up to the error
  }
  if (!invert(normal, inverse, n)) return;
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) watts[i] += inverse[i][j] * right[j];
  // Spans with much work are off by more: each counts with its own residual, over 1 - leverage (HC3: MacKinnon and
  // White 1985, Journal of Econometrics 29). Never below what the counter's period allows.
  Row spread{};
  for (const Span& span : spans_) {
    Row x{}, way{};
    double off = span.joules, leverage = 0;
    for (std::size_t i = 0; i < n; ++i) {
      x[i] = column(span, i);
      off -= watts[i] * x[i];
    }
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) way[i] += inverse[i][j] * x[j];
      leverage += x[i] * way[i];
    }
    off /= std::max(0.05, 1 - leverage);
    for (std::size_t i = 0; i < n; ++i) spread[i] += way[i] * way[i] * off * off;
  }
  const double least = noise / static_cast<double>(spans_.size()), t = student(static_cast<double>(spans_.size() - n));
  for (std::size_t i = 0; i < n; ++i) {
    const double scale = std::sqrt(squares[kinds[i]]);
    solved_.emplace_back(kinds[i],
                         Watts{watts[i] / scale, t * std::sqrt(std::max(spread[i], least * inverse[i][i])) / scale});
  }
}

}  // namespace mfu

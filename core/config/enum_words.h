// The words of the config for enums, read and written. Internal to core/config.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include "core/base/shape.h"
#include "core/model/flops_model.h"

namespace mfu {

inline constexpr std::pair<Phase, std::string_view> kPhaseWords[] = {
    {Phase::kNone, "none"},   {Phase::kTrain, "train"},   {Phase::kPrefill, "prefill"}, {Phase::kDecode, "decode"},
    {Phase::kMixed, "mixed"}, {Phase::kVision, "vision"}, {Phase::kForward, "forward"}, {Phase::kBackward, "backward"},
};
inline constexpr std::pair<Recompute, std::string_view> kRecomputeWords[] = {{Recompute::kNone, "none"},
                                                                             {Recompute::kFlash, "flash"},
                                                                             {Recompute::kSelective, "selective"},
                                                                             {Recompute::kFull, "full"}};
inline constexpr std::pair<LogitsMode, std::string_view> kLogitsWords[] = {{LogitsMode::kAll, "all"},
                                                                           {LogitsMode::kLast, "last"}};
inline constexpr std::pair<ContextMode, std::string_view> kContextWords[] = {
    {ContextMode::kAuto, "auto"}, {ContextMode::kFixed, "fixed"}, {ContextMode::kMax, "max"}};
inline constexpr std::pair<AttentionMode, std::string_view> kAttentionWords[] = {
    {AttentionMode::kCausal, "causal"},
    {AttentionMode::kFull, "full"},
    {AttentionMode::kFullWindowed, "full_windowed"}};
inline constexpr std::pair<bool, std::string_view> kMlaWords[] = {{false, "expanded"}, {true, "absorbed"}};

template <typename E, std::size_t N>
constexpr std::string_view word_of(const std::pair<E, std::string_view> (&table)[N], E value) {
  for (const auto& [known, word] : table)
    if (known == value) return word;
  return "";
}

}  // namespace mfu

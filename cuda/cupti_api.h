// CUPTI behind a table of function pointers: found and opened at run time, never linked.
#pragma once

#include <cupti.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace mfu {

/// The functions used, of one libcupti. Required ones are never null; optional ones may be.
struct CuptiApi {
  // Required.
  CUptiResult (*get_version)(std::uint32_t*) = nullptr;
  CUptiResult (*subscribe)(CUpti_SubscriberHandle*, CUpti_CallbackFunc, void*) = nullptr;
  CUptiResult (*enable_callback)(std::uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain,
                                 CUpti_CallbackId) = nullptr;
  CUptiResult (*register_callbacks)(CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc) = nullptr;
  CUptiResult (*activity_enable)(CUpti_ActivityKind) = nullptr;
  CUptiResult (*flush_all)(std::uint32_t) = nullptr;
  CUptiResult (*get_next_record)(std::uint8_t*, std::size_t, CUpti_Activity**) = nullptr;
  CUptiResult (*get_dropped)(CUcontext, std::uint32_t, std::size_t*) = nullptr;
  // Optional.
  CUptiResult (*unsubscribe)(CUpti_SubscriberHandle) = nullptr;  ///< at a failed start only, never later
  CUptiResult (*get_timestamp)(std::uint64_t*) = nullptr;
  CUptiResult (*set_thread_id_type)(CUpti_ActivityThreadIdType) = nullptr;
  CUptiResult (*set_attribute)(CUpti_ActivityAttribute, std::size_t*, void*) = nullptr;
  CUptiResult (*get_attribute)(CUpti_ActivityAttribute, std::size_t*, void*) = nullptr;
  CUptiResult (*get_context_id)(CUcontext, std::uint32_t*) = nullptr;
  CUptiResult (*get_graph_node_id)(CUgraphNode, std::uint64_t*) = nullptr;
  CUptiResult (*get_device_id)(CUcontext, std::uint32_t*) = nullptr;
  CUptiResult (*enable_driver_api)(std::uint32_t, std::uint8_t) = nullptr;   ///< 12.5+
  CUptiResult (*enable_runtime_api)(std::uint32_t, std::uint8_t) = nullptr;  ///< 12.5+

  // A subscriber's own forms of calls, all of them or none: 13.3+. Types that older headers lack are void here.
  using RequestedV2 = void (*)(std::uint8_t**, std::size_t*, std::size_t*, void* info);
  using CompletedV2 = void (*)(std::uint8_t*, std::size_t, std::size_t, void* info);
  CUptiResult (*subscribe_v2)(CUpti_SubscriberHandle*, CUpti_CallbackFunc, void*, void* parameters) = nullptr;
  CUptiResult (*register_callbacks_v2)(CUpti_SubscriberHandle, RequestedV2, CompletedV2) = nullptr;
  CUptiResult (*activity_enable_v2)(CUpti_SubscriberHandle, CUpti_ActivityKind, void* config) = nullptr;
  CUptiResult (*get_next_record_v2)(CUpti_SubscriberHandle, std::uint8_t*, std::size_t, CUpti_Activity**) = nullptr;
  CUptiResult (*get_dropped_v2)(CUpti_SubscriberHandle, CUcontext, std::uint32_t, std::size_t*) = nullptr;
  CUptiResult (*get_timestamp_v2)(CUpti_SubscriberHandle, std::uint64_t*) = nullptr;
  [[nodiscard]] bool has_own_forms() const noexcept {
    return subscribe_v2 != nullptr && register_callbacks_v2 != nullptr && activity_enable_v2 != nullptr &&
           get_next_record_v2 != nullptr && get_dropped_v2 != nullptr && get_timestamp_v2 != nullptr;
  }

  std::uint32_t version = 0;  ///< as cuptiGetVersion says: 18 is 11.8, 28 is 12.9 U1, then xxyyzz
  std::string path;
  bool host_mapped = false;  ///< the process had it open before us
};

/// cuptiGetVersion's number as people write it: 18 > "11.8", 130001 > "13.0.1".
[[nodiscard]] std::string cupti_version_text(std::uint32_t version);

/// A libcupti worth trying.
struct CuptiCandidate {
  std::string path;
  bool host_mapped = false;
};

/// Where to look, best first, with the reason for the order in cuda/README.md: the override alone if there is one; the
/// copy the process has mapped; the sibling of its libcudart; the wheels of its Python; the system's. A Python process
/// never gets a system copy that a wheel's copy would later clash with.
/// \param interpreter another program's: the answer is for a process that runs it. Empty: for this one
[[nodiscard]] std::vector<CuptiCandidate> cupti_candidates(std::string_view override_path,
                                                           const std::string& interpreter = {});

enum class CuptiOpening : std::uint8_t {
  kOpen,
  kAbsent,    ///< the loader knows no file of this name
  kNoDriver,  ///< CUPTI finds no driver that it can use, or one that it is not made for: nothing is wrong with the file
  kUnusable,
};

/// Opens `candidate` and resolves its functions. The Error names the file and what is wrong with it: cannot be opened,
/// a function is missing, older than 11.1. No function of it is called before its version is known to be fit for the
/// driver (cuda/cupti_versions.h).
/// \param how what became of it, where the caller asks
[[nodiscard]] Result<CuptiApi> open_cupti(const CuptiCandidate& candidate, CuptiOpening* how = nullptr);

}  // namespace mfu

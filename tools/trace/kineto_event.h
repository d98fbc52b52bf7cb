// One event of a Kineto trace, split into the tokens that matter.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <string_view>

namespace mfu {

enum class KinetoCategory : std::uint8_t {
  kUnknown,  ///< no `cat` seen (yet)
  kKernel,
  kMemcpy,
  kMemset,
  kHostCall,
  kUserAnnotation,
  kGpuAnnotation,
  kOldOperator,
  kSession,  ///< `Trace`: the span of the whole profile
  kScope,    ///< Triton's Proton
  kOther,
};

/// One event as the text has it. The views live as long as the piece.
struct KinetoEvent {
  char phase = 0;
  KinetoCategory category = KinetoCategory::kUnknown;
  std::string_view name, pid, tid, ts, dur;
  std::string_view correlation, stream, device, bytes;
  std::string_view grid;                  ///< `[x,y,z]`
  std::string_view region, scope;         ///< of a trace that the library recorded
  std::string_view product;               ///< likewise, of a kernel
  std::string_view dims, strides, types;  ///< of an operator that is a matrix product
};

/// True where the arguments decide something, so that they are looked into one by one.
[[nodiscard]] bool needs_args(KinetoCategory category) noexcept;

/// Splits events. Their arguments are looked into where they decide something, for that costs more than all the rest.
class KinetoEventParser {
 public:
  /// \param recording whether this library wrote the trace, so that events carry its own arguments
  simdjson::error_code parse(simdjson::ondemand::object& object, bool recording, KinetoEvent& event);

 private:
  simdjson::error_code parse_args(simdjson::ondemand::value& value, KinetoEvent& event);
  simdjson::error_code collect_args(simdjson::ondemand::object& args, KinetoEvent& event) const;

  bool recording_ = false;
};

}  // namespace mfu

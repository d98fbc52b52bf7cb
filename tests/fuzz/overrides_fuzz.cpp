// Any bytes as MFU_SET: no crash, no hang; a complaint is one line. Overrides are values of a config, so what they make
// of it is read too.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/config/config.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const mfu::Getenv environment = [&text](const char* name) -> const char* {
    return std::string_view(name) == "MFU_SET" ? text.c_str() : nullptr;
  };
  const mfu::Config config = mfu::load_config(environment, nullptr);
  for (const std::string& line : config.warnings) require(line.find('\n') == std::string::npos && line.size() < 2000);
  return 0;
}

// Any bytes as a config: no crash, no hang, no overflow; an error is one line. Whatever is accepted is also counted.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/config/config.h"
#include "core/families/read_architecture.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

/// Every formula over the model at an ordinary and at an extreme shape.
void count(const mfu::FlopsModel& model) {
  for (const mfu::SequenceGroup& group :
       {mfu::SequenceGroup{2, 17, 33},
        mfu::SequenceGroup{std::int64_t{1} << 40, std::int64_t{1} << 40, std::int64_t{1} << 40}}) {
    for (mfu::Phase phase : {mfu::Phase::kTrain, mfu::Phase::kPrefill, mfu::Phase::kDecode}) {
      mfu::CountRequest request;
      request.phase = phase;
      request.sequences = {&group, 1};
      request.passes = phase == mfu::Phase::kDecode ? group.fed : 1;
      request.encoder_len = group.fed;
      const mfu::Result<mfu::FlopCount> flop = model.count_flop(request);
      if (flop) require(flop->parts.sum() == flop->forward);
      const mfu::Result<mfu::ByteCount> bytes = model.count_bytes(request);
      if (bytes) require(bytes->moved().fits());
    }
  }
  mfu::Shape shape;
  shape.batch = 3;
  shape.seq_len = 70;
  shape.context = 9;
  shape.encoder_len = 5;
  for (int phase = 0; phase <= static_cast<int>(mfu::Phase::kVision); ++phase) {
    const mfu::Work work = model.work(static_cast<mfu::Phase>(phase), shape);
    require(!work.flop_known || work.flop >= 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  // What would be taken for a path is only tried as one when it is not: a fuzzer must not wander through the disk.
  const std::string source =
      text.find_first_not_of(" \t\r\n") != std::string::npos && text[text.find_first_not_of(" \t\r\n")] == '{'
          ? text
          : "{" + text;
  const mfu::Getenv environment = [&source](const char* name) -> const char* {
    return std::string_view(name) == "MFU_MODEL_CONFIG" ? source.c_str() : nullptr;
  };
  // Both ways read the same and differ in what they make of problems. An input goes one of them, by its length, which
  // changes all the time.
  if (size % 4 == 3) {
    const mfu::Result<mfu::Config> strict = mfu::load_config_file(source, environment);
    if (!strict) require(!strict.error().message.empty() && strict.error().message.find('\n') == std::string::npos);
    return 0;
  }
  const mfu::Config config = mfu::load_config(environment, nullptr);
  for (const std::string& line : config.warnings) require(line.find('\n') == std::string::npos && line.size() < 2000);
  if (config.model) count(*config.model);
  return 0;
}

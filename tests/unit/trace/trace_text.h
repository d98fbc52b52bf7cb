// Hand-made Kineto traces. Times are whole microseconds.
#pragma once

#include <string>

namespace mfu {

/// Collects events and closes the array.
class TraceText {
 public:
  TraceText& range(const std::string& name, long begin_us, long end_us, int thread = 1) {
    return add(R"({"ph":"X","cat":"user_annotation","name":")" + name + R"(","pid":9,"tid":)" + std::to_string(thread) +
               times(begin_us, end_us) + "}");
  }
  TraceText& launch(int correlation, long at_us, int thread = 1, const std::string& call = "cudaLaunchKernel") {
    return add(R"({"ph":"X","cat":"cuda_runtime","name":")" + call + R"(","pid":9,"tid":)" + std::to_string(thread) +
               times(at_us, at_us + 1) + R"(,"args":{"correlation":)" + std::to_string(correlation) + "}}");
  }
  TraceText& kernel(const std::string& name, long begin_us, long end_us, int correlation, int device = 0,
                    int stream = 7) {
    return work("kernel", name, begin_us, end_us, correlation, device, stream);
  }
  TraceText& copy(long begin_us, long end_us, int correlation, int stream = 7) {
    return work("gpu_memcpy", "Memcpy HtoD", begin_us, end_us, correlation, 0, stream);
  }
  /// `before`: further members of the object, each with a comma behind it.
  [[nodiscard]] std::string text(const std::string& before = "") const {
    return "{" + before + "\"traceEvents\":[" + events_ + "]}";
  }

 private:
  static std::string times(long begin_us, long end_us) {
    return R"(,"ts":)" + std::to_string(begin_us) + R"(,"dur":)" + std::to_string(end_us - begin_us);
  }
  TraceText& work(const std::string& category, const std::string& name, long begin_us, long end_us, int correlation,
                  int device, int stream) {
    return add(R"({"ph":"X","cat":")" + category + R"(","name":")" + name + R"(","pid":)" + std::to_string(device) +
               R"(,"tid":)" + std::to_string(stream) + times(begin_us, end_us) + R"(,"args":{"device":)" +
               std::to_string(device) + R"(,"stream":)" + std::to_string(stream) + R"(,"correlation":)" +
               std::to_string(correlation) + "}}");
  }
  TraceText& add(const std::string& event) {
    events_ += (events_.empty() ? "" : ",") + event;
    return *this;
  }
  std::string events_;
};

}  // namespace mfu

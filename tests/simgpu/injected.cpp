// The smallest library that CUDA_INJECTION64_PATH can name: counts its calls where a test can see them.
#include <cstdlib>

extern "C" [[gnu::visibility("default")]] int InitializeInjection() {
  const char* before = std::getenv("SIMGPU_TEST_INJECTED");
  setenv("SIMGPU_TEST_INJECTED", before == nullptr ? "once" : "again", 1);
  return 1;
}

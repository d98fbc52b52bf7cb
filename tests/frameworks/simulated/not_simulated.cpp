#include <cstdio>
#include <mutex>
#include <set>
#include <string>

#include "tests/frameworks/simulated/product.h"

extern "C" int simgpu_not_simulated(const char* function, int result) {
  static std::mutex* const mutex = new std::mutex;
  static std::set<std::string>* const said = new std::set<std::string>;
  const std::lock_guard lock(*mutex);
  if (said->insert(function).second)
    std::fprintf(stderr, "[simgpu] %s is not simulated: it returns %d\n", function, result);
  return result;
}

// The arguments of a program to be started, as exec and posix_spawn ask for them.
#pragma once

#include <string>
#include <vector>

namespace mfu {

/// Pointers to `words` with a null pointer behind the last. Valid while `words` lives unchanged.
inline std::vector<char*> spawn_arguments(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace mfu

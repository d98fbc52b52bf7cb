#include "tools/simgpu/driver/engine_state.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace mfu::sim {

namespace {

void parse_ptx(Module& module, const char* text) {
  std::unordered_map<std::string, KernelCost> costs;
  std::istringstream lines(text);
  std::string line;
  std::vector<std::string> entries;
  while (std::getline(lines, line)) {
    static constexpr std::string_view kMark = "// simgpu:";
    if (const std::size_t at = line.find(kMark); at != std::string::npos) {
      std::istringstream words(line.substr(at + kMark.size()));
      std::string name, word;
      words >> name;
      KernelCost cost;
      while (words >> word) {
        const std::size_t equals = word.find('=');
        const double value = equals == std::string::npos ? 0 : std::strtod(word.c_str() + equals + 1, nullptr);
        const std::string key = word.substr(0, equals);
        if (key == "flop_per_block") cost.flop_per_block = value;
        if (key == "bytes_per_block") cost.bytes_per_block = value;
        if (key == "flop_param") cost.flop_param = static_cast<int>(value);
        if (key == "bytes_param") cost.bytes_param = static_cast<int>(value);
        if (key == "efficiency") cost.efficiency = value > 0 ? value : 1;
        if (key == "ns") cost.fixed_ns = std::llround(value);
        if (key == "ns_param") cost.ns_param = static_cast<int>(value);
        if (key == "until_param") cost.until_param = static_cast<int>(value);
      }
      costs[name] = cost;
      continue;
    }
    static constexpr std::string_view kEntry = ".entry";
    if (const std::size_t at = line.find(kEntry); at != std::string::npos && line.find("//") > at) {
      const std::size_t begin = line.find_first_not_of(" \t", at + kEntry.size());
      if (begin == std::string::npos) continue;
      entries.push_back(line.substr(begin, line.find_first_of("( \t{", begin) - begin));
    }
  }
  for (const std::string& name : entries) {
    auto function = std::make_unique<Function>();
    function->name = intern(name);
    function->module = &module;
    if (const auto it = costs.find(name); it != costs.end()) function->cost = it->second;
    module.functions.emplace(name, std::move(function));
  }
}

}  // namespace

CUresult load_module(Module** out, const void* image) {
  if (out == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  auto module = std::make_unique<Module>();
  const auto* text = static_cast<const char*>(image);
  std::uint32_t word = 0;
  std::memcpy(&word, image, sizeof word);
  // ELF cubin, fat binary, fat binary wrapper, Tile IR: no kernel names to be had without a decoder.
  module->any_name = word == 0x464C457Fu || word == 0xBA55ED50u || word == 0x466243B1u;
  if (!module->any_name) parse_ptx(*module, text);
  if (!module->any_name && module->functions.empty() && std::strstr(text, ".version") == nullptr)
    return CUDA_ERROR_INVALID_IMAGE;
  {
    Process& p = process();
    const std::lock_guard lock(p.mutex);
    module->id = p.next_module++;
  }
  *out = module.release();
  ResourceEvent event{.cbid = kModuleLoaded, .context = reinterpret_cast<CUcontext>(current_context())};
  event.is_module = true;
  event.module_id = (*out)->id;
  event.image = text;
  event.image_bytes = (*out)->any_name ? 0 : std::strlen(text);
  resource_callback(event);
  return CUDA_SUCCESS;
}

CUresult find_function(Function** out, Module* module, const char* name) {
  if (out == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!alive(module, Magic::kModule)) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(module->mutex);
  auto it = module->functions.find(name);
  if (it == module->functions.end()) {
    if (!module->any_name) return CUDA_ERROR_NOT_FOUND;
    auto function = std::make_unique<Function>();
    function->name = intern(name);
    function->module = module;
    for (const auto& [part, flop] : settings().flop_per_block)
      if (std::strstr(name, part.c_str()) != nullptr) function->cost.flop_per_block = flop;
    it = module->functions.emplace(name, std::move(function)).first;
  }
  *out = it->second.get();
  return CUDA_SUCCESS;
}

Function* function_of(const void* handle) noexcept {
  auto* function = static_cast<Function*>(const_cast<void*>(handle));
  return alive(function, Magic::kFunction) ? function : nullptr;
}

}  // namespace mfu::sim

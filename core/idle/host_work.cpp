#include "core/idle/host_work.h"

#include <algorithm>
#include <optional>
#include <string_view>

namespace mfu {
namespace {

enum class Origin : std::uint8_t { kProgram, kPackage, kStandard };

struct Module {
  Origin origin = Origin::kProgram;
  std::string_view name;  ///< of the package, or of the module of the standard library
};

std::string_view after_last(std::string_view text, std::string_view mark) {
  const std::size_t at = text.rfind(mark);
  return at == std::string_view::npos ? std::string_view() : text.substr(at + mark.size());
}

std::string_view first_part(std::string_view path) {
  path = path.substr(0, path.find('/'));
  return path.ends_with(".py") ? path.substr(0, path.size() - 3) : path;
}

/// Where a file belongs, by the folders that CPython and its installers use (docs.python.org/3/library/sysconfig.html).
Module module_of(std::string_view file) {
  if (file.starts_with("<frozen ")) return {Origin::kStandard, file.substr(8, file.find_first_of(".>") - 8)};
  if (file.starts_with("<mfuinject") || file.starts_with("<eval_with_key") ||
      file.find("/torchinductor_") != std::string_view::npos)  // code that torch.compile has written
    return {Origin::kPackage, "torch"};
  for (const std::string_view folder : {"/site-packages/", "/dist-packages/"})
    if (const std::string_view rest = after_last(file, folder); !rest.empty())
      return {Origin::kPackage, first_part(rest)};
  for (const std::string_view folder : {"/lib/python3", "/lib64/python3"}) {
    const std::string_view rest = after_last(file, folder);  // .12/threading.py
    if (const std::size_t slash = rest.find('/'); slash != std::string_view::npos)
      return {Origin::kStandard, first_part(rest.substr(slash + 1))};
  }
  return {};
}

/// Frames of libraries that name what the user waits for better than the function that the user calls does.
struct Known {
  std::string_view file;      ///< part of its path
  std::string_view function;  ///< end of its name
  std::string_view cause;
};
constexpr Known kKnown[] = {
    {"torch/utils/data/dataloader.py", "__next__", "DataLoader.__next__"},
    {"torch/optim/lr_scheduler.py", "", "LRScheduler.step"},
    {"torch/optim/", "step", "Optimizer.step"},
    {"torch/optim/", "wrapper", "Optimizer.step"},
    {"torch/_dynamo/convert_frame.py", "", "torch.compile"},
    {"torch/_inductor/output_code.py", "__call__", "compiled code"},
    {"torch/_inductor/", "", "torch.compile"},
    {"torch/distributed/checkpoint/", "", "dist.checkpoint"},
    {"torch/distributed/distributed_c10d.py", "barrier", "dist.barrier"},
    {"<frozen importlib", "", "import"},
    {"importlib/", "", "import"},
};

std::optional<std::string_view> known_cause(std::span<const PythonFrame> library) {
  for (std::size_t i = library.size(); i-- > 0;)  // the function that the program called comes first
    for (const Known& known : kKnown)
      if (library[i].file.find(known.file) != std::string::npos && library[i].function.ends_with(known.function))
        return known.cause;
  return std::nullopt;
}

/// Without the functions around it.
std::string_view own_name(std::string_view function) {
  const std::string_view inner = after_last(function, "<locals>.");
  return inner.empty() ? function : inner;
}

}  // namespace

HostWork work_of(std::span<const PythonFrame> stack, bool collecting) {
  if (stack.empty()) return {};
  const auto first = [&](auto&& wanted) {
    const auto at =
        std::find_if(stack.begin(), stack.end(), [&](const PythonFrame& f) { return wanted(module_of(f.file)); });
    return static_cast<std::size_t>(at - stack.begin());
  };
  std::size_t user = first([](const Module& m) { return m.origin == Origin::kProgram; });
  // A program that is installed, such as a server; or the program's frames are further out than was looked.
  const std::size_t library = user;
  if (user == stack.size())
    user =
        first([](const Module& m) { return m.origin == Origin::kPackage && m.name != "torch" && m.name != "numpy"; });
  if (user == stack.size()) user = stack.size() - 1;
  const PythonFrame& at = stack[user];
  HostWork work;
  work.where = at.file.substr(at.file.rfind('/') + 1) + ":" + std::to_string(at.line);
  if (collecting) {
    work.cause = "gc";
  } else if (const auto known = known_cause(stack.first(library))) {
    work.cause = *known;
  } else if (user > 0) {
    const PythonFrame& called = stack[user - 1];
    const std::string_view function = own_name(called.function);
    work.cause = module_of(called.file).name;
    work.cause.append(".").append(function.ends_with("_wrapped_call_impl") ? "Module.__call__" : function);
  } else {
    work.cause = at.function == "<module>" ? "main program" : own_name(at.function);
  }
  constexpr std::size_t kLongest = 80;
  for (std::string* text : {&work.cause, &work.where})
    if (text->size() > kLongest) text->resize(kLongest);
  return work;
}

}  // namespace mfu

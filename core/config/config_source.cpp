#include "core/config/config_source.h"
#include "core/base/printable.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

namespace mfu {
namespace {

/// No published config comes near this; more is not a config.
constexpr std::size_t kLargestConfig = 16u << 20;

enum class Kind { kNothing, kFile, kFolder };

Kind kind_of(const std::string& path) noexcept {
  struct stat info {};
  if (path.empty() || path.find('\0') != std::string::npos || ::stat(path.c_str(), &info) != 0) return Kind::kNothing;
  if (S_ISDIR(info.st_mode)) return Kind::kFolder;
  return S_ISREG(info.st_mode) ? Kind::kFile : Kind::kNothing;  // never a FIFO or device, which could block the host
}

Result<std::string> read_file(const std::string& path) {
  // O_NONBLOCK: files of /proc are regular and may wait for ever, and a FIFO may have taken the file's place.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return Error{path + ": expected a readable file"};
  constexpr std::size_t kAtOnce = 16384;  // not on the stack: it is the host's
  std::string text;
  ::ssize_t got = 0;
  do {
    const std::size_t before = text.size();
    text.resize(before + kAtOnce);
    got = ::read(file, text.data() + before, kAtOnce);
    text.resize(before + static_cast<std::size_t>(std::max<::ssize_t>(0, got)));
  } while (got > 0 && text.size() <= kLargestConfig);
  ::close(file);
  if (got < 0) return Error{path + ": expected a readable file"};
  if (text.size() > kLargestConfig) return Error{path + ": expected a config of at most 16 MiB"};
  return text;
}

std::string parent(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return "";
  return slash == 0 ? "/" : path.substr(0, slash);
}

/// Files beside a config that people give by mistake; nullptr: none of these.
const char* weights_of(std::string_view path) noexcept {
  for (const auto& [ending, what] : {std::pair<std::string_view, const char*>{".gguf", "weights of llama.cpp"},
                                     {".safetensors", "weights"},
                                     {".bin", "weights"},
                                     {".pt", "weights"},
                                     {".pth", "weights"},
                                     {".ckpt", "weights"}}) {
    if (path.ends_with(ending)) return what;
  }
  return nullptr;
}

/// The config in a folder: of a model, of the denoiser of a pipeline of diffusers. The last two are no model: their
/// reader says what they are.
std::string config_in(const std::string& folder) {
  for (const char* name : {"/config.json", "/params.json", "/transformer/config.json", "/unet/config.json",
                           "/adapter_config.json", "/model_index.json"}) {
    if (kind_of(folder + name) == Kind::kFile) return folder + name;
  }
  return "";
}

Result<ConfigText> from_path(const std::string& path) {
  if (const char* weights = weights_of(path))
    return Error{path + ": expected a config, but this file holds " + weights + "; give the config.json of the model"};
  Result<std::string> text = read_file(path);
  if (!text) return text.error();
  return ConfigText{std::move(*text), path, parent(path)};
}

/// Hub caches in the order that huggingface_hub looks them up.
std::vector<std::string> hub_caches(const Getenv& getenv) {
  std::vector<std::string> caches;
  const auto add = [&caches, &getenv](const char* variable, const char* suffix) {
    const char* value = getenv(variable);
    if (value != nullptr && *value != '\0') caches.push_back(std::string(value) + suffix);
  };
  add("HF_HUB_CACHE", "");
  add("HUGGINGFACE_HUB_CACHE", "");
  add("HF_HOME", "/hub");
  add("XDG_CACHE_HOME", "/huggingface/hub");
  add("HOME", "/.cache/huggingface/hub");
  return caches;
}

/// `Org/Name` or `name`: the forms of a model id.
bool could_be_model_id(std::string_view text) {
  if (text.empty() || text.size() > 200 || text.front() == '/' || text.front() == '.') return false;
  if (std::count(text.begin(), text.end(), '/') > 1 || text.back() == '/') return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.' || c == '/';
  });
}

/// The config.json of the revision that refs/main names, else of the newest snapshot.
std::string in_cache(const std::string& cache, std::string_view id) {
  std::string folder = cache + "/models--";
  for (char c : id) folder += c == '/' ? std::string("--") : std::string(1, c);
  if (kind_of(folder) != Kind::kFolder) return "";
  if (Result<std::string> main = read_file(folder + "/refs/main")) {
    std::string path = folder + "/snapshots/" + std::string(trimmed(*main)) + "/config.json";
    if (kind_of(path) == Kind::kFile) return path;
  }
  // Not std::filesystem, which brings all of std::locale into the library.
  const std::string snapshots = folder + "/snapshots";
  const auto close = [](DIR* list) { ::closedir(list); };
  const std::unique_ptr<DIR, decltype(close)> list(::opendir(snapshots.c_str()), close);
  std::string newest;
  time_t newest_time = 0;
  while (const dirent* entry = list ? ::readdir(list.get()) : nullptr) {
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    const std::string path = snapshots + "/" + std::string(name) + "/config.json";
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    if (newest.empty() || info.st_mtime > newest_time || (info.st_mtime == newest_time && path > newest)) {
      newest = path;
      newest_time = info.st_mtime;
    }
  }
  return newest;
}

}  // namespace

Result<ConfigText> find_config_text(std::string_view source, const std::string& folder, const Getenv& getenv) {
  const std::string_view text = trimmed(source);
  if (text.starts_with('{')) return ConfigText{std::string(text), "inline", folder};
  if (text.empty()) return Error{"expected a config file, a folder, a model id or JSON text, got nothing"};
  std::string path(text);
  if (path.starts_with("~/"))
    if (const char* home = getenv("HOME")) path = home + path.substr(1);
  std::vector<std::string> candidates;
  if (!folder.empty() && path.front() != '/') candidates.push_back(folder + "/" + path);
  candidates.push_back(path);
  for (const std::string& candidate : candidates) {
    const Kind kind = kind_of(candidate);
    if (kind == Kind::kFile) return from_path(candidate);
    if (kind == Kind::kFolder) {
      if (const std::string inside = config_in(candidate); !inside.empty()) return from_path(inside);
      return Error{candidate + ": expected a folder that holds config.json, but there is none in it"};
    }
  }
  std::string looked;
  if (could_be_model_id(text)) {
    for (const std::string& cache : hub_caches(getenv)) {
      const std::string found = in_cache(cache, text);
      if (!found.empty()) return from_path(found);
      looked += (looked.empty() ? "; no such model in " : ", ") + cache;
    }
  }
  return Error{path +
               ": expected a config file, a folder that holds config.json, a model id in the local Hugging Face cache, "
               "or JSON text" +
               looked +
               (looked.empty() || text.find('/') == text.npos ? "" : "; get it: hf download " + path + " config.json")};
}

}  // namespace mfu

#include "core/base/secrets.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "core/base/printable.h"

namespace mfu {
namespace {

constexpr std::string_view kMask = "***";

bool is_word(char c) noexcept {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.';
}
bool ends_value(char c) noexcept {
  return std::isspace(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("\"'&,;}])").find(c) != std::string_view::npos;
}

std::size_t end_of_value(std::string_view text, std::size_t at) noexcept {
  while (at < text.size() && !ends_value(text[at])) ++at;
  return at;
}

/// Behind the user's part of the URL whose authority begins at `at`; `at` where it has none.
std::size_t end_of_user(std::string_view text, std::size_t at) noexcept {
  std::size_t user = at;
  for (std::size_t i = at; i < text.size() && !ends_value(text[i]) && text[i] != '/' && text[i] != '?'; ++i)
    if (text[i] == '@') user = i;
  return user;
}

/// By its first letters, its length and a digit.
bool is_token(std::string_view word) noexcept {
  constexpr std::array kBegins = {
      std::string_view("hf_"),   std::string_view("sk-"),         std::string_view("ghp_"),   std::string_view("gho_"),
      std::string_view("ghs_"),  std::string_view("github_pat_"), std::string_view("glpat-"), std::string_view("xoxb-"),
      std::string_view("xoxp-"), std::string_view("nvapi-"),      std::string_view("AKIA"),   std::string_view("ASIA"),
      std::string_view("eyJ")};
  constexpr std::size_t kLeast = 16;
  if (word.find_first_of("0123456789") == word.npos) return false;
  return std::any_of(kBegins.begin(), kBegins.end(), [&](std::string_view begin) {
    return word.starts_with(begin) && word.size() >= begin.size() + kLeast;
  });
}

/// Where the value of `name=`, `name: ` or `"name": "` begins, whose name ends at `at`; npos: no value follows.
std::size_t begin_of_value(std::string_view text, std::size_t at) noexcept {
  if (at < text.size() && (text[at] == '"' || text[at] == '\'')) ++at;
  while (at < text.size() && text[at] == ' ') ++at;
  if (at >= text.size() || (text[at] != '=' && text[at] != ':')) return std::string_view::npos;
  ++at;
  while (at < text.size() && (text[at] == ' ' || text[at] == '"' || text[at] == '\'')) ++at;
  return at < text.size() ? at : std::string_view::npos;
}

}  // namespace

bool is_secret_name(std::string_view name) {
  constexpr std::array kSecrets = {std::string_view("token"), std::string_view("secret"), std::string_view("password"),
                                   std::string_view("passwd"), std::string_view("credential")};
  const std::string word = lower_case(name);
  if (word.ends_with("key")) return true;
  return std::any_of(kSecrets.begin(), kSecrets.end(),
                     [&](std::string_view secret) { return word.find(secret) != word.npos; });
}

std::string without_secrets(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    if (text.substr(at).starts_with("://")) {
      out += "://";
      at += 3;
      if (const std::size_t end = end_of_user(text, at); end != at) {
        out += kMask;
        at = end;
      }
      continue;
    }
    if (!is_word(text[at])) {
      out += text[at++];
      continue;
    }
    std::size_t end = at;
    while (end < text.size() && is_word(text[end])) ++end;
    const std::string_view word = text.substr(at, end - at);
    const std::string scheme = lower_case(word);
    at = end;
    if (is_token(word)) {
      out += kMask;
    } else if ((scheme == "bearer" || scheme == "basic") && end + 1 < text.size() && text[end] == ' ' &&
               (!std::isspace(static_cast<unsigned char>(text[end + 1])))) {
      out.append(word).append(" ").append(kMask);
      at = end_of_value(text, end + 1);
    } else if (const std::size_t value = is_secret_name(word) ? begin_of_value(text, end) : text.npos;
               value != text.npos) {
      out.append(text.substr(end - word.size(), value - end + word.size())).append(kMask);
      at = end_of_value(text, value);
    } else {
      out += word;
    }
  }
  return out;
}

}  // namespace mfu

// Passwords, keys and tokens in text that is written to files which others read.
#pragma once

#include <string>
#include <string_view>

namespace mfu {

/// Whether the value of an option or variable of this name is a secret: `--api-key`, `HF_TOKEN`, `db.password`. The
/// name has `token`, `secret`, `password`, `passwd` or `credential`, or ends in `key`, in any case.
[[nodiscard]] bool is_secret_name(std::string_view name);

/// `text` with `***` in place of what is a secret by its form:
/// - the user's part of a URL: `https://user:password@host` (RFC 3986, 3.2.1);
/// - what follows `Bearer ` or `Basic ` (RFC 9110, 11.4; RFC 6750, 2.1);
/// - the value behind `name=`, `name:` or `"name":` where is_secret_name(name), as in query strings, JSON and headers;
/// - words that begin as the tokens of well-known services do: hf_, sk-, ghp_, gho_, ghs_, github_pat_, glpat-, xoxb-,
///   xoxp-, nvapi-, AKIA, ASIA, and `eyJ` of a JSON Web Token (RFC 7519), with 16 characters or more behind it
///   and a digit among them.
[[nodiscard]] std::string without_secrets(std::string_view text);

}  // namespace mfu

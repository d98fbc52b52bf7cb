// What is a secret by its form is left out; all else stays as it is.
#include "core/base/secrets.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace mfu {
namespace {

TEST(Secrets, OfUrlsHeadersQueriesAndJson) {
  const std::pair<const char*, const char*> cases[] = {
      {"https://user:PASSWORD@host:80/p", "https://***@host:80/p"},
      {"s3://KEY@bucket", "s3://***@bucket"},
      {"postgres://u:p@ss@db/x", "postgres://***@db/x"},
      {"Authorization: Bearer abc.def-1==", "Authorization: Bearer ***"},
      {"authorization: basic dXNlcjpwYXNz x", "authorization: basic *** x"},
      {"https://host/x?api_key=abc&lr=1", "https://host/x?api_key=***&lr=1"},
      {R"({"hf_token": "abc", "batch": 8})", R"({"hf_token": "***", "batch": 8})"},
      {"db.password: abc", "db.password: ***"},
      {"ghp_0123456789abcdefghij", "***"},
      {"use eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc now", "use *** now"},
      {"AKIAIOSFODNN7EXAMPLE123", "***"},
  };
  for (const auto& [text, masked] : cases) EXPECT_EQ(without_secrets(text), masked);
}

TEST(Secrets, WhatIsNoneStays) {
  for (const char* text : {"", "python train.py --lr=1e-4", "user@host:/path", "https://host/a@b", "a bearer", "keys=3",
                           "key_size", "sk-1", "hf_home", "num_key_value_heads=8", "eyJ", "http://", "token", "Basic "})
    EXPECT_EQ(without_secrets(text), text);
}

/// Any mix of such parts: no secret is left, and masking again changes nothing.
TEST(Secrets, NoneIsLeftInAnyMix) {
  const char* const parts[] = {"https://me:S3CRET@h/",
                               "Bearer S3CRET",
                               "token=S3CRET",
                               R"("api-key": "S3CRET")",
                               " ",
                               "&",
                               "x",
                               "--lr=1",
                               ", ",
                               "{",
                               "}"};
  std::mt19937 rng(7);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (std::uint32_t n = rng() % 8; n > 0; --n) text.append(parts[rng() % std::size(parts)]).append(" ");
    const std::string masked = without_secrets(text);
    EXPECT_EQ(masked.find("S3CRET"), std::string::npos) << text;
    EXPECT_EQ(without_secrets(masked), masked) << text;
  }
}

}  // namespace
}  // namespace mfu

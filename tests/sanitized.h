// How much of a long test a sanitizer runs: instrumented code without optimisation takes many times as long, and the
// release build shows whether a property holds.
#pragma once

namespace mfu::tests {

/// `n` seeds, rounds or cases; a tenth of them where the code is instrumented.
[[nodiscard]] constexpr int sanitized_share(int n) {
#ifdef MFU_SANITIZED
  return n < 10 ? 1 : n / 10;
#else
  return n;
#endif
}

}  // namespace mfu::tests

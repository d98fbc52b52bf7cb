// The library of the tests: functions under cuBLAS's names that keep what they were asked for, and launch nothing.
#pragma once

extern "C" {

/// What the library was asked for so far, by its own count.
struct StubLog {
  double flop;  ///< of calls that succeeded
  long calls;   ///< outermost ones
};

StubLog stub_log();

/// Layouts and descriptions as the library keeps them: attributes by number.
struct StubObject {
  long long value[40];
  int known;  ///< attributes from this number on are not supported
};
}

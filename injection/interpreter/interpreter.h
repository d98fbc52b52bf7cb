// The CPython interpreter of this process, where there is one: how it is entered, and what it reports.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/program/program_fact.h"

namespace mfu {

/// A message of the Python part, in words. The numbers are those of watch.py.
struct InterpreterMessage {
  enum class Kind : std::uint8_t {
    kUsed,     ///< the program is watched: a line for people
    kModel,    ///< `text`: parameters (0: not known), then the config, JSON; `number`: plus kRanks for each rank
    kStopped,  ///< nothing is reported from now on: why; `number`: the line of a fault, or 0
    kNotYet,   ///< torch is not imported
  };
  static constexpr std::uint32_t kRanks = 1u << 8;
  Kind kind = Kind::kNotYet;
  std::uint32_t number = 0;
  std::string text;
};

/// All of it is found by dlsym, so that nothing of Python is linked. Nothing of the interpreter runs inside of cuInit,
/// where the driver's locks are held: CPython may give its lock to a thread that waits for the driver.
class Interpreter {
 public:
  /// [inside cuInit] Makes the interpreter run our part soon: in its main thread, between two instructions, if that is
  /// the calling one; else on a new thread, since a main thread that waits runs nothing. Once in a process.
  /// No effect without an interpreter, or in one that ends.
  /// \param layers the layers of a model, too
  /// \param wake [host threads] called for a config, and when half of the room for facts is used: the drain should
  /// look.
  static void enter(bool layers, void (*wake)()) noexcept;
  /// [mfu-drain] Where torch was not imported yet: the same again, once it is.
  static void look_again() noexcept;
  /// [mfu-drain] Facts are of no use any more: the next one that is reported ends it.
  static void stop() noexcept;
  /// [mfu-drain] Whether the config of that model could be read.
  static void answer(std::uint32_t model, bool readable) noexcept;

  /// [mfu-drain] Whether there was a fact. It is known before a record of a later launch is.
  [[nodiscard]] static bool has_reported() noexcept;
  /// [mfu-drain] The next fact, `at` in ticks.
  [[nodiscard]] static bool take(ProgramFact& fact) noexcept;
  /// [mfu-drain]
  [[nodiscard]] static std::optional<InterpreterMessage> take_message();
  /// Half of the room for facts is used.
  [[nodiscard]] static bool is_half_full() noexcept;
  /// Facts found no room: those that came are not the whole truth.
  [[nodiscard]] static bool lost_facts() noexcept;
};

}  // namespace mfu

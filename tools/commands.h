// The subcommands of `mfu`: each adds itself to the command line. Their callbacks throw CLI::RuntimeError with the exit
// code when that is not 0.
#pragma once

namespace CLI {
class App;
}

namespace mfu {

/// `mfu flops CONFIG`: what MFU multiplies by, component by component.
void add_flops(CLI::App& app);

/// `mfu plan`: Chinchilla-optimal parameters, tokens and days for a compute budget.
void add_plan(CLI::App& app);

}  // namespace mfu

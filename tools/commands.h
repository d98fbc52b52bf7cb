// The subcommands of `mfu`: each adds itself to the command line. Their callbacks throw CLI::RuntimeError with the exit
// code when that is not 0.
#pragma once

namespace CLI {
class App;
}

namespace mfu {

/// `mfu run -- CMD...`: CMD with the library in it.
void add_run(CLI::App& app);

/// `mfu doctor`: what works on this machine and what does not.
void add_doctor(CLI::App& app);

/// `mfu flops CONFIG`: what MFU multiplies by, component by component.
void add_flops(CLI::App& app);

/// `mfu plan`: Chinchilla-optimal parameters, tokens and days for a compute budget.
void add_plan(CLI::App& app);

/// `mfu replay TRACE...`: stored traces through the same core.
void add_replay(CLI::App& app);

/// `mfu top`: every rank of a job in the terminal.
void add_top(CLI::App& app);

/// `mfu serve`: a job as Prometheus metrics.
void add_serve(CLI::App& app);

/// `mfu demo`: a small transformer's launches through the real library.
void add_demo(CLI::App& app);

}  // namespace mfu

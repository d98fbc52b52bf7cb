// The subcommands of `mfu`: each adds itself to the command line.
#pragma once

namespace CLI {
class App;
}

namespace mfu {

/// `mfu replay TRACE...`: figures of stored traces.
void add_replay(CLI::App& app);

}  // namespace mfu

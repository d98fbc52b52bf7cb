// Reads an Nsight Systems SQLite export of any schema since 2021, plain or gzip. Tables exist only where they have
// rows, and other tools add columns, so everything is looked up by name and nearly everything may be missing.
#pragma once

#include <span>
#include <string>

#include "core/base/result.h"
#include "tools/trace/byte_source.h"
#include "tools/trace/trace.h"

namespace mfu {

/// Reads the export. A gzip file is unpacked into a temporary file (TMPDIR) that is gone when this returns.
/// Error: no SQLite file, damaged, no Nsight Systems table in it, a column missing without which a table means nothing;
/// the message names file, table and what was expected.
[[nodiscard]] Result<Trace> read_nsys(ByteSource source, const ReadProgress& progress = {});

/// The same of a database in memory, for tests and fuzzing.
[[nodiscard]] Result<Trace> read_nsys_bytes(std::span<const char> bytes, std::string name);

}  // namespace mfu

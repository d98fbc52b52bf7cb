// A report of `mfu flops` as people read it.
#pragma once

#include "tools/flops/flops_report.h"

namespace mfu {

/// Prints the report on stdout, aligned for a terminal.
void print_table(const FlopsReport& report);
/// Prints the report on stdout as Markdown.
void print_markdown(const FlopsReport& report);

}  // namespace mfu

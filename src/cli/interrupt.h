// Ctrl-C: the first asks the command to end cleanly, the second ends the program at once.
#pragma once

namespace di::cli {

/// The exit code of a command that was interrupted, as shells have it.
inline constexpr int kExitInterrupted = 130;

/// From now on SIGINT and SIGTERM are noted instead of ending the program, once.
void watch_interrupts();

/// Whether one came since.
bool interrupted();

}  // namespace di::cli

// The subcommands of `deepinfer`. Each function adds one to the program; its callback does the work
// and throws di::Error for what the user can mend.
#pragma once

#include <CLI/CLI.hpp>

namespace di::cli {

void add_generate(CLI::App& app);
void add_chat(CLI::App& app);
void add_inspect(CLI::App& app);
void add_verify(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_detokenize(CLI::App& app);
void add_render(CLI::App& app);
void add_bench(CLI::App& app);
void add_eval(CLI::App& app);
void add_calibrate(CLI::App& app);
void add_batch(CLI::App& app);
void add_replay(CLI::App& app);
void add_options(CLI::App& app);

/// Thrown by a subcommand that did its work and found something wrong, such as a failed case.
struct ExitCode {
  int code = 0;
};

}  // namespace di::cli

// The parts of `deepinfer bench` that have a file of their own.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "base/json.h"

namespace di::cli {

/// `bench throughput` and `bench latency`: an engine under traffic.
void add_serve_benches(CLI::App& bench);

/// `bench step`: whole steps of a model on a device, without a scheduler.
void add_step_bench(CLI::App& bench);

/// `bench drafts`: what drafts gain.
void add_drafts_bench(CLI::App& bench);

/// `bench draft-choices`: what choosing how many drafts to verify gains.
void add_draft_choices_bench(CLI::App& bench);

/// --backend, cpu or cuda.
void add_backend(CLI::App& command, std::string& backend);

/// --cuda-arithmetic, as engines have it.
void add_cuda_arithmetic(CLI::App& command, std::string& arithmetic);

/// Prints one result as a line.
void print_line(const Json& result);

}  // namespace di::cli

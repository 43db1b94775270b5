// `deepinfer bench`: measurements as JSON lines.
#include <memory>

#include "base/error.h"
#include "base/json.h"
#include "bench/decode_batch_bench.h"
#include "bench/host_bench.h"
#include "bench/invariance_bench.h"
#include "bench/layer_bench.h"
#include "bench/load_bench.h"
#include "bench/memory_bench.h"
#include "bench/ops_bench.h"
#include "bench/scheduler_bench.h"
#include "bench/tokenizer_bench.h"
#include "cli/bench_commands.h"
#include "cli/commands.h"
#include "cli/runtime.h"
#include "sched/traffic.h"

#if DI_HAS_CUDA
#include "bench/cuda/device_bench.h"
#endif

namespace di::cli {
namespace {

struct BenchOptions {
  std::string backend = "cpu";
  std::string cuda_arithmetic = "fast";
  std::string isa = "auto";
  int threads = 0;
  std::string only;
  std::vector<int64_t> rows;
  std::string shape = "v4.1-flash";
  int64_t context = 4096;
  std::string scratch_dir = "/tmp";
  int gigabytes = 4;
  std::vector<int64_t> sequences;
  int64_t layers = 2;
  bool by_op = false;
};

#if !DI_HAS_CUDA
[[noreturn]] void refuse_cuda() {
  throw Error(ErrorCode::kUnsupported, "backend cuda: this program was built without it");
}
#endif

void bench_device_ops(const BenchOptions& options) {
#if DI_HAS_CUDA
  bench::cuda::bench_ops(options.only, print_line);
#else
  static_cast<void>(options);
  refuse_cuda();
#endif
}

void bench_device_layer(const BenchOptions& options) {
#if DI_HAS_CUDA
  bench::cuda::LayerOptions request{
      .shape = options.shape,
      .layers = options.layers,
      .context = options.context,
      .by_op = options.by_op,
      .canonical = options.cuda_arithmetic == "canonical"};
  if (!options.sequences.empty() || !options.rows.empty()) {
    request.sequences = options.sequences;
    request.chunks = options.rows;
  }
  bench::cuda::bench_layer(request, print_line);
#else
  static_cast<void>(options);
  refuse_cuda();
#endif
}

void add_machine_options(CLI::App& command, BenchOptions& options) {
  command.add_option("--isa", options.isa, "Kernels to measure")
      ->check(CLI::IsMember({"auto", "avx2", "avx512", "vnni", "amx"}))
      ->capture_default_str();
  command.add_option("-t,--threads", options.threads, "Threads; 0: one for each processor")
      ->capture_default_str();
}

Isa isa_of(const BenchOptions& options) {
  return options.isa == "auto" ? best_isa(detect_cpu()) : isa_from_name(options.isa);
}

void add_memory(CLI::App& bench, const std::shared_ptr<BenchOptions>& options) {
  CLI::App* command = bench.add_subcommand(
      "memory", "Read bandwidth by threads, the multiply-add peak, loading and opening a checkpoint"
  );
  add_machine_options(*command, *options);
  command
      ->add_option(
          "--scratch-dir",
          options->scratch_dir,
          "Folder for the temporary files of the loading benchmarks"
      )
      ->capture_default_str();
  command->callback([options] {
    constexpr int64_t kLoadBytes = int64_t{1} << 30;
    bench::bench_memory({.isa = isa_of(*options), .max_threads = options->threads}, print_line);
    ThreadPool pool(options->threads);
    print_line(bench::bench_load(options->scratch_dir, kLoadBytes, pool));
    print_line(
        bench::bench_pack(options->scratch_dir, kLoadBytes, ops::cpu_ops(isa_of(*options)), pool)
    );
    print_line(bench::bench_open(options->scratch_dir, pool));
  });
}

void add_load(CLI::App& bench, const std::shared_ptr<BenchOptions>& options) {
  CLI::App* command = bench.add_subcommand(
      "load", "Weights from a file onto a device, beside a copy of pinned memory (backend cuda)"
  );
  command->add_option("-t,--threads", options->threads, "Threads; 0: one for each processor")
      ->capture_default_str();
  command->add_option("--scratch-dir", options->scratch_dir, "Folder for the temporary file")
      ->capture_default_str();
  command->add_option("--gigabytes", options->gigabytes, "Its size")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->callback([options] {
#if DI_HAS_CUDA
    ThreadPool pool(options->threads);
    bench::cuda::bench_load(
        options->scratch_dir, int64_t{options->gigabytes} << 30, pool, print_line
    );
#else
    static_cast<void>(options);
    refuse_cuda();
#endif
  });
}

void add_ops(CLI::App& bench, const std::shared_ptr<BenchOptions>& options) {
  CLI::App* command = bench.add_subcommand("ops", "Every op at the real model's sizes");
  add_backend(*command, options->backend);
  add_machine_options(*command, *options);
  command->add_option(
      "--only",
      options->only,
      "One benchmark by name; of cuda one family: linears, experts, attention, index, rows, draw"
  );
  command->add_option("--rows", options->rows, "Row counts, separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->callback([options] {
    if (options->backend == "cuda") return bench_device_ops(*options);
    bench::OpsBenchOptions request{
        .isa = isa_of(*options), .threads = options->threads, .only = options->only};
    if (!options->rows.empty()) request.rows = options->rows;
    bench::bench_ops(request, print_line);
  });
}

void add_layer(CLI::App& bench, const std::shared_ptr<BenchOptions>& options) {
  CLI::App* command = bench.add_subcommand(
      "layer", "Layers of the real width with synthetic weights (about 7.5 GB each)"
  );
  add_backend(*command, options->backend);
  add_cuda_arithmetic(*command, options->cuda_arithmetic);
  add_machine_options(*command, *options);
  command->add_option("--layers", options->layers, "How many; cuda only, the cpu has 2")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  command
      ->add_option(
          "--sequences", options->sequences, "Sequences of one row each, by commas; cuda only"
      )
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1024}))
      ->allow_extra_args(false);
  command->add_flag("--by-op", options->by_op, "A line for each op too; cuda only");
  command->add_option("--shape", options->shape, "Whose layers")
      ->check(CLI::IsMember({"v4.1-flash"}))
      ->capture_default_str();
  command->add_option("--rows", options->rows, "New rows of one sequence, separated by commas")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--context", options->context, "Tokens in the cache before them")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->callback([options] {
    if (options->backend == "cuda") return bench_device_layer(*options);
    bench::LayerBenchOptions request{
        .isa = isa_of(*options),
        .threads = options->threads,
        .shape = options->shape,
        .context = options->context};
    if (!options->rows.empty()) request.rows = options->rows;
    bench::bench_layer(request, print_line);
  });
}

void add_decode_batch(CLI::App& bench, const std::shared_ptr<BenchOptions>& options) {
  CLI::App* command = bench.add_subcommand(
      "decode-batch",
      "What a batch gains at the real width, beside what its bytes permit (about 15 GB)"
  );
  add_machine_options(*command, *options);
  command->add_option("--sequences", options->rows, "Sequences of one row each, by commas")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{1024}))
      ->allow_extra_args(false);
  command->add_option("--context", options->context, "Tokens in the cache before them")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->callback([options] {
    bench::DecodeBatchOptions request{
        .isa = isa_of(*options), .threads = options->threads, .context = options->context};
    if (!options->rows.empty()) request.sequences = options->rows;
    bench::bench_decode_batch(request, print_line);
  });
}

void bench_device_invariance() {
#if DI_HAS_CUDA
  bench::cuda::bench_invariance(print_line);
#else
  refuse_cuda();
#endif
}

void add_invariance(CLI::App& bench) {
  const auto options = std::make_shared<bench::InvarianceBenchOptions>();
  const auto device = std::make_shared<BenchOptions>();
  CLI::App* command = bench.add_subcommand(
      "invariance", "The matrices of a layer beside a kernel whose bits depend on the batch"
  );
  add_backend(*command, device->backend);
  command->add_option("-t,--threads", options->threads, "Threads; 0: one for each processor")
      ->capture_default_str();
  command->add_option("--rows", options->rows, "Rows of a step on the processor, by commas")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{4096}))
      ->allow_extra_args(false);
  command->callback([options, device] {
    if (device->backend == "cuda") {
      bench_device_invariance();
    } else {
      bench::bench_invariance(*options, print_line);
    }
  });
}

void add_tokenizer(CLI::App& bench) {
  const auto options = std::make_shared<bench::TokenizerBenchOptions>();
  CLI::App* command = bench.add_subcommand("tokenizer", "Encoding and decoding of text files");
  command->add_option("--tokenizer", options->tokenizer, "Path of a tokenizer.json")
      ->required()
      ->check(CLI::ExistingFile);
  command->add_option("texts", options->texts, "Text files")->check(CLI::ExistingFile);
  command->callback([options] { bench::bench_tokenizer(*options, print_line); });
}

void add_scheduler(CLI::App& bench) {
  const auto options = std::make_shared<bench::SchedulerBenchOptions>();
  CLI::App* command = bench.add_subcommand(
      "scheduler", "Scheduling policies on simulated traffic, and the host time of a step"
  );
  command->add_option("--traffic", options->traffic, "What arrives")
      ->check(CLI::IsMember(sched::scenario_names()))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "Seed of the traffic")->capture_default_str();
  command->add_option("--lag", options->lag, "Steps in flight while the next one is planned")
      ->check(CLI::Range(0, 8))
      ->capture_default_str();
  command->add_option("--blocks", options->num_blocks, "Blocks of the cache; 0: the traffic's own")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      ->add_option(
          "--max-step-ms",
          options->max_step_ms,
          "Target of steps with decode rows in ms; 0: none; below 0: the traffic's own"
      )
      ->capture_default_str();
  command->callback([options] { bench::bench_scheduler(*options, print_line); });
}

void add_host(CLI::App& bench) {
  const auto options = std::make_shared<bench::HostBenchOptions>();
  CLI::App* command =
      bench.add_subcommand("host", "What a step costs the engine's own thread, without a model");
  command->add_option("-m,--model", options->model, "Model folder; its tokenizer makes the texts")
      ->type_name("DIR");
  command->add_option("--num-seqs", options->num_seqs, "Sequences that decode at once")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--num-steps", options->num_steps, "Steps to measure")
      ->check(CLI::Range(100, 8000))
      ->capture_default_str();
  command->callback([options] { bench::bench_host(*options, print_line); });
}

}  // namespace

void add_bench(CLI::App& app) {
  CLI::App* bench =
      app.add_subcommand("bench", "Measure this machine and the kernels; prints JSON lines");
  bench->require_subcommand(1);
  const auto options = std::make_shared<BenchOptions>();
  add_memory(*bench, options);
  add_load(*bench, options);
  add_ops(*bench, options);
  add_layer(*bench, options);
  add_step_bench(*bench);
  add_drafts_bench(*bench);
  add_draft_choices_bench(*bench);
  add_decode_batch(*bench, options);
  add_invariance(*bench);
  add_tokenizer(*bench);
  add_scheduler(*bench);
  add_host(*bench);
  add_serve_benches(*bench);
}

}  // namespace di::cli

#include "engine/option_table.h"

#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/suggest.h"

namespace di::engine {
namespace {

using O = EngineOptions;

constexpr double kNoLimit = OptionRange::kNoLimit;

std::vector<OptionInfo> place_options() {
  return {
      {"model", &O::model, "", {}, "Model folder; without one, the bundled models/seedling", 'm'},
      {"backend",
       &O::backend,
       "",
       {.choices = {"cpu", "cuda", "ref"}},
       "cpu; cuda: one Hopper GPU; ref: the slow, literal oracle"},
      {"isa",
       &O::isa,
       "",
       {.choices = {"auto", "avx2", "avx512", "vnni", "amx"}},
       "Kernels of the cpu backend; auto: the best that the processor has"},
      {"cuda_arithmetic",
       &O::cuda_arithmetic,
       "",
       {.choices = {"fast", "canonical"}},
       "Sums of the cuda backend. fast: by tensor cores; canonical: in the order of cpu and ref, "
       "whose numbers and texts it then gives, by plain kernels that are many times slower"},
      {"threads",
       &O::threads,
       "threads",
       {0, 1024},
       "Compute threads; 0: one for each processor",
       't'},
  };
}

std::vector<OptionInfo> size_options() {
  return {
      {"context",
       &O::context,
       "tokens",
       {0, kNoLimit},
       "Tokens that prompt and answer may have together, which memory is planned for; 0: the "
       "model's, at most 8192"},
      {"max_num_seqs",
       &O::max_num_seqs,
       "sequences",
       {1, 65536},
       "Sequences that run at once: more share each reading of the weights, and need memory"},
      {"max_num_batched_tokens",
       &O::max_num_batched_tokens,
       "rows",
       {1, 65536},
       "Rows of one step: more compute prompts faster, fewer keep steps short"},
      {"chunk",
       &O::chunk,
       "rows",
       {0, 65536},
       "Prompt rows of one sequence in one step; 0: no such limit; the text does not depend on it"},
      {"num_blocks",
       &O::num_blocks,
       "blocks of 128 tokens",
       {0, kNoLimit},
       "Size of the cache; 0: what the sequences can need and memory allows"},
      {"memory_utilization",
       &O::memory_utilization,
       "share",
       {0.01, 1},
       "Share of the available memory that may be planned; the rest is for others"},
      {"engram_memory",
       &O::engram_memory,
       "",
       {.choices = {"auto", "device", "host"}},
       "Where a GPU has the tables of Engram: in its own memory, or in the machine's, pinned, to "
       "be "
       "read through the bus; auto: its own when they fit; the text does not depend on it"},
  };
}

std::vector<OptionInfo> scheduling_options() {
  return {
      {"async_scheduling",
       &O::async_scheduling,
       "",
       {},
       "Plan a step while the one before it runs; the text does not depend on it"},
      {"max_step_ms",
       &O::max_step_ms,
       "ms",
       {0, 1e6},
       "Target for steps that carry decode rows, kept by fewer prompt rows beside them, so that "
       "streams flow while long prompts come in; 0: none"},
      {"patience_seconds",
       &O::patience_seconds,
       "s",
       {0, 1e6},
       "A request without a timeout is due this long after its arrival: less serves requests in "
       "the order in which they came, more lets those with timeouts go first"},
      {"max_queued_requests",
       &O::max_queued_requests,
       "sequences",
       {1, kNoLimit},
       "Sequences that wait at once; requests beyond them are refused instead of waiting long"},
      {"max_queued_tokens",
       &O::max_queued_tokens,
       "tokens",
       {1, kNoLimit},
       "Prompt tokens that wait at once; requests beyond them are refused"},
  };
}

std::vector<OptionInfo> draft_options() {
  return {
      {"drafts",
       &O::drafts,
       "",
       {.choices = {"off", "adaptive", "1", "2", "3", "4", "5"}},
       "Guess tokens with the model's drafter and verify them as rows of one step. adaptive: as "
       "many as pay, none when none do; a number: so many always. Texts with a seed or "
       "temperature 0 do not depend on it"},
      {"verification",
       &O::verification,
       "",
       {.choices = {"auto", "exact_seed", "block"}},
       "What keeps a draft. exact_seed: the model's own draw is the same, which gives the text of "
       "a "
       "run without drafts; block: accepts more, gives another text of the same probability; auto: "
       "exact_seed for requests with a seed, temperature 0 or a record, block for the others"},
      {"draft_costs",
       &O::draft_costs,
       "",
       {},
       "Folder where adaptive drafts keep what steps cost, so that the next start need not measure "
       "it; empty: the user's cache folder; none: nothing is kept"},
  };
}

std::vector<OptionInfo> number_options() {
  return {
      {"replay",
       &O::replay,
       "",
       {.choices = {"off", "compact", "mask"}},
       "Bounded replay of the decoder at prefill: faster, approximate"},
      {"replay_keep",
       &O::replay_keep,
       "rows",
       {0, kNoLimit},
       "Last prompt rows that bounded replay computes in full; 0: as few as allowed"},
      {"seed",
       &O::seed,
       "",
       {0, std::numeric_limits<double>::infinity()},
       "Requests without a seed draw theirs from this one; the same seed, requests and order give "
       "the same texts"},
      {"peak_flops",
       &O::peak_flops,
       "FLOP/s",
       {0, 1e20},
       "FP8-equivalent peak of the machine, which statistics are then given as a share of; 0: "
       "unknown"},
      {"check_integrity",
       &O::check_integrity,
       "",
       {},
       "Check the ledger of memory after each step, to find faults of the engine itself"},
      {"banned_tokens",
       &O::banned_tokens,
       "token ids",
       {},
       "Ids that no request draws, such as 0..3,7"},
  };
}

std::vector<OptionInfo> record_options() {
  return {
      {"record",
       &O::record,
       "",
       {},
       "Log the parameters, lengths, hashes and times of all requests into this file"},
      {"record_content",
       &O::record_content,
       "",
       {},
       "Log prompts and outputs, too: what `deepinfer replay` needs"},
  };
}

std::vector<OptionInfo> make_table() {
  std::vector<OptionInfo> table;
  for (const auto group :
       {place_options,
        size_options,
        scheduling_options,
        draft_options,
        number_options,
        record_options}) {
    for (OptionInfo& option : group())
      table.push_back(std::move(option));
  }
  return table;
}

}  // namespace

const std::vector<OptionInfo>& option_table() {
  static const std::vector<OptionInfo> table = make_table();
  return table;
}

const OptionInfo& find_option(std::string_view name) {
  std::vector<std::string> names;
  for (const OptionInfo& option : option_table()) {
    if (option.name == name) return option;
    names.push_back(option.name);
  }
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("there is no engine option called {}{}", name, suggestion(name, names))
  );
}

}  // namespace di::engine

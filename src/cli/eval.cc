// `deepinfer eval ppl`: how well the model predicts a text.
#include <cmath>
#include <memory>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/runtime.h"
#include "sampling/sampler.h"

namespace di::cli {
namespace {

struct PplOptions {
  std::string file;
  bool json = false;
  EngineFlags engine;
};

struct Loss {
  double nats = 0;
  int64_t tokens = 0;
};

/// The loss of one window: BOS, then `tokens`, each predicted from those before it.
Loss window_loss(Runtime& runtime, std::span<const int32_t> tokens) {
  std::vector<int32_t> ids = {static_cast<int32_t>(runtime.config().tokens.bos_token_id)};
  ids.insert(ids.end(), tokens.begin(), tokens.end());
  const auto vocab = static_cast<std::size_t>(runtime.config().vocab_size);
  const auto session = runtime.new_session(std::ssize(ids));
  Loss loss;
  const auto chunk = static_cast<std::size_t>(runtime.chunk());
  for (std::size_t begin = 0; begin + 1 < ids.size(); begin += chunk) {
    const std::size_t count = std::min(chunk, ids.size() - 1 - begin);
    const std::vector<float> logits =
        session->feed(std::span(ids).subspan(begin, count), model::LogitRows::kAll);
    for (std::size_t i = 0; i < count; ++i) {
      const std::span row = std::span(logits).subspan(i * vocab, vocab);
      loss.nats -= sampling::log_probability(row, ids[begin + i + 1]);
      ++loss.tokens;
    }
  }
  return loss;
}

void run(const PplOptions& options) {
  Runtime runtime(options.engine.options());
  const std::vector<int32_t> ids =
      runtime.tokenizer().encode(read_text_file(options.file), text::AddedTokens::kPlain);
  if (ids.empty()) {
    throw Error(
        ErrorCode::kInvalidArgument, fmt::format("{}: the file has no tokens", options.file)
    );
  }
  Loss total;
  const auto window = static_cast<std::size_t>(runtime.context() - 1);
  for (std::size_t begin = 0; begin < ids.size(); begin += window) {
    const std::size_t count = std::min(window, ids.size() - begin);
    const Loss loss = window_loss(runtime, std::span(ids).subspan(begin, count));
    total.nats += loss.nats;
    total.tokens += loss.tokens;
  }
  const double mean = total.nats / static_cast<double>(total.tokens);
  if (options.json) {
    fmt::print(
        "{}\n",
        Json(Json::Object{
                 {"tokens", Json(total.tokens)},
                 {"nats_per_token", Json(mean)},
                 {"perplexity", Json(std::exp(mean))},
                 {"backend", Json(runtime.ops().name)},
                 {"isa", Json(runtime.ops().isa)}}
        ).dump()
    );
    return;
  }
  fmt::print(
      "{} tokens, {:.5f} nats a token, perplexity {:.4f}\n", total.tokens, mean, std::exp(mean)
  );
}

}  // namespace

void add_eval(CLI::App& app) {
  CLI::App* eval = app.add_subcommand("eval", "Measure the model on a text");
  eval->require_subcommand(1);
  auto options = std::make_shared<PplOptions>();
  CLI::App* ppl = eval->add_subcommand(
      "ppl", "Perplexity of a text file, in windows of --context tokens that each begin with BOS"
  );
  ppl->add_option("file", options->file, "The text")->required()->type_name("FILE");
  ppl->add_flag("--json", options->json, "Print a JSON object");
  options->engine.add(*ppl, kLoneOptions);
  ppl->callback([options] { run(*options); });
}

}  // namespace di::cli

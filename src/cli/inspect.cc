// `deepinfer inspect`: what a model is, what it will need, and what this machine offers.
#include <memory>

#include <fmt/format.h>

#include "base/json.h"
#include "bench/limits.h"
#include "checkpoint/inventory.h"
#include "checkpoint/memory_report.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "config/layer_role.h"
#include "engine/loaded_model.h"
#include "model/memory_plan.h"

namespace di::cli {
namespace {

struct InspectOptions {
  EngineFlags engine;
  int64_t sequences = 1;
  bool json = false;
};

std::string layer_line(const ModelConfig& config, int64_t l) {
  const LayerRole role = layer_role(config, l);
  std::string text = role.ratio == 0 ? "window only" : fmt::format("ratio {}", role.ratio);
  if (role.engram >= 0) text += ", Engram";
  if (role.is_kv_source)
    text += ", KV source";
  else if (role.kv_source >= 0)
    text += fmt::format(", KV of {}", role.kv_source);
  if (role.is_index_source)
    text += ", index source";
  else if (role.index_source >= 0)
    text += fmt::format(", selection of {}", role.index_source);
  if (role.is_candidate_source) text += ", candidate source";
  if (role.uses_candidates) text += ", candidates only";
  if (role.in_decoder) text += ", decoder";
  return text;
}

Json config_json(const ModelConfig& config) {
  Json::Array layers;
  for (int64_t l = 0; l < config.num_hidden_layers; ++l)
    layers.emplace_back(layer_line(config, l));
  return Json::Object{
      {"hidden_size", Json(config.hidden_size)},
      {"vocab_size", Json(config.vocab_size)},
      {"num_hidden_layers", Json(config.num_hidden_layers)},
      {"num_attention_heads", Json(config.attention.num_attention_heads)},
      {"head_dim", Json(config.attention.head_dim)},
      {"n_routed_experts", Json(config.moe.n_routed_experts)},
      {"num_experts_per_tok", Json(config.moe.num_experts_per_tok)},
      {"moe_intermediate_size", Json(config.moe.moe_intermediate_size)},
      {"sliding_window", Json(config.attention.sliding_window)},
      {"index_topk", Json(config.indexer.index_topk)},
      {"hc_mult", Json(config.hc.hc_mult)},
      {"num_nextn_predict_layers", Json(config.draft.num_nextn_predict_layers)},
      {"max_position_embeddings", Json(config.max_position_embeddings)},
      {"layers", Json(std::move(layers))}};
}

Json tensors_json(const ModelConfig& config) {
  Json::Array kinds;
  for (const checkpoint::KindTotal& total :
       checkpoint::totals_by_kind(checkpoint::expected_tensors(config))) {
    kinds.push_back(Json::Object{
        {"kind", Json(checkpoint::name_of(total.kind))},
        {"tensors", Json(total.tensors)},
        {"bytes", Json(total.bytes)}});
  }
  return kinds;
}

Json memory_json(
    const checkpoint::Checkpoint& checkpoint,
    const ops::OpTable& ops,
    const model::MemoryLimits& limits
) {
  const model::MemoryPlan plan = model::plan_memory(checkpoint, ops, limits);
  const cache::Layout layout = cache::make_layout(checkpoint.config());
  return Json::Object{
      {"context", Json(limits.context)},
      {"num_sequences", Json(limits.num_sequences)},
      {"weights", Json(plan.weights)},
      {"blocks", Json(plan.blocks)},
      {"slots", Json(plan.slots)},
      {"scratch", Json(plan.scratch)},
      {"logits", Json(plan.logits)},
      {"total", Json(plan.total())},
      {"available", Json(ops.memory().available())},
      {"cache_bytes_per_token", Json(layout.bytes_per_token())},
      {"slot_bytes", Json(layout.slot_bytes)}};
}

Json machine_json(const ops::OpTable& ops, ThreadPool& pool) {
  const CpuFeatures cpu = detect_cpu();
  Json::Array sets;
  const auto offer = [&](bool has, const char* name) {
    if (has) sets.emplace_back(name);
  };
  offer(cpu.avx2_fma, "avx2+fma");
  offer(cpu.avx512, "avx512");
  offer(cpu.avx512_vnni, "avx512_vnni");
  offer(cpu.avx512_vbmi, "avx512_vbmi");
  offer(cpu.avx512_bf16, "avx512_bf16");
  offer(cpu.amx_int8, "amx_int8");
  constexpr int64_t kReadBytes = int64_t{256} << 20;
  return Json::Object{
      {"processor", Json(cpu.model)},
      {"instruction_sets", Json(std::move(sets))},
      {"threads", Json(pool.num_threads())},
      {"read_gbps", Json(bench::measure_read(pool, kReadBytes))},
      {"backend", Json(ops.name)},
      {"kernels", Json(ops.isa)}};
}

/// The report for people: one "key: value" line each, sections indented.
void print_text(const Json& json, int indent) {
  for (const auto& [key, value] : json.as_object()) {
    if (value.is_object()) {
      fmt::print("{:{}}{}:\n", "", indent, key);
      print_text(value, indent + 2);
    } else if (key == "layers") {
      for (std::size_t l = 0; l < value.as_array().size(); ++l) {
        fmt::print("{:{}}layer {}: {}\n", "", indent, l, value.as_array()[l].as_string());
      }
    } else if (key == "tensors" && value.is_array()) {
      fmt::print("{:{}}tensors:\n", "", indent);
      for (const Json& kind : value.as_array()) {
        fmt::print(
            "{:{}}{:<10} {:>7} tensors  {}\n",
            "",
            indent + 2,
            kind.at("kind").as_string(),
            kind.at("tensors").as_integer(),
            model::human_bytes(kind.at("bytes").as_integer())
        );
      }
    } else {
      fmt::print(
          "{:{}}{}: {}\n", "", indent, key, value.is_string() ? value.as_string() : value.dump()
      );
    }
  }
}

void run(const InspectOptions& options) {
  const engine::EngineOptions engine_options = options.engine.options();
  const ops::OpTable& ops = engine::select_ops(engine_options);
  ThreadPool pool(engine_options.threads);
  const std::string folder = engine::find_model(engine_options.model);
  const auto checkpoint = checkpoint::Checkpoint::open(folder, pool);
  const ModelConfig& config = checkpoint.config();
  const int64_t context = engine::resolve_context(engine_options, config);
  const int64_t chunk =
      engine_options.chunk > 0 ? engine_options.chunk : engine_options.max_num_batched_tokens;
  const Json report = Json::Object{
      {"model", Json(folder)},
      {"configuration", config_json(config)},
      {"tensors", tensors_json(config)},
      {"memory",
       memory_json(
           checkpoint, ops, {.context = context, .num_sequences = options.sequences, .chunk = chunk}
       )},
      {"machine", machine_json(ops, pool)}};
  if (options.json) {
    fmt::print("{}\n", report.dump());
  } else {
    print_text(report, 0);
  }
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command = app.add_subcommand(
      "inspect", "Show a model's configuration, tensors and memory plan, and this machine"
  );
  options->engine.add(*command, kLoneOptions);
  command->add_option("--sequences", options->sequences, "Sequences at once, for the memory plan")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print a JSON object");
  command->callback([options] { run(*options); });
}

}  // namespace di::cli

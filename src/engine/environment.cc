#include "engine/environment.h"

#include <cstdlib>
#include <string_view>

#include <unistd.h>

namespace di::engine {
namespace {

constexpr std::string_view kPrefix = "DEEPINFER_";

// Reasons that several variables share.
constexpr const char* kNoGpu = "it concerns GPUs, and this engine runs on processors";
constexpr const char* kOneProcess = "an engine is one process; nothing is sent to another";
constexpr const char* kOneKindOfStep = "steps that draft and verify are recorded as all others";
constexpr const char* kNoGrammar = "there is no structured output by grammars";
constexpr const char* kNoImages = "there is no image input";
constexpr const char* kOneStep =
    "prompts and outputs share each step, so there are no turns to time";
constexpr const char* kFixedSlots = "each of max_num_seqs sequences has exactly one slot";

std::vector<OriginalVariable> make_variables() {
  return {
      {"DEEPINFER_ACCELERATOR", "", kNoGpu},
      {"DEEPINFER_BATCH_INVARIANT",
       "",
       "results never depend on the batch; nothing turns that off"},
      {"DEEPINFER_COMPUTE_SUM_SMALLER_PROBS", "", "that mass is not computed; see top_logprobs"},
      {"DEEPINFER_CPP_LOG_LEVEL", "", "there is no log; problems are told once, on standard error"},
      {"DEEPINFER_CUDAGRAPH_BATCH_SIZE_INTERVAL", "", kNoGpu},
      {"DEEPINFER_DECODE_PERF_CACHE_DIR", "", "the cost of steps is measured while they run"},
      {"DEEPINFER_DECODE_PERF_CACHE_TTL_SEC", "", "the cost of steps is measured while they run"},
      {"DEEPINFER_DECODE_TOKEN_BLACKLIST", "banned_tokens", ""},
      {"DEEPINFER_DFLASH_CONFIDENCE_HEAD_TEMPERATURE",
       "",
       "each draft position has its own, fitted by `calibrate`"},
      {"DEEPINFER_DFLASH_CUDAGRAPH_BATCH_SIZE_INTERVAL", "", kOneKindOfStep},
      {"DEEPINFER_DFLASH_ENFORCE_EAGER", "", kOneKindOfStep},
      {"DEEPINFER_DISABLE_SYNC_GUARD", "", kNoGpu},
      {"DEEPINFER_ENABLE_MEMORY_TRACING",
       "",
       "memory is planned before anything is loaded; see `inspect`"},
      {"DEEPINFER_ENABLE_MTP_VARLEN", "", "drafts adaptive verifies as many as pay"},
      {"DEEPINFER_ENFORCE_EAGER", "", kNoGpu},
      {"DEEPINFER_ENGRAM_FORCE_GPU_STORAGE",
       "",
       "engram_memory says where the tables lie, and auto prefers the GPU"},
      {"DEEPINFER_ENGRAM_PAD_TOKEN",
       "",
       "it belongs to the model: engram_pad_token_id of config.json"},
      {"DEEPINFER_EXPERT_COUNT_WINDOW_SIZE", "", kOneProcess},
      {"DEEPINFER_EXPERT_REARRANGEMENT_STEP_INTERVAL", "", kOneProcess},
      {"DEEPINFER_FORCE_IMBALANCE_RATIO", "", "experts are always those that the model chooses"},
      {"DEEPINFER_FORCE_LOAD_BALANCE", "", "experts are always those that the model chooses"},
      {"DEEPINFER_FUSED_SAMPLE_DETAIL_LOG", "", "it belongs to a test of the original"},
      {"DEEPINFER_FUSED_SAMPLE_STRESS_TEST", "", "it belongs to a test of the original"},
      {"DEEPINFER_GC_INTERVAL_STEP", "", "memory is freed when it is no longer used"},
      {"DEEPINFER_GLOO_TIMEOUT", "", kOneProcess},
      {"DEEPINFER_HF_MODEL_DIR", "model", ""},
      {"DEEPINFER_INDEX_ATTN_MEMORY_LIMIT", "", "scratch memory is planned for the worst step"},
      {"DEEPINFER_JIT_CACHE_DIR", "", "nothing is compiled while it runs"},
      {"DEEPINFER_LOGGING_INTERVAL_STEP", "", "statistics come by time: --stats SECONDS"},
      {"DEEPINFER_MAX_BACKTRACKING_TOKENS", "", "rings have room for the drafts of a step"},
      {"DEEPINFER_MOE_LB_STAT_INTERVAL", "", "the balance of experts is part of all statistics"},
      {"DEEPINFER_MULTIMODAL_POOL_SIZE_GB", "", kNoImages},
      {"DEEPINFER_MULTI_MODAL_BUFFER_SIZE", "", kNoImages},
      {"DEEPINFER_MULTI_MODAL_WORKER_TIMEOUT", "", kNoImages},
      {"DEEPINFER_NCCL_MEMORY_SAMPLE_INTERVAL_STEPS", "", kOneProcess},
      {"DEEPINFER_NCCL_NUM_SMS", "", kOneProcess},
      {"DEEPINFER_NUM_STATE_SLOTS_RATIO", "", kFixedSlots},
      {"DEEPINFER_OVERRIDE_NUM_EXTRA_EXPERTS", "", kOneProcess},
      {"DEEPINFER_PREFILL_ANY_ATTEMPT_INTERVAL", "", kOneStep},
      {"DEEPINFER_PREFILL_ATTEMPT_INTERVAL", "", kOneStep},
      {"DEEPINFER_PREFILL_MAX_SUM_SEQLEN_K",
       "",
       "max_step_ms bounds the time of a step, and memory is planned for the worst one"},
      {"DEEPINFER_PREFILL_STORE_EXTRA_SIZE", "", kFixedSlots},
      {"DEEPINFER_PREFILL_STORE_EXTRA_STATE", "", kFixedSlots},
      {"DEEPINFER_PROFILE_HTTP_ENABLE", "", "a trace is taken by --trace FILE or Engine::trace()"},
      {"DEEPINFER_PROFILE_HTTP_PORT_BASE",
       "",
       "a trace is taken by --trace FILE or Engine::trace()"},
      {"DEEPINFER_PROFILE_TORCH_CUDA_MEMORY", "", kNoGpu},
      {"DEEPINFER_REARRANGE_AFTER_PREFILL_IN_NORMAL_ENGINE", "", kOneProcess},
      {"DEEPINFER_REARRANGE_P2P_GROUPS", "", kOneProcess},
      {"DEEPINFER_RINGBUFFER_WARNING_INTERVAL", "", kOneProcess},
      {"DEEPINFER_SAMPLER_FORCE_TOPK", "", "a request's top_k says how many tokens it draws from"},
      {"DEEPINFER_SHOW_EPLB_DETAIL", "", kOneProcess},
      {"DEEPINFER_SO_BUILDER_CPUS", "", kNoGrammar},
      {"DEEPINFER_TORCH_PROFILER_DIR", "", "a trace is taken by --trace FILE or Engine::trace()"},
      {"DEEPINFER_USERBUFFER_COMM_SMS", "", kOneProcess},
      {"DEEPINFER_USE_MULTIMODAL_POOL", "", kNoImages},
      {"DEEPINFER_USE_NEXTN_DECODE", "", "the option drafts says whether and how"},
      {"DEEPINFER_XGRAMMAR_CACHE_LIMIT_BYTES", "", kNoGrammar},
      {"DEEPINFER_XGRAMMAR_DEBUG", "", kNoGrammar},
      {"DEEPINFER_XGRAMMAR_DISABLE_CACHE", "", kNoGrammar},
      {"DEEPINFER_XGRAMMAR_TIMEOUT", "", kNoGrammar},
      {"DEEPINFER_YOCO_PREFILL_KEEP_TOKENS", "replay_keep", ""},
      {"DEEPINFER_YOCO_PREFILL_TRUNCATION_MODE", "replay", ""},
      {"DEEPINFER_ZERO_OVERHEAD_SCHEDULING", "async_scheduling", ""},
  };
}

}  // namespace

Environment read_environment() {
  Environment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (!text.starts_with(kPrefix) || equals == std::string_view::npos) continue;
    const std::string_view value = text.substr(equals + 1);
    if (!value.empty()) environment.emplace(text.substr(0, equals), value);
  }
  return environment;
}

std::string default_cache_folder() {
  const auto absolute = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value != nullptr && value[0] == '/' ? value : "";
  };
  if (const std::string cache = absolute("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/deepinfer";
  if (const std::string home = absolute("HOME"); !home.empty()) return home + "/.cache/deepinfer";
  return "";
}

const std::vector<OriginalVariable>& original_variables() {
  static const std::vector<OriginalVariable> variables = make_variables();
  return variables;
}

}  // namespace di::engine

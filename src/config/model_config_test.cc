// config.json: what a good one means, and that each way of breaking one is refused by name.
#include "config/model_config.h"

#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "config/known_models.h"
#include "config/layer_role.h"

namespace di {
namespace {

using Ids = std::vector<int64_t>;

Json release_json() {
  return Json::parse(v41_flash_config_text(), "release");
}

Json& member(Json& object, std::string_view key) {
  for (auto& [name, value] : object.as_object()) {
    if (name == key) return value;
  }
  throw std::out_of_range(std::string(key));
}

void erase(Json& object, std::string_view key) {
  std::erase_if(object.as_object(), [&](const auto& entry) { return entry.first == key; });
}

ModelConfig parse(const Json& json) {
  return parse_model_config(json.dump(), "config.json");
}

/// The message with which `text` is refused; empty when it is accepted.
std::string refusal(std::string_view text) {
  try {
    parse_model_config(text, "config.json");
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(ModelConfig, ReadsEveryPartOfTheRelease) {
  const ModelConfig c = v41_flash_config();
  EXPECT_EQ(c.vocab_size, 129280);
  EXPECT_EQ(c.hidden_size, 5120);
  EXPECT_EQ(c.num_layers(), 43);
  EXPECT_EQ(c.rms_norm_eps, 1e-20);
  EXPECT_EQ(c.tokens.image_token_id, 129264);
  EXPECT_EQ(c.attention.query_size(), 32768);
  EXPECT_EQ(c.attention.group_input_size(), 4096);
  EXPECT_EQ(c.attention.rope_scaling.original_max_position_embeddings, 65536);
  EXPECT_TRUE(c.attention.use_fp4_sparse_kv);
  EXPECT_EQ(c.indexer.query_size(), 4096);
  EXPECT_EQ(c.moe.swiglu_limit, 10.0);
  EXPECT_EQ(c.hc.mix_size(), 24);
  EXPECT_EQ(c.engram.lookup_size(), 6144);
  EXPECT_EQ(c.draft.num_targets(), 3);
  EXPECT_EQ(c.vision->merged_size(), 9216);
  EXPECT_FALSE(c.vision->max_wh_ratio.has_value());
  EXPECT_EQ(c.tokenizer_compatibility, TokenizerCompatibility::kRelease);
}

TEST(ModelConfig, ReadsTheTinyFixtureAndTheDefaultModel) {
  EXPECT_EQ(load_model_config(DI_TESTDATA "/model/tiny/config.json").attention.sliding_window, 32);
  EXPECT_EQ(load_model_config(DI_SEEDLING "/config.json").attention.qk_rope_head_dim, 32);
}

TEST(LayerRole, FollowsTheNearestSourcesBelow) {
  const ModelConfig c = v41_flash_config();
  const auto roles = layer_roles(c);
  EXPECT_EQ(first_decoder_layer(c), 20);
  Ids kv;
  Ids index;
  for (const LayerRole& role : roles) {
    kv.push_back(role.kv_source);
    index.push_back(role.index_source);
  }
  EXPECT_EQ(
      kv, (Ids{-1, -1, 2,  2,  2,  2,  2,  2,  8,  8,  8,  8,  8,  8,  14, 14, 14, 14, 14, 14,
               20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20})
  );
  EXPECT_EQ(index, (Ids{-1, -1, 2,  2,  2,  2,  2,  2,  8,  8,  8,  8,  8,  8,
                        14, 14, 14, 14, 14, 14, 20, 20, 20, 20, 24, 24, 24, 24,
                        28, 28, 28, 28, 32, 32, 32, 32, 36, 36, 36, 36}));
  EXPECT_TRUE(roles[20].is_kv_source && roles[20].is_index_source);
  EXPECT_TRUE(roles[20].is_candidate_source && !roles[20].uses_candidates);
  EXPECT_TRUE(roles[24].is_index_source && roles[24].uses_candidates && !roles[24].is_kv_source);
  EXPECT_TRUE(!roles[25].is_index_source && !roles[25].uses_candidates);
  EXPECT_EQ(roles[1].engram, 0);
  EXPECT_EQ(roles[14].engram, 1);
  EXPECT_EQ(roles[2].engram, -1);
  EXPECT_EQ(roles[39].draft_target, 2);
  EXPECT_TRUE(!roles[19].in_decoder && roles[20].in_decoder);
}

TEST(ModelConfig, RunsWithoutTheOptionalParts) {
  Json json = release_json();
  erase(json, "vision_config");
  erase(json, "image_token_id");
  Json& text = member(json, "text_config");
  for (const char* key :
       {"engram_layer_ids",
        "engram_num_embeddings",
        "num_nextn_predict_layers",
        "dspark_target_layer_ids",
        "candidate_topk_blocks"}) {
    erase(text, key);
  }
  text.set("candidate_source_layer_id", nullptr);
  Json::Array& ratios = member(text, "compress_ratios").as_array();
  ratios.resize(40);
  const ModelConfig c = parse(json);
  EXPECT_FALSE(c.vision || c.engram.enabled() || c.draft.enabled());
  EXPECT_FALSE(layer_role(c, 20).is_candidate_source || layer_role(c, 24).uses_candidates);
  EXPECT_EQ(c.tokens.image_token_id, -1);
  EXPECT_EQ(c.engram.engram_head_dim, 0);
  EXPECT_EQ(c.num_layers(), 40);
}

TEST(ModelConfig, RunsWithoutDecoderAndWithoutCompression) {
  Json json = release_json();
  Json& text = member(json, "text_config");
  Json::Array& ratios = member(text, "compress_ratios").as_array();
  for (std::size_t l = 20; l < 40; ++l)
    ratios[l] = 2;
  EXPECT_EQ(first_decoder_layer(parse(json)), 40);

  for (std::size_t l = 0; l < 40; ++l)
    ratios[l] = 0;
  for (const char* key :
       {"kv_source_layer_ids",
        "index_source_layer_ids",
        "index_topk",
        "candidate_source_layer_id"}) {
    erase(text, key);
  }
  const ModelConfig c = parse(json);
  EXPECT_EQ(layer_role(c, 20).kv_source, -1);
  EXPECT_EQ(c.indexer.index_topk, 0);
}

TEST(ModelConfig, AcceptsKeysThatLibrariesAddAndValuesThatOnlyRepeat) {
  Json json = release_json();
  json.set("transformers_version", "4.57.1").set("_name_or_path", "somewhere");
  Json& text = member(json, "text_config");
  text.set("use_cache", true).set("bos_token_id", 0).set("candidate_block_size", 16);
  text.set("index_k_source_layer_ids", Json::Array{2, 8, 14, 20}).set("use_fp4_sparse_kv", false);
  const ModelConfig c = parse(json);
  EXPECT_EQ(c.indexer.candidate_block_size, 16);
  EXPECT_FALSE(c.attention.use_fp4_sparse_kv);
}

/// One way to break the release's config.json and the words that the refusal must hold.
struct Break {
  const char* key;  ///< in text_config unless it starts with '/'
  Json value;       ///< null: remove the key
  const char* words;
};

TEST(ModelConfig, RefusesEachBrokenKeyByName) {
  const Break breaks[] = {
      {"/model_type", "deepseek_v4", "model_type is \"deepseek_v4\", this engine runs"},
      {"/model_type", nullptr, "the key model_type is missing"},
      {"/dtype", "float16", "dtype is \"float16\", this engine runs \"bfloat16\" only"},
      {"/text_config", nullptr, "the key text_config is missing"},
      {"/text_config", 7, "text_config is 7, expected an object"},
      {"/quantization_config", nullptr, "the key quantization_config is missing"},
      {"/surprise", 1, "unknown key \"surprise\" = 1"},
      {"/vision_config", Json::Array{}, "vision_config is [], expected an object"},
      {"/bos_token_id", 129280, "bos_token_id is 129280, expected an id below vocab_size 129280"},
      {"/bos_token_id", -1, "bos_token_id is -1, expected an integer from 0"},
      {"/image_token_id", nullptr, "the key image_token_id is missing"},
      {"/tokenizer_compatibility", "old", "expected one of \"release\", \"native\""},
      {"surprise", "x", "unknown key \"text_config.surprise\" = \"x\""},
      {"vocab_size", nullptr, "the key text_config.vocab_size is missing"},
      {"vocab_size", "129280", "vocab_size is \"129280\", expected an integer from 1"},
      {"vocab_size", 129280.0, "vocab_size is 129280.0, expected an integer"},
      {"vocab_size", uint64_t{18446744073709551615u}, "vocab_size is 18446744073709551615"},
      {"hidden_size", 5121, "expected an integer from 32 to 131072, a multiple of 32"},
      {"hidden_size", int64_t{1} << 40, "text_config.hidden_size is 1099511627776"},
      {"head_dim", 500, "head_dim is 500"},
      {"qk_rope_head_dim", 1024, "qk_rope_head_dim is 1024, head_dim only 512"},
      {"qk_rope_head_dim", 256, "index_head_dim is 128, less than qk_rope_head_dim 256"},
      {"qk_rope_head_dim", 63, "a multiple of 2"},
      {"o_groups", 7, "o_groups is 7 and must divide num_attention_heads 64"},
      {"rms_norm_eps", 0, "rms_norm_eps is 0"},
      {"rms_norm_eps", "1e-20", "expected a number"},
      {"rope_scaling", nullptr, "the key text_config.rope_scaling is missing"},
      {"rope_scaling", Json::Object{{"rope_type", "linear"}}, "this engine runs \"yarn\" only"},
      {"hidden_act", "gelu", "hidden_act is \"gelu\", this engine runs \"silu\" only"},
      {"num_key_value_heads", 8, "num_key_value_heads is 8, this engine runs 1 only"},
      {"attention_dropout", 0.1, "attention_dropout is 0.1"},
      {"hc_shifted", false, "hc_shifted is false"},
      {"compress_ratios", Json::Array{0, 0}, "compress_ratios has 2 entries"},
      {"compress_ratios", Json::Array{4}, "compress_ratios[0] is 4, expected an integer from 0"},
      {"compress_ratios", 2, "compress_ratios is 2, expected an array"},
      {"num_hidden_layers", 39, "compress_ratios has 43 entries, num_hidden_layers 39"},
      {"kv_source_layer_ids",
       Json::Array{2, 8, 14},
       "layer 20 has ratio 1 and reads the entries "
       "of layer 14, whose ratio is 2"},
      {"kv_source_layer_ids", Json::Array{8, 14, 20}, "layer 2 has ratio 2 and no layer of kv_"},
      {"kv_source_layer_ids", Json::Array{2, 2, 8, 20}, "lists layer 2 after layer 2"},
      {"kv_source_layer_ids", Json::Array{0, 2, 20}, "layer 0 is a source"},
      {"kv_source_layer_ids", Json::Array{2, 20, 24}, "layer 24 of kv_source_layer_ids lies above"},
      {"kv_source_layer_ids", Json::Array{2, 20, 40}, "names layer 40, num_hidden_layers is 40"},
      {"index_source_layer_ids", Json::Array{2, 14, 20}, "layer 8 reads the entries of layer 8"},
      {"index_k_source_layer_ids", Json::Array{2, 8}, "index_k_source_layer_ids is [2, 8]"},
      {"candidate_source_layer_id", 21, "expected one of index_source_layer_ids"},
      {"candidate_source_layer_id", 14, "layer 20 of kv_source_layer_ids lies above it"},
      {"candidate_block_size", 12, "candidate_block_size is 12"},
      {"candidate_topk_blocks", 60, "are 480 entries, fewer than index_topk 512"},
      {"num_experts_per_tok", 65, "num_experts_per_tok is 65"},
      {"n_routed_experts", 4, "num_experts_per_tok is 6, n_routed_experts only 4"},
      {"n_shared_experts", 2, "n_shared_experts is 2, expected the integer 1"},
      {"engram_layer_ids", Json::Array{1}, "engram_num_embeddings has 2 entries, engram_layer_ids"},
      {"engram_layer_ids", Json::Array{1, 20}, "at or above the first decoder layer 20"},
      {"engram_num_embeddings", Json::Array{5, 5}, "less than the 384000000 rows"},
      {"engram_pad_token_id", 200000, "engram_pad_token_id is 200000"},
      {"engram_compressed_vocab_size", 129281, "more than vocab_size"},
      {"dspark_target_layer_ids", Json::Array{19, 38, 39}, "below the first decoder layer 20"},
      {"dspark_target_layer_ids", Json::Array{}, "dspark_target_layer_ids is empty"},
      {"dspark_noise_token_id", 129280, "dspark_noise_token_id is 129280"},
      {"dspark_n_routed_experts", 2, "dspark_num_experts_per_tok is 3"},
      {"num_nextn_predict_layers", 2, "num_nextn_predict_layers 2 ask for 42"},
      {"bos_token_id", 3, "text_config.bos_token_id is 3, expected the integer 0"},
  };
  for (const Break& broken : breaks) {
    Json json = release_json();
    const bool at_top = broken.key[0] == '/';
    Json& object = at_top ? json : member(json, "text_config");
    const char* key = at_top ? broken.key + 1 : broken.key;
    if (broken.value.is_null()) {
      erase(object, key);
    } else {
      object.set(key, broken.value);
    }
    const std::string message = refusal(json.dump());
    EXPECT_NE(message.find(broken.words), std::string::npos) << broken.key << ": " << message;
    EXPECT_EQ(message.rfind("config.json: ", 0), 0u) << message;
  }
}

TEST(ModelConfig, RefusesTextThatIsNoGoodJson) {
  EXPECT_NE(refusal("").find("not JSON at byte"), std::string::npos);
  EXPECT_NE(refusal("[]").find("the file is [], expected an object"), std::string::npos);
  EXPECT_NE(refusal("{\"a\": 1, \"a\": 1}").find("stands twice"), std::string::npos);
  EXPECT_NE(refusal("{\"a\": \"\xff\"}").find("not JSON"), std::string::npos);
  EXPECT_NE(refusal(std::string(1000, '[')).find("nested deeper than"), std::string::npos);
  EXPECT_NE(refusal("{\"model_type\": 1e999}").find("not JSON"), std::string::npos);
}

TEST(ModelConfig, TellsWrongFilesFromModelsOfOthers) {
  Json json = release_json();
  json.set("model_type", "deepseek_v4");
  try {
    parse(json);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  }
}

}  // namespace
}  // namespace di

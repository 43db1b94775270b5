// `deepinfer tokenize`, `detokenize` and `render`: the text side alone, without loading weights.
#include <memory>
#include <sstream>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "cli/commands.h"
#include "cli/engine_flags.h"
#include "cli/terminal.h"
#include "engine/loaded_model.h"
#include "text/chat_encoding.h"
#include "text/tokenizer.h"

namespace di::cli {
namespace {

struct TextOptions {
  EngineFlags engine;
  std::string input;  ///< text, ids or a file name; empty or "-": standard input
  std::string format = "v4.1";
  bool plain = false;
  bool skip_special = false;
  bool json = false;
};

text::Tokenizer load_tokenizer(const TextOptions& options) {
  return text::Tokenizer::load(
      engine::find_model(options.engine.options().model) + "/tokenizer.json"
  );
}

std::string input_text(const TextOptions& options) {
  return options.input.empty() || options.input == "-" ? read_standard_input() : options.input;
}

Json ids_json(const std::vector<int32_t>& ids) {
  Json::Array array;
  for (const int32_t id : ids)
    array.emplace_back(id);
  return array;
}

void tokenize(const TextOptions& options) {
  const text::Tokenizer tokenizer = load_tokenizer(options);
  const std::vector<int32_t> ids = tokenizer.encode(
      input_text(options),
      options.plain ? text::AddedTokens::kPlain : text::AddedTokens::kRecognised
  );
  if (options.json) {
    Json::Array tokens;
    for (const int32_t id : ids)
      tokens.emplace_back(tokenizer.decode({&id, 1}));
    fmt::print(
        "{}\n",
        Json(Json::Object{{"ids", ids_json(ids)}, {"tokens", Json(std::move(tokens))}}).dump()
    );
    return;
  }
  fmt::print("{}\n", fmt::join(ids, " "));
}

std::vector<int32_t> parse_ids(const std::string& text) {
  std::vector<int32_t> ids;
  std::string clean = text;
  for (char& c : clean) {
    if (c == ',' || c == '[' || c == ']') c = ' ';
  }
  std::istringstream words(clean);
  for (std::string word; words >> word;) {
    try {
      std::size_t used = 0;
      ids.push_back(std::stoi(word, &used));
      if (used != word.size()) throw std::invalid_argument(word);
    } catch (const std::exception&) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("\"{}\" is not a token id", word));
    }
  }
  return ids;
}

void detokenize(const TextOptions& options) {
  const text::Tokenizer tokenizer = load_tokenizer(options);
  const std::vector<int32_t> ids = parse_ids(input_text(options));
  const std::string text =
      options.skip_special ? tokenizer.decode_skip_special(ids) : tokenizer.decode(ids);
  if (options.json) {
    fmt::print("{}\n", Json(Json::Object{{"text", Json(text)}}).dump());
  } else {
    fmt::print("{}\n", text);
  }
}

void render(const TextOptions& options) {
  const bool from_stdin = options.input.empty() || options.input == "-";
  const std::string source = from_stdin ? read_standard_input() : read_text_file(options.input);
  const text::Conversation conversation = text::Conversation::from_json(
      Json::parse(source, from_stdin ? "standard input" : options.input)
  );
  const text::RenderedPrompt rendered =
      text::render(conversation, text::chat_version_from(options.format));
  const std::vector<int32_t> ids = text::encode(rendered, load_tokenizer(options));
  if (options.json) {
    fmt::print(
        "{}\n",
        Json(Json::Object{{"prompt", Json(rendered.text)}, {"token_ids", ids_json(ids)}}).dump()
    );
    return;
  }
  fmt::print("{}\n{}\n", rendered.text, fmt::join(ids, " "));
}

CLI::App* add_text_command(
    CLI::App& app,
    const char* name,
    const char* help,
    const char* input_help,
    const std::shared_ptr<TextOptions>& options
) {
  CLI::App* command = app.add_subcommand(name, help);
  command->add_option("input", options->input, input_help);
  options->engine.add(*command, {"model"});
  command->add_flag("--json", options->json, "Print a JSON object");
  return command;
}

}  // namespace

void add_tokenize(CLI::App& app) {
  auto options = std::make_shared<TextOptions>();
  CLI::App* command = add_text_command(
      app,
      "tokenize",
      "Text to token ids",
      "The text; without it, or as -, read from standard input",
      options
  );
  command->add_flag("--plain", options->plain, "Text that spells a special token stays text");
  command->callback([options] { tokenize(*options); });
}

void add_detokenize(CLI::App& app) {
  auto options = std::make_shared<TextOptions>();
  CLI::App* command = add_text_command(
      app,
      "detokenize",
      "Token ids to text",
      "Ids separated by blanks or commas; without them, or as -, read from standard input",
      options
  );
  command->add_flag("--skip-special", options->skip_special, "Leave special tokens out");
  command->callback([options] { detokenize(*options); });
}

void add_render(CLI::App& app) {
  auto options = std::make_shared<TextOptions>();
  CLI::App* command = add_text_command(
      app,
      "render",
      "Conversation JSON to prompt and token ids",
      "File with the conversation; without it, or as -, read from standard input",
      options
  );
  command->add_option("--format", options->format, "Chat format: v4.1 or v4")
      ->check(CLI::IsMember({"v4.1", "v4"}))
      ->capture_default_str();
  command->callback([options] { render(*options); });
}

}  // namespace di::cli

#include "engine_handle.h"

#include <limits>
#include <utility>

#include "base/error.h"
#include "engine/admission.h"
#include "text/chat_encoding.h"
#include "text/output_parser.h"

namespace di::python {
namespace {

/// Requests wait in the engine's own queue, which has limits and messages for them; the queue of
/// commands before it is not to be a second one.
constexpr int64_t kMaxCommands = std::numeric_limits<int64_t>::max();

}  // namespace

EngineHandle::EngineHandle(const ResolvedOptions& resolved)
    : notes_(resolved.notes),
      thread_(std::make_shared<engine::EngineThread>(
          engine::Engine::open(resolved.options), kMaxCommands
      )) {}

std::shared_ptr<engine::EngineThread> EngineHandle::thread() const {
  const std::lock_guard lock(mutex_);
  if (thread_ == nullptr) throw Error(ErrorCode::kUnsupported, "the engine is closed");
  return thread_;
}

void EngineHandle::check(const engine::Request& request) const {
  const auto thread = this->thread();
  const engine::AdmissionLimits& limits = thread->engine().admission_limits();
  if (const auto refusal = engine::check_request(request, limits, {})) {
    throw Error(refusal->code, refusal->message);
  }
}

void EngineHandle::submit(const engine::Request& request, std::shared_ptr<Mailbox> mailbox) const {
  const auto thread = this->thread();
  mailbox->expect(empty_output(request));
  thread->submit(request, [mailbox = std::move(mailbox)](const engine::Output& output) {
    mailbox->push(output);
  });
}

void EngineHandle::abort(const std::string& request_id) const {
  const std::lock_guard lock(mutex_);
  if (thread_ != nullptr) thread_->abort(request_id);
}

void EngineHandle::close() {
  std::shared_ptr<engine::EngineThread> thread;
  {
    const std::lock_guard lock(mutex_);
    thread = std::move(thread_);
  }
  if (thread != nullptr) thread->close();
}

void EngineHandle::abandon() {
  // No lock: a thread of the parent may have held it. The reference is lost on purpose.
  new std::shared_ptr<engine::EngineThread>(std::move(thread_));
}

engine::Stats EngineHandle::stats() const {
  return thread()->stats();
}

void EngineHandle::trace(const std::string& path, int64_t num_steps) const {
  thread()->trace(path, num_steps);
}

std::vector<int32_t> EngineHandle::encode(std::string_view text) const {
  return thread()->engine().tokenizer().encode(text, text::AddedTokens::kRecognised);
}

std::string EngineHandle::decode(const std::vector<int32_t>& ids, bool skip_special) const {
  const auto thread = this->thread();
  const text::Tokenizer& tokenizer = thread->engine().tokenizer();
  return skip_special ? tokenizer.decode_skip_special(ids) : tokenizer.decode(ids);
}

std::vector<int32_t> EngineHandle::encode_conversation(
    const Json& conversation, const std::string& format
) const {
  const text::RenderedPrompt prompt =
      text::render(text::Conversation::from_json(conversation), text::chat_version_from(format));
  return text::encode(prompt, thread()->engine().tokenizer());
}

ParsedAnswer EngineHandle::parse_answer(const Json& conversation, const std::string& text) const {
  using Kind = text::OutputEvent::Kind;
  text::OutputParser parser(
      text::OutputParserOptions::for_conversation(text::Conversation::from_json(conversation))
  );
  std::vector<text::OutputEvent> events = parser.push(text);
  for (text::OutputEvent& event : parser.finish())
    events.push_back(std::move(event));
  ParsedAnswer answer;
  Json::Array& calls = answer.tool_calls.as_array();
  for (const text::OutputEvent& event : events) {
    switch (event.kind) {
      case Kind::kReasoning: answer.reasoning += event.text; break;
      case Kind::kContent: answer.content += event.text; break;
      case Kind::kToolCall:
        calls.push_back(Json::Object{{"name", event.text}, {"arguments", ""}});
        break;
      case Kind::kArguments:
        calls.back().set("arguments", calls.back().at("arguments").as_string() + event.text);
        break;
    }
  }
  return answer;
}

Json EngineHandle::describe() const {
  const auto thread = this->thread();
  const engine::Engine& engine = thread->engine();
  Json json = Json::Object{};
  json.set("options", options_json(engine.options()));
  json.set("notes", Json::Array(notes_.begin(), notes_.end()));
  json.set("model_folder", engine.model_folder());
  json.set("context", engine.context());
  json.set("num_blocks", engine.num_blocks());
  json.set("vocab_size", engine.config().vocab_size);
  json.set("bos_token_id", engine.config().tokens.bos_token_id);
  json.set("eos_token_id", engine.config().tokens.eos_token_id);
  return json;
}

}  // namespace di::python

// Rendering conversations; see chat_encoding.h. The grammar of both formats is one, and the places
// where they differ ask is_v4().
#include "text/chat_encoding.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "text/chat_templates.h"
#include "text/prompt_text.h"
#include "text/tool_text.h"

namespace di::text {
namespace {

/// The effort text. V4 knows three levels: below, at and above its default.
std::string effort_text(ReasoningEffort effort, ChatVersion version) {
  if (version == ChatVersion::kV41) return fmt::format(templates::kEffortV41, effort.value);
  if (effort.value <= 50) return {};
  return std::string(effort.value < 100 ? templates::kHighEffortV4 : templates::kMaxEffortV4);
}

const ToolTags& tags_of(ChatVersion version) {
  return version == ChatVersion::kV4 ? kTagsV4 : kTagsV41;
}

std::string format_text(const ResponseFormat& format, ChatVersion version) {
  if (format.json_object && version == ChatVersion::kV4) {
    return std::string(templates::kJsonObjectV4);
  }
  if (!format.json_object && !format.schema) return {};
  const Json schema =
      format.json_object ? Json(Json::Object{{"type", "json_object"}}) : *format.schema;
  return std::string(templates::kResponseSchema) + schema.dump(tags_of(version).exponent_digits);
}

bool in_user_turn(const Message& message) {
  return message.role == Role::kUser || message.role == Role::kTool;
}

/// Renders one conversation, message by message.
class Renderer {
 public:
  Renderer(const Conversation& conversation, ChatVersion version, std::string_view image_mark)
      : conversation_(conversation), version_(version), image_mark_(image_mark) {}

  RenderedPrompt run() {
    prompt_.mark(templates::kBos);
    head();
    const auto& messages = conversation_.messages;
    for (std::size_t i = 0; i < messages.size();)
      i = turn(i);
    if (messages.empty() || !messages.back().prefix) {
      prompt_.mark(templates::kAssistant);
      prompt_.mark(conversation_.thinking ? templates::kThink : templates::kEndThink);
    }
    if (conversation_.shows_tools() && conversation_.tool_choice == ToolChoice::kRequired) {
      append_calls_opening(prompt_, tags());
    }
    return {prompt_.text(), prompt_.mark_ranges(), std::move(images_)};
  }

 private:
  bool is_v4() const { return version_ == ChatVersion::kV4; }
  const ToolTags& tags() const { return tags_of(version_); }

  bool starts_with_system() const {
    const auto& messages = conversation_.messages;
    return !messages.empty() && messages[0].role == Role::kSystem;
  }

  /// What stands before the first turn: effort, system text, tools, answer format.
  void head() {
    const std::string format = format_text(conversation_.response_format, version_);
    if (!is_v4()) {
      const bool says_something =
          conversation_.thinking || conversation_.shows_tools() || !format.empty();
      if (conversation_.messages.empty() || !(starts_with_system() || says_something)) return;
      prompt_.mark(templates::kSystem);
    }
    if (conversation_.thinking) prompt_.plain(effort_text(conversation_.effort, version_));
    system_texts();
    if (conversation_.shows_tools()) append_tools_block(prompt_, conversation_.tools, tags());
    if (starts_with_system()) updated_tools(conversation_.messages[0]);
    prompt_.plain(format);
  }

  /// The first message if it is a system message; in V4 all of them, wherever they stand.
  void system_texts() {
    if (!is_v4()) {
      if (starts_with_system()) content(conversation_.messages[0]);
      return;
    }
    bool first = true;
    for (const Message& message : conversation_.messages) {
      if (message.role != Role::kSystem || message.content.empty()) continue;
      if (!first) prompt_.plain("\n\n");
      first = false;
      content(message);
    }
  }

  void updated_tools(const Message& message) {
    if (is_v4() || message.tools.empty()) return;
    prompt_.plain(templates::kUpdatedTools);
    prompt_.plain(tool_lines(message.tools, tags(), false));
  }

  /// Renders the turn that starts with message `i`; returns the message after it.
  std::size_t turn(std::size_t i) {
    const auto& messages = conversation_.messages;
    const Message& message = messages[i];
    if (in_user_turn(message)) return user_turn(i);
    if (message.role == Role::kAssistant) {
      assistant_turn(i);
    } else if (message.role == Role::kLatestReminder) {
      return reminder_turn(i);
    } else if (!is_v4() && i > 0) {
      prompt_.mark(templates::kSystem);
      content(message);
      updated_tools(message);
    }
    return i + 1;
  }

  /// Adjacent user and tool messages are one turn. V4 looks past the system messages in between.
  std::size_t user_turn(std::size_t begin) {
    const auto& messages = conversation_.messages;
    std::vector<const Message*> parts;
    std::size_t end = begin;
    for (; end < messages.size(); ++end) {
      if (in_user_turn(messages[end])) {
        parts.push_back(&messages[end]);
      } else if (!is_v4() || messages[end].role != Role::kSystem) {
        break;
      }
    }
    order_results(parts);
    prompt_.mark(templates::kUser);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (i > 0) prompt_.plain("\n\n");
      const bool is_result = parts[i]->role == Role::kTool;
      if (is_result) prompt_.plain("<tool_result>");
      content(*parts[i]);
      if (is_result) prompt_.plain("</tool_result>");
    }
    return end;
  }

  /// Puts tool results, among their own places, in the order of the calls that they answer.
  void order_results(std::vector<const Message*>& parts) const {
    std::vector<const Message*> results;
    for (const Message* part : parts) {
      if (part->role == Role::kTool) results.push_back(part);
    }
    const auto place = [&](const Message* result) {
      const auto found = call_order_.find(result->tool_call_id);
      return found == call_order_.end() ? 0 : found->second;
    };
    std::stable_sort(results.begin(), results.end(), [&](const Message* a, const Message* b) {
      return place(a) < place(b);
    });
    auto next = results.begin();
    for (const Message*& part : parts) {
      if (part->role == Role::kTool) part = *next++;
    }
  }

  /// Of adjacent reminders only the first is shown.
  std::size_t reminder_turn(std::size_t i) {
    const auto& messages = conversation_.messages;
    prompt_.mark(templates::kReminder);
    content(messages[i]);
    while (i < messages.size() && messages[i].role == Role::kLatestReminder)
      ++i;
    return i;
  }

  /// An assistant's message; after a prefix the model goes on, so that it has no end.
  void assistant_turn(std::size_t i) {
    const Message& message = conversation_.messages[i];
    call_order_.clear();
    for (const ToolCall& call : message.tool_calls) {
      call_order_[call.id] = static_cast<int>(call_order_.size());
    }
    prompt_.mark(templates::kAssistant);
    const bool replays = replays_reasoning(i);
    if (replays) {
      prompt_.mark(templates::kThink);
      own_text(message.reasoning);
    }
    if (!(replays && goes_on_reasoning(i))) prompt_.mark(templates::kEndThink);
    own_text(message.content);
    append_calls(prompt_, message.tool_calls, tags());
    if (!message.prefix) prompt_.mark(templates::kEos);
  }

  /// Whether the model sees its reasoning again: where tools are, and in a prefix.
  bool replays_reasoning(std::size_t i) const {
    const Message& message = conversation_.messages[i];
    if (is_v4()) {
      return !message.reasoning.empty() && (message.prefix || conversation_.shows_tools());
    }
    return conversation_.thinking && (conversation_.shows_tools() || (message.prefix && i > 0));
  }

  /// Whether the message is a prefix that stops amid its reasoning.
  bool goes_on_reasoning(std::size_t i) const {
    const Message& message = conversation_.messages[i];
    return conversation_.thinking && message.prefix && i + 1 == conversation_.messages.size() &&
           message.content.empty() && message.tool_calls.empty();
  }

  /// Content that came from outside; its first spellings of the image mark are its images.
  void content(const Message& message) {
    prompt_.mixed(message.content, {&image_mark_, 1}, message.images.size());
    images_.insert(images_.end(), message.images.begin(), message.images.end());
  }

  /// Text that the model wrote, with places in images.
  void own_text(std::string_view text) { prompt_.mixed(text, templates::kGrounding); }

  const Conversation& conversation_;
  ChatVersion version_;
  std::string_view image_mark_;
  PromptText prompt_;
  std::vector<Json> images_;
  std::unordered_map<std::string, int> call_order_;  ///< of the latest assistant message
};

}  // namespace

ChatVersion chat_version_from(std::string_view name) {
  if (name == "v4.1") return ChatVersion::kV41;
  if (name == "v4") return ChatVersion::kV4;
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("unknown chat version \"{}\"; expected \"v4.1\" or \"v4\"", name)
  );
}

std::string_view default_image_mark(ChatVersion version) {
  return version == ChatVersion::kV4 ? templates::kImageV4 : templates::kImageV41;
}

RenderedPrompt render(
    const Conversation& conversation, ChatVersion version, std::string_view image_mark
) {
  if (image_mark.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "image_token must not be empty");
  }
  return Renderer(conversation, version, image_mark).run();
}

RenderedPrompt render(const Conversation& conversation, ChatVersion version) {
  return render(conversation, version, default_image_mark(version));
}

std::vector<int32_t> encode(const RenderedPrompt& prompt, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  const std::string_view text = prompt.text;
  std::size_t done = 0;
  const auto append_plain = [&](std::size_t end) {
    if (end == done) return;
    const auto plain = tokenizer.encode(text.substr(done, end - done), AddedTokens::kPlain);
    ids.insert(ids.end(), plain.begin(), plain.end());
  };
  for (const ByteRange& range : prompt.special_ranges) {
    append_plain(range.begin);
    const std::string_view mark = text.substr(range.begin, range.end - range.begin);
    const auto id = tokenizer.id_of(mark);
    if (!id) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format(
              "failed to encode conversation: special token \"{}\" is not in the added vocabulary",
              mark
          )
      );
    }
    ids.push_back(*id);
    done = range.end;
  }
  append_plain(text.size());
  return ids;
}

}  // namespace di::text

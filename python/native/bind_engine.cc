// Requests, mailboxes and the engine in Python. Calls that may wait let other Python threads run.
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"
#include "bind.h"
#include "engine/stats.h"
#include "engine_handle.h"
#include "json_values.h"
#include "options.h"
#include "sampling/params_json.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace di::python {
namespace {

using Waits = nb::call_guard<nb::gil_scoped_release>;

std::string_view bytes_of(const nb::bytes& text) {
  return {text.c_str(), text.size()};
}

sampling::SamplingParams sampling_of(nb::handle params) {
  return sampling::params_from_json(to_json(params, "SamplingParams"));
}

void bind_request(nb::module_& module) {
  using engine::Request;
  nb::class_<Request>(module, "Request", "A prompt and what is wanted of it.")
      .def(
          "__init__",
          [](Request* self,
             std::string id,
             nb::handle prompt,
             nb::handle sampling,
             std::string user,
             int priority,
             double timeout,
             bool detokenize) {
            new (self) Request{
                .id = std::move(id),
                .prompt_token_ids = to_token_ids(prompt),
                .sampling = sampling_of(sampling),
                .user = std::move(user),
                .priority = priority,
                .timeout_seconds = timeout,
                .detokenize = detokenize};
          },
          nb::sig("def __init__(self, id: str, prompt_token_ids: collections.abc.Iterable[int], "
                  "sampling: dict[str, object], *, user: str = '', priority: int = 0, "
                  "timeout: float = 0, detokenize: bool = True) -> None"),
          "id"_a,
          "prompt_token_ids"_a,
          "sampling"_a,
          nb::kw_only(),
          "user"_a = "",
          "priority"_a = 0,
          "timeout"_a = 0.0,
          "detokenize"_a = true
      )
      .def_ro("id", &Request::id)
      .def_prop_ro("num_prompt_tokens", [](const Request& self) {
        return self.prompt_token_ids.size();
      });
}

/// A mailbox in Python. Were the mailbox itself the Python object, the engine's thread, which holds
/// it as well, would need the GIL to let go of it.
struct MailboxHolder {
  std::shared_ptr<Mailbox> mailbox;
};

void bind_mailbox(nb::module_& module) {
  nb::class_<MailboxHolder>(module, "Mailbox", "Where the news of requests arrive.")
      .def(
          "__init__",
          [](MailboxHolder* self, bool whole) {
            new (self) MailboxHolder{std::make_shared<Mailbox>(whole)};
          },
          "whole"_a,
          "With `whole`, requests come once, when they are finished."
      )
      .def(
          "fileno",
          [](const MailboxHolder& self) { return self.mailbox->fd(); },
          "A descriptor that is readable while there is something to take."
      )
      .def(
          "take",
          [](const MailboxHolder& self) {
            nb::list outputs;
            for (RequestOutput& output : self.mailbox->take())
              outputs.append(nb::cast(std::make_shared<RequestOutput>(std::move(output))));
            return outputs;
          },
          nb::sig("def take(self) -> list[RequestOutput]"),
          "What there is; does not wait."
      );
}

void bind_handle(nb::module_& module) {
  using Self = EngineHandle;
  nb::class_<Self>(module, "Engine", "An engine with its thread.")
      .def(
          "__init__",
          [](Self* self, const nb::dict& options, const nb::dict& defaults) {
            const ResolvedOptions resolved =
                resolve_options(to_json(defaults, "defaults"), to_json(options, "options"));
            const nb::gil_scoped_release waits;
            new (self) Self(resolved);
          },
          nb::sig("def __init__(self, options: dict[str, object], defaults: dict[str, object]) -> "
                  "None"),
          "options"_a,
          "defaults"_a,
          "Options overrule the environment, which overrules the defaults."
      )
      .def("check", &Self::check, "request"_a, "Raises what adding the request would.")
      .def(
          "submit",
          [](const Self& self, const engine::Request& request, const MailboxHolder& holder) {
            self.submit(request, holder.mailbox);
          },
          "request"_a,
          "mailbox"_a,
          Waits()
      )
      .def("abort", &Self::abort, "request_id"_a, Waits())
      .def("close", &Self::close, Waits())
      .def("abandon", &Self::abandon, "Lets go of the engine in a forked process.")
      .def(
          "stats",
          [](const Self& self) {
            Json json;
            {
              const nb::gil_scoped_release waits;
              json = engine::stats_json(self.stats());
            }
            return from_json(json);
          },
          nb::sig("def stats(self) -> dict[str, typing.Any]")
      )
      .def(
          "stats_line", [](const Self& self) { return engine::stats_line(self.stats()); }, Waits()
      )
      .def("trace", &Self::trace, "path"_a, "num_steps"_a, Waits())
      .def(
          "encode",
          [](const Self& self, const nb::bytes& text) {
            const std::string_view view = bytes_of(text);
            const nb::gil_scoped_release waits;
            return self.encode(view);
          },
          "text"_a,
          "The ids of UTF-8 text."
      )
      .def(
          "decode",
          [](const Self& self, nb::handle ids, bool skip_special) {
            return self.decode(to_token_ids(ids), skip_special);
          },
          nb::sig("def decode(self, ids: collections.abc.Iterable[int], skip_special: bool) -> str"
          ),
          "ids"_a,
          "skip_special"_a
      )
      .def(
          "encode_conversation",
          [](const Self& self, const nb::dict& conversation, const std::string& format) {
            return self.encode_conversation(to_json(conversation, "the conversation"), format);
          },
          nb::sig("def encode_conversation(self, conversation: dict[str, object], format: str) -> "
                  "list[int]"),
          "conversation"_a,
          "format"_a
      )
      .def(
          "parse_answer",
          [](const Self& self, const nb::dict& conversation, const std::string& text) {
            const ParsedAnswer answer =
                self.parse_answer(to_json(conversation, "the conversation"), text);
            return nb::make_tuple(answer.reasoning, answer.content, from_json(answer.tool_calls));
          },
          nb::sig("def parse_answer(self, conversation: dict[str, object], text: str) -> "
                  "tuple[str, str, list[dict[str, str]]]"),
          "conversation"_a,
          "text"_a,
          "Reasoning, content and tool calls."
      )
      .def(
          "describe",
          [](const Self& self) { return from_json(self.describe()); },
          nb::sig("def describe(self) -> dict[str, typing.Any]"),
          "Options in force and facts of the model."
      );
}

}  // namespace

void bind_engine(nb::module_& module) {
  bind_request(module);
  bind_mailbox(module);
  bind_handle(module);
  module.def(
      "check_sampling",
      [](nb::handle params) {
        const sampling::SamplingParams values = sampling_of(params);
        sampling::validate(values, std::numeric_limits<int32_t>::max());
        return from_json(sampling::to_json(values));
      },
      "params"_a,
      nb::sig("def check_sampling(params: dict[str, object]) -> dict[str, typing.Any]"),
      "The fields that differ from their defaults. Raises InvalidArgument for values that no model "
      "takes."
  );
}

}  // namespace di::python

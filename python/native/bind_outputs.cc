// Outputs in Python: lists for reading, and arrays of numpy that look at the same memory.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "base/error.h"
#include "bind.h"
#include "outputs.h"

namespace nb = nanobind;

namespace di::python {
namespace {

// Outputs never change once Python has them, so views stay valid as long as their owners live.
template <class T>
using Column = nb::ndarray<nb::numpy, const T, nb::ndim<1>, nb::c_contig>;
template <class T>
using Table = nb::ndarray<nb::numpy, const T, nb::ndim<2>, nb::c_contig>;

template <class T>
Column<T> column(const std::vector<T>& values, nb::handle owner) {
  return Column<T>(values.data(), {values.size()}, owner);
}

/// `values` of the best tokens as a table with one row a token. Throws when rows differ in length.
template <class T>
Table<T> table(const std::vector<T>& values, const TokenColumns& tokens, nb::handle owner) {
  const auto rows = static_cast<std::size_t>(tokens.size());
  const std::size_t width = rows == 0 ? 0 : values.size() / rows;
  for (std::size_t row = 0; row < rows; ++row) {
    if (tokens.top_ends[row] == static_cast<int64_t>((row + 1) * width)) continue;
    throw Error(
        ErrorCode::kUnsupported,
        "some tokens have fewer best tokens than others and make no table; use top_logprobs"
    );
  }
  return Table<T>(values.data(), {rows, width}, owner);
}

template <class T>
nb::object list_of(const std::vector<T>& values) {
  return nb::cast(values);
}

nb::object top_list(const TokenColumns& tokens) {
  nb::list rows;
  std::size_t i = 0;
  for (const int64_t end : tokens.top_ends) {
    nb::list row;
    for (; i < static_cast<std::size_t>(end); ++i)
      row.append(nb::make_tuple(tokens.top_ids[i], tokens.top_logprobs[i]));
    rows.append(row);
  }
  return rows;
}

/// The choice itself when there is one choice; a shorthand needs no index then.
const CompletionOutput* only_choice(const RequestOutput& output) {
  if (output.outputs.size() > 1) {
    throw Error(
        ErrorCode::kInvalidArgument, "the request has several choices; look at each of outputs"
    );
  }
  return output.outputs.empty() ? nullptr : output.outputs.front().get();
}

std::string python_text(const std::string& text) {
  return nb::cast<std::string>(nb::repr(nb::str(text.data(), text.size())));
}

std::string reason_text(const CompletionOutput& output) {
  return output.finish_reason.empty() ? "None" : python_text(output.finish_reason);
}

std::string repr(const CompletionOutput& output) {
  return fmt::format(
      "CompletionOutput(index={}, text={}, {} tokens, finish_reason={})",
      output.index,
      python_text(output.text),
      output.tokens.size(),
      reason_text(output)
  );
}

std::string repr(const RequestOutput& output) {
  std::string choices;
  for (const auto& choice : output.outputs)
    choices += (choices.empty() ? "" : ", ") + repr(*choice);
  return fmt::format(
      "RequestOutput(request_id={}, finished={}, outputs=[{}])",
      python_text(output.request_id),
      output.finished ? "True" : "False",
      choices
  );
}

std::optional<std::string> unless_empty(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(text);
}

RequestOutput gather(const std::vector<std::shared_ptr<RequestOutput>>& outputs) {
  if (outputs.empty()) throw Error(ErrorCode::kInvalidArgument, "there is nothing to gather");
  RequestOutput all = outputs.front()->without_news();
  for (const auto& output : outputs) {
    if (output->request_id != all.request_id) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format(
              "outputs of the requests {} and {} do not belong together",
              all.request_id,
              output->request_id
          )
      );
    }
    all.append(*output);
  }
  return all;
}

/// A column as a property; None unless the request asked for it. `Owner` is the Python object.
template <class Owner, class Asked, class Make>
void bind_column(
    nb::class_<Owner>& type,
    const char* name,
    const char* signature,
    const char* doc,
    const Asked& asked,
    const Make& make
) {
  type.def_prop_ro(
      name,
      [asked, make](nb::handle self) -> nb::object {
        const Owner& owner = nb::cast<const Owner&>(self);
        if (!asked(owner)) return nb::none();
        return make(owner, self);
      },
      nb::sig(signature),
      doc
  );
}

void bind_completion(nb::module_& module) {
  using Output = CompletionOutput;
  nb::class_<Output> type(
      module,
      "CompletionOutput",
      "One choice of a request: everything, or what is new since the output before."
  );
  type.def_ro("index", &Output::index, "Which of the n choices.")
      .def_ro("text", &Output::text, "Decoded text, without end tokens and stop strings.")
      .def_prop_ro(
          "finish_reason",
          [](const Output& self) { return unless_empty(self.finish_reason); },
          "Why it ended: eos, stop_token, stop_string, length, context, abort, timeout, failed or "
          "refused. None while it goes on."
      )
      .def_ro("message", &Output::message, "What failed, or the stop string that was met.")
      .def_prop_ro(
          "token_ids",
          [](const Output& self) { return self.tokens.ids; },
          "The tokens, the one that ended the choice among them."
      )
      .def("__repr__", [](const Output& self) { return repr(self); });

  const auto always = [](const Output&) { return true; };
  const auto logprobs = [](const Output& self) { return self.asked_for.logprobs; };
  const auto tops = [](const Output& self) { return self.asked_for.top_logprobs; };
  bind_column(
      type,
      "token_ids_array",
      "def token_ids_array(self) -> numpy.typing.NDArray[numpy.int32]",
      "token_ids as a view, [tokens].",
      always,
      [](const Output& self, nb::handle owner) { return nb::cast(column(self.tokens.ids, owner)); }
  );
  bind_column(
      type,
      "logprobs",
      "def logprobs(self) -> list[float] | None",
      "The logarithm of each token's probability; None unless asked for.",
      logprobs,
      [](const Output& self, nb::handle) { return list_of(self.tokens.logprobs); }
  );
  bind_column(
      type,
      "logprobs_array",
      "def logprobs_array(self) -> numpy.typing.NDArray[numpy.float32] | None",
      "logprobs as a view, [tokens].",
      logprobs,
      [](const Output& self, nb::handle owner) {
        return nb::cast(column(self.tokens.logprobs, owner));
      }
  );
  bind_column(
      type,
      "top_logprobs",
      "def top_logprobs(self) -> list[list[tuple[int, float]]] | None",
      "For each token the best ones and their logprobs, best first; None unless asked for.",
      tops,
      [](const Output& self, nb::handle) { return top_list(self.tokens); }
  );
  bind_column(
      type,
      "top_token_ids_array",
      "def top_token_ids_array(self) -> numpy.typing.NDArray[numpy.int32] | None",
      "The ids of top_logprobs as a view, [tokens, top_logprobs].",
      tops,
      [](const Output& self, nb::handle owner) {
        return nb::cast(table(self.tokens.top_ids, self.tokens, owner));
      }
  );
  bind_column(
      type,
      "top_logprobs_array",
      "def top_logprobs_array(self) -> numpy.typing.NDArray[numpy.float32] | None",
      "The logprobs of top_logprobs as a view, [tokens, top_logprobs].",
      tops,
      [](const Output& self, nb::handle owner) {
        return nb::cast(table(self.tokens.top_logprobs, self.tokens, owner));
      }
  );
}

void bind_request_output(nb::module_& module) {
  using Output = RequestOutput;
  nb::class_<Output> type(
      module,
      "RequestOutput",
      "One request: everything, or from a stream what is new since the output before."
  );
  type.def_ro("request_id", &Output::request_id, "The id that the request was given.")
      .def_ro("num_prompt_tokens", &Output::num_prompt_tokens, "Tokens of the prompt.")
      .def_ro("finished", &Output::finished, "Whether this is the last output.")
      .def_prop_ro(
          "outputs",
          [](const Output& self) { return self.outputs; },
          nb::sig("def outputs(self) -> list[CompletionOutput]"),
          "The choices, by index; in a stream those with news."
      )
      .def_prop_ro(
          "text",
          [](const Output& self) {
            const CompletionOutput* only = only_choice(self);
            return only == nullptr ? std::string() : only->text;
          },
          "Text of the only choice."
      )
      .def_prop_ro(
          "token_ids",
          [](const Output& self) {
            const CompletionOutput* only = only_choice(self);
            return only == nullptr ? std::vector<int32_t>() : only->tokens.ids;
          },
          "Tokens of the only choice."
      )
      .def_prop_ro(
          "finish_reason",
          [](const Output& self) {
            const CompletionOutput* only = only_choice(self);
            return only == nullptr ? std::nullopt : unless_empty(only->finish_reason);
          },
          "Why the only choice ended."
      )
      .def("__repr__", [](const Output& self) { return repr(self); });

  const auto asked = [](const Output& self) { return self.asked_for.prompt_logprobs; };
  const auto tops = [](const Output& self) {
    return self.asked_for.prompt_logprobs && self.asked_for.top_logprobs;
  };
  bind_column(
      type,
      "prompt_logprobs",
      "def prompt_logprobs(self) -> list[float] | None",
      "Logprobs of the prompt's tokens from the second on; None unless asked for.",
      asked,
      [](const Output& self, nb::handle) { return list_of(self.prompt.logprobs); }
  );
  bind_column(
      type,
      "prompt_logprobs_array",
      "def prompt_logprobs_array(self) -> numpy.typing.NDArray[numpy.float32] | None",
      "prompt_logprobs as a view.",
      asked,
      [](const Output& self, nb::handle owner) {
        return nb::cast(column(self.prompt.logprobs, owner));
      }
  );
  bind_column(
      type,
      "prompt_top_logprobs",
      "def prompt_top_logprobs(self) -> list[list[tuple[int, float]]] | None",
      "The best tokens beside each of prompt_logprobs; None unless asked for.",
      tops,
      [](const Output& self, nb::handle) { return top_list(self.prompt); }
  );
}

}  // namespace

void bind_outputs(nb::module_& module) {
  bind_completion(module);
  bind_request_output(module);
  module.def(
      "gather", gather, nb::arg("outputs"), "The outputs of one request's stream as one output."
  );
}

}  // namespace di::python

// Prompts of several kinds, for what drafts gain depends on the text: short, since the default
// model is small.
#pragma once

#include <vector>

namespace di::bench {

/// Prompts of one kind.
struct DraftPrompts {
  const char* kind = nullptr;
  std::vector<const char*> prompts = {};
};

/// chat, list, code and json.
inline const std::vector<DraftPrompts>& draft_prompts() {
  static const std::vector<DraftPrompts> kPrompts = {
      {"chat",
       {"Hello! Who are you?",
        "What is gravity?",
        "Explain photosynthesis to a child.",
        "Tell me a short story about a brave fox."}},
      {"list",
       {"Name five fruits.",
        "Give me three tips to sleep better.",
        "Count from 3 to 20.",
        "List the days of the week."}},
      {"code",
       {"Write a Python function that adds two numbers.",
        "Write a loop in Python that prints the numbers from 1 to 5.",
        "Write a function in C that returns the larger of two integers.",
        "Write an HTML page with a title and a paragraph."}},
      {"json",
       {"Write a JSON object for a person named Tom who is 30 years old and lives in Paris.",
        "Write a JSON array of three colors.",
        "Write a JSON object for a book with a title, an author and a year.",
        "Write a JSON object for a red car with four doors."}}};
  return kPrompts;
}

}  // namespace di::bench

// Walking a text folder; see text_cases.h.
#include "verify/text_cases.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "text/tokenizer.h"
#include "verify/encoding_cases.h"
#include "verify/stream_cases.h"
#include "verify/text_case.h"
#include "verify/tokenizer_cases.h"

namespace di::verify {
namespace {

namespace fs = std::filesystem;
using text::Tokenizer;
using CaseRunner = std::function<CaseOutcome(const Json&)>;

constexpr std::size_t kShownMismatches = 5;
constexpr std::size_t kShownBytes = 300;

/// The tokenizer of V4 is that of V4.1 with other spellings for a few ids.
Tokenizer v4_tokenizer(const std::string& path, const std::string& special_tokens_path) {
  auto file = text::parse_tokenizer_file(read_text_file(path), path);
  if (fs::exists(special_tokens_path)) {
    const Json special = Json::parse(read_text_file(special_tokens_path), special_tokens_path);
    const Json* renames = special.find("v4_to_v4.1_renames");
    for (const Json& rename : renames ? renames->as_array() : Json::Array{}) {
      for (text::AddedToken& token : file.added_tokens) {
        if (Json(int64_t{token.id}) == rename.at("id")) token.content = rename.at("v4").as_string();
      }
    }
  }
  return Tokenizer(std::move(file), path);
}

std::string shortened(const std::string& text) {
  return text.size() <= kShownBytes ? text : text.substr(0, kShownBytes) + "...";
}

/// The two lines with what they have in common at the start left out, when that is long.
TextMismatch mismatch_of(std::string id, const CaseOutcome& outcome) {
  const auto [expected, found] = std::mismatch(
      outcome.expected.begin(), outcome.expected.end(), outcome.found.begin(), outcome.found.end()
  );
  const auto common = static_cast<std::size_t>(expected - outcome.expected.begin());
  const std::size_t skip = common > 80 ? common - 60 : 0;
  const auto shown = [&](const std::string& text) {
    return shortened((skip > 0 ? "..." : "") + text.substr(std::min(skip, text.size())));
  };
  return {std::move(id), shown(outcome.expected), shown(outcome.found)};
}

void run_line(const std::string& line, const CaseRunner& run, TextFileReport& report) {
  std::string id = "?";
  CaseOutcome outcome;
  try {
    const Json test = Json::parse(line, "case");
    id = test.at("id").as_string();
    outcome = run(test);
  } catch (const Error& error) {
    outcome = CaseOutcome::failed("a result", std::string("error ") + error.what());
  }
  switch (outcome.kind) {
    case CaseOutcome::Kind::kPassed: ++report.passed; break;
    case CaseOutcome::Kind::kSkipped: ++report.skipped[outcome.expected]; break;
    case CaseOutcome::Kind::kFailed:
      ++report.failed;
      if (report.mismatches.size() < kShownMismatches) {
        report.mismatches.push_back(mismatch_of(std::move(id), outcome));
      }
      break;
  }
}

TextFileReport run_file(const fs::path& folder, const fs::path& file, const CaseRunner& run) {
  TextFileReport report;
  report.file = fs::relative(file, folder).string();
  const std::string text = read_text_file(file.string());
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) run_line(text.substr(begin, end - begin), run, report);
    begin = end + 1;
  }
  return report;
}

std::vector<fs::path> case_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() && entry.path().extension() == ".jsonl") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

int64_t sum(const TextReport& report, const std::function<int64_t(const TextFileReport&)>& part) {
  int64_t total = 0;
  for (const TextFileReport& file : report.files)
    total += part(file);
  return total;
}

}  // namespace

int64_t TextFileReport::skipped_cases() const {
  int64_t total = 0;
  for (const auto& [reason, count] : skipped)
    total += count;
  return total;
}

int64_t TextReport::passed() const {
  return sum(*this, [](const auto& file) { return file.passed; });
}

int64_t TextReport::failed() const {
  return sum(*this, [](const auto& file) { return file.failed; });
}

int64_t TextReport::skipped() const {
  return sum(*this, [](const auto& file) { return file.skipped_cases(); });
}

bool is_text_folder(const std::string& folder) {
  return fs::exists(fs::path(folder) / "tokenizer" / "tokenizer.json");
}

TextReport verify_text_folder(const std::string& folder) {
  const fs::path root(folder);
  const std::string tokenizer_path = (root / "tokenizer" / "tokenizer.json").string();
  const Tokenizer v41 = Tokenizer::load(tokenizer_path);
  const Tokenizer v4 =
      v4_tokenizer(tokenizer_path, (root / "tokenizer" / "special_tokens.json").string());

  const auto runner_for = [&](const std::string& kind) -> CaseRunner {
    if (kind == "tokenizer") return [&](const Json& test) { return run_tokenizer_case(test, v41); };
    if (kind == "encoding") {
      return [&](const Json& test) { return run_encoding_case(test, {v41, v4}); };
    }
    if (kind == "streams") return [&](const Json& test) { return run_stream_case(test, v41); };
    return [kind](const Json&) { return CaseOutcome::skipped(kind + " are not covered"); };
  };
  TextReport report;
  for (const fs::path& file : case_files(root)) {
    const std::string kind = fs::relative(file, root).begin()->string();
    report.files.push_back(run_file(root, file, runner_for(kind)));
  }
  return report;
}

}  // namespace di::verify

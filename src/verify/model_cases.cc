#include "verify/model_cases.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "base/error.h"
#include "verify/compare.h"
#include "verify/model_run.h"

namespace di::verify {
namespace {

namespace fs = std::filesystem;

/// Whether this is a tensor of a draft, such as "draft3.logits".
bool is_of_draft(const std::string& name) {
  return name.starts_with("draft");
}

/// "prefill.L3.h_out" → "prefill.h_out", "cache.D0.win_codes" → "cache.win_codes",
/// "draft3.logits" → "draft.logits".
std::string kind_of(const std::string& name) {
  if (is_of_draft(name)) return "draft" + name.substr(name.find('.'));
  const auto layer = std::min(name.find(".L"), name.find(".D"));
  if (layer == std::string::npos) return name;
  const auto rest = name.find('.', layer + 1);
  return name.substr(0, layer) + name.substr(rest);
}

bool starts_with_any(const std::string& name, std::initializer_list<const char*> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](const char* prefix) {
    return name.starts_with(prefix);
  });
}

/// Ours in the fixture's layout: selections as wide as the fixture stores them, candidates as a
/// mask.
Recorded shaped_like(
    const Recorded& ours,
    const std::string& name,
    const std::vector<int64_t>& shape,
    int64_t candidate_block_size
) {
  const bool is_selection = name.ends_with("index_topk");
  const bool is_candidates = name.ends_with("candidates");
  if (!is_selection && !is_candidates) return ours;
  Recorded result;
  result.is_integer = true;
  result.shape = shape;
  const int64_t width = ours.shape[1];
  for (int64_t row = 0; row < shape[0]; ++row) {
    const int64_t* ids = ours.integers.data() + row * width;
    std::vector<int64_t> line(static_cast<std::size_t>(shape[1]), is_selection ? -1 : 0);
    for (int64_t i = 0; i < width && ids[i] >= 0; ++i) {
      if (is_selection) {
        if (i < shape[1]) line[static_cast<std::size_t>(i)] = ids[i];
        continue;
      }
      const int64_t end = std::min(shape[1], (ids[i] + 1) * candidate_block_size);
      for (int64_t j = ids[i] * candidate_block_size; j < end; ++j)
        line[static_cast<std::size_t>(j)] = 1;
    }
    result.integers.insert(result.integers.end(), line.begin(), line.end());
  }
  return result;
}

class CaseRunner {
 public:
  CaseRunner(const LoadedModel& model, const ops::OpTable& ops, ThreadPool& pool, bool exact)
      : model_(model), ops_(ops), pool_(pool), exact_(exact) {}

  CaseReport run(const std::string& path, const std::string& name) {
    CaseReport report;
    report.name = name;
    const Fixture fixture(path);
    if (has_replay(fixture)) {
      run_replay(fixture, report);
    } else {
      run_plain(fixture, report);
    }
    return report;
  }

 private:
  static bool has_replay(const Fixture& fixture) {
    const std::vector<std::string> names = fixture.names();
    return std::any_of(names.begin(), names.end(), [](const std::string& name) {
      return name.starts_with("keep");
    });
  }

  Strictness free_strictness(const Fixture& fixture) const {
    if (exact_) return Strictness::kExact;
    const int64_t window = model_.model.config.attention.sliding_window;
    return fixture.shape("input_ids")[0] <= 2 * window ? Strictness::kFreeShort
                                                       : Strictness::kFreeLong;
  }

  void run_plain(const Fixture& fixture, CaseReport& report) {
    if (fixture.has("prefill.L0.h_out")) {
      const Record isolated = run_case(model_, {.fixture = &fixture, .force = true}, ops_, pool_);
      compare(
          fixture,
          isolated,
          "isolated ",
          {"prefill."},
          exact_ ? Strictness::kExact : Strictness::kIsolated,
          report
      );
    }
    const Record free = run_case(model_, {.fixture = &fixture, .drafts = true}, ops_, pool_);
    compare(
        fixture,
        free,
        "",
        {"prefill.", "decode.", "cache.", "cache_end.", "draft"},
        free_strictness(fixture),
        report
    );
    for (int n = 0; fixture.has(fmt::format("chunks{}", n)); ++n) {
      const std::vector<int64_t> chunks = fixture.integers(fmt::format("chunks{}", n));
      const Record chunked =
          run_case(model_, {.fixture = &fixture, .chunks = chunks, .drafts = true}, ops_, pool_);
      compare_runs(free, chunked, fmt::format("chunks{}", n), report);
    }
    note_uncovered(fixture, report);
  }

  /// Both on-modes of bounded replay, which must agree with the golden rows and with each other.
  void run_replay(const Fixture& fixture, CaseReport& report) {
    for (const std::string& name : fixture.names()) {
      if (!name.starts_with("keep") || !name.ends_with(".decode.tokens")) continue;
      const std::string keep_name = name.substr(0, name.find('.'));
      const int64_t keep = std::stoll(keep_name.substr(4));
      for (const auto mode : {model::Replay::Mode::kMask, model::Replay::Mode::kCompact}) {
        run_replay_mode(fixture, keep_name, {mode, keep}, report);
      }
    }
  }

  void run_replay_mode(
      const Fixture& fixture,
      const std::string& keep_name,
      const model::Replay& replay,
      CaseReport& report
  ) {
    const bool compact = replay.mode == model::Replay::Mode::kCompact;
    const int64_t length = fixture.shape("input_ids")[0];
    RunRequest request{
        .fixture = &fixture, .decode_tokens = keep_name + ".decode.tokens", .replay = replay};
    if (compact) request.chunks = {length - replay.keep, replay.keep};
    request.prompt_logits = compact ? model::LogitRows::kLast : model::LogitRows::kAll;
    const Record record = run_case(model_, request, ops_, pool_);
    const std::string prefix = fmt::format("{} {} ", keep_name, compact ? "compact" : "mask");
    for (const std::string& name : fixture.names()) {
      if (!name.starts_with(keep_name + ".") || name.ends_with("tokens")) continue;
      const std::string ours_name = replay_name(name.substr(keep_name.size() + 1));
      const auto ours = record.find(ours_name);
      if (ours == record.end()) continue;
      Recorded tail = ours->second;
      keep_last_rows(tail, fixture.shape(name)[0]);
      if (compact && ours_name == "prefill.logits") {
        report.add(compare_last_row(fixture, name, tail, prefix));
        continue;
      }
      report.add(compare_one(fixture, name, tail, prefix, free_strictness(fixture)));
    }
  }

  static std::string replay_name(const std::string& name) {
    if (name == "logits") return "prefill.logits";
    if (name.starts_with("L")) return "prefill." + name;
    return name;
  }

  static void keep_last_rows(Recorded& tensor, int64_t rows) {
    if (tensor.shape.empty() || tensor.shape[0] <= rows) return;
    const auto row = static_cast<std::size_t>(
        std::max(std::ssize(tensor.floats), std::ssize(tensor.integers)) / tensor.shape[0]
    );
    const auto dropped =
        static_cast<std::ptrdiff_t>(static_cast<std::size_t>(tensor.shape[0] - rows) * row);
    if (tensor.is_integer) {
      tensor.integers.erase(tensor.integers.begin(), tensor.integers.begin() + dropped);
    } else {
      tensor.floats.erase(tensor.floats.begin(), tensor.floats.begin() + dropped);
    }
    tensor.shape[0] = rows;
  }

  TensorCheck compare_last_row(
      const Fixture& fixture, const std::string& name, Recorded& ours, const std::string& prefix
  ) const {
    keep_last_rows(ours, 1);
    const std::vector<float> golden = fixture.floats(name);
    const auto width = static_cast<std::size_t>(fixture.shape(name)[1]);
    return compare_floats(
        prefix + name + " (last row)",
        kind_of(replay_name(name.substr(name.find('.') + 1))),
        ours.floats,
        std::span(golden).last(width),
        static_cast<int64_t>(width),
        free_strictness(fixture)
    );
  }

  void compare(
      const Fixture& fixture,
      const Record& record,
      const std::string& label,
      std::initializer_list<const char*> prefixes,
      Strictness strictness,
      CaseReport& report
  ) {
    for (const std::string& name : fixture.names()) {
      const auto ours = record.find(name);
      if (ours == record.end() || !starts_with_any(name, prefixes)) continue;
      if (is_of_draft(name) && strictness != Strictness::kExact) {
        const int64_t rows = comparable_drafts(fixture, record, name);
        report.add(compare_one(fixture, name, ours->second, label, strictness, rows));
      } else {
        report.add(compare_one(fixture, name, ours->second, label, strictness));
      }
    }
  }

  /// How many rows of a draft's tensor follow from the same proposals: another proposal changes all
  /// behind it, so that the first one that differs ends the comparison.
  static int64_t comparable_drafts(
      const Fixture& fixture, const Record& record, const std::string& name
  ) {
    const std::string tokens = name.substr(0, name.find('.')) + ".tokens";
    const std::vector<int64_t> golden = fixture.integers(tokens);
    const std::vector<int64_t>& ours = record.at(tokens).integers;
    const auto first = std::mismatch(golden.begin(), golden.end(), ours.begin(), ours.end()).first;
    const bool is_chosen =
        name.ends_with(".logits") || name.ends_with(".confidence") || name.ends_with(".tokens");
    return is_chosen ? std::min<int64_t>(first - golden.begin(), fixture.shape(name)[0])
                     : fixture.shape(name)[0];
  }

  TensorCheck compare_one(
      const Fixture& fixture,
      const std::string& name,
      const Recorded& ours,
      const std::string& label,
      Strictness strictness,
      std::optional<int64_t> first_rows = {}
  ) const {
    std::vector<int64_t> shape = fixture.shape(name);
    if (first_rows) shape[0] = *first_rows;
    const std::string kind =
        kind_of(name.starts_with("keep") ? replay_name(name.substr(name.find('.') + 1)) : name);
    if (fixture.is_float(name)) {
      int64_t width = 1;
      for (std::size_t d = 1; d < shape.size(); ++d)
        width *= shape[d];
      const auto count = static_cast<std::size_t>(width * shape[0]);
      const std::vector<float> golden = fixture.floats(name);
      return compare_floats(
          label + name,
          kind,
          first_rows ? std::span(ours.floats).first(count) : ours.floats,
          std::span(golden).first(count),
          width,
          strictness
      );
    }
    const Recorded shaped =
        shaped_like(ours, name, shape, model_.model.config.indexer.candidate_block_size);
    const std::vector<int64_t> golden = golden_ids(fixture, name);
    const auto count = first_rows ? static_cast<std::size_t>(*first_rows) : golden.size();
    return compare_integers(
        label + name,
        kind,
        first_rows ? std::span(shaped.integers).first(count) : shaped.integers,
        std::span(golden).first(count),
        strictness
    );
  }

  /// Decode selections are padded with −2 in fixtures, which reads as unused.
  static std::vector<int64_t> golden_ids(const Fixture& fixture, const std::string& name) {
    std::vector<int64_t> ids = fixture.integers(name);
    if (name.ends_with("index_topk"))
      std::replace(ids.begin(), ids.end(), int64_t{-2}, int64_t{-1});
    return ids;
  }

  /// Chunked = whole, bit for bit: logits, hidden states and caches.
  static void compare_runs(
      const Record& whole, const Record& chunked, const std::string& label, CaseReport& report
  ) {
    TensorCheck check;
    check.name = label + " = one shot";
    for (const auto& [name, tensor] : whole) {
      const auto other = chunked.find(name);
      if (other == chunked.end() || other->second != tensor) check.problem = name + " differs";
    }
    report.add(std::move(check));
  }

  static void note_uncovered(const Fixture& fixture, CaseReport& report) {
    const std::vector<std::string> names = fixture.names();
    const bool vision = std::any_of(names.begin(), names.end(), [](const std::string& name) {
      return name.ends_with(".vit");
    });
    if (vision) report.note = "image rows start at the projector's golden output";
  }

  const LoadedModel& model_;
  const ops::OpTable& ops_;
  ThreadPool& pool_;
  bool exact_;
};

}  // namespace

std::vector<CaseReport> verify_model_cases(
    const ModelFolder& folder, const ops::OpTable& ops, ThreadPool& pool
) {
  std::vector<CaseReport> reports;
  std::vector<fs::path> files;
  const fs::path cases = fs::path(folder.folder) / "cases";
  if (!fs::is_directory(cases)) return reports;
  for (const auto& entry : fs::directory_iterator(cases)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  const LoadedModel model = load_for_verify(folder.checkpoint, ops, pool);
  CaseRunner runner(model, ops, pool, folder.exact);
  for (const fs::path& file : files) {
    const std::string name = "cases/" + file.filename().string();
    try {
      reports.push_back(runner.run(file.string(), name));
    } catch (const Error& error) {
      CaseReport broken;
      broken.name = name;
      broken.fail(error.what());
      reports.push_back(std::move(broken));
    }
  }
  return reports;
}

}  // namespace di::verify

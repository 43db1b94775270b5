// Session: feeding in any pieces, and feeds that are refused.
#include "model/session.h"

#include <filesystem>
#include <functional>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/test_files.h"
#include "model/testing.h"

namespace di::model {
namespace {

namespace fs = std::filesystem;

using testing::random_timeline;
using testing::TestModel;
using testing::Timeline;

const std::string kTiny = DI_TESTDATA "/model/tiny";

/// A session with a cache of `num_blocks` blocks.
struct Room {
  Room(const TestModel& model, int64_t num_blocks, const ForwardOptions& options = {})
      : cache(cache::make_layout(model.config()), num_blocks, /*num_slots=*/1),
        session(model.model(), cache, model.ops(), exec, options) {}

  ThreadPool pool{1};
  Arena scratch;
  ops::Exec exec{pool, scratch};
  cache::KvCache cache;
  Session session;
};

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() {
    std::mt19937 random(1);
    tokens_ = random_timeline(random, tiny_.config(), 140).tokens;
  }

  /// All logits, fed in pieces of `size`.
  std::vector<float> logits_in_pieces(const TestModel& model, int64_t size) const {
    Room room(model, 2);
    std::vector<float> all;
    std::span<const int32_t> left(tokens_);
    while (!left.empty()) {
      const auto count = std::min(left.size(), static_cast<std::size_t>(size));
      const std::vector<float> some = room.session.feed(left.first(count), LogitRows::kAll);
      all.insert(all.end(), some.begin(), some.end());
      left = left.subspan(count);
    }
    EXPECT_EQ(room.session.tokens(), tokens_);
    return all;
  }

  /// `feed` throws `code` and the session goes on as if it had not been called.
  static void expect_refused(
      Session& session, ErrorCode code, const std::function<void(Session&)>& feed
  ) {
    const std::vector<int32_t> before = session.tokens();
    try {
      feed(session);
      ADD_FAILURE() << "was not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
    }
    EXPECT_EQ(session.tokens(), before);
  }

  const TestModel tiny_{kTiny, ops::ref_ops()};
  std::vector<int32_t> tokens_;
};

TEST_F(SessionTest, PiecesOfAnySizeGiveTheLogitsOfOnePiece) {
  const std::vector<float> whole = logits_in_pieces(tiny_, 140);
  for (const int64_t size : {1, 7, 33, 128})
    EXPECT_EQ(logits_in_pieces(tiny_, size), whole) << size;
}

TEST_F(SessionTest, RefusedFeedsLeaveItAsItWas) {
  const std::span<const int32_t> tokens(tokens_);
  Room fresh(tiny_, 2), room(tiny_, 2);
  const std::vector<float> first = fresh.session.feed(tokens.first(100));
  const std::vector<float> second = fresh.session.feed(tokens.subspan(100));
  Session& session = room.session;
  EXPECT_EQ(session.feed(tokens.first(100)), first);

  const std::vector<int32_t> negative = {3, -1};
  const std::vector<int32_t> unknown = {3, static_cast<int32_t>(tiny_.config().vocab_size)};
  expect_refused(session, ErrorCode::kInvalidArgument, [&](Session& s) { s.feed(negative); });
  expect_refused(session, ErrorCode::kInvalidArgument, [&](Session& s) { s.feed(unknown); });
  const std::vector<int32_t> beyond(
      static_cast<std::size_t>(tiny_.config().max_position_embeddings), 3
  );
  expect_refused(session, ErrorCode::kInvalidArgument, [&](Session& s) { s.feed(beyond); });
  const std::vector<int32_t> too_many(157, 3);  // one more than two blocks hold
  expect_refused(session, ErrorCode::kOutOfMemory, [&](Session& s) { s.feed(too_many); });

  EXPECT_EQ(session.feed(tokens.subspan(100)), second);
}

TEST_F(SessionTest, LogitsOfRowsThatReplaySkipsAreRefused) {
  const std::span<const int32_t> tokens(tokens_);
  const ForwardOptions options{.replay = {Replay::Mode::kCompact, /*keep=*/4}};
  Room fresh(tiny_, 2, options), room(tiny_, 2, options);
  for (Session* session : {&fresh.session, &room.session})
    session->set_prompt_length(20);
  expect_refused(room.session, ErrorCode::kInvalidArgument, [&](Session& s) {
    s.feed(tokens.first(20), LogitRows::kAll);
  });
  expect_refused(room.session, ErrorCode::kInvalidArgument, [&](Session& s) {
    s.feed(tokens.first(10), LogitRows::kLast);
  });
  EXPECT_EQ(room.session.feed(tokens.first(20)), fresh.session.feed(tokens.first(20)));
}

/// Makes `folder` the tiny model with compressed entries in FP8; everything but the configuration
/// is a link.
void link_fp8_variant(const checkpoint::TempFolder& folder) {
  for (const auto& entry : fs::directory_iterator(kTiny)) {
    if (entry.path().filename() != "config.json")
      fs::create_symlink(entry.path(), folder.file(entry.path().filename().string()));
  }
  const std::string source = kTiny + "/config.json";
  Json config = Json::parse(read_text_file(source), source);
  for (auto& [key, value] : config.as_object()) {
    if (key == "text_config") value.set("use_fp4_sparse_kv", false);
  }
  folder.write("config.json", config.dump());
}

TEST_F(SessionTest, CompressedEntriesMayBeKeptInFp8) {
  const checkpoint::TempFolder folder;
  link_fp8_variant(folder);
  const TestModel fp8(folder.path(), ops::ref_ops());
  EXPECT_EQ(cache::make_layout(fp8.config()).owners[0].kv_record_bytes, 528);
  const std::vector<float> whole = logits_in_pieces(fp8, 140);
  EXPECT_EQ(logits_in_pieces(fp8, 9), whole);
  EXPECT_NE(whole, logits_in_pieces(tiny_, 140));
  for (const testing::Backend& backend : testing::backends()) {
    const TestModel other(folder.path(), *backend.ops);
    EXPECT_EQ(logits_in_pieces(other, 50), whole) << backend.name;
  }
}

}  // namespace
}  // namespace di::model

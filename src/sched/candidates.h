// The sequences of one priority that prompt rows may go to, in the two orders of the two lanes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
#include <unordered_map>
#include <utility>

#include "sched/sequence.h"

namespace di::sched {

/// Rows that users were given, so that the one with the least is next.
///
/// A user begins where the user served last stood, so that idling earns no credit, and is forgotten
/// with his last sequence.
class UserShares {
 public:
  /// One more sequence of `user` is there.
  void enter(int64_t user);
  /// One sequence of `user` is gone.
  void leave(int64_t user);
  /// Rows given to a user who is there.
  int64_t service(int64_t user) const { return users_.at(user).service; }
  void add_service(int64_t user, int64_t rows);
  /// `user` is the one served now: those who come later begin no lower.
  void serve(int64_t user) { floor_ = std::max(floor_, service(user)); }

  bool empty() const { return users_.empty(); }

 private:
  struct User {
    int64_t num_sequences = 0;
    int64_t service = 0;
  };
  std::unordered_map<int64_t, User> users_;
  int64_t floor_ = 0;
};

/// Those who gave way before their end first, since somebody waits for their next token; then by
/// seniority.
struct ByDue {
  bool operator()(const Sequence* a, const Sequence* b) const {
    if (a->has_given_way() != b->has_given_way()) return a->has_given_way();
    return BySeniority()(a, b);
  }
};

/// The fewest rows left first.
struct ByRows {
  bool operator()(const Sequence* a, const Sequence* b) const {
    if (a->num_rows_left() != b->num_rows_left()) return a->num_rows_left() < b->num_rows_left();
    return BySeniority()(a, b);
  }
};

/// An ordered set of sequences. Their due time and rows left stay as they are while they are in it,
/// and a user's service changes through `reorder`. Every operation costs O(log size).
class Candidates {
 public:
  void insert(Sequence& sequence, const UserShares& users);
  void erase(Sequence& sequence, const UserShares& users);
  /// The service of `user` was `before` and is `after`.
  void reorder(int64_t user, int64_t before, int64_t after);

  /// The sequence that is due first, or nullptr.
  Sequence* first_due() const;
  /// Of the user with the least service, the sequence with the fewest rows left; or nullptr.
  Sequence* first_short() const;

 private:
  std::set<Sequence*, ByDue> by_due_;
  std::unordered_map<int64_t, std::set<Sequence*, ByRows>> by_user_;
  std::set<std::pair<int64_t, int64_t>> users_;  // (service, user)
};

/// How the next sequence is chosen; see Scheduler.
enum class Lane { kDue, kShort };

inline Lane other(Lane lane) {
  return lane == Lane::kDue ? Lane::kShort : Lane::kDue;
}

/// All of one priority.
struct Level {
  UserShares users;
  Candidates waiting;      ///< may be admitted
  Candidates prefilling;   ///< hold a slot; not those that the step being planned serves
  Lane turn = Lane::kDue;  ///< the lane that did not admit last: it goes first

  /// `user` was given rows.
  void charge(int64_t user, int64_t rows);
  /// True when the short lane serves `a` before `b`.
  bool is_shorter(const Sequence& a, const Sequence& b) const;
};

}  // namespace di::sched

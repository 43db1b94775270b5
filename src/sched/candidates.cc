// The two lanes' orders; see candidates.h.
#include "sched/candidates.h"

#include "base/check.h"

namespace di::sched {

void UserShares::enter(int64_t user) {
  const auto [entry, is_new] = users_.try_emplace(user);
  if (is_new) entry->second.service = floor_;
  ++entry->second.num_sequences;
}

void UserShares::leave(int64_t user) {
  const auto entry = users_.find(user);
  DI_CHECK(entry != users_.end(), "a user stays while one of his sequences is there");
  if (--entry->second.num_sequences == 0) users_.erase(entry);
}

void UserShares::add_service(int64_t user, int64_t rows) {
  users_.at(user).service += rows;
}

void Candidates::insert(Sequence& sequence, const UserShares& users) {
  const int64_t user = sequence.spec.user;
  by_due_.insert(&sequence);
  auto& own = by_user_[user];
  if (own.empty()) users_.emplace(users.service(user), user);
  own.insert(&sequence);
}

void Candidates::erase(Sequence& sequence, const UserShares& users) {
  const int64_t user = sequence.spec.user;
  const auto own = by_user_.find(user);
  DI_CHECK(own != by_user_.end(), "only a candidate can be taken out");
  by_due_.erase(&sequence);
  own->second.erase(&sequence);
  if (!own->second.empty()) return;
  by_user_.erase(own);
  users_.erase({users.service(user), user});
}

void Candidates::reorder(int64_t user, int64_t before, int64_t after) {
  if (users_.erase({before, user}) > 0) users_.emplace(after, user);
}

Sequence* Candidates::first_due() const {
  return by_due_.empty() ? nullptr : *by_due_.begin();
}

Sequence* Candidates::first_short() const {
  if (users_.empty()) return nullptr;
  return *by_user_.at(users_.begin()->second).begin();
}

void Level::charge(int64_t user, int64_t rows) {
  const int64_t before = users.service(user);
  users.add_service(user, rows);
  waiting.reorder(user, before, before + rows);
  prefilling.reorder(user, before, before + rows);
}

bool Level::is_shorter(const Sequence& a, const Sequence& b) const {
  const int64_t service_a = users.service(a.spec.user);
  const int64_t service_b = users.service(b.spec.user);
  if (service_a != service_b) return service_a < service_b;
  if (a.spec.user != b.spec.user) return a.spec.user < b.spec.user;
  return ByRows()(&a, &b);
}

}  // namespace di::sched

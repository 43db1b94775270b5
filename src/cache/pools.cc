#include "cache/pools.h"

#include <numeric>

#include "base/check.h"

namespace di::cache {

IdRef IdRef::share() const {
  DI_CHECK(pool_ != nullptr, "an empty handle has nothing to share");
  ++pool_->shares_[static_cast<std::size_t>(id_)];
  return IdRef(pool_, id_);
}

void IdRef::reset() {
  if (pool_ == nullptr) return;
  IdPool& pool = *std::exchange(pool_, nullptr);
  int32_t& shares = pool.shares_[static_cast<std::size_t>(id_)];
  DI_CHECK(shares > 0, "an id is given back once for each share");
  if (--shares == 0) pool.free_.push_back(id_);
}

int64_t IdRef::num_shares() const {
  return pool_ == nullptr ? 0 : pool_->num_shares(id_);
}

IdPool::IdPool(int64_t size)
    : free_(static_cast<std::size_t>(size)), shares_(static_cast<std::size_t>(size), 0) {
  std::iota(free_.rbegin(), free_.rend(), 0);
}

std::optional<IdRef> IdPool::take() {
  if (free_.empty()) return std::nullopt;
  const int32_t id = free_.back();
  free_.pop_back();
  shares_[static_cast<std::size_t>(id)] = 1;
  return IdRef(this, id);
}

}  // namespace di::cache

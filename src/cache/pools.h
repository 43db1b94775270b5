// Who holds which block and which state slot: handles that give back what they hold by themselves,
// whatever ends them. No memory is touched here, so a scheduler can be run without a model.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace di::cache {

class IdPool;

/// A share of one id. The id returns to its pool when its last share ends.
class IdRef {
 public:
  IdRef() = default;
  ~IdRef() { reset(); }
  IdRef(IdRef&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)), id_(other.id_) {}
  IdRef& operator=(IdRef&& other) noexcept {
    if (this != &other) {
      reset();
      pool_ = std::exchange(other.pool_, nullptr);
      id_ = other.id_;
    }
    return *this;
  }
  IdRef(const IdRef&) = delete;

  /// Another share of the same id.
  IdRef share() const;
  /// Gives the share back now.
  void reset();

  explicit operator bool() const { return pool_ != nullptr; }
  int32_t id() const { return id_; }
  /// How many shares the id has.
  int64_t num_shares() const;

 private:
  friend class IdPool;
  IdRef(IdPool* pool, int32_t id) : pool_(pool), id_(id) {}

  IdPool* pool_ = nullptr;
  int32_t id_ = -1;
};

/// Ids 0 … size − 1, each free or held by shares. Taking and giving back cost O(1).
///
/// Thread: one at a time; must outlive all its shares.
class IdPool {
 public:
  explicit IdPool(int64_t size);
  IdPool(const IdPool&) = delete;

  int64_t size() const { return static_cast<int64_t>(shares_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }

  /// A free id, or nothing. The lowest ids of a new pool come out first.
  std::optional<IdRef> take();

  /// Shares of `id`; 0 when it is free. For checks of the whole ledger.
  int64_t num_shares(int32_t id) const { return shares_[static_cast<std::size_t>(id)]; }

 private:
  friend class IdRef;

  std::vector<int32_t> free_;
  std::vector<int32_t> shares_;  // [size]
};

/// Blocks of kBlockTokens tokens, shared by the sequences that begin alike.
using BlockPool = IdPool;
using BlockRef = IdRef;

/// State slots, one a sequence.
using SlotPool = IdPool;
using SlotRef = IdRef;

/// What one sequence holds of the cache.
struct Holdings {
  SlotRef slot;
  std::vector<BlockRef> blocks;  ///< block b holds tokens b · kBlockTokens …

  bool empty() const { return !slot && blocks.empty(); }
};

}  // namespace di::cache

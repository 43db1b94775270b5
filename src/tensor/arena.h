// Arena: step scratch. Bump allocation, given back in reverse order by scopes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tensor/memory.h"
#include "tensor/view.h"

namespace di {

/// Grows by chunks and never moves what it handed out; keeps its chunks for the next step.
///
/// Thread: one at a time.
class Arena {
 public:
  /// Takes its chunks from `memory`, which outlives it.
  explicit Arena(const Memory& memory = host_memory()) : memory_(memory) {}
  Arena(const Arena&) = delete;

  /// Marks the fill level now and returns to it when it goes out of scope.
  class Scope {
   public:
    explicit Scope(Arena& arena) : arena_(arena), chunk_(arena.chunk_), used_(arena.used_) {}
    ~Scope() {
      arena_.chunk_ = chunk_;
      arena_.used_ = used_;
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Arena& arena_;
    std::size_t chunk_;
    std::size_t used_;
  };

  /// `count` elements of T, aligned to 256 bytes, with unspecified content.
  template <class T>
  T* take(int64_t count) {
    return reinterpret_cast<T*>(take_bytes(static_cast<std::size_t>(count) * sizeof(T)));
  }

  /// A dense array of the given sizes.
  template <class T, class... Dims>
  View<T, sizeof...(Dims)> array(Dims... sizes) {
    return View<T, sizeof...(Dims)>(
        take<T>((int64_t{1} * ... * static_cast<int64_t>(sizes))), sizes...
    );
  }

  const Memory& memory() const { return memory_; }

  /// Takes `bytes` from the memory now, in one piece; nothing is in use yet. As long as no more is
  /// in use at once, nothing more is allocated.
  void reserve(std::size_t bytes);

  /// Bytes that it has taken from its memory.
  std::size_t reserved_bytes() const;

  /// The most bytes ever in use at once.
  std::size_t peak_bytes() const { return peak_; }

 private:
  struct Chunk {
    std::shared_ptr<std::byte> data;
    std::size_t size = 0;
  };

  std::byte* take_bytes(std::size_t bytes);
  void add_chunk(std::size_t bytes);

  const Memory& memory_;
  std::vector<Chunk> chunks_;
  std::size_t chunk_ = 0;  // index of the chunk being filled
  std::size_t used_ = 0;   // bytes filled of it
  std::size_t peak_ = 0;
};

}  // namespace di

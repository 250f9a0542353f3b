// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>

namespace rlock::detail {

/// Blocks of memory of one size, of which each thread keeps a few for its next objects: what a call
/// makes and drops costs a few instructions and no allocation once a thread has made some calls. A
/// block may be given back on another thread than took it.
///
/// With the sanitizer for addresses nothing is kept, so that it sees the use of a dead object.
///
/// **Thread safety:** safe from any thread.
template <std::size_t Size>
class BlockCache {
 public:
  /// A thread keeps so many.
  static constexpr std::size_t kMost = 32;

  /// @throws std::bad_alloc
  [[nodiscard]] static void* take() {
    if (Block* const block = kept.first) {
      kept.first = block->next;
      --kept.count;
      return block;
    }
    return ::operator new(kSize);
  }

  static void give(void* memory) noexcept {
    if (kept.count >= limit()) {
      ::operator delete(memory);
      return;
    }
    kept.first = ::new (memory) Block{kept.first};
    ++kept.count;
  }

 private:
  struct Block {
    Block* next;
  };
  static constexpr std::size_t kSize = Size < sizeof(Block) ? sizeof(Block) : Size;

  // Trivially destructible: objects may be dropped while their thread ends.
  struct Kept {
    Block* first;
    std::size_t count;
    bool ended;
  };
  /// Its destructor runs when the thread ends.
  struct EndOfThread {
    EndOfThread() = default;
    EndOfThread(const EndOfThread&) = delete;
    EndOfThread& operator=(const EndOfThread&) = delete;
    ~EndOfThread() {
      kept.ended = true;
      while (Block* const block = kept.first) {
        kept.first = block->next;
        ::operator delete(block);
      }
      kept.count = 0;
    }
  };

  static std::size_t limit() noexcept;

  static constinit thread_local Kept kept;
};

template <std::size_t Size>
std::size_t BlockCache<Size>::limit() noexcept {
#if defined(__SANITIZE_ADDRESS__)
  return 0;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
  return 0;
#endif
#endif
  if (kept.ended) {
    return 0;
  }
  // This object exists for its destructor.
  thread_local const EndOfThread atEnd;  // NOLINT(clang-diagnostic-exit-time-destructors)
  static_cast<void>(atEnd);
  return kMost;
}

template <std::size_t Size>
constinit thread_local typename BlockCache<Size>::Kept BlockCache<Size>::kept{};

/// A base of classes whose objects come and go with each call: their memory is from a BlockCache.
template <class T>
class FromBlockCache {
 public:
  static void* operator new(std::size_t /*size*/) {
    static_assert(std::is_final_v<T> && alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);
    return BlockCache<sizeof(T)>::take();
  }
  static void* operator new(std::size_t size, const std::nothrow_t& /*null*/) noexcept {
    try {
      return operator new(size);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  static void operator delete(void* memory) noexcept { BlockCache<sizeof(T)>::give(memory); }

 protected:
  FromBlockCache() noexcept = default;
  ~FromBlockCache() = default;
};

/// For containers that mostly have one element.
template <class T>
struct BlockAllocator {
  using value_type = T;

  BlockAllocator() noexcept = default;
  template <class U>
  // NOLINTNEXTLINE(google-explicit-constructor): as the standard asks of an allocator
  BlockAllocator(const BlockAllocator<U>& /*other*/) noexcept {}

  [[nodiscard]] T* allocate(std::size_t count) {
    if (count > static_cast<std::size_t>(-1) / sizeof(T)) {
      throw std::bad_array_new_length();
    }
    return static_cast<T*>(count == 1 ? BlockCache<sizeof(T)>::take()
                                      : ::operator new(count * sizeof(T)));
  }
  void deallocate(T* memory, std::size_t count) noexcept {
    if (count == 1) {
      BlockCache<sizeof(T)>::give(memory);
    } else {
      ::operator delete(memory);
    }
  }
  friend bool operator==(const BlockAllocator& /*a*/, const BlockAllocator& /*b*/) noexcept {
    return true;
  }
};

}  // namespace rlock::detail

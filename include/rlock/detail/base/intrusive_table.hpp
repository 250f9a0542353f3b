// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace rlock::detail {

/// The position of an element in an IntrusiveTable; a member of the element.
template <class T>
struct TableHook {
  T* next = nullptr;
  T** link = nullptr;  ///< the pointer that points to this element
};

/// A hash table that may hold several elements under one hash. It does not own them and allocates
/// no memory for them except one word each in its buckets.
///
/// **Thread safety:** One thread at a time.
///
/// @tparam Hash  `std::size_t(const T&)`, which must not change while the element is inside
template <class T, TableHook<T> T::*Hook, class Hash>
class IntrusiveTable {
 public:
  IntrusiveTable() : buckets_(kFewest, nullptr) {}
  IntrusiveTable(const IntrusiveTable&) = delete;
  IntrusiveTable& operator=(const IntrusiveTable&) = delete;

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// The element must not be inside.
  void insert(T& element) noexcept;
  /// The element must be inside.
  void remove(T& element) noexcept;

  /// The first element under `hash` that `matches`, or null.
  template <class Matches>
  [[nodiscard]] T* find(std::size_t hash, Matches matches) const;

  /// Calls `visit` for the elements under `hash`, and perhaps for others; the table must not change
  /// meanwhile.
  template <class Visit>
  void visit(std::size_t hash, Visit visit) const {
    for (T* element = bucketOf(hash); element != nullptr; element = (element->*Hook).next) {
      visit(*element);
    }
  }

  /// Calls `visit` for all elements, each of which may leave the table in its call.
  template <class Visit>
  void visitAll(Visit visit) const;

 private:
  static constexpr std::size_t kFewest = 16;

  [[nodiscard]] T* bucketOf(std::size_t hash) const noexcept {
    return buckets_[place(hash, buckets_.size())];
  }
  static std::size_t place(std::size_t hash, std::size_t buckets) noexcept {
    // The number of buckets is a power of 2, and the upper bits of a product are the mixed ones.
    const std::size_t mixed = hash * 0x9e3779b97f4a7c15ULL;
    return (mixed ^ (mixed >> 32U)) & (buckets - 1);
  }

  void link(T& element) noexcept;
  /// When there is no memory, the chains get longer instead.
  void grow() noexcept;

  std::vector<T*> buckets_;
  std::size_t size_ = 0;
};

template <class T, TableHook<T> T::*Hook, class Hash>
void IntrusiveTable<T, Hook, Hash>::insert(T& element) noexcept {
  if (size_ >= buckets_.size()) {
    grow();
  }
  ++size_;
  link(element);
}

template <class T, TableHook<T> T::*Hook, class Hash>
void IntrusiveTable<T, Hook, Hash>::remove(T& element) noexcept {
  TableHook<T>& hook = element.*Hook;
  *hook.link = hook.next;
  if (hook.next != nullptr) {
    (hook.next->*Hook).link = hook.link;
  }
  hook = {};
  --size_;
}

template <class T, TableHook<T> T::*Hook, class Hash>
template <class Matches>
T* IntrusiveTable<T, Hook, Hash>::find(std::size_t hash, Matches matches) const {
  for (T* element = bucketOf(hash); element != nullptr; element = (element->*Hook).next) {
    if (matches(*element)) {
      return element;
    }
  }
  return nullptr;
}

template <class T, TableHook<T> T::*Hook, class Hash>
template <class Visit>
void IntrusiveTable<T, Hook, Hash>::visitAll(Visit visit) const {
  for (T* element : buckets_) {
    while (element != nullptr) {
      T* const next = (element->*Hook).next;
      visit(*element);
      element = next;
    }
  }
}

template <class T, TableHook<T> T::*Hook, class Hash>
void IntrusiveTable<T, Hook, Hash>::link(T& element) noexcept {
  T*& first = buckets_[place(Hash()(element), buckets_.size())];
  TableHook<T>& hook = element.*Hook;
  hook.next = first;
  hook.link = &first;
  if (first != nullptr) {
    (first->*Hook).link = &hook.next;
  }
  first = &element;
}

template <class T, TableHook<T> T::*Hook, class Hash>
void IntrusiveTable<T, Hook, Hash>::grow() noexcept {
  std::vector<T*> old;
  try {
    old.resize(2 * buckets_.size(), nullptr);
  } catch (const std::bad_alloc&) {
    return;
  }
  old.swap(buckets_);
  for (T* element : old) {
    while (element != nullptr) {
      T* const next = (element->*Hook).next;
      link(*element);
      element = next;
    }
  }
}

}  // namespace rlock::detail

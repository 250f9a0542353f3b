// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace rlock::detail {

/// Place of an element in a DeadlineHeap; a member of the element.
class DeadlineHook {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  DeadlineHook() = default;
  DeadlineHook(const DeadlineHook&) = delete;
  DeadlineHook& operator=(const DeadlineHook&) = delete;

  [[nodiscard]] bool linked() const noexcept { return element_ != nullptr; }
  /// time_point::max() when not linked.
  [[nodiscard]] TimePoint due() const noexcept { return linked() ? due_ : TimePoint::max(); }

 private:
  friend class DeadlineTree;

  TimePoint due_{};
  std::uint64_t sequence_ = 0;
  void* element_ = nullptr;  // null: in no heap
  DeadlineHook* child_ = nullptr;
  DeadlineHook* previous_ = nullptr;  // the sibling before, or the parent of a first child
  DeadlineHook* next_ = nullptr;
};

/// A pairing heap of hooks: the part of DeadlineHeap that is the same for all elements. The first
/// hook is the root; each hook is due no earlier than its parent.
///
/// **Thread safety:** One thread at a time.
class DeadlineTree {
 public:
  using TimePoint = DeadlineHook::TimePoint;

  DeadlineTree() = default;
  DeadlineTree(const DeadlineTree&) = delete;
  DeadlineTree& operator=(const DeadlineTree&) = delete;

  void swap(DeadlineTree& other) noexcept {
    std::swap(first_, other.first_);
    std::swap(size_, other.size_);
    std::swap(nextSequence_, other.nextSequence_);
  }

  [[nodiscard]] DeadlineHook* first() const noexcept { return first_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] static void* element(const DeadlineHook& hook) noexcept { return hook.element_; }
  void insert(DeadlineHook& hook, void* element, TimePoint due) noexcept;
  void remove(DeadlineHook& hook) noexcept;
  /// Takes all hooks out and calls `visit` with each element and when it was due, parents before
  /// their children. `visit` may put it into a tree again, also into this one.
  template <class Visit>
  void takeAll(Visit&& visit) noexcept;

 private:
  static bool before(const DeadlineHook& a, const DeadlineHook& b) noexcept {
    return a.due_ != b.due_ ? a.due_ < b.due_ : a.sequence_ < b.sequence_;
  }
  static DeadlineHook* meld(DeadlineHook* a, DeadlineHook* b) noexcept;
  static DeadlineHook* meldSiblings(DeadlineHook* first) noexcept;

  DeadlineHook* first_ = nullptr;
  std::size_t size_ = 0;
  std::uint64_t nextSequence_ = 0;
};

/// Elements ordered by when they are due, those with the same deadline in the order they were
/// scheduled. It does not own them. The links are in the elements, so that nothing takes memory.
/// Putting one in is O(1), taking one out O(log n) in the long run, and taking all out O(n).
///
/// Invariants: an element is in one heap at most, by its hook, and must be taken out before it ends
/// or moves. Nothing can fail. The loop has its timers in one, the watchdog its holds, each under
/// the lock or on the thread that its owner names.
///
/// **Thread safety:** One thread at a time.
template <class T, DeadlineHook T::*Hook>
class DeadlineHeap {
 public:
  using TimePoint = DeadlineHook::TimePoint;

  void swap(DeadlineHeap& other) noexcept { tree_.swap(other.tree_); }

  [[nodiscard]] bool empty() const noexcept { return tree_.first() == nullptr; }
  [[nodiscard]] std::size_t size() const noexcept { return tree_.size(); }
  /// The element due first; the heap must not be empty.
  [[nodiscard]] T& top() const noexcept {
    return *static_cast<T*>(DeadlineTree::element(*tree_.first()));
  }
  /// time_point::max() when empty.
  [[nodiscard]] TimePoint nextDue() const noexcept {
    return empty() ? TimePoint::max() : tree_.first()->due();
  }

  /// Takes all elements out, in no order, and calls `visit` with each and when it was due. `visit`
  /// may put it into a heap again, also into this one.
  template <class Visit>
  void takeAll(Visit&& visit) noexcept {
    tree_.takeAll(
        [&](void* element, TimePoint due) noexcept { visit(*static_cast<T*>(element), due); });
  }

  /// Puts an element in, or moves it to another point in time, behind those due at the same.
  void schedule(T& element, TimePoint due) noexcept {
    remove(element);
    tree_.insert(element.*Hook, &element, due);
  }

  /// Removes an element; does nothing when it is not inside.
  void remove(T& element) noexcept {
    if ((element.*Hook).linked()) {
      tree_.remove(element.*Hook);
    }
  }

 private:
  DeadlineTree tree_;
};

inline void DeadlineTree::insert(DeadlineHook& hook, void* element, TimePoint due) noexcept {
  hook.due_ = due;
  hook.sequence_ = nextSequence_++;
  hook.element_ = element;
  first_ = meld(first_, &hook);
  ++size_;
}

inline void DeadlineTree::remove(DeadlineHook& hook) noexcept {
  DeadlineHook* const children = meldSiblings(std::exchange(hook.child_, nullptr));
  if (&hook == first_) {
    first_ = children;
  } else {
    if (hook.next_ != nullptr) {
      hook.next_->previous_ = hook.previous_;
    }
    (hook.previous_->child_ == &hook ? hook.previous_->child_ : hook.previous_->next_) = hook.next_;
    hook.previous_ = hook.next_ = nullptr;
    first_ = meld(first_, children);
  }
  hook.element_ = nullptr;
  --size_;
}

template <class Visit>
void DeadlineTree::takeAll(Visit&& visit) noexcept {
  DeadlineHook* hook = std::exchange(first_, nullptr);
  size_ = 0;
  while (hook != nullptr) {
    DeadlineHook* following = std::exchange(hook->next_, nullptr);
    if (DeadlineHook* const child = std::exchange(hook->child_, nullptr)) {
      DeadlineHook* last = child;
      while (last->next_ != nullptr) {
        last = last->next_;
      }
      last->next_ = following;
      following = child;
    }
    hook->previous_ = nullptr;
    visit(std::exchange(hook->element_, nullptr), hook->due_);
    hook = following;
  }
}

/// Of two heaps one; both roots are without siblings.
inline DeadlineHook* DeadlineTree::meld(DeadlineHook* a, DeadlineHook* b) noexcept {
  if (a == nullptr || b == nullptr) {
    return a == nullptr ? b : a;
  }
  if (before(*b, *a)) {
    std::swap(a, b);
  }
  b->previous_ = a;
  b->next_ = a->child_;
  if (a->child_ != nullptr) {
    a->child_->previous_ = b;
  }
  a->child_ = b;
  return a;
}

/// In pairs from the left, and then all from the right: that is what keeps removals cheap.
inline DeadlineHook* DeadlineTree::meldSiblings(DeadlineHook* first) noexcept {
  DeadlineHook* pairs = nullptr;
  while (first != nullptr) {
    DeadlineHook* const a = first;
    DeadlineHook* const b = a->next_;
    first = b == nullptr ? nullptr : b->next_;
    a->previous_ = a->next_ = nullptr;
    if (b != nullptr) {
      b->previous_ = b->next_ = nullptr;
    }
    DeadlineHook* const pair = meld(a, b);
    pair->next_ = pairs;
    pairs = pair;
  }
  DeadlineHook* all = nullptr;
  while (pairs != nullptr) {
    DeadlineHook* const pair = pairs;
    pairs = pair->next_;
    pair->next_ = nullptr;
    all = meld(all, pair);
  }
  return all;
}

}  // namespace rlock::detail

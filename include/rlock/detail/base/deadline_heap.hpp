// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

namespace rlock::detail {

/// The position of an element in a DeadlineHeap; a member of the element.
struct DeadlineHook {
  static constexpr std::size_t kOutside = static_cast<std::size_t>(-1);

  std::chrono::steady_clock::time_point due{};
  std::size_t index = kOutside;

  [[nodiscard]] bool linked() const noexcept { return index != kOutside; }
};

/// A heap of elements ordered by the time at which they are due. It does not own them. Inserting an
/// element that is due after all others is O(1), so that a busy client with equal leases pays
/// almost nothing.
///
/// **Thread safety:** One thread at a time.
template <class T, DeadlineHook T::*Hook>
class DeadlineHeap {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  [[nodiscard]] bool empty() const noexcept { return heap_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return heap_.size(); }
  /// The element due first; the heap must not be empty.
  [[nodiscard]] T& top() const noexcept { return *heap_.front(); }
  /// time_point::max() when empty.
  [[nodiscard]] TimePoint nextDue() const noexcept {
    return empty() ? TimePoint::max() : (heap_.front()->*Hook).due;
  }

  /// All elements, in no order. The reference is valid until the heap changes.
  [[nodiscard]] const std::vector<T*>& elements() const noexcept { return heap_; }

  /// Reserves memory, so that schedule() cannot fail while at most `count` elements are inside.
  void reserve(std::size_t count) {
    if (count > heap_.capacity()) {
      heap_.reserve(std::max(count, 2 * heap_.capacity()));
    }
  }

  /// Inserts an element, or moves it to another point in time.
  void schedule(T& element, TimePoint due) {
    DeadlineHook& hook = element.*Hook;
    if (!hook.linked()) {
      heap_.push_back(&element);
      hook.index = heap_.size() - 1;
    }
    hook.due = due;
    siftUp(hook.index);
    siftDown(hook.index);
  }

  /// Removes an element; does nothing when it is not inside.
  void remove(T& element) noexcept {
    DeadlineHook& hook = element.*Hook;
    if (!hook.linked()) {
      return;
    }
    const std::size_t index = hook.index;
    hook.index = DeadlineHook::kOutside;
    T* const last = heap_.back();
    heap_.pop_back();
    if (last != &element) {
      place(last, index);
      siftUp(index);
      siftDown((last->*Hook).index);
    }
  }

 private:
  [[nodiscard]] TimePoint dueAt(std::size_t index) const noexcept {
    return (heap_[index]->*Hook).due;
  }
  void place(T* element, std::size_t index) noexcept {
    heap_[index] = element;
    (element->*Hook).index = index;
  }
  void swapPlaces(std::size_t a, std::size_t b) noexcept {
    T* const first = heap_[a];
    place(heap_[b], a);
    place(first, b);
  }
  void siftUp(std::size_t index) noexcept {
    while (index > 0) {
      const std::size_t parent = (index - 1) / 2;
      if (!(dueAt(index) < dueAt(parent))) {
        return;
      }
      swapPlaces(index, parent);
      index = parent;
    }
  }
  void siftDown(std::size_t index) noexcept {
    for (;;) {
      std::size_t first = index;
      for (std::size_t child = 2 * index + 1; child <= 2 * index + 2; ++child) {
        if (child < heap_.size() && dueAt(child) < dueAt(first)) {
          first = child;
        }
      }
      if (first == index) {
        return;
      }
      swapPlaces(index, first);
      index = first;
    }
  }

  std::vector<T*> heap_;
};

}  // namespace rlock::detail

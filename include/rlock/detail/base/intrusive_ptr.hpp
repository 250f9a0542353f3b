// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <compare>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

namespace rlock::detail {

/// The base of objects that IntrusivePtr owns: `class Node : public RefCounted<Node>`. The last
/// pointer deletes the object as a `Derived`, so no virtual destructor is needed unless `Derived`
/// has subclasses of its own.
///
/// **Thread safety:** The count is safe from any thread.
template <class Derived>
class RefCounted {
 public:
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;

  void addRef() const noexcept { count_.fetch_add(1, std::memory_order_relaxed); }

  /// Adds an owner through a pointer that owns nothing, such as one that the object has registered
  /// and that its destructor takes back. Race: the last owner may be deleting the object meanwhile;
  /// then the result is false, and the object must not be kept.
  [[nodiscard]] bool tryAddRef() const noexcept;

  void dropRef() const noexcept {
    // acq_rel, not release plus a fence: ThreadSanitizer does not model fences.
    if (count_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      delete static_cast<const Derived*>(this);
    }
  }

  /// The number of owners; only a hint when other threads hold pointers too.
  std::uint32_t useCount() const noexcept { return count_.load(std::memory_order_acquire); }

 protected:
  RefCounted() noexcept = default;
  ~RefCounted() = default;

 private:
  mutable std::atomic<std::uint32_t> count_{0};
};

template <class Derived>
bool RefCounted<Derived>::tryAddRef() const noexcept {
  std::uint32_t count = count_.load(std::memory_order_relaxed);
  while (count != 0) {
    if (count_.compare_exchange_weak(count, count + 1, std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

/// True when `U*` converts to `T*`.
template <class U, class T>
concept PointerInto = std::convertible_to<U*, T*>;

/// Shared ownership in one machine word. A raw pointer to an owned object may be turned into
/// another IntrusivePtr at any time, but not inside the object's constructor.
///
/// **Thread safety:** One thread at a time per pointer; different pointers to one object are safe.
template <class T>
class IntrusivePtr {
 public:
  using element_type = T;

  constexpr IntrusivePtr() noexcept = default;
  // NOLINTNEXTLINE(google-explicit-constructor): as every smart pointer
  constexpr IntrusivePtr(std::nullptr_t) noexcept {}
  /// Adds an owner.
  explicit IntrusivePtr(T* object) noexcept : object_(object) { addRef(); }

  IntrusivePtr(const IntrusivePtr& other) noexcept : object_(other.object_) { addRef(); }
  IntrusivePtr(IntrusivePtr&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}

  template <PointerInto<T> U>
  // NOLINTNEXTLINE(google-explicit-constructor): as the raw pointers convert
  IntrusivePtr(const IntrusivePtr<U>& other) noexcept : object_(other.get()) {
    addRef();
  }
  template <PointerInto<T> U>
  // NOLINTNEXTLINE(google-explicit-constructor): as the raw pointers convert
  IntrusivePtr(IntrusivePtr<U>&& other) noexcept : object_(other.detach()) {}

  // NOLINTNEXTLINE(bugprone-unhandled-self-assignment): copy and swap handles it
  IntrusivePtr& operator=(const IntrusivePtr& other) noexcept {
    IntrusivePtr(other).swap(*this);
    return *this;
  }
  IntrusivePtr& operator=(IntrusivePtr&& other) noexcept {
    IntrusivePtr(std::move(other)).swap(*this);
    return *this;
  }

  ~IntrusivePtr() {
    if (object_ != nullptr) {
      object_->dropRef();
    }
  }

  void reset() noexcept { IntrusivePtr().swap(*this); }
  void swap(IntrusivePtr& other) noexcept { std::swap(object_, other.object_); }

  T* get() const noexcept { return object_; }
  T& operator*() const noexcept { return *object_; }
  T* operator->() const noexcept { return object_; }
  explicit operator bool() const noexcept { return object_ != nullptr; }

  /// Gives the ownership to the caller, as for the `void*` of a C callback; adopt() takes it back.
  [[nodiscard]] T* detach() noexcept { return std::exchange(object_, nullptr); }
  [[nodiscard]] static IntrusivePtr adopt(T* object) noexcept {
    IntrusivePtr result;
    result.object_ = object;
    return result;
  }

  friend bool operator==(const IntrusivePtr& a, const IntrusivePtr& b) noexcept = default;
  friend bool operator==(const IntrusivePtr& a, std::nullptr_t) noexcept {
    return a.object_ == nullptr;
  }
  friend std::strong_ordering operator<=>(const IntrusivePtr& a, const IntrusivePtr& b) noexcept {
    return std::compare_three_way{}(a.object_, b.object_);
  }

 private:
  void addRef() const noexcept {
    if (object_ != nullptr) {
      object_->addRef();
    }
  }

  T* object_ = nullptr;
};

template <class T, class... Args>
[[nodiscard]] IntrusivePtr<T> makeIntrusive(Args&&... args) {
  return IntrusivePtr<T>(new T(std::forward<Args>(args)...));
}

}  // namespace rlock::detail

template <class T>
struct std::hash<rlock::detail::IntrusivePtr<T>> {
  std::size_t operator()(const rlock::detail::IntrusivePtr<T>& pointer) const noexcept {
    return std::hash<T*>{}(pointer.get());
  }
};

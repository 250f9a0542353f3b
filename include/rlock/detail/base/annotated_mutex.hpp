// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/schedule_point.hpp>

#include <mutex>

// Attributes for Clang's thread safety analysis; other compilers have no such analysis.
#if defined(__clang__)
#define RLOCK_THREAD_ATTRIBUTE(attribute) __attribute__((attribute))
#else
#define RLOCK_THREAD_ATTRIBUTE(attribute)
#endif

/// A class whose objects can be held by one thread at a time.
#define RLOCK_CAPABILITY(name) RLOCK_THREAD_ATTRIBUTE(capability(name))
/// A class whose objects hold a capability, such as a mutex, as long as they live.
#define RLOCK_SCOPED_CAPABILITY RLOCK_THREAD_ATTRIBUTE(scoped_lockable)

///@{
/// A variable, or the target of a pointer, that is touched only while the mutex is held.
#define RLOCK_GUARDED_BY(mutex) RLOCK_THREAD_ATTRIBUTE(guarded_by(mutex))
#define RLOCK_PT_GUARDED_BY(mutex) RLOCK_THREAD_ATTRIBUTE(pt_guarded_by(mutex))
///@}

///@{
/// A function that is called only while the mutexes are held, or only while they are not.
#define RLOCK_REQUIRES(...) RLOCK_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define RLOCK_EXCLUDES(...) RLOCK_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
///@}

///@{
/// A function that locks or unlocks the mutexes; without arguments it locks its own object.
#define RLOCK_ACQUIRE(...) RLOCK_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define RLOCK_RELEASE(...) RLOCK_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
/// The first argument is the value that the function returns when it has locked them.
#define RLOCK_TRY_ACQUIRE(...) RLOCK_THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
///@}

/// A function whose body is beyond the analysis. Its requirements on callers are still checked.
#define RLOCK_NO_THREAD_SAFETY_ANALYSIS RLOCK_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace rlock::detail {

/// A std::mutex with attributes. The std::mutex of libstdc++ carries none, so Clang would not
/// accept it as the guard of a variable.
class RLOCK_CAPABILITY("mutex") AnnotatedMutex {
 public:
  void lock() RLOCK_ACQUIRE() {
    schedulePoint();
    mutex_.lock();
  }
  void unlock() RLOCK_RELEASE() {
    mutex_.unlock();
    schedulePoint();
  }
  [[nodiscard]] bool try_lock() noexcept RLOCK_TRY_ACQUIRE(true) { return mutex_.try_lock(); }

 private:
  std::mutex mutex_;
};

/// Holds a mutex as long as it lives: a std::lock_guard with attributes, for the same reason.
template <class Mutex>
class RLOCK_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) RLOCK_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  ~MutexLock() RLOCK_RELEASE() { mutex_.unlock(); }

 private:
  Mutex& mutex_;
};

/// A MutexLock that can be released before it ends. A function that passes it on must ask
/// afterwards whether it still holds the mutex, because the analysis cannot know.
class RLOCK_SCOPED_CAPABILITY ReleasableLock {
 public:
  explicit ReleasableLock(AnnotatedMutex& mutex) RLOCK_ACQUIRE(mutex) : mutex_(mutex) {
    mutex_.lock();
  }
  ReleasableLock(const ReleasableLock&) = delete;
  ReleasableLock& operator=(const ReleasableLock&) = delete;
  ~ReleasableLock() RLOCK_RELEASE() {
    if (owns_) {
      mutex_.unlock();
    }
  }

  void unlock() RLOCK_RELEASE() {
    owns_ = false;
    mutex_.unlock();
  }
  [[nodiscard]] bool ownsLock() const noexcept { return owns_; }

 private:
  AnnotatedMutex& mutex_;
  bool owns_ = true;
};

}  // namespace rlock::detail

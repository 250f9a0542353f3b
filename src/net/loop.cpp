// SPDX-License-Identifier: Apache-2.0
#include "net/loop.hpp"

#include "net/blocked_signals.hpp"
#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/fork.hpp>
#include <rlock/error.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <new>
#include <pthread.h>
#include <thread>
#include <utility>

namespace rlock::detail::net {

using SteadyClock = std::chrono::steady_clock;

/// One function in a queue. Queueing takes no memory, so that what has been made can be queued
/// whatever happens.
struct QueuedFunction {
  QueuedFunction(UniqueFunction<void()> work, bool belongsToTask) noexcept
      : function(std::move(work)), ofTask(belongsToTask) {}

  UniqueFunction<void()> function;
  QueuedFunction* next = nullptr;
  /// Owned by a LoopTask, and through it by `owner` while it is queued; else by the queue.
  const bool ofTask;
  std::shared_ptr<const void> owner{};
  std::atomic<bool> queued{false};
};

namespace {

/// First in, first out.
class FunctionQueue {
 public:
  FunctionQueue() noexcept = default;
  FunctionQueue(const FunctionQueue&) = delete;
  FunctionQueue& operator=(const FunctionQueue&) = delete;
  ~FunctionQueue() { clear(); }

  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  void push(QueuedFunction* node) noexcept {
    node->next = nullptr;
    (last_ == nullptr ? first_ : last_->next) = node;
    last_ = node;
  }
  QueuedFunction* pop() noexcept {
    QueuedFunction* const node = first_;
    if (node != nullptr) {
      first_ = node->next;
      if (first_ == nullptr) {
        last_ = nullptr;
      }
    }
    return node;
  }
  void swap(FunctionQueue& other) noexcept {
    std::swap(first_, other.first_);
    std::swap(last_, other.last_);
  }
  /// Drops what was not run.
  void clear() noexcept {
    while (QueuedFunction* const node = pop()) {
      drop(node);
    }
  }
  static void drop(QueuedFunction* node) noexcept {
    if (node->ofTask) {
      const std::shared_ptr<const void> owner = std::move(node->owner);
      node->queued.store(false, std::memory_order_release);
    } else {
      delete node;
    }
  }

 private:
  QueuedFunction* first_ = nullptr;
  QueuedFunction* last_ = nullptr;
};

/// Never given twice in a process, unlike the system's numbers and addresses of threads.
std::uint64_t thisThread() noexcept {
  static std::atomic<std::uint64_t> last{0};
  thread_local std::uint64_t id = 0;
  if (id == 0) {
    id = last.fetch_add(1, std::memory_order_relaxed) + 1;
  }
  return id;
}
constexpr std::uint64_t kNoThread = 0;

}  // namespace

/// On the heap, because libuv gives a closed handle back only after another pass of the loop.
struct PollHandle {
  uv_poll_t uv{};
  LoopCore* core = nullptr;
  Poll* owner = nullptr;
  Poll::Callback callback;
  PollHandle* previous = nullptr;
  PollHandle* next = nullptr;
};

/// The part of a Loop that outlives it: libuv's handles and the queues, timers and polls that the
/// loop thread works on. libuv gives handles back only after another pass, so this object holds
/// itself (self_) from open() until the last handle is closed, whoever lets go of the Loop.
///
/// Queueing is called on any thread, under mutex_; everything else runs on the loop thread, which
/// for an adopted loop is the one that runs its callbacks. A function runs once or is destroyed
/// unrun, in the order of the queue, and never under the mutex. Nothing it throws leaves guarded().
/// Arming a timer and queueing a LoopTask take no memory and cannot fail.
///
/// In a child after fork() the loop's descriptors are the parent's, so every function that would
/// touch them asks abandoned() or leftInChild() first.
class LoopCore : public std::enable_shared_from_this<LoopCore> {
 public:
  LoopCore() = default;
  LoopCore(const LoopCore&) = delete;
  LoopCore& operator=(const LoopCore&) = delete;

  void open(uv_loop_t* adopted);
  void startThread(std::string name);

  void post(UniqueFunction<void()> function);
  void atPassEnd(UniqueFunction<void()> function);
  void post(QueuedFunction& task, std::shared_ptr<const void> owner) noexcept;
  void atPassEnd(QueuedFunction& task, std::shared_ptr<const void> owner) noexcept;
  [[nodiscard]] bool onLoopThread() const noexcept {
    return loopThread_.load(std::memory_order_relaxed) == thisThread();
  }
  [[nodiscard]] uv_loop_t* raw() noexcept { return loop_; }
  bool stop(SteadyClock::time_point deadline);
  void setErrorHook(std::function<void(const char*)> hook);
  void abandon() noexcept { abandoned_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool abandoned() const noexcept {
    return forkGeneration() != forkGeneration_ || abandoned_.load(std::memory_order_relaxed);
  }

  void arm(Timer& timer, SteadyClock::time_point due) noexcept;
  void disarm(Timer& timer) noexcept;

  void startPoll(Poll& poll, int events, Poll::Callback callback);
  void setPollEvents(Poll& poll, int events);
  static void closePoll(PollHandle* handle) noexcept;
  [[nodiscard]] bool usable() const noexcept { return !closing_ && !abandoned(); }

 private:
  static void onAsync(uv_async_t* handle) noexcept;
  static void onPrepare(uv_prepare_t* handle) noexcept;
  static void onTimer(uv_timer_t* handle) noexcept;
  static void onPoll(uv_poll_t* uv, int status, int events) noexcept;
  static void onPollClosed(uv_handle_t* uv) noexcept;
  static void onClosed(uv_handle_t* handle) noexcept;

  void runThread(const std::string& name) noexcept;
  void enter() noexcept {
    if (!owned_) {
      loopThread_.store(thisThread(), std::memory_order_relaxed);
    }
  }
  /// True in a child that was forked in a callback. The descriptors it polls are the
  /// parent's: it runs nothing more and ends with the callback. An adopted one may be used on by
  /// its owner.
  bool leftInChild() noexcept {
    if (forkGeneration() == forkGeneration_) {
      return false;
    }
    if (owned_) {
      uv_stop(loop_);
    }
    return true;
  }
  void fillReserve() noexcept RLOCK_REQUIRES(mutex_);
  void addToPassEnd(QueuedFunction* node) noexcept;
  void run(FunctionQueue& queue) noexcept;
  void drain() noexcept;
  void runPassEnd() noexcept;
  void expireTimers() noexcept;
  void closeAll() noexcept;
  void handleClosed() noexcept;
  void markFinished() noexcept;
  void wake() noexcept RLOCK_REQUIRES(mutex_);

  template <class F>
  void guarded(F&& function) noexcept;
  void report(const char* text) noexcept;

  void scheduleTimer() noexcept;

  static constexpr int kReserve = 64;

  uv_loop_t ownLoop_{};
  uv_loop_t* loop_ = nullptr;
  bool owned_ = false;
  uv_async_t async_{};
  uv_prepare_t prepare_{};
  uv_timer_t timer_{};
  std::uint64_t adopter_ = kNoThread;
  std::atomic<std::uint64_t> loopThread_{kNoThread};
  std::atomic<bool> abandoned_{false};
  const std::uint32_t forkGeneration_ = forkGeneration();
  /// Held while libuv has handles that live in this object.
  std::shared_ptr<LoopCore> self_;

  AnnotatedMutex mutex_;
  std::condition_variable_any finishedChanged_;
  FunctionQueue queue_ RLOCK_GUARDED_BY(mutex_);
  /// For those who cannot do without: nodes without a function.
  FunctionQueue reserve_ RLOCK_GUARDED_BY(mutex_);
  int reserved_ RLOCK_GUARDED_BY(mutex_) = 0;
  bool signalled_ RLOCK_GUARDED_BY(mutex_) = false;
  bool accepting_ RLOCK_GUARDED_BY(mutex_) = true;
  bool finished_ RLOCK_GUARDED_BY(mutex_) = false;
  std::thread thread_ RLOCK_GUARDED_BY(mutex_);
  std::function<void(const char*)> errorHook_ RLOCK_GUARDED_BY(mutex_);

  // Loop thread only.
  FunctionQueue running_;
  FunctionQueue passEnd_;
  FunctionQueue passEndRunning_;
  DeadlineHeap<Timer, &Timer::hook_> timers_;
  SteadyClock::time_point armedFor_ = SteadyClock::time_point::max();
  SteadyClock::time_point expiringAt_ = SteadyClock::time_point::min();
  PollHandle* polls_ = nullptr;
  std::size_t openHandles_ = 0;
  bool closing_ = false;
};

namespace {

[[noreturn]] void throwCannot(const char* what, const char* why) {
  throw Error(Errc::connectionFailed, std::string("cannot ") + what + ": " + why);
}

}  // namespace

void LoopCore::open(uv_loop_t* adopted) {
  owned_ = adopted == nullptr;
  loop_ = owned_ ? &ownLoop_ : adopted;
  adopter_ = thisThread();
  if (owned_) {
    if (const int status = uv_loop_init(loop_); status != 0) {
      throwCannot("create an event loop", uv_strerror(status));
    }
  }
  if (const int status = uv_async_init(loop_, &async_, &LoopCore::onAsync); status != 0) {
    if (owned_) {
      uv_loop_close(loop_);
    }
    throwCannot("create a wake-up handle", uv_strerror(status));
  }
  // These two cannot fail.
  uv_prepare_init(loop_, &prepare_);
  uv_timer_init(loop_, &timer_);
  async_.data = this;
  prepare_.data = this;
  timer_.data = this;
  openHandles_ = 3;
  self_ = shared_from_this();
  const MutexLock lock(mutex_);
  fillReserve();
}

void LoopCore::startThread(std::string name) {
  try {
    const BlockedSignals blocked;
    const MutexLock lock(mutex_);
    thread_ = std::thread(
        [core = shared_from_this(), name = std::move(name)]() noexcept { core->runThread(name); });
  } catch (const std::exception& error) {
    {
      const MutexLock lock(mutex_);
      accepting_ = false;
    }
    closeAll();
    uv_run(loop_, UV_RUN_DEFAULT);
    uv_loop_close(loop_);
    throwCannot("start the loop thread", error.what());
  }
}

void LoopCore::runThread(const std::string& name) noexcept {
  loopThread_.store(thisThread(), std::memory_order_relaxed);
  char shortName[16] = {};
  name.copy(shortName, sizeof(shortName) - 1);
  pthread_setname_np(pthread_self(), shortName);
  uv_run(loop_, UV_RUN_DEFAULT);
  if (abandoned()) {
    return;
  }
  if (const int status = uv_loop_close(loop_); status != 0) {
    report("the event loop ended with open handles");
  }
  markFinished();
}

void LoopCore::markFinished() noexcept {
  const MutexLock lock(mutex_);
  finished_ = true;
  finishedChanged_.notify_all();
}

void LoopCore::wake() noexcept {
  if (!signalled_) {
    signalled_ = true;
    uv_async_send(&async_);
  }
}

bool LoopCore::stop(SteadyClock::time_point deadline) {
  if (abandoned()) {
    return true;
  }
  std::thread thread;
  bool finished = false;
  {
    const MutexLock lock(mutex_);
    if (accepting_) {
      accepting_ = false;
      wake();
    }
    const std::uint64_t runner = loopThread_.load(std::memory_order_relaxed);
    const bool onLoop = runner == thisThread();
    const bool neverRun = !owned_ && runner == kNoThread && adopter_ == thisThread();
    if (onLoop) {
      finished = true;
    } else if (neverRun) {
      // Nobody but this thread could run the loop: waiting would only use up the time.
      finished = finished_;
    } else {
      finished = finishedChanged_.wait_until(
          mutex_, deadline, [this]() RLOCK_REQUIRES(mutex_) { return finished_; });
    }
    thread = std::move(thread_);
    if (thread.joinable() && (onLoop || !finished)) {
      thread.detach();
    }
  }
  if (thread.joinable()) {
    thread.join();
  }
  return finished;
}

void LoopCore::closeAll() noexcept {
  if (closing_ || abandoned()) {
    return;
  }
  runPassEnd();
  closing_ = true;
  passEnd_.clear();
  while (!timers_.empty()) {
    timers_.remove(timers_.top());
  }
  while (polls_ != nullptr) {
    closePoll(polls_);
  }
  for (uv_handle_t* handle : {reinterpret_cast<uv_handle_t*>(&async_),
                              reinterpret_cast<uv_handle_t*>(&prepare_),
                              reinterpret_cast<uv_handle_t*>(&timer_)}) {
    uv_close(handle, &LoopCore::onClosed);
  }
}

void LoopCore::onClosed(uv_handle_t* handle) noexcept {
  static_cast<LoopCore*>(handle->data)->handleClosed();
}

void LoopCore::handleClosed() noexcept {
  if (--openHandles_ > 0) {
    return;
  }
  const std::shared_ptr<LoopCore> keep = std::move(self_);
  if (!owned_) {
    markFinished();
  }
}

void LoopCore::post(UniqueFunction<void()> function) {
  if (abandoned()) {
    return;
  }
  // Both outlive the lock, so a refused function is destroyed without it.
  std::unique_ptr<QueuedFunction> node(new (std::nothrow) QueuedFunction(nullptr, false));
  const MutexLock lock(mutex_);
  if (!accepting_) {
    return;
  }
  if (!node) {
    node.reset(reserve_.pop());
    --reserved_;
  }
  if (!node) {
    reserved_ = 0;
    throw std::bad_alloc();
  }
  node->function = std::move(function);
  queue_.push(node.release());
  wake();
}

void LoopCore::fillReserve() noexcept {
  while (reserved_ < kReserve) {
    auto* const node = new (std::nothrow) QueuedFunction(nullptr, false);
    if (node == nullptr) {
      return;
    }
    reserve_.push(node);
    ++reserved_;
  }
}

void LoopCore::post(QueuedFunction& task, std::shared_ptr<const void> owner) noexcept {
  if (abandoned() || task.queued.exchange(true, std::memory_order_acq_rel)) {
    return;
  }
  const MutexLock lock(mutex_);
  if (accepting_) {
    task.owner = std::move(owner);
    queue_.push(&task);
    wake();
  } else {
    task.queued.store(false, std::memory_order_release);
  }
}

void LoopCore::atPassEnd(UniqueFunction<void()> function) {
  if (usable()) {
    addToPassEnd(std::make_unique<QueuedFunction>(std::move(function), false).release());
  }
}

void LoopCore::atPassEnd(QueuedFunction& task, std::shared_ptr<const void> owner) noexcept {
  if (usable() && !task.queued.exchange(true, std::memory_order_acq_rel)) {
    task.owner = std::move(owner);
    addToPassEnd(&task);
  }
}

void LoopCore::addToPassEnd(QueuedFunction* node) noexcept {
  if (passEnd_.empty()) {
    uv_prepare_start(&prepare_, &LoopCore::onPrepare);
  }
  passEnd_.push(node);
}

void LoopCore::onAsync(uv_async_t* handle) noexcept {
  auto* const core = static_cast<LoopCore*>(handle->data);
  core->enter();
  core->drain();
}

void LoopCore::run(FunctionQueue& queue) noexcept {
  while (QueuedFunction* const node = queue.pop()) {
    if (!node->ofTask) {
      const std::unique_ptr<QueuedFunction> owned(node);
      guarded(owned->function);
      continue;
    }
    const std::shared_ptr<const void> owner = std::move(node->owner);
    // Before it runs: whoever finds it queued may rely on being seen by it. An exchange, so that it
    // is ordered after all of them.
    static_cast<void>(node->queued.exchange(false, std::memory_order_acq_rel));
    guarded(node->function);
  }
}

void LoopCore::drain() noexcept {
  bool stopping = false;
  {
    const MutexLock lock(mutex_);
    running_.swap(queue_);
    signalled_ = false;
    stopping = !accepting_;
    fillReserve();
  }
  run(running_);
  if (stopping) {
    closeAll();
  }
}

void LoopCore::onPrepare(uv_prepare_t* handle) noexcept {
  auto* const core = static_cast<LoopCore*>(handle->data);
  core->enter();
  core->runPassEnd();
}

void LoopCore::runPassEnd() noexcept {
  passEndRunning_.swap(passEnd_);
  uv_prepare_stop(&prepare_);
  run(passEndRunning_);
  if (!passEnd_.empty() && !abandoned()) {
    // Asked for by one of those just run: without a wake-up it would wait for the next event.
    const MutexLock lock(mutex_);
    wake();
  }
}

template <class F>
void LoopCore::guarded(F&& function) noexcept {
  if (leftInChild()) {
    return;
  }
  try {
    function();
  } catch (const std::exception& error) {
    report(error.what());
  } catch (...) {
    report("exception of unknown type");
  }
  static_cast<void>(leftInChild());
}

void LoopCore::report(const char* text) noexcept {
  try {
    std::function<void(const char*)> hook;
    {
      const MutexLock lock(mutex_);
      hook = errorHook_;
    }
    if (hook) {
      hook(text);
    }
  } catch (...) {
    // There is nobody left to tell.
  }
}

void LoopCore::setErrorHook(std::function<void(const char*)> hook) {
  if (abandoned()) {
    return;
  }
  const MutexLock lock(mutex_);
  errorHook_.swap(hook);
}

void LoopCore::arm(Timer& timer, SteadyClock::time_point due) noexcept {
  if (!usable()) {
    return;
  }
  disarm(timer);
  if (due == SteadyClock::time_point::max()) {
    return;
  }
  // Armed for the past by an expiring timer: later than all that expire in this pass, so that a
  // timer that does so always cannot keep the others waiting.
  timers_.schedule(timer, std::max(due, expiringAt_));
  if (expiringAt_ == SteadyClock::time_point::min()) {
    scheduleTimer();
  }
}

void LoopCore::disarm(Timer& timer) noexcept {
  // libuv's timer is left alone: one early wake-up costs less than moving it each time.
  if (timer.armed() && !abandoned()) {
    timers_.remove(timer);
  }
}

void LoopCore::scheduleTimer() noexcept {
  if (timers_.nextDue() >= armedFor_) {
    return;
  }
  armedFor_ = timers_.nextDue();
  uv_update_time(loop_);
  const auto now = SteadyClock::now();
  std::uint64_t milliseconds = 0;
  if (armedFor_ > now) {
    // libuv counts from the last whole millisecond of the same clock.
    constexpr std::uint64_t kPerMillisecond = 1'000'000;
    const std::uint64_t fraction = uv_hrtime() % kPerMillisecond;
    const auto left = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(armedFor_ - now).count());
    milliseconds = (left + fraction + kPerMillisecond - 1) / kPerMillisecond;
  }
  if (expiringAt_ != SteadyClock::time_point::min()) {
    // libuv runs what is due at once in the same pass, before it polls.
    milliseconds = std::max<std::uint64_t>(milliseconds, 1);
  }
  uv_timer_start(&timer_, &LoopCore::onTimer, milliseconds, 0);
}

void LoopCore::onTimer(uv_timer_t* handle) noexcept {
  auto* const core = static_cast<LoopCore*>(handle->data);
  core->enter();
  core->expireTimers();
}

void LoopCore::expireTimers() noexcept {
  armedFor_ = SteadyClock::time_point::max();
  const auto now = SteadyClock::now();
  expiringAt_ = now + SteadyClock::duration(1);
  while (!abandoned() && timers_.nextDue() <= now) {
    Timer& timer = timers_.top();
    disarm(timer);
    UniqueFunction<void()> onExpiry = std::move(timer.onExpiry_);
    bool destroyed = false;
    timer.destroyed_ = &destroyed;
    guarded(onExpiry);
    if (!destroyed) {
      timer.destroyed_ = nullptr;
      timer.onExpiry_ = std::move(onExpiry);
    }
  }
  if (!closing_) {
    scheduleTimer();
  }
  expiringAt_ = SteadyClock::time_point::min();
}

void LoopCore::startPoll(Poll& poll, int events, Poll::Callback callback) {
  if (poll.handle_ == nullptr) {
    auto handle = std::make_unique<PollHandle>();
    if (const int status = uv_poll_init(loop_, &handle->uv, poll.fd_); status != 0) {
      throwCannot("watch a socket", uv_strerror(status));
    }
    handle->uv.data = handle.get();
    handle->core = this;
    handle->owner = &poll;
    handle->next = polls_;
    if (polls_ != nullptr) {
      polls_->previous = handle.get();
    }
    polls_ = handle.get();
    ++openHandles_;
    poll.handle_ = handle.release();
  }
  poll.handle_->callback = std::move(callback);
  setPollEvents(poll, events);
}

void LoopCore::setPollEvents(Poll& poll, int events) {
  if (const int status = uv_poll_start(&poll.handle_->uv, events, &LoopCore::onPoll); status != 0) {
    closePoll(poll.handle_);
    throwCannot("watch a socket", uv_strerror(status));
  }
}

void LoopCore::closePoll(PollHandle* handle) noexcept {
  if (handle->previous != nullptr) {
    handle->previous->next = handle->next;
  } else {
    handle->core->polls_ = handle->next;
  }
  if (handle->next != nullptr) {
    handle->next->previous = handle->previous;
  }
  handle->owner->handle_ = nullptr;
  handle->owner = nullptr;
  // Not merely stopped: closing it later would touch the descriptor again, which may be another
  // one's by then.
  uv_close(reinterpret_cast<uv_handle_t*>(&handle->uv), &LoopCore::onPollClosed);
}

void LoopCore::onPollClosed(uv_handle_t* uv) noexcept {
  const std::unique_ptr<PollHandle> handle(static_cast<PollHandle*>(uv->data));
  handle->core->handleClosed();
}

void LoopCore::onPoll(uv_poll_t* uv, int status, int events) noexcept {
  auto* const handle = static_cast<PollHandle*>(uv->data);
  handle->core->enter();
  Poll::Callback callback = std::move(handle->callback);
  handle->core->guarded([&] { callback(status, events); });
  if (handle->owner != nullptr && handle->callback == nullptr) {
    handle->callback = std::move(callback);
  }
}

Loop::Loop(std::shared_ptr<LoopCore> core) noexcept : core_(std::move(core)) {}

std::shared_ptr<Loop> Loop::createOwned(std::string threadName) {
  auto core = std::make_shared<LoopCore>();
  core->open(nullptr);
  core->startThread(std::move(threadName));
  return std::shared_ptr<Loop>(new Loop(std::move(core)));
}

std::shared_ptr<Loop> Loop::adopt(uv_loop_t* loop) {
  auto core = std::make_shared<LoopCore>();
  core->open(loop);
  return std::shared_ptr<Loop>(new Loop(std::move(core)));
}

Loop::~Loop() {
  if (abandoned()) {
    abandonInChild();
    return;
  }
  stop(SteadyClock::now() + std::chrono::seconds(1));
}

void Loop::post(UniqueFunction<void()> function) {
  core_->post(std::move(function));
}

bool Loop::onLoopThread() const noexcept {
  return core_->onLoopThread();
}

uv_loop_t* Loop::raw() noexcept {
  return core_->raw();
}

void Loop::atPassEnd(UniqueFunction<void()> function) {
  core_->atPassEnd(std::move(function));
}

bool Loop::stop(SteadyClock::time_point deadline) noexcept {
  return core_->stop(deadline);
}

void Loop::setErrorHook(std::function<void(const char*)> hook) {
  core_->setErrorHook(std::move(hook));
}

void Loop::abandonInChild() noexcept {
  core_->abandon();
  // The thread object in it cannot be destroyed in a process that lacks the thread.
  keepForever(core_);
}

bool Loop::abandoned() const noexcept {
  return core_->abandoned();
}

LoopTask::LoopTask(Loop& loop, UniqueFunction<void()> function)
    : core_(loop.core_), node_(std::make_unique<QueuedFunction>(std::move(function), true)) {}

LoopTask::~LoopTask() = default;

void LoopTask::post(std::shared_ptr<const void> owner) noexcept {
  core_->post(*node_, std::move(owner));
}

void LoopTask::atPassEnd(std::shared_ptr<const void> owner) noexcept {
  core_->atPassEnd(*node_, std::move(owner));
}

Timer::Timer(Loop& loop, UniqueFunction<void()> onExpiry)
    : core_(loop.core_), onExpiry_(std::move(onExpiry)) {}

Timer::~Timer() {
  disarm();
  if (destroyed_ != nullptr) {
    *destroyed_ = true;
  }
}

void Timer::armAt(SteadyClock::time_point due) noexcept {
  core_->arm(*this, due);
}

void Timer::disarm() noexcept {
  core_->disarm(*this);
}

Poll::Poll(Loop& loop, int fd) : core_(loop.core_), fd_(fd) {}

Poll::~Poll() {
  stop();
}

void Poll::start(int uvEvents, Callback callback) {
  if (core_->usable()) {
    core_->startPoll(*this, uvEvents, std::move(callback));
  }
}

void Poll::setEvents(int uvEvents) {
  if (handle_ != nullptr && core_->usable()) {
    core_->setPollEvents(*this, uvEvents);
  }
}

void Poll::stop() noexcept {
  if (handle_ != nullptr && !core_->abandoned()) {
    LoopCore::closePoll(handle_);
  }
}

}  // namespace rlock::detail::net

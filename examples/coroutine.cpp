// SPDX-License-Identifier: Apache-2.0
// co_await: many tasks share one lock without a thread each. A coroutine may be resumed on another
// thread than it started on, so it names its owner.
#include "server_uri.hpp"
#include <rlock/rlock.hpp>

#include <coroutine>
#include <exception>
#include <future>
#include <iostream>
#include <vector>

namespace {

// The least a coroutine needs; any task type that resumes where it is told to will do.
struct Task {
  struct promise_type {
    std::promise<void> finished;

    Task get_return_object() { return {finished.get_future()}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() { finished.set_value(); }
    void unhandled_exception() { finished.set_exception(std::current_exception()); }
  };

  std::future<void> finished;
};

Task addOne(rlock::RLock lock, int& counter) {
  const rlock::OwnerId owner = rlock::newOwner();
  // Two statements, because GCC 12 destroys the AcquireOptions twice if they are a temporary inside
  // the co_await expression.
  auto locking = lock.lockAsync({}, owner);
  co_await locking;
  const int before = counter;
  std::cout << "task of owner " << owner.value << " counts to " << before + 1 << '\n';
  counter = before + 1;
  co_await lock.unlockAsync(owner);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    auto client = rlock::Client::connect(serverUri(argc, argv));
    int counter = 0;
    std::vector<Task> tasks;
    for (int i = 0; i < 5; ++i) {
      tasks.push_back(addOne(client.getLock("example:counter"), counter));
    }
    for (auto& task : tasks) {
      task.finished.get();  // throws what the coroutine threw
    }
    std::cout << "counted to " << counter << '\n';
  } catch (const rlock::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}

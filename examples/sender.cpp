// SPDX-License-Identifier: Apache-2.0
// An acquisition in the form of a sender, as std::execution (P2300) has them: connect() joins it
// with a receiver, start() begins, and the receiver is told by set_value(), set_error() or
// set_stopped(). With a library of senders only the sender is needed; then() and syncWait() stand
// for that library here.
#include "server_uri.hpp"
#include <rlock/rlock.hpp>

#include <chrono>
#include <future>
#include <iostream>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

using namespace std::chrono_literals;

namespace {

/// The operation state, which connect() makes of the sender and a receiver.
template <class Receiver>
class AcquireState {
 public:
  AcquireState(rlock::RLock lock, rlock::AcquireOptions options, Receiver receiver)
      : lock_(std::move(lock)), options_(std::move(options)), receiver_(std::move(receiver)) {}
  AcquireState(const AcquireState&) = delete;  // the handler has its address
  AcquireState& operator=(const AcquireState&) = delete;
  ~AcquireState() = default;

  void start() noexcept {
    try {
      options_.stop = receiver_.stopToken();
      lock_.acquireAsync(options_).start(
          [this](rlock::Result<rlock::Lease> result) { tell(std::move(result)); });
    } catch (const rlock::Error& error) {
      receiver_.set_error(error);
    }
  }

 private:
  /// On the client's loop thread, or where Options::executor runs it.
  void tell(rlock::Result<rlock::Lease> result) noexcept {
    if (result) {
      receiver_.set_value(*std::move(result));
    } else if (result.error().errc() == rlock::Errc::cancelled) {
      receiver_.set_stopped();
    } else {
      receiver_.set_error(result.error());
    }
  }

  rlock::RLock lock_;
  rlock::AcquireOptions options_;
  Receiver receiver_;
};

/// Sends a Lease.
class AcquireSender {
 public:
  AcquireSender(rlock::RLock lock, rlock::AcquireOptions options)
      : lock_(std::move(lock)), options_(std::move(options)) {}

  template <class Receiver>
  AcquireState<Receiver> connect(Receiver receiver) && {
    return {std::move(lock_), std::move(options_), std::move(receiver)};
  }

 private:
  rlock::RLock lock_;
  rlock::AcquireOptions options_;
};

// ------------------------------------------------- what a library of senders brings: an adaptor
// ...

template <class Sender, class Function>
class ThenSender {
 public:
  ThenSender(Sender sender, Function function)
      : sender_(std::move(sender)), function_(std::move(function)) {}

  template <class Receiver>
  struct Between {
    Receiver receiver;
    Function function;

    [[nodiscard]] std::stop_token stopToken() const { return receiver.stopToken(); }
    template <class T>
    void set_value(T value) {
      receiver.set_value(function(std::move(value)));
    }
    void set_error(const rlock::Error& error) { receiver.set_error(error); }
    void set_stopped() { receiver.set_stopped(); }
  };

  template <class Receiver>
  auto connect(Receiver receiver) && {
    return std::move(sender_).connect(Between<Receiver>{std::move(receiver), std::move(function_)});
  }

 private:
  Sender sender_;
  Function function_;
};

template <class Sender, class Function>
ThenSender<Sender, Function> then(Sender sender, Function function) {
  return {std::move(sender), std::move(function)};
}

// ------------------------------------------------------------------------- ... and a place to wait

/// The value; empty when it was stopped; throws what went wrong.
template <class T, class Sender>
std::optional<T> syncWait(Sender sender, std::stop_token stop = {}) {
  struct Receiver {
    std::promise<std::optional<T>>* result;
    std::stop_token stop;

    [[nodiscard]] std::stop_token stopToken() const { return stop; }
    void set_value(T value) { result->set_value(std::move(value)); }
    void set_error(const rlock::Error& error) {
      result->set_exception(std::make_exception_ptr(error));
    }
    void set_stopped() { result->set_value(std::nullopt); }
  };
  std::promise<std::optional<T>> result;
  auto future = result.get_future();
  auto state = std::move(sender).connect(Receiver{&result, std::move(stop)});
  state.start();
  return future.get();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    auto client = rlock::Client::connect(serverUri(argc, argv));
    rlock::RLock lock = client.getLock("example:sender");

    const std::optional<bool> held = syncWait<bool>(then(
        AcquireSender(lock, {.wait = 2s}), [](const rlock::Lease& lease) { return lease.held(); }));
    std::cout << "held: " << held.value_or(false) << '\n';

    const rlock::Lease elsewhere = lock.acquire();
    std::stop_source stop;
    const std::jthread impatient([&stop] {
      std::this_thread::sleep_for(50ms);
      stop.request_stop();
    });
    const auto stopped = syncWait<rlock::Lease>(AcquireSender(lock, {}), stop.get_token());
    std::cout << (stopped ? "not stopped" : "stopped") << '\n';
    return held.value_or(false) && !stopped ? 0 : 1;
  } catch (const rlock::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}

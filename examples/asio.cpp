// SPDX-License-Identifier: Apache-2.0
// A server of Asio coroutines: each connection asks for bookings, and each booking is made under a
// lock that all servers share. One thread serves everybody, so nothing may block it.
// With Boost.Asio it is <rlock/boost_asio.hpp>, useBoostAsio() and boost::asio.
#include "server_uri.hpp"
#include <rlock/asio.hpp>
#include <rlock/rlock.hpp>

#include <asio.hpp>
#include <chrono>
#include <iostream>
#include <string>

using namespace std::chrono_literals;
using asio::ip::tcp;

namespace {

class Bookings {
 public:
  explicit Bookings(rlock::RLock lock) : lock_(std::move(lock)) {}

  asio::awaitable<std::string> book(int amount) {
    // A coroutine has no thread whose name could stand for it: without this owner all coroutines
    // would be one, and the lock would let them in together.
    const rlock::OwnerId owner = rlock::newOwner();
    // The operation has a name because GCC 12 destroys options twice that are made inside of a
    // co_await expression.
    auto locking = lock_.tryLockAsync({.wait = 2s, .label = "booking"}, owner);
    if (!co_await rlock::useAsio(std::move(locking))) {
      co_return "busy\n";
    }
    const int before = balance_;
    asio::steady_timer disk(co_await asio::this_coro::executor, 5ms);
    co_await disk.async_wait(asio::use_awaitable);  // others are served, none of them books
    balance_ = before + amount;
    co_await rlock::useAsio(lock_.unlockAsync(owner));  // throws if the hold was lost meanwhile
    co_return std::to_string(balance_) + '\n';
  }

  asio::awaitable<bool> isOpen() {
    // acquireAsync() makes an owner by itself, and its Lease releases in the background.
    const rlock::Lease lease = co_await rlock::useAsio(lock_.acquireAsync());
    co_return lease.held() && balance_ >= 0;
  }

  [[nodiscard]] int balance() const { return balance_; }

 private:
  rlock::RLock lock_;
  int balance_ = 0;
};

asio::awaitable<std::string> readLine(tcp::socket& socket) {
  std::string line;
  const std::size_t size = co_await asio::async_read_until(
      socket, asio::dynamic_buffer(line), '\n', asio::use_awaitable);
  co_return line.substr(0, size);
}

asio::awaitable<void> serve(tcp::socket socket, Bookings& bookings) {
  const int amount = std::stoi(co_await readLine(socket));
  std::string answer = "closed\n";
  if (co_await bookings.isOpen()) {
    answer = co_await bookings.book(amount);
  }
  co_await asio::async_write(socket, asio::buffer(answer), asio::use_awaitable);
}

void report(const std::exception_ptr& failure) {
  try {
    if (failure) {
      std::rethrow_exception(failure);
    }
  } catch (const std::exception& error) {  // an rlock::Error with its whole text
    std::cerr << error.what() << '\n';
  }
}

asio::awaitable<void> listen(tcp::acceptor& acceptor, Bookings& bookings, int connections) {
  for (int i = 0; i < connections; ++i) {
    tcp::socket socket = co_await acceptor.async_accept(asio::use_awaitable);
    asio::co_spawn(acceptor.get_executor(), serve(std::move(socket), bookings), report);
  }
}

asio::awaitable<void> ask(tcp::endpoint server, int amount) {
  tcp::socket socket(co_await asio::this_coro::executor);
  co_await socket.async_connect(server, asio::use_awaitable);
  const std::string request = std::to_string(amount) + '\n';
  co_await asio::async_write(socket, asio::buffer(request), asio::use_awaitable);
  std::cout << "booked " << amount << ", now " << co_await readLine(socket);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    auto client = rlock::Client::connect(serverUri(argc, argv));
    Bookings bookings(client.getLock("example:bookings"));
    asio::io_context context;  // after the client: what waits is ended before the client goes
    tcp::acceptor acceptor(context, {asio::ip::address_v4::loopback(), 0});
    constexpr int kRequests = 10;
    asio::co_spawn(context, listen(acceptor, bookings, kRequests), report);
    for (int i = 1; i <= kRequests; ++i) {
      asio::co_spawn(context, ask(acceptor.local_endpoint(), i), report);
    }
    context.run();
    return bookings.balance() == kRequests * (kRequests + 1) / 2 ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}

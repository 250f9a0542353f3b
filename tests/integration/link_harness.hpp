// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "integration/fake_server.hpp"
#include "integration/net_harness.hpp"
#include "net/command_link.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::test {

using namespace std::chrono_literals;
using detail::IntrusivePtr;
using detail::makeIntrusive;
using detail::net::CommandLink;
using detail::net::LinkSettings;
using detail::net::LoneRequest;
using detail::net::Request;
using detail::net::ServerSession;

/// Records its end; a test may add what completing it does.
class TestRequest final : public LoneRequest {
 public:
  explicit TestRequest(std::function<void()> onCompleted = {})
      : onCompleted_(std::move(onCompleted)) {}
  [[nodiscard]] bool isCompleted() const { return completed_; }

 private:
  void completed() noexcept override {
    if (onCompleted_) {
      onCompleted_();
    }
    completed_ = true;
  }

  std::function<void()> onCompleted_;
  std::atomic<bool> completed_{false};
};

/// Sets a flag when a test ends, early or not. It stands below the harness whose end waits for it.
class SetAtEnd {
 public:
  explicit SetAtEnd(std::atomic<bool>& flag) : flag_(flag) {}
  SetAtEnd(const SetAtEnd&) = delete;
  SetAtEnd& operator=(const SetAtEnd&) = delete;
  ~SetAtEnd() { flag_ = true; }

 private:
  std::atomic<bool>& flag_;
};

/// A command link to a port, with its loop.
class LinkHarness : private detail::net::LinkEvents {
 public:
  using Mode = CommandLink::Mode;

  explicit LinkHarness(std::uint16_t port, std::function<void(LinkSettings&)> adjust = {}) {
    LinkSettings settings = settingsFor({tcp(port)});
    settings.replyTimeout = 300ms;
    if (adjust) {
      adjust(settings);
    }
    link_ = std::make_shared<CommandLink>(harness_.loop(),
                                          settings,
                                          static_cast<detail::net::LinkEvents&>(*this),
                                          std::chrono::microseconds(0));
    harness_.run([this] { link_->open(); });
  }
  LinkHarness(const LinkHarness&) = delete;
  LinkHarness& operator=(const LinkHarness&) = delete;
  ~LinkHarness() override { close(); }

  void close() {
    harness_.run([this] { link_->close(); });
  }
  [[nodiscard]] CommandLink& link() { return *link_; }
  [[nodiscard]] LoopHarness& loop() { return harness_; }
  [[nodiscard]] bool waitUntilUp() {
    const Deadline deadline(kLong);
    while (!link_->up() && !deadline.expired()) {
      std::this_thread::sleep_for(1ms);
    }
    return link_->up();
  }
  [[nodiscard]] int downs() const { return downs_; }
  /// Of the last time.
  [[nodiscard]] std::string whyDown() {
    return harness_.run([this] { return whyDown_; });
  }
  void whenUp(std::function<void()> function) {
    harness_.run([&] { whenUp_ = std::move(function); });
  }

  bool submit(Request& request, std::initializer_list<std::string_view> argv, Mode mode) {
    const std::vector<std::string_view> words(argv);
    return link_->submit(request, words, mode);
  }

 private:
  void onUp(const std::shared_ptr<const ServerSession>& /*session*/) override {
    if (whenUp_) {
      whenUp_();
    }
  }
  void onDown(const Error& error) override {
    whyDown_ = error.what();
    ++downs_;
  }

  LoopHarness harness_;
  std::shared_ptr<CommandLink> link_;
  std::atomic<int> downs_{0};
  std::string whyDown_;
  std::function<void()> whenUp_;
};

}  // namespace rlock::test

// SPDX-License-Identifier: Apache-2.0
#include "net/loop.hpp"

#include "net/function_queue.hpp"
#include "net/loop_core.hpp"
#include <rlock/detail/base/fork.hpp>

#include <utility>

namespace rlock::detail::net {

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
  stop(std::chrono::steady_clock::now() + std::chrono::seconds(1));
}

void Loop::post(UniqueFunction<void()> function) {
  core_->posted().post(std::move(function));
}

bool Loop::onLoopThread() const noexcept {
  return core_->thread().onIt();
}

uv_loop_t* Loop::raw() noexcept {
  return core_->raw();
}

void Loop::atPassEnd(UniqueFunction<void()> function) {
  core_->passEnd().add(std::move(function));
}

bool Loop::stop(std::chrono::steady_clock::time_point deadline) noexcept {
  return core_->stop(deadline);
}

void Loop::keepToTheEnd(std::shared_ptr<const void> object) noexcept {
  core_->keepToTheEnd(std::move(object));
}

void Loop::setErrorHook(std::function<void(const char*)> hook) {
  core_->thread().setErrorHook(std::move(hook));
}

void Loop::abandonInChild() noexcept {
  core_->thread().abandon();
  // The thread object in it cannot be destroyed in a process that lacks the thread.
  keepForever(core_);
}

bool Loop::abandoned() const noexcept {
  return core_->thread().abandoned();
}

LoopTask::LoopTask(Loop& loop, UniqueFunction<void()> function)
    : core_(loop.core_), node_(std::make_unique<QueuedFunction>(std::move(function), true)) {}

LoopTask::~LoopTask() = default;

void LoopTask::post(std::shared_ptr<const void> owner) noexcept {
  core_->posted().post(*node_, std::move(owner));
}

void LoopTask::atPassEnd(std::shared_ptr<const void> owner) noexcept {
  core_->passEnd().add(*node_, std::move(owner));
}

}  // namespace rlock::detail::net

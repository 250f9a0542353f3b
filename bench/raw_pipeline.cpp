// SPDX-License-Identifier: Apache-2.0
#include "raw_pipeline.hpp"

#include <fmt/format.h>
#include <hiredis/hiredis.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <fcntl.h>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/epoll.h>
#include <unistd.h>

namespace rlock::bench {

namespace {

std::string request(std::initializer_list<std::string_view> words) {
  std::string text = fmt::format("*{}\r\n", words.size());
  for (const std::string_view word : words) {
    text += fmt::format("${}\r\n{}\r\n", word.size(), word);
  }
  return text;
}

struct Chain {
  std::string lock;
  std::string unlock;
  bool locked = false;
};

struct ReaderDeleter {
  void operator()(redisReader* reader) const noexcept { ::redisReaderFree(reader); }
};

}  // namespace

struct RawPipeline::Link {
  Connection connection;
  std::vector<Chain> chains;
  std::deque<std::size_t> awaited;  // whose reply comes next
  std::string output;
  std::unique_ptr<redisReader, ReaderDeleter> reader{::redisReaderCreate()};
};

RawPipeline::RawPipeline(const Context& context,
                         const Scripts& scripts,
                         int connections,
                         int inFlight)
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  for (int c = 0; c < connections; ++c) {
    auto link = std::unique_ptr<Link>(new Link{Connection(context.options), {}, {}, {}});
    for (int i = 0; i < inFlight; ++i) {
      const std::string name = fmt::format("bench:raw:{}:{}", c, i);
      const std::string owner = "6f1a0c5e-37a2-4f4e-9d3c-0123456789ab:1";
      link->chains.push_back({request({"EVALSHA", scripts.acquire, "1", name, "30000", owner}),
                              request({"EVALSHA",
                                       scripts.release,
                                       "1",
                                       name,
                                       owner,
                                       "0",
                                       "PUBLISH",
                                       "30000",
                                       channelOf(name)})});
      link->output += link->chains.back().lock;
      link->awaited.push_back(static_cast<std::size_t>(i));
    }
    const int descriptor = link->connection.descriptor();
    ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = link.get();
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event);
    links_.push_back(std::move(link));
  }
  thread_ = std::thread([this] { run(); });
}

RawPipeline::~RawPipeline() {
  stop_ = true;
  thread_.join();
  ::close(epoll_);
}

void RawPipeline::check() const {
  if (failed_) {
    throw std::runtime_error("the pipelined client met an unexpected reply");
  }
}

void RawPipeline::run() {
  try {
    for (const auto& link : links_) {
      exchange(*link);
    }
    std::array<epoll_event, 64> events{};
    const auto busy = [](const std::unique_ptr<Link>& link) { return !link->awaited.empty(); };
    while (std::any_of(links_.begin(), links_.end(), busy)) {
      const int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), 10);
      for (int i = 0; i < count; ++i) {
        exchange(*static_cast<Link*>(events.at(static_cast<std::size_t>(i)).data.ptr));
      }
    }
  } catch (const std::exception&) {
    failed_ = true;
  }
}

void RawPipeline::exchange(Link& link) {
  const int descriptor = link.connection.descriptor();
  std::array<char, 65536> buffer;
  for (;;) {
    const ssize_t size = ::read(descriptor, buffer.data(), buffer.size());
    if (size < 0 && errno == EAGAIN) {
      break;
    }
    if (size <= 0) {
      throw std::runtime_error("the connection was lost");
    }
    ::redisReaderFeed(link.reader.get(), buffer.data(), static_cast<std::size_t>(size));
    if (static_cast<std::size_t>(size) < buffer.size()) {
      break;
    }
  }
  std::uint64_t done = 0;
  for (;;) {
    void* raw = nullptr;
    if (::redisReaderGetReply(link.reader.get(), &raw) != REDIS_OK) {
      throw std::runtime_error("not the Redis protocol");
    }
    if (raw == nullptr) {
      break;
    }
    const ReplyPtr reply(static_cast<redisReply*>(raw));
    const std::size_t index = link.awaited.front();
    link.awaited.pop_front();
    Chain& chain = link.chains[index];
    const bool right = chain.locked ? isReleased(*reply) : isAcquired(*reply);
    if (!right) {
      throw std::runtime_error("unexpected reply");
    }
    done += chain.locked ? 1 : 0;
    chain.locked = !chain.locked;
    if (!chain.locked && stop_.load(std::memory_order_relaxed)) {
      continue;
    }
    link.output += chain.locked ? chain.unlock : chain.lock;
    link.awaited.push_back(index);
  }
  pairs_.fetch_add(done, std::memory_order_relaxed);
  // The replies to what is in flight are bounded, so the server always takes it all in the end.
  while (!link.output.empty()) {
    const ssize_t size = ::write(descriptor, link.output.data(), link.output.size());
    if (size > 0) {
      link.output.erase(0, static_cast<std::size_t>(size));
    } else if (errno != EAGAIN) {
      throw std::runtime_error("the connection was lost");
    } else {
      std::this_thread::yield();
    }
  }
}

}  // namespace rlock::bench

// SPDX-License-Identifier: Apache-2.0
#include "net/resolver.hpp"

#include "base/detached_thread.hpp"
#include "net/blocked_signals.hpp"
#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/fork.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <new>
#include <pthread.h>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace rlock::detail::net {

using SteadyClock = std::chrono::steady_clock;

namespace {

constexpr unsigned kThreadsPerName = 4;

struct Asker {
  std::weak_ptr<Loop> loop;
  std::weak_ptr<NameLookup::Handler> handler;
};

struct Name {
  std::vector<Asker> askers;
  unsigned threads = 0;
  SteadyClock::time_point lastStarted{};
};

struct Lookups {
  AnnotatedMutex mutex;
  std::map<std::string, Name, std::less<>> names RLOCK_GUARDED_BY(mutex);
};

constinit PerProcess<Lookups> lookups;

NameAnswer ask(const std::string& host) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  if (std::any_of(host.begin(), host.end(), [](char c) { return (c & 0x80) != 0; })) {
    hints.ai_flags = AI_IDN;
  }
  addrinfo* list = nullptr;
  const int status = ::getaddrinfo(host.c_str(), nullptr, &hints, &list);
  if (status == EAI_SYSTEM) {
    return {std::generic_category().message(errno), nullptr};
  }
  if (status != 0) {
    return {::gai_strerror(status), nullptr};
  }
  return {{}, std::shared_ptr<const addrinfo>(list, [](addrinfo* all) { ::freeaddrinfo(all); })};
}

/// The process may end at any point of it, so it uses nothing that is destroyed at exit.
void lookUp(Lookups& all, const std::string& host) noexcept {
  pthread_setname_np(pthread_self(), "rlock-resolve");
  NameAnswer answer;
  bool answered = false;
  try {
    answer = ask(host);
    answered = true;
  } catch (const std::bad_alloc&) {
    // The asker has a time limit.
  }
  std::vector<Asker> askers;
  {
    const MutexLock lock(all.mutex);
    const auto found = all.names.find(host);
    askers.swap(found->second.askers);
    if (--found->second.threads == 0) {
      all.names.erase(found);
    }
  }
  for (const Asker& asker : askers) {
    const std::shared_ptr<Loop> loop = asker.loop.lock();
    if (!loop || !answered) {
      continue;
    }
    try {
      loop->post([weak = asker.handler, answer] {
        if (const auto handler = weak.lock()) {
          // Called once: it may destroy the lookup, or start another.
          NameLookup::Handler call = std::move(*handler);
          call(answer);
        }
      });
    } catch (const std::bad_alloc&) {
      // Likewise.
    }
  }
}

}  // namespace

NameLookup::NameLookup(Loop& loop,
                       const std::string& host,
                       Handler handler,
                       std::chrono::milliseconds patience)
    : handler_(std::make_shared<Handler>(std::move(handler))) {
  Lookups& all = lookups.get();
  const MutexLock lock(all.mutex);
  Name& name = all.names[host];
  std::erase_if(name.askers, [](const Asker& asker) { return asker.handler.expired(); });
  name.askers.push_back({loop.weak_from_this(), handler_});
  const auto now = SteadyClock::now();
  if (name.threads > 0 && (name.threads == kThreadsPerName || now - name.lastStarted < patience)) {
    return;
  }
  try {
    const BlockedSignals blocked;
    startDetached([&all, host] { lookUp(all, host); });
  } catch (...) {
    name.askers.pop_back();
    if (name.threads == 0) {
      all.names.erase(host);
    }
    throw;
  }
  ++name.threads;
  name.lastStarted = now;
}

}  // namespace rlock::detail::net

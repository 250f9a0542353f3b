// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.hpp"
#include "cli/connection.hpp"
#include "cli/doctor_probe.hpp"
#include "cli/doctor_report.hpp"
#include "cli/exit_codes.hpp"
#include <rlock/count_down_latch.hpp>
#include <rlock/rlock.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace rlock::cli {

namespace {

using std::chrono::milliseconds;

/// The client's warnings, from any thread.
class Warnings {
 public:
  void add(std::string_view line) {
    const std::scoped_lock lock(mutex_);
    lines_.emplace_back(line);
  }
  std::vector<std::string> take() {
    const std::scoped_lock lock(mutex_);
    return std::exchange(lines_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

/// The checks, one after the other, and what they have found.
///
/// A Doctor examines once; its findings are in the order of its checks. Each use of a lock has a
/// name of its own, with the process id in it, so that neither what another doctor does nor what a
/// refused release has left behind is taken for a finding. An error of such a use is a finding, and
/// one that is no matter of rights has the remaining uses left out, because each would take as long
/// as its time limit. The client's warnings during a use count for it; those that come between
/// two uses count for neither.
///
/// **Thread safety:** The thread of the command only. The client's own threads have the Warnings,
/// which they share, and nothing else of it.
class Doctor {
 public:
  explicit Doctor(const Arguments& arguments)
      : arguments_(arguments),
        prefix_(fmt::format("{}:{}",
                            arguments.lock.name.empty() ? "rlock-doctor" : arguments.lock.name,
                            ::getpid())) {}

  std::vector<Finding> examine() {
    if (connect()) {
      askServer();
      measure();
      tryKinds();
    }
    return std::move(findings_);
  }

 private:
  bool connect() {
    try {
      options_ = clientOptions(arguments_, arguments_.uri);
      // A waiter of this client is to hear the message that other clients' waiters get.
      options_.handOverLimit = 0;
    } catch (const Error& error) {
      findings_.push_back(
          {Verdict::bad, "URI", error.message(), "see docs/configuration.md, URIs"});
      return false;
    }
    options_.log = [warnings = warnings_](LogLevel level, std::string_view line) {
      if (level >= LogLevel::warning) {
        warnings->add(line);
      }
    };
    // The counters of fenced locks last longer than the locks: those of these checks shall not.
    options_.fencingTokenRetention = std::chrono::seconds(1);
    options_.commandTimeout = std::min(options_.commandTimeout, milliseconds(2000));
    options_.callTimeout = milliseconds(2000);
    try {
      client_.emplace(Client::connect(options_));
    } catch (const Error& error) {
      const bool single = options_.topology == Topology::single;
      const Peer peer =
          single && (error.errc() == Errc::connectionFailed || error.errc() == Errc::timedOut ||
                     error.errc() == Errc::protocolError || error.errc() == Errc::serverError ||
                     error.errc() == Errc::denied || error.errc() == Errc::authenticationFailed)
              ? lookAt(options_.endpoints.front())
              : Peer::unknown;
      findings_.push_back(judgeConnection(error, peer, options_.tls));
      return false;
    }
    findings_.push_back({Verdict::good, "connection", uriWithoutSecrets(arguments_.uri), ""});
    return true;
  }

  // Asks what the client does not ask itself. Over TLS, and behind Sentinels, the client's own
  // answers must do.
  void askServer() {
    if (options_.tls || options_.topology != Topology::single) {
      const Capabilities found = client_->capabilities();
      findings_.push_back({Verdict::good,
                           "version",
                           detail::escapeForDisplay(found.server + " " + found.version),
                           ""});
      if (!found.mode.empty()) {
        findings_.push_back({Verdict::good, "mode", detail::escapeForDisplay(found.mode), ""});
      }
      findings_.push_back(
          {Verdict::note,
           "server",
           "memory, persistence and clock are not looked at over TLS, Sentinels or a cluster",
           "name a single node without TLS to have them looked at"});
      return;
    }
    std::optional<Account> account = accountOfServer();
    if (!account) {
      findings_.push_back({Verdict::note,
                           "INFO",
                           "could not be asked for on a connection of its own, so less is known of "
                           "the server",
                           "try again"});
      return;
    }
    if (!account->info) {
      findings_.push_back({Verdict::note,
                           "INFO",
                           "is not permitted, so less is known of the server",
                           "grant +info"});
    }
    const auto info = parseInfo(account->info.value_or(""));
    for (Finding& finding : judgeServer(info, skewOf(account->probe))) {
      findings_.push_back(std::move(finding));
    }
  }

  /// A server's words about itself, and the connection to ask it for more.
  struct Account {
    Probe probe;
    std::optional<std::string> info;  ///< empty: it does not say
  };

  // Of the server that the client uses: of several addresses the first one of a master, else the
  // first that can be reached.
  [[nodiscard]] std::optional<Account> accountOfServer() const {
    std::optional<Account> first;
    for (const Endpoint& endpoint : options_.endpoints) {
      Account account{Probe(endpoint, milliseconds(2000)), std::nullopt};
      if (!account.probe.connected()) {
        continue;
      }
      account.probe.authenticate(options_);
      account.info = account.probe.askForText("INFO");
      const auto info = parseInfo(account.info.value_or(""));
      const auto role = info.find("role");
      if (role != info.end() && role->second == "master") {
        return account;
      }
      if (!first) {
        first = std::move(account);
      }
    }
    return first;
  }

  static std::optional<milliseconds> skewOf(Probe& probe) {
    const std::string answer = probe.ask("TIME");
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    // *2, then seconds and microseconds as bulk strings.
    std::vector<std::string> lines;
    for (std::size_t begin = 0; begin < answer.size();) {
      const std::size_t end = answer.find("\r\n", begin);
      if (end == std::string::npos) {
        break;
      }
      lines.push_back(answer.substr(begin, end - begin));
      begin = end + 2;
    }
    if (lines.size() != 5) {
      return std::nullopt;
    }
    const std::chrono::microseconds theirs(std::strtoll(lines[2].c_str(), nullptr, 10) * 1'000'000 +
                                           std::strtoll(lines[4].c_str(), nullptr, 10));
    return std::chrono::duration_cast<milliseconds>(theirs - now);
  }

  void measure() {
    std::vector<std::chrono::nanoseconds> times;
    try {
      for (int i = 0; i < 20; ++i) {
        times.push_back(client_->ping());
      }
      findings_.push_back(judgeRoundTrips(std::move(times)));
    } catch (const Error& error) {
      findings_.push_back(judgeUse("round trips", error));
    }
  }

  // Uses something, and tells how that went.
  void attempt(const std::string& subject,
               const std::function<void(const std::string& name)>& use) {
    if (hopeless_) {
      return;
    }
    (void)warnings_->take();
    bool complained = false;
    try {
      use(prefix_ + ":" + std::to_string(++names_));
    } catch (const Error& error) {
      findings_.push_back(judgeUse(subject, error));
      complained = true;
      // An error that is no matter of rights comes with every kind, and costs the same time each.
      hopeless_ |= error.errc() != Errc::denied && error.errc() != Errc::wrongType;
    }
    for (const std::string& line : warnings_->take()) {
      if (auto finding = judgeLogLine(subject, line)) {
        findings_.push_back(std::move(*finding));
        complained = true;
      }
    }
    if (!complained) {
      findings_.push_back({Verdict::good, subject, "works", ""});
    }
  }

  void takeAndRelease(RLock lock, const std::string& label = {}) {
    AcquireOptions options;
    options.label = label;
    auto lease = lock.tryAcquire(std::move(options));
    if (lease && lease->release() == ReleaseResult::unknown) {
      throw Error(Errc::denied, "a lock could be taken and not be released");
    }
  }

  // A waiter that is woken by a message is much faster than its next look, after safetyPoll.
  void handOver(const std::string& name) {
    RLock lock = client_->getLock(name);
    auto held = lock.tryAcquire();
    if (!held) {
      return;
    }
    AcquireOptions options;
    options.wait = std::chrono::seconds(4);
    auto next = lock.tryAcquireAsync(std::move(options)).toFuture();
    const auto patience = std::chrono::steady_clock::now() + milliseconds(500);
    while (client_->stats().messages == 0 && client_->stats().channels == 0 &&
           std::chrono::steady_clock::now() < patience) {
      std::this_thread::sleep_for(milliseconds(2));
    }
    // The confirmation has its waiter look once more, which must not be taken for a message.
    std::this_thread::sleep_for(milliseconds(50));
    const auto before = client_->stats().messages;
    held->release();
    auto lease = next.get();
    if (client_->stats().messages == before) {
      findings_.push_back(
          {Verdict::bad,
           "waking waiters",
           "no message came when a lock was released",
           "waiters would only look once a second: check PUBLISH, SUBSCRIBE and channels (&...)"});
    }
    if (lease) {
      lease->release();
    }
  }

  /// A key without an expiry must not stay where a later command is refused.
  template <class Object, class Use>
  static void removedOnFailure(Object& object, Use use) {
    try {
      use();
    } catch (...) {
      try {
        object.remove();
      } catch (const Error&) {
        // The first refusal is the one to tell.
      }
      throw;
    }
  }

  void tryKinds() {
    Client& client = *client_;
    attempt("lock", [&](const std::string& name) { takeAndRelease(client.getLock(name)); });
    attempt("waiting", [&](const std::string& name) { handOver(name); });
    attempt("label",
            [&](const std::string& name) { takeAndRelease(client.getLock(name), "rlock doctor"); });
    attempt("fair lock",
            [&](const std::string& name) { takeAndRelease(client.getFairLock(name)); });
    attempt("fenced lock",
            [&](const std::string& name) { takeAndRelease(client.getFencedLock(name)); });
    attempt("read-write lock", [&](const std::string& name) {
      takeAndRelease(client.getReadWriteLock(name).readLock());
      takeAndRelease(client.getReadWriteLock(name).writeLock());
    });
    attempt("simple lock",
            [&](const std::string& name) { takeAndRelease(client.getSimpleLock(name)); });
    attempt("semaphore", [&](const std::string& name) {
      Semaphore semaphore = client.getSemaphore(name);
      removedOnFailure(semaphore, [&] {
        semaphore.trySetPermits(1, std::chrono::seconds(60));
        if (semaphore.tryAcquire()) {
          semaphore.release();
        }
        semaphore.remove();
      });
    });
    attempt("expiring permits", [&](const std::string& name) {
      auto semaphore = client.getPermitExpirableSemaphore(name);
      removedOnFailure(semaphore, [&] {
        semaphore.trySetPermits(1);
        if (auto permit = semaphore.tryHold()) {
          permit->release();
        }
        semaphore.remove();
      });
    });
    attempt("latch", [&](const std::string& name) {
      CountDownLatch latch = client.getCountDownLatch(name);
      removedOnFailure(latch, [&] {
        latch.trySetCount(1);
        latch.countDown();
      });
    });
    attempt("show", [&](const std::string& name) { (void)client.inspect(name); });
    attempt("list", [&](const std::string& name) { (void)client.list(name); });
  }

  const Arguments& arguments_;
  std::string prefix_;
  int names_ = 0;
  bool hopeless_ = false;
  Options options_;
  std::shared_ptr<Warnings> warnings_ = std::make_shared<Warnings>();
  std::optional<Client> client_;
  std::vector<Finding> findings_;
};

}  // namespace

int doctorCommand(const Arguments& arguments) {
  const std::vector<Finding> findings = Doctor(arguments).examine();
  if (arguments.json) {
    fmt::print("{}\n", jsonOf(findings));
  } else {
    fmt::print("{}", textOf(findings, Style(arguments.color, STDOUT_FILENO)));
  }
  const bool healthy = std::none_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.verdict == Verdict::bad;
  });
  return number(healthy ? ExitCode::success : ExitCode::failure);
}

}  // namespace rlock::cli

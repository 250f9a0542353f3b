// SPDX-License-Identifier: Apache-2.0

// `rlock doctor`: connects, asks the server about itself, measures round trips, and uses an object
// of each kind as a service would. The Doctor does it, with the judgements of doctor_report.cpp;
// main() calls doctorCommand() once, on the main thread. An error of the server is a finding and
// not a failure of the program.
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
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
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
  [[nodiscard]] bool any() {
    const std::scoped_lock lock(mutex_);
    return !lines_.empty();
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
/// Of each kind that has a channel of its own somebody waits, too: rights that only waiters need
/// may be missing.
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
    wrong_.clear();
    try {
      use(prefix_ + ":" + std::to_string(++names_));
    } catch (const Error& error) {
      wrong_.push_back(judgeUse(subject, error));
      // An error that is no matter of rights comes with every kind, and costs the same time each.
      hopeless_ |= error.errc() != Errc::denied && error.errc() != Errc::wrongType;
    }
    for (const std::string& line : warnings_->take()) {
      if (auto finding = judgeLogLine(subject, line)) {
        wrong_.push_back(std::move(*finding));
      }
    }
    if (wrong_.empty()) {
      wrong_.push_back({Verdict::good, subject, "works", ""});
    }
    for (Finding& finding : wrong_) {
      findings_.push_back(std::move(finding));
    }
  }

  static void release(Lease& lease) {
    if (lease.release() == ReleaseResult::unknown) {
      throw Error(Errc::denied, "a lock could be taken and not be released");
    }
  }

  static void takeAndRelease(RLock lock, AcquireOptions options = {}) {
    if (auto lease = lock.tryAcquire(std::move(options))) {
      release(*lease);
    }
  }

  // False: the time is over, or there was a warning, which says more.
  bool comes(const std::function<bool()>& condition, milliseconds patience) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!condition()) {
      if (warnings_->any() || std::chrono::steady_clock::now() >= end) {
        return false;
      }
      std::this_thread::sleep_for(milliseconds(1));
    }
    return true;
  }

  /// Has somebody wait, lets the waiter in, and looks whether a message wakes it: otherwise it
  /// would only look once a second.
  /// @param stop  ends the wait
  /// @return what the waiter got; empty: nothing
  template <class T>
  std::optional<T> handOver(const std::string& subject,
                            Operation<T> waiting,
                            std::stop_source stop,
                            const std::function<void()>& letIn) {
    // It tries once, and once more when its subscription is confirmed, which must not be taken for
    // a message.
    const auto answered = client_->stats().roundTrips.count();
    auto waiter = std::move(waiting).toFuture();
    comes(
        [&] {
          return waiter.wait_for(milliseconds(0)) == std::future_status::ready ||
                 client_->stats().roundTrips.count() >= answered + 2;
        },
        milliseconds(2000));
    if (waiter.wait_for(milliseconds(0)) != std::future_status::ready) {
      const auto before = client_->stats().messages;
      try {
        letIn();
      } catch (...) {
        stop.request_stop();
        throw;
      }
      if (!comes([&] { return client_->stats().messages > before; }, milliseconds(500))) {
        if (!warnings_->any()) {
          wrong_.push_back({Verdict::bad,
                            subject,
                            "no message came to somebody who waited",
                            "waiters would only look once a second: check PUBLISH, SUBSCRIBE and "
                            "channels (&...)"});
        }
        stop.request_stop();
      }
    }
    try {
      return waiter.get();
    } catch (const Error& error) {
      if (error.errc() != Errc::cancelled) {
        throw;
      }
      return std::nullopt;
    }
  }

  void handOver(const std::string& subject, RLock lock) {
    auto held = lock.tryAcquire();
    if (!held) {
      return;
    }
    const std::stop_source stop;
    AcquireOptions options;
    options.wait = kLongestWait;
    options.stop = stop.get_token();
    auto waiting = lock.tryAcquireAsync(std::move(options));
    auto next = handOver(subject, std::move(waiting), stop, [&] { release(*held); });
    if (next && *next) {
      release(**next);
    }
  }

  /// Clears away what the use leaves, also when it fails: a key without an expiry must not stay.
  /// The first refusal is the one to tell.
  template <class Use, class ClearUp>
  static void clearedUp(Use use, ClearUp clearUp) {
    try {
      use();
    } catch (...) {
      try {
        clearUp();
      } catch (const Error&) {
        // It was refused before.
      }
      throw;
    }
    clearUp();
  }

  // A counter that is to stay for ever loses an expiry that somebody has given it, which takes a
  // right more. The counter of this check shall not stay: it is given one before and after that.
  void drawTokens(const std::string& name) {
    Options settings = options_;
    settings.fencingTokenRetention = std::chrono::seconds(5);
    Client brief = Client::connect(settings);
    const auto drawOne = [&name](Client& client) {
      AcquireOptions options;
      options.lease = std::chrono::seconds(5);
      takeAndRelease(client.getFencedLock(name), std::move(options));
    };
    drawOne(brief);
    if (options_.fencingTokenRetention.count() == 0) {
      clearedUp([&] { drawOne(*client_); }, [&] { drawOne(brief); });
    }
  }

  void tryKinds() {
    Client& client = *client_;
    attempt("lock", [&](const std::string& name) { takeAndRelease(client.getLock(name)); });
    attempt("waiting", [&](const std::string& name) { handOver("waiting", client.getLock(name)); });
    attempt("label", [&](const std::string& name) {
      AcquireOptions options;
      options.label = "rlock doctor";
      takeAndRelease(client.getLock(name), std::move(options));
    });
    attempt("fair lock",
            [&](const std::string& name) { handOver("fair lock", client.getFairLock(name)); });
    attempt("fenced lock", [&](const std::string& name) { drawTokens(name); });
    attempt("read-write lock", [&](const std::string& name) {
      takeAndRelease(client.getReadWriteLock(name).readLock());
      handOver("read-write lock", client.getReadWriteLock(name).writeLock());
    });
    attempt("simple lock",
            [&](const std::string& name) { handOver("simple lock", client.getSimpleLock(name)); });
    attempt("semaphore", [&](const std::string& name) { useSemaphore(name); });
    attempt("expiring permits", [&](const std::string& name) {
      auto semaphore = client.getPermitExpirableSemaphore(name);
      clearedUp(
          [&] {
            semaphore.trySetPermits(1);
            if (auto permit = semaphore.tryHold()) {
              permit->release();
            }
          },
          [&] { semaphore.remove(); });
    });
    attempt("latch", [&](const std::string& name) { useLatch(name); });
    attempt("show", [&](const std::string& name) { (void)client.inspect(name); });
    attempt("list", [&](const std::string& name) { (void)client.list(name); });
  }

  void useSemaphore(const std::string& name) {
    Semaphore semaphore = client_->getSemaphore(name);
    clearedUp(
        [&] {
          semaphore.trySetPermits(1, std::chrono::seconds(60));
          if (semaphore.tryAcquire()) {
            const std::stop_source stop;
            handOver("semaphore",
                     semaphore.tryAcquireAsync(stop.get_token(), 1, kLongestWait),
                     stop,
                     [&] { semaphore.release(); });
          }
        },
        [&] { semaphore.remove(); });
  }

  void useLatch(const std::string& name) {
    CountDownLatch latch = client_->getCountDownLatch(name);
    clearedUp(
        [&] {
          latch.trySetCount(1);
          const std::stop_source stop;
          handOver("latch", latch.awaitAsync(stop.get_token(), kLongestWait), stop, [&] {
            latch.countDown();
          });
        },
        [&] { latch.remove(); });
  }

  static constexpr std::chrono::seconds kLongestWait{4};

  const Arguments& arguments_;
  std::string prefix_;
  int names_ = 0;
  bool hopeless_ = false;
  Options options_;
  std::shared_ptr<Warnings> warnings_ = std::make_shared<Warnings>();
  std::optional<Client> client_;
  std::vector<Finding> findings_;
  std::vector<Finding> wrong_;  // of the use at hand
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

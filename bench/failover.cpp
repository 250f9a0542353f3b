// SPDX-License-Identifier: Apache-2.0
// Counts double grants over failovers whose replication was held up on purpose, for each policy of
// replica acknowledgements. Writes the table of docs/failover.md.
#include "failover_nodes.hpp"
#include "report.hpp"
#include <rlock/rlock.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace rlock::bench {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr std::string_view kBegin = "<!-- figures -->";
constexpr std::string_view kEnd = "<!-- end of figures -->";
/// For how long a grant waits for acknowledgements. The host may be busy.
constexpr std::chrono::milliseconds kLimit{250};
/// The same for append-only files of replicas, which tell about once a second.
constexpr std::chrono::milliseconds kFileLimit{1200};

/// The replicas whose replication is held up when the lock is granted.
struct Situation {
  std::string_view name;
  bool promoted;
  bool other;
};

constexpr std::array kSituations{
    Situation{"nobody", false, false},
    Situation{"the other replica", false, true},
    Situation{"the promoted replica", true, false},
    Situation{"both replicas", true, true},
};

struct Counts {
  int failovers = 0;
  int granted = 0;
  int refused = 0;       ///< not acknowledged, and told so
  int had = 0;           ///< granted, and the promoted replica had the hold
  int doubled = 0;       ///< granted to a second owner while the first one's hold was valid
  int doubledThere = 0;  ///< of these, where the promoted replica had the first one's hold
};

struct Settings {
  std::vector<std::string> policies;
  int failovers = 268;  ///< so that at least 200 of them have a replica that is held up
  std::uint64_t seed = 1;
  std::string server = "redis-server";
  std::string document;
  std::string command;
  bool help = false;
};

class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

const std::vector<std::string> kPolicies{
    "none", "replicas:1", "majority", "replicas:2", "local-aof", "remote-aof:1", "remote-aof:2"};

SyncPolicy policyOf(std::string_view name) {
  if (name == "none") {
    return SyncPolicy::none();
  }
  if (name == "majority") {
    return SyncPolicy::majority(kLimit);
  }
  if (name == "local-aof") {
    return SyncPolicy::localAof(kLimit);
  }
  const int count = name.back() - '0';
  return name.starts_with("replicas:") ? SyncPolicy::replicas(count, kLimit)
                                       : SyncPolicy::remoteAof(count, kFileLimit);
}

void printUsage() {
  fmt::print(
      "Usage: rlock_failover [OPTION]...\n\n"
      "  --policy NAME     one of them; may be given several times (default: all)\n"
      "  --failovers N     of each policy (268), a quarter in each situation\n"
      "  --seed N          decides their order, who is promoted, and pauses (1)\n"
      "  --server FILE     the redis-server to start (default: the one in PATH)\n"
      "  --write FILE      put the table into this document\n"
      "  --help            show this\n\n"
      "Policies: {}; those about append-only files need Redis 7.2\n\n"
      "Exit status: 3 when a lock was granted twice although the promoted replica had the hold.\n",
      fmt::join(kPolicies, ", "));
}

template <class Number>
Number numberFrom(std::string_view text, std::string_view option) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1) {
    throw UsageError(fmt::format("{} wants a number from 1 on", option));
  }
  return number;
}

Settings parse(const std::vector<std::string_view>& arguments) {
  Settings settings;
  settings.command = "rlock_failover";
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view argument = arguments[i];
    const auto value = [&] {
      if (++i == arguments.size()) {
        throw UsageError(fmt::format("{} wants a value", argument));
      }
      if (argument != "--write" && argument != "--server") {
        settings.command += fmt::format(" {} {}", argument, arguments[i]);
      }
      return arguments[i];
    };
    if (argument == "--policy") {
      settings.policies.emplace_back(value());
      if (std::find(kPolicies.begin(), kPolicies.end(), settings.policies.back()) ==
          kPolicies.end()) {
        throw UsageError(fmt::format("there is no policy {}", settings.policies.back()));
      }
    } else if (argument == "--failovers") {
      settings.failovers = numberFrom<int>(value(), argument);
    } else if (argument == "--seed") {
      settings.seed = numberFrom<std::uint64_t>(value(), argument);
    } else if (argument == "--server") {
      settings.server = value();
    } else if (argument == "--write") {
      settings.document = value();
    } else if (argument == "--help") {
      settings.help = true;
    } else {
      throw UsageError(fmt::format("there is no option {}", argument));
    }
  }
  if (settings.policies.empty()) {
    settings.policies = kPolicies;
  }
  return settings;
}

Options optionsFor(const std::string& uri) {
  Options options = Options::fromUri(uri);
  options.log = [](LogLevel, std::string_view) {};
  return options;
}

/// The failovers of one policy.
class Series {
 public:
  Series(ReplicatedServers& servers, SyncPolicy policy, std::uint64_t seed)
      : servers_(servers),
        policy_(policy),
        random_(seed),
        first_(Client::connect(optionsFor(servers.masterUri()))) {}

  std::array<Counts, kSituations.size()> run(int failovers) {
    std::vector<std::size_t> order(static_cast<std::size_t>(failovers));
    for (std::size_t i = 0; i < order.size(); ++i) {
      order[i] = i % kSituations.size();
    }
    std::shuffle(order.begin(), order.end(), random_);
    for (std::size_t i = 0; i < order.size(); ++i) {
      printProgress(fmt::format("{}, failover {} of {}", toString(policy_), i + 1, order.size()));
      one(kSituations[order[i]], counts_[order[i]], fmt::format("failover:{}", i));
    }
    return counts_;
  }

 private:
  void one(const Situation& situation, Counts& counts, const std::string& name) {
    const std::size_t promoted = random_() % ReplicatedServers::kReplicas;
    if (situation.promoted) {
      servers_.holdUp(promoted);
    }
    if (situation.other) {
      servers_.holdUp(1 - promoted);
    }
    ++counts.failovers;
    RLock lock = first_.getLock(name);
    std::optional<Lease> lease;
    try {
      lease = lock.acquire({.lease = 60s, .sync = policy_});
      ++counts.granted;
    } catch (const Error& error) {
      if (error.errc() != Errc::notSynced) {
        throw;
      }
      ++counts.refused;
    }
    // The master does not fail at the very moment of each grant.
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % 2000));
    servers_.promote(promoted);
    const bool had = lease && servers_.has(promoted, name);
    counts.had += static_cast<int>(had);

    Client second = Client::connect(optionsFor(servers_.replicaUri(promoted)));
    std::optional<Lease> other = second.getLock(name).tryAcquire({.lease = 60s});
    const bool doubled = other && lease && lease->held();
    counts.doubled += static_cast<int>(doubled);
    counts.doubledThere += static_cast<int>(doubled && had);
    other.reset();
    lease.reset();
    second.close(1s);
    servers_.restore(promoted);
  }

  ReplicatedServers& servers_;
  const SyncPolicy policy_;
  std::mt19937_64 random_;
  Client first_;
  std::array<Counts, kSituations.size()> counts_{};
};

std::string commit() {
  std::string text;
  if (std::FILE* pipe = ::popen("git rev-parse --short HEAD 2>/dev/null", "r"); pipe != nullptr) {
    std::array<char, 64> line{};
    if (std::fgets(line.data(), line.size(), pipe) != nullptr) {
      text = line.data();
    }
    ::pclose(pipe);
  }
  while (!text.empty() && text.back() == '\n') {
    text.pop_back();
  }
  return text.empty() ? "unknown" : text;
}

std::string today() {
  std::array<char, 32> date{};
  const std::time_t time = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&time, &utc);
  std::strftime(date.data(), date.size(), "%Y-%m-%d", &utc);
  return date.data();
}

void writeInto(const std::string& path, const std::string& figures) {
  std::ifstream in(path);
  std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const std::size_t begin = text.find(kBegin);
  const std::size_t end = text.find(kEnd);
  if (begin == std::string::npos || end == std::string::npos) {
    throw std::runtime_error(fmt::format("{} has no place for the figures", path));
  }
  text.replace(begin + kBegin.size(), end - begin - kBegin.size(), "\n\n" + figures + "\n");
  std::ofstream out(path, std::ios::trunc);
  out << text;
  if (!out.flush()) {
    throw std::runtime_error(fmt::format("cannot write {}", path));
  }
}

/// Returns the rows.
std::string runPolicy(const Settings& settings,
                      const std::string& name,
                      ReplicatedServers& servers,
                      bool& broken) {
  const SyncPolicy policy = policyOf(name);
  Series series(servers, policy, settings.seed);
  const auto counts = series.run(settings.failovers);
  std::string rows;
  Counts all;
  const auto row = [&](std::string_view situation, const Counts& each) {
    rows += fmt::format("| `{}` | {} | {} | {} | {} | {} | {} | {} |\n",
                        name,
                        situation,
                        each.failovers,
                        each.granted,
                        each.refused,
                        each.had,
                        each.doubled,
                        each.doubledThere);
  };
  for (std::size_t i = 0; i < counts.size(); ++i) {
    row(kSituations[i].name, counts[i]);
    all.failovers += counts[i].failovers;
    all.granted += counts[i].granted;
    all.refused += counts[i].refused;
    all.had += counts[i].had;
    all.doubled += counts[i].doubled;
    all.doubledThere += counts[i].doubledThere;
  }
  broken = broken || all.doubledThere > 0;
  row("**all**", all);
  return rows;
}

int run(const Settings& settings) {
  std::string rows;
  std::string leftOut;
  std::string version;
  bool broken = false;
  std::unique_ptr<ReplicatedServers> servers;
  bool withAof = false;
  for (const std::string& name : settings.policies) {
    const bool aof = name.find("aof") != std::string::npos;
    if (!servers || aof != withAof) {
      servers.reset();
      servers = std::make_unique<ReplicatedServers>(settings.server, aof);
      withAof = aof;
      version = servers->version();
    }
    if (aof && !servers->knowsWaitAof()) {
      leftOut += fmt::format("{}`{}`", leftOut.empty() ? "" : ", ", name);
      continue;
    }
    rows += runPolicy(settings, name, *servers, broken);
  }
  std::string figures = fmt::format(
      "{}, commit {}, Redis {}: `{}`\n\n"
      "| Policy | Held up | Failovers | Granted | Refused | The promoted one had it | Double "
      "grants | of these, the promoted one had it |\n"
      "|---|---|---:|---:|---:|---:|---:|---:|\n{}",
      today(),
      commit(),
      version,
      settings.command,
      rows);
  if (!leftOut.empty()) {
    figures += fmt::format("\nLeft out, since this server has no `WAITAOF`: {}.\n", leftOut);
  }
  fmt::print("{}", figures);
  if (!settings.document.empty()) {
    writeInto(settings.document, figures);
  }
  return broken ? 3 : 0;
}

}  // namespace
}  // namespace rlock::bench

int main(int argc, char** argv) {
  using namespace rlock::bench;
  try {
    const Settings settings = parse(std::vector<std::string_view>(argv + 1, argv + argc));
    if (settings.help) {
      printUsage();
      return 0;
    }
    return run(settings);
  } catch (const UsageError& error) {
    fmt::print(stderr, "rlock_failover: {}; --help tells more\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "rlock_failover: {}\n", error.what());
    return 1;
  }
}

// SPDX-License-Identifier: Apache-2.0

// The judgements of `rlock doctor`: functions that turn an error, the first bytes of an answer, a
// line of the log or the server's INFO into a Finding with a verdict and advice, and a list of them
// into text or JSON. doctor.cpp does the looking and calls them on its thread; they are pure
// functions of their arguments. The server's words are escaped before they are shown.
#include "cli/doctor_report.hpp"

#include "cli/duration_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace rlock::cli {

namespace {

using std::chrono::milliseconds;

constexpr std::string_view kRules =
    "have the administrator grant it: docs/configuration.md lists the rights of each kind of lock";

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

Finding bad(std::string subject, std::string text, std::string advice) {
  return {Verdict::bad, std::move(subject), std::move(text), std::move(advice)};
}

Finding note(std::string subject, std::string text, std::string advice) {
  return {Verdict::note, std::move(subject), std::move(text), std::move(advice)};
}

Finding good(std::string subject, std::string text) {
  return {Verdict::good, std::move(subject), std::move(text), ""};
}

// The value of a field of INFO, or empty. It is shown, so nothing in it reaches the terminal as a
// control character.
std::string field(const std::map<std::string, std::string>& info, const std::string& name) {
  const auto found = info.find(name);
  return found != info.end() ? detail::escapeForDisplay(found->second) : "";
}

// Advice for an error, by its kind and the server's words.
std::string adviceFor(const Error& error) {
  const std::string_view said = error.serverMessage();
  switch (error.errc()) {
    case Errc::authenticationFailed:
      if (contains(error.what(), "wants a password")) {
        return "give one: redis://:PASSWORD@HOST, or redis://USER:PASSWORD@HOST for a user of its "
               "own";
      }
      if (contains(error.what(), "has none for this user")) {
        return "leave the password out, or name the user whose password it is";
      }
      return "check user and password; special characters are written as %40 for @ and so on";
    case Errc::denied:
      return std::string(kRules);
    case Errc::readOnly:
      return "give the master's address, or the Sentinels': redis+sentinel://HOST:26379/NAME";
    case Errc::outOfMemory:
      return "raise maxmemory, or free memory";
    case Errc::notSynced:
      return "too few replicas are connected: see min-replicas-to-write";
    case Errc::wrongType:
      return "the name is used for something else: give doctor another NAME";
    case Errc::timedOut:
      return contains(said, "LOADING") ? "the server still loads its data: try again later"
                                       : "the server is slow or frozen: look at its load";
    case Errc::invalidArgument:
      return "correct the URI";
    default:
      if (contains(said, "LOADING")) {
        return "the server still loads its data: try again later";
      }
      if (contains(said, "BUSY")) {
        return "a script runs on the server for too long: SCRIPT KILL ends it";
      }
      if (contains(said, "MISCONF")) {
        return "the server cannot save its data and takes no writes: look at its disk";
      }
      if (contains(said, "CROSSSLOT") || contains(said, "MOVED")) {
        return "it is a node of a cluster: write redis+cluster://HOST:PORT";
      }
      return "";
  }
}

Finding judgeVersion(const std::map<std::string, std::string>& info) {
  const std::string valkey = field(info, "valkey_version");
  const std::string version = valkey.empty() ? field(info, "redis_version") : valkey;
  const std::string text = fmt::format("{} {}", valkey.empty() ? "redis" : "valkey", version);
  if (valkey.empty() && !version.empty() && std::atoi(version.c_str()) < 5) {
    return bad("version", text + " is too old", "Redis 5 or later is needed");
  }
  return good("version", text);
}

std::optional<Finding> judgeMemory(const std::map<std::string, std::string>& info) {
  const double most = std::strtod(field(info, "maxmemory").c_str(), nullptr);
  const double used = std::strtod(field(info, "used_memory").c_str(), nullptr);
  const std::string policy = field(info, "maxmemory_policy");
  if (policy.empty()) {
    return std::nullopt;
  }
  if (most > 0 && used >= most) {
    return bad("memory",
               fmt::format("the limit (maxmemory {:.0f}) is reached", most),
               "raise maxmemory, or free memory: no lock can be taken");
  }
  if (most > 0 && policy != "noeviction") {
    return note(
        "memory",
        fmt::format("maxmemory-policy is {}: at the limit, locks that are held may be evicted",
                    policy),
        "set maxmemory-policy noeviction");
  }
  if (most > 0 && used > 0.9 * most) {
    return note("memory",
                fmt::format("{:.0f} % of maxmemory are used", 100 * used / most),
                "raise maxmemory");
  }
  return good("memory", most > 0 ? "nothing is evicted (" + policy + ")" : "no limit");
}

void judgeRole(const std::map<std::string, std::string>& info, std::vector<Finding>& findings) {
  const std::string role = field(info, "role");
  if (role == "slave") {
    findings.push_back(bad(
        "role",
        fmt::format("a replica of {}:{}", field(info, "master_host"), field(info, "master_port")),
        fmt::format("locks are written to a master: write redis://{}:{}",
                    field(info, "master_host"),
                    field(info, "master_port"))));
  } else if (!role.empty()) {
    findings.push_back(good("role", role));
  }
}

void judgePersistence(const std::map<std::string, std::string>& info,
                      std::vector<Finding>& findings) {
  if (field(info, "loading") == "1") {
    findings.push_back(bad("loading", "the server is loading its data", "try again later"));
  }
  if (field(info, "aof_enabled") == "0") {
    findings.push_back(
        note("persistence",
             "no append-only file: a server that restarts has forgotten its latest locks",
             "set appendonly yes where that matters"));
  }
}

std::string withoutSubject(const std::string& what) {
  // The names of the locks that the checks use say nothing to anybody.
  if (what.rfind("lock \"", 0) == 0 || what.rfind("semaphore \"", 0) == 0 ||
      what.rfind("latch \"", 0) == 0) {
    const std::size_t end = what.find("\": ");
    if (end != std::string::npos) {
      return what.substr(end + 3);
    }
  }
  return what;
}

std::string shortText(const Error& error) {
  std::string text = error.message();
  if (!error.serverMessage().empty()) {
    text += ": \"" + detail::escapeForDisplay(error.serverMessage()) + "\"";
  }
  return withoutSubject(text);
}

}  // namespace

Peer peerOf(std::string_view answer) {
  if (answer.empty()) {
    return Peer::silent;
  }
  // Alert and handshake are types of TLS records; then comes the version.
  if (answer.size() >= 2 && (answer[0] == '\x15' || answer[0] == '\x16') && answer[1] == '\x03') {
    return Peer::tls;
  }
  if (answer.starts_with("HTTP/")) {
    return Peer::http;
  }
  if (answer.starts_with("SSH-")) {
    return Peer::ssh;
  }
  if (answer.starts_with("-DENIED") && contains(answer, "protected mode")) {
    return Peer::protectedMode;
  }
  if (answer.starts_with("-ERR max number of clients")) {
    return Peer::tooManyClients;
  }
  return answer[0] == '+' || answer[0] == '-' ? Peer::redis : Peer::unknown;
}

Finding judgeConnection(const Error& error, Peer peer, bool tls) {
  const std::string text = shortText(error);
  if (tls && (peer == Peer::redis || peer == Peer::protectedMode)) {
    return bad("connection", text, "the port speaks no TLS: write redis:// instead of rediss://");
  }
  switch (peer) {
    case Peer::tls:
      if (tls) {
        break;
      }
      return bad("connection", text, "the port speaks TLS: write rediss:// instead of redis://");
    case Peer::http:
      return bad("connection", text, "a web server listens there, not Redis: check the port");
    case Peer::ssh:
      return bad("connection", text, "an SSH server listens there, not Redis: check the port");
    case Peer::protectedMode:
      return bad("connection",
                 text,
                 "the server is in protected mode and takes only connections of its own machine: "
                 "give it a "
                 "password (requirepass or an ACL user), or bind it to an address");
    case Peer::tooManyClients:
      return bad("connection", text, "the server has no room for another client: raise maxclients");
    default:
      break;
  }
  std::string advice = adviceFor(error);
  if (contains(error.what(), "name resolution")) {
    advice = "the host's name is unknown here: check it, or write the address";
  } else if (contains(error.what(), "No such file")) {
    advice = "there is no such socket: check the path, and \"unixsocket\" in redis.conf";
  } else if (contains(error.what(), "Connection refused")) {
    advice = "nothing listens there: is the server running, and is this its port (6379)?";
  } else if (contains(error.what(), "speaks no TLS")) {
    advice = "if the port has no TLS, write redis:// instead of rediss://";
  } else if (contains(error.what(), "no database")) {
    advice = "give a smaller number after the last slash of the URI, or none";
  } else if (contains(error.what(), "Sentinel") && !contains(error.what(), "is no Sentinel")) {
    advice = "it is a Sentinel: write redis+sentinel://HOST:PORT/NAME-OF-THE-MASTER";
  } else if (contains(error.what(), "is no Sentinel")) {
    advice = "it is a server: write redis://HOST:PORT";
  } else if (contains(error.what(), "no node of a cluster")) {
    advice = "it is a single server: write redis://HOST:PORT";
  } else if (contains(error.what(), "cluster")) {
    advice = "it is a node of a cluster: write redis+cluster://HOST:PORT";
  } else if (contains(error.what(), "certificate")) {
    advice = "name the authority's certificate: rediss://HOST?tls-ca-file=FILE";
  } else if (advice.empty() && (peer == Peer::silent || error.errc() == Errc::connectionFailed)) {
    advice = "nothing answers: check address, port and firewall";
  }
  return bad("connection", text, advice);
}

Finding judgeUse(const std::string& subject, const Error& error) {
  return bad(subject, shortText(error), adviceFor(error));
}

std::optional<Finding> judgeLogLine(const std::string& subject, const std::string& line) {
  if (contains(line, "could not be told")) {
    return bad(subject,
               "PUBLISH is not permitted: " + detail::escapeForDisplay(line, 300),
               "waiters would only look once a second; " + std::string(kRules));
  }
  if (contains(line, "cannot subscribe")) {
    return bad(subject,
               "SUBSCRIBE is not permitted: " + detail::escapeForDisplay(line, 300),
               "waiters would only look once a second; " + std::string(kRules));
  }
  if (contains(line, "NOPERM") || contains(line, "permission")) {
    return note(subject, detail::escapeForDisplay(line, 300), std::string(kRules));
  }
  return std::nullopt;
}

std::vector<Finding> judgeServer(const std::map<std::string, std::string>& info,
                                 std::optional<milliseconds> skew) {
  std::vector<Finding> findings;
  if (!info.empty()) {
    findings.push_back(judgeVersion(info));
    // Valkey's name for it, from 8.1 on, is the second.
    const std::string mode = field(info, "redis_mode");
    findings.push_back(good("mode", mode.empty() ? field(info, "server_mode") : mode));
    judgeRole(info, findings);
    if (auto memory = judgeMemory(info)) {
      findings.push_back(std::move(*memory));
    }
    judgePersistence(info, findings);
  }
  if (skew) {
    const milliseconds size = *skew < milliseconds(0) ? -*skew : *skew;
    const std::string text = size < milliseconds(100)
                                 ? "as here"
                                 : fmt::format("{} {} this machine's",
                                               showDuration(size),
                                               *skew > milliseconds(0) ? "ahead of" : "behind");
    if (size > std::chrono::seconds(2)) {
      findings.push_back(note(
          "clock", text, "locks do not mind; times that are shown are wrong by that: run NTP"));
    } else {
      findings.push_back(good("clock", text));
    }
  }
  return findings;
}

Finding judgeRoundTrips(std::vector<std::chrono::nanoseconds> times) {
  std::sort(times.begin(), times.end());
  const auto ms = [](std::chrono::nanoseconds time) {
    return std::chrono::duration<double, std::milli>(time).count();
  };
  const double median = ms(times[times.size() / 2]);
  const double longest = ms(times.back());
  const std::string text =
      fmt::format("{:.2f} ms (median of {}), {:.2f} ms (longest)", median, times.size(), longest);
  if (median > 50) {
    return note(
        "round trips", text, "every lock and unlock takes as long: use a server that is near");
  }
  if (longest > 1000) {
    return note("round trips",
                text,
                "something stops the server or the network now and then: use a long --lease");
  }
  return good("round trips", text);
}

std::map<std::string, std::string> parseInfo(std::string_view text) {
  std::map<std::string, std::string> info;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    const std::size_t colon = line.find(':');
    if (colon != std::string_view::npos && !line.starts_with('#')) {
      info[std::string(line.substr(0, colon))] = std::string(line.substr(colon + 1));
    }
  }
  return info;
}

std::string textOf(const std::vector<Finding>& findings, const Style& style) {
  std::string text;
  for (const Finding& finding : findings) {
    std::string mark = style.green("ok  ");
    if (finding.verdict == Verdict::note) {
      mark = style.yellow("note");
    } else if (finding.verdict == Verdict::bad) {
      mark = style.red("BAD ");
    }
    text += fmt::format("{}  {:<20} {}\n", mark, finding.subject, finding.text);
    if (!finding.advice.empty()) {
      text += fmt::format("      {:<20} -> {}\n", "", finding.advice);
    }
  }
  return text;
}

std::string jsonOf(const std::vector<Finding>& findings) {
  auto json = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    nlohmann::ordered_json entry{{"verdict",
                                  finding.verdict == Verdict::good   ? "ok"
                                  : finding.verdict == Verdict::note ? "note"
                                                                     : "bad"},
                                 {"subject", finding.subject},
                                 {"text", finding.text}};
    if (!finding.advice.empty()) {
      entry["advice"] = finding.advice;
    }
    json.push_back(std::move(entry));
  }
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace rlock::cli

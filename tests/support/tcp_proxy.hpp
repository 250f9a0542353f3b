// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

namespace rlock::test {

class PortReservation;
class RedisServer;

/// A TCP proxy between a client and a Redis server that injects network faults. It understands RESP
/// in both directions, so a fault can hit one request or its reply. One background thread does
/// everything; nothing is ever sent twice.
///
/// Thread safety: every method may be called from any thread but the proxy's own. Matchers and
/// filters run on the proxy's thread, must be quick, must not throw and must not call the proxy. A
/// method that changes a setting returns when the change is in force, for connections that exist
/// and for those that come. Throws std::runtime_error when the proxy cannot listen.
///
/// Which fault is which:
///  - A network that loses a reply loses everything after it as well, because TCP delivers in
///    order. Action::stallReply() does that: from the matched reply on nothing from the server
///    reaches the client on that connection, which stays open. **Use it for "the reply is lost"**,
///    together with releaseStalled() for "the reply comes late", or cutAll() for "and then the
///    connection broke".
///  - Action::swallowReplyAndCut() is "the server did it, then the connection broke".
///  - Action::swallowReply() drops one reply and delivers the later ones. No network does that: the
///    client is one reply behind from then on. It is for testing that a client notices or at least
///    survives a broken server.
///
/// Requests sent by a client whose connection to the server fails are lost with the connection, as
/// when the server resets it. A connection whose bytes are not RESP (TLS, the bus of a cluster) is
/// forwarded untouched, without rules.
class TcpProxy {
 public:
  using Argv = std::vector<std::string>;
  using Milliseconds = std::chrono::milliseconds;

  enum class Direction { toServer, toClient, both };
  /// How the client's side of a connection is closed. reset: RST, which may overtake bytes that the
  /// client has not read. orderly: FIN, after everything sent before.
  enum class CutKind { reset, orderly };

  struct ConnectionInfo {
    std::uint64_t id = 0;
    std::string peer;               ///< the client's IPv4 address
    bool isSubscriber = false;      ///< has sent SUBSCRIBE, PSUBSCRIBE or SSUBSCRIBE
    std::string clientName;         ///< by CLIENT SETNAME or HELLO ... SETNAME
    std::uint64_t clientBytes = 0;  ///< received from the client
    std::uint64_t serverBytes = 0;  ///< received from the server
  };
  using Filter = std::function<bool(const ConnectionInfo&)>;
  using Matcher = std::function<bool(const Argv&)>;

  [[nodiscard]] static Filter all();
  [[nodiscard]] static Filter subscribersOnly();
  [[nodiscard]] static Filter commandsOnly();

  /// Commands by name, case-insensitive: command("EVALSHA"); two words for subcommands:
  /// command("CLIENT SETNAME").
  [[nodiscard]] static Matcher command(std::string_view name);
  /// Commands by name that have `argument` anywhere after the name.
  [[nodiscard]] static Matcher command(std::string_view name, std::string_view argument);
  /// Any command with `argument` anywhere after its name, e.g. a key.
  [[nodiscard]] static Matcher withArgument(std::string_view argument);
  /// EVAL or EVALSHA with `key` among its keys.
  [[nodiscard]] static Matcher script(std::string_view key);
  [[nodiscard]] static Matcher anyCommand();

  class Action {
   public:
    /// Changes nothing; to count, or to shield commands from rules added later.
    static Action pass();
    /// Neither this request nor any after it on the connection reaches the server, ever; the
    /// connection stays open. Replies to earlier ones still come.
    static Action dropRequest();
    /// From this request on nothing from the client reaches the server until releaseStalled().
    static Action stallRequest();
    /// From this request's reply on nothing reaches the client until releaseStalled().
    static Action stallReply();
    /// Drops this reply only; see the class comment.
    static Action swallowReply();
    /// The server executes the request, its reply is dropped, the connection is cut.
    static Action swallowReplyAndCut(CutKind kind = CutKind::reset);
    /// The request is not forwarded, the connection is cut.
    static Action cutBeforeForward(CutKind kind = CutKind::reset);
    /// Half of the request's bytes are forwarded, then the connection is cut.
    static Action cutMidRequest(CutKind kind = CutKind::reset);
    /// Half of the reply's bytes are delivered, then the connection is cut.
    static Action cutMidReply(CutKind kind = CutKind::orderly);
    /// This request, and what follows it on the connection, is forwarded that much later.
    static Action delayRequest(Milliseconds delay);
    /// This reply, and what follows it on the connection, is delivered that much later.
    static Action delayReply(Milliseconds delay);
    /// The request is not forwarded; the client gets `-text` in its place, in order.
    static Action replyWithError(std::string_view text);

   private:
    friend class TcpProxy;
    enum class Kind {
      pass,
      dropRequest,
      stallRequest,
      stallReply,
      swallowReply,
      swallowReplyAndCut,
      cutBeforeForward,
      cutMidRequest,
      cutMidReply,
      delayRequest,
      delayReply,
      replyWithError,
    };
    Kind kind = Kind::pass;
    CutKind cut = CutKind::reset;
    Milliseconds delay{0};
    std::string text;
  };

  struct RuleOptions {
    static constexpr std::size_t kUnlimited = static_cast<std::size_t>(-1);

    std::size_t skip = 0;            ///< this many matches pass first
    std::size_t limit = kUnlimited;  ///< then this many get the action
    /// For actions on replies: a reply that is an error (NOSCRIPT, say) passes and does not count.
    bool ignoreErrorReplies = false;
    Filter filter;  ///< empty: every connection
  };

  /// A handle on a rule; copies mean the same rule. Outlives the proxy.
  class Rule {
   public:
    /// How often the action has been carried out. Actions on requests count when the request has
    /// arrived at the proxy; actions on replies count when the server's reply has, so the server
    /// has executed the request; cuts count when the connection is cut.
    [[nodiscard]] std::size_t hits() const;
    /// True as soon as hits() >= n; false after `deadline` (scaled).
    [[nodiscard]] bool waitForHits(std::size_t n, Milliseconds deadline) const;

   private:
    friend class TcpProxy;
    struct State;
    explicit Rule(std::shared_ptr<State> state) : state_(std::move(state)) {}
    std::shared_ptr<State> state_;
  };

  struct Stats {
    std::uint64_t accepted = 0;      ///< connections since construction
    std::size_t open = 0;            ///< connections now
    std::uint64_t targetFailed = 0;  ///< connections dropped because the target refused
    std::uint64_t requests = 0;      ///< complete requests received
    std::uint64_t clientBytes = 0;   ///< received from clients
    std::uint64_t serverBytes = 0;   ///< received from the server
  };

  explicit TcpProxy(const RedisServer& target);
  explicit TcpProxy(std::uint16_t targetPort, std::string targetHost = "127.0.0.1");
  /// Listens where the reservation is.
  TcpProxy(PortReservation at, std::uint16_t targetPort);
  TcpProxy(const TcpProxy&) = delete;
  TcpProxy& operator=(const TcpProxy&) = delete;
  /// Resets every connection; does nothing in a forked child, which has no proxy thread.
  ~TcpProxy();

  [[nodiscard]] std::uint16_t port() const;
  /// `redis://[:password@]127.0.0.1:port`, with the password of the RedisServer given.
  [[nodiscard]] std::string uri() const;
  /// Where connections accepted from now on lead to.
  void setTarget(std::uint16_t port, std::string host = "127.0.0.1");

  /// Bytes arrive that much later, plus a random part of `jitter`, in order. Zero ends it for bytes
  /// to come. One setting for each direction: a further call replaces it.
  void setDelay(Direction direction,
                Milliseconds delay,
                Milliseconds jitter = Milliseconds(0),
                Filter filter = all());
  /// At most `bytes` are delivered every `interval`. 0 bytes ends it. One setting per direction.
  void setThrottle(Direction direction,
                   std::size_t bytes,
                   Milliseconds interval,
                   Filter filter = all());
  /// Stops moving bytes, without closing anything; closing of one side is not passed on either. New
  /// connections are accepted by the kernel and get no answer. The bytes that were held back are
  /// delivered when the black hole ends.
  void blackHole(Direction direction = Direction::both, Filter filter = all());
  void endBlackHole();
  /// true: connecting is refused; the port stays reserved. Existing connections live on.
  void refuseConnections(bool refuse);

  /// Cuts the connections that exist now; returns how many, when they are closed. The proxy's own
  /// connections to the server are closed orderly.
  std::size_t cutAll(CutKind kind = CutKind::reset, Filter filter = all());
  /// Cuts after exactly `n` more bytes from the client have been forwarded: on each connection that
  /// exists now, or on the next one accepted.
  void cutCurrentAfterClientBytes(std::size_t n,
                                  CutKind kind = CutKind::reset,
                                  Filter filter = all());
  void cutNextAfterClientBytes(std::size_t n, CutKind kind = CutKind::reset);
  /// Cuts after exactly `n` more bytes from the server have been delivered.
  void cutCurrentAfterServerBytes(std::size_t n,
                                  CutKind kind = CutKind::orderly,
                                  Filter filter = all());
  void cutNextAfterServerBytes(std::size_t n, CutKind kind = CutKind::orderly);

  /// The first rule in the order of addition that matches a request and has not used up its limit
  /// decides about it.
  Rule addRule(Matcher matcher, Action action);
  Rule addRule(Matcher matcher, Action action, RuleOptions options);
  /// Requests already matched keep their fate.
  void removeRule(const Rule& rule);
  void clearRules();
  /// Delivers what stallRequest() and stallReply() have held back until now and ends those stalls.
  void releaseStalled();
  /// Ends every setting and rule, delivers what is held back, accepts connections again.
  void heal();

  [[nodiscard]] Stats stats() const;
  [[nodiscard]] std::vector<ConnectionInfo> connections() const;
  /// True as soon as this many connections were accepted since construction.
  [[nodiscard]] bool waitForAccepted(std::uint64_t n, Milliseconds deadline) const;
  /// Recording is off at first.
  void recordCommands(bool record);
  /// Requests recorded, in order of arrival at the proxy, whatever became of them.
  [[nodiscard]] std::vector<Argv> commands() const;
  [[nodiscard]] std::size_t countCommands(const Matcher& matcher) const;
  void clearCommands();
  /// True as soon as `n` recorded commands match.
  [[nodiscard]] bool waitForCommands(const Matcher& matcher,
                                     std::size_t n,
                                     Milliseconds deadline) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
  pid_t owner_;
  std::string userInfo_;  ///< "user:password@" of uri(), or empty
};

}  // namespace rlock::test

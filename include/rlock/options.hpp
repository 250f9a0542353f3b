// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/export.hpp>
#include <rlock/log.hpp>
#include <rlock/sync_policy.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

// Declared as in libuv, so that users need not include its header.
struct uv_loop_s;
typedef struct uv_loop_s uv_loop_t;  // NOLINT(modernize-use-using): must equal libuv's own line

namespace rlock {

class Observer;

/// One address of a server: a host name or IP address with a port, or a Unix socket.
struct Endpoint {
  std::string host{};         ///< name, IPv4 or IPv6 address (without brackets)
  std::uint16_t port = 6379;  ///< 1..65535
  std::string path{};         ///< Unix socket when not empty; host and port are ignored then

  /// Compares field by field; names are not resolved.
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

/// `host:port`, `[v6]:port` or `unix:///path`.
RLOCK_EXPORT std::string toString(const Endpoint& endpoint);

/// Runs callbacks for the application: called with a task that must be run once, soon, on any
/// thread. It is called on the client's loop thread, and for calls that are made after the client
/// was closed on threads of the library's own, several at a time; it must not block. Its captures
/// must outlive the client and every handle and operation that the client made.
using Executor = std::function<void(std::function<void()>)>;

/// A user name and password for AUTH.
struct Credentials {
  std::string username{};  ///< empty: the default user. No spaces, no NUL
  std::string password{};  ///< no NUL. Both empty: no AUTH is sent
};

/// When Client::connect() returns.
enum class ConnectMode {
  eager,  ///< when the client is connected; it throws when that fails
  lazy,   ///< at once: the client connects in the background, for as long as it takes
};

/// Whether a client has a connection to its server; in a cluster, to at least one node.
enum class ConnectionState { disconnected, connected };

/// The role of Options::endpoints.
enum class Topology {
  single,    ///< one server; several endpoints are addresses of it, tried in order
  sentinel,  ///< the endpoints are Sentinels, which know the address of Options::sentinelMaster
  cluster,   ///< the endpoints are some nodes of a Redis Cluster
};

/// How the client reconciles a request whose reply was lost, that is, finds out its outcome and
/// corrects the state on the server.
enum class LostReplyPolicy {
  automatic,  ///< fence where the server allows it, else marker
  /// The client kills the old connection on the server by its id, so that nothing can arrive late,
  /// and compares the hold count. Costs nothing until a reply is lost. Needs CLIENT KILL; HELLO,
  /// CLIENT INFO or CLIENT ID; and INFO or, over TCP, CLIENT INFO.
  fence,
  /// Each request names a private key that does not exist. When a reply is lost, the client makes
  /// that key, which keeps the request from running late, and compares the hold count. Costs one
  /// EXISTS per request, and one key of two minutes per lost reply.
  marker,
};

/// Why a hold ended without its owner's release.
enum class LossReason {
  none,         ///< the hold is held, or was released in order
  expired,      ///< the lease ran out
  refused,      ///< the server said that the hold is gone: deleted, or taken by another
  forced,       ///< somebody called forceUnlock()
  unreachable,  ///< no renewal got through before the hold's validity ended
  failover,     ///< the server was replaced by one that does not know the hold
  maxHold,      ///< AcquireOptions::maxHold was reached
  threadEnded,  ///< the thread that held it ended
  clientClosed  ///< the client was closed
};

/// The enumerator's name; "unknown" for any other number.
RLOCK_EXPORT std::string_view toString(ConnectMode mode) noexcept;
RLOCK_EXPORT std::string_view toString(ConnectionState state) noexcept;
RLOCK_EXPORT std::string_view toString(Topology topology) noexcept;
RLOCK_EXPORT std::string_view toString(LostReplyPolicy policy) noexcept;
RLOCK_EXPORT std::string_view toString(LossReason reason) noexcept;

/// The report of a loss to Options::onLost.
struct LostHold {
  std::string name{};                    ///< the lock's name
  std::string owner{};                   ///< the owner field, `uuid:counter`
  LossReason reason = LossReason::none;  ///< never `none` in a call
};

/// The settings of a client. fromUri() and aggregate initialisation give the same settings.
///
/// **Thread safety:** A plain value; one thread at a time.
///
/// Ranges include their ends and are checked by validate(), which Client::connect() calls.
/// `docs/configuration.md` is the same as a table, with the URI parameters.
struct Options {
  /// The addresses to connect to. Required, at least one.
  std::vector<Endpoint> endpoints{};
  /// ACL user; empty = the default user. No spaces, no NUL.
  std::string username{};
  /// The password. With an empty user name and an empty password no AUTH is sent. No NUL.
  std::string password{};
  /// Gives user name and password instead of those two, anew for every connection: for passwords
  /// and tokens that change. It is called on the loop thread and must return at once and call
  /// nothing of the library: fetch the secret elsewhere and hand out the latest. If it throws, the
  /// attempt to connect fails and is repeated; what it throws is not logged, and neither is what it
  /// returns. See Client::refreshCredentials().
  std::function<Credentials()> credentials{};
  /// Shown by CLIENT LIST; empty = no name. At most 256 printable ASCII characters, no spaces.
  std::string clientName{};
  /// 0 to 2147483647; 0 in a cluster. The server's own limit is 16 databases unless configured.
  int database = 0;
  /// Is put before every name that the application uses: the keys and channels on the server are
  /// those of the longer name. getName(), errors and Client::list() keep to the application's name.
  /// At most 256 printable ASCII characters, no spaces.
  std::string namePrefix{};
  /// Makes the server's name of the application's, as `namePrefix` does; not with it. It must
  /// return the same for the same name whenever and in whichever client it is called, 1 byte to 64
  /// KiB, and a different one for a different name. It is called once for each handle that is made,
  /// on that thread; what it throws, and a name of another length, is `invalidArgument`.
  /// Client::list() goes by the server's names.
  std::function<std::string(std::string_view)> nameMapper{};

  /// Whether Client::connect() waits for the connection. With `loop` it never does. eager.
  ConnectMode connect = ConnectMode::eager;
  /// Time to resolve names, connect and authenticate, for all endpoints together. 3 s; 1 ms to 1 h.
  std::chrono::milliseconds connectTimeout{3000};
  /// Time to wait for one reply; after it the connection counts as dead, unless a reply to an
  /// earlier request was completed meanwhile. 3 s; 1 ms to 1 h.
  std::chrono::milliseconds commandTimeout{3000};
  /// Lease of holds that the watchdog keeps; renewed at a third of it. 30 s; 100 ms to 365 d.
  std::chrono::milliseconds watchdogTimeout{30000};
  /// A waiter looks again after this long even if no message came. 1 s; 10 ms to 1 h.
  std::chrono::milliseconds safetyPoll{1000};
  /// A place in a fair queue is given up when not confirmed for this long. 4 s; 1 s to 5 min.
  std::chrono::milliseconds fairWaiterLease{4000};
  /// Untimed calls give up when no node answered for this long. 30 s; 1 ms to 365 d.
  std::chrono::milliseconds outageTimeout{30000};
  /// Holds renewed by one request. 100; 1 to 1000.
  int watchdogBatchSize = 100;
  /// How often in a row a lock may go straight from one owner to the next of this client, in one
  /// request and without a message, before a release that other clients hear of; those that wait
  /// then go first. Plain and non-reentrant locks only. 16; 0 to 10000. 0: never.
  int handOverLimit = 16;
  /// For how long. A hold that begins within it may be the last. 50 ms; 0 ms to 1 h. 0: never.
  std::chrono::milliseconds handOverTime{50};
  /// Receives log lines. Empty: `warning` and above go to stderr.
  LogHook log{};
  /// Runs callbacks. Empty: they run on the client's loop thread.
  Executor executor{};
  /// The caller's own loop, which must outlive the client and be run by the caller. A forked child
  /// may run it on after `uv_loop_fork()`, without the client. Null: the client runs a thread with
  /// a loop of its own.
  uv_loop_t* loop = nullptr;

  /// PING on a connection that was idle this long. 5 s; 10 ms to 1 h.
  std::chrono::milliseconds heartbeatInterval{5000};
  /// First pause before connecting again, doubled each time with jitter. 20 ms; 1 ms to 1 h.
  std::chrono::milliseconds reconnectDelayMin{20};
  /// Longest such pause, not below reconnectDelayMin. 2 s; 1 ms to 1 h.
  std::chrono::milliseconds reconnectDelayMax{2000};
  /// First pause after an answer such as LOADING or TRYAGAIN, doubled with jitter. 20 ms; 1 ms to
  /// 1 h.
  std::chrono::milliseconds retryDelayMin{20};
  /// Longest such pause, not below retryDelayMin. 1 s; 1 ms to 1 h.
  std::chrono::milliseconds retryDelayMax{1000};
  /// Limit of calls that take none themselves, such as tryLock(), unlock() and isLocked(), with
  /// reconnecting and reconciling a lost reply. 0 = twice commandTimeout; 0 to 1 h.
  std::chrono::milliseconds callTimeout{0};
  /// How long the client's destructor may take to release its holds. 2 s; 0 to 1 h.
  std::chrono::milliseconds closeTimeout{2000};
  /// A channel stays subscribed this long after its last waiter left. 10 s; 0 to 1 h.
  std::chrono::milliseconds subscriptionLinger{10000};
  /// How long a fencing counter is kept after the last acquisition or renewal, or for the lease if
  /// that is longer; then tokens begin at 1 again. It must be longer than every pause in the use of
  /// a fenced lock after which the resource still remembers a token. 0 = for ever; 0, or 1 s to 365
  /// d.
  std::chrono::milliseconds fencingTokenRetention{0};
  /// A blocking caller polls the socket this long before it sleeps. 50 us; 0 (never) to 10 ms.
  std::chrono::microseconds spin{50};
  /// Operations of this client that may be under way at once, waiting ones included. Further
  /// acquisitions and questions are refused with `overloaded`; requests that give something back
  /// are not. 100000; 1 to 10000000.
  int maxOperations = 100000;
  /// How lost replies are reconciled. automatic.
  LostReplyPolicy lostReplyPolicy = LostReplyPolicy::automatic;
  /// Log lines below this level are dropped. info.
  LogLevel logLevel = LogLevel::info;
  /// Called for every hold that ends before its release, before the server can give the lock away
  /// unless the server is the first to know; also when a call of the owner finds the loss. Not for
  /// a read hold without a Lease whose lease runs out while its owner has other read holds. Runs on
  /// the executor, or else on the loop thread; an exception that it throws is swallowed and
  /// counted.
  std::function<void(const LostHold&)> onLost{};
  /// Told of every change, in order: `connected` when the client has a connection for the first
  /// time or again, `disconnected` when it has lost it; not that of close(). The first may
  /// come before Client::connect() has returned. Runs on the executor, or else on the loop thread;
  /// an exception that it throws is swallowed and counted.
  std::function<void(ConnectionState)> onStateChange{};
  /// Is told what happens to the client's locks, on whichever thread it happens; see
  /// `rlock/observer.hpp`. Several clients may share one. Null: nobody is.
  std::shared_ptr<Observer> observer{};
  /// How many names Client::topNames() keeps for each of its orders, in full length. 0 (none) to
  /// 1000.
  int topNames = 0;
  /// The role of the endpoints. single.
  Topology topology = Topology::single;
  /// Encrypts the connections. The server has to prove its name by a certificate; nothing switches
  /// that off. Not with Unix sockets. false.
  bool tls = false;
  /// PEM file with the certificates that are trusted: of roots, of issuers below them, or the
  /// server's own. Only with tls, as the options below. Empty: see tlsCaPath. No NUL.
  std::string tlsCaFile{};
  /// Directory with such files, each named by the hash of its subject (c_rehash does that). Besides
  /// tlsCaFile; both empty: the certificates that the system trusts. No NUL.
  std::string tlsCaPath{};
  /// PEM file with the client's certificate, and after it those of its issuers. Empty: the client
  /// shows none. No NUL.
  std::string tlsCertFile{};
  /// PEM file with the private key of that certificate. Empty: it is in tlsCertFile. No NUL.
  std::string tlsKeyFile{};
  /// The password of an encrypted key. No NUL.
  std::string tlsKeyPassword{};
  /// The name or IP address that the server's certificate has to be for, and, if it is a name, that
  /// the server is told. Empty: the host of each endpoint.
  std::string tlsServerName{};
  /// The name by which the Sentinels know the master. Required with sentinel, else empty. At most
  /// 256 printable ASCII characters, no spaces.
  std::string sentinelMaster{};
  /// ACL user at the Sentinels; empty = their default user. No spaces, no NUL. Only with sentinel.
  std::string sentinelUsername{};
  /// The Sentinels' own password. With an empty user name and an empty password they are sent no
  /// AUTH. No NUL. Only with sentinel.
  std::string sentinelPassword{};
  /// Gives those two instead, anew for every connection to a Sentinel, as `credentials` does for
  /// those to servers: called on the loop thread, it must return at once and call nothing of the
  /// library; neither what it throws nor what it returns is logged. Only with sentinel.
  std::function<Credentials()> sentinelCredentials{};
  /// Encrypts the connections to the Sentinels; `tls` is about those to the master. Only with
  /// sentinel, and not with Unix sockets. false.
  bool sentinelTls = false;
  /// Says who must acknowledge each grant and each renewal. nobody; AcquireOptions::sync overrides
  /// it.
  SyncPolicy sync{};

  /// Reads `redis://`, `rediss://`, `unix://`, `redis+sentinel://` and `redis+cluster://` URIs:
  /// `redis://[[user][:password]@]host[:port][,host[:port]...][/database][?parameter=value&...]`.
  /// With Sentinels the path is `/master[/database]`, and user and password are the master's.
  ///
  /// @param uri  user, password, socket path and parameter values are percent-decoded
  /// @returns the settings, already validated
  /// @throws rlock::Error  invalidArgument; the message names the part and never the password
  /// @par Blocking       no; names are not resolved here
  RLOCK_EXPORT static Options fromUri(std::string_view uri);

  /// Checks all settings, as Client::connect() does. Does not block.
  /// @throws rlock::Error  invalidArgument, naming the option, its value and the allowed range
  RLOCK_EXPORT void validate() const;
};

namespace detail {

/// One row of the table in `docs/configuration.md`, made from the code.
struct OptionRow {
  std::string name;          ///< the member of Options
  std::string uriParameter;  ///< empty: set by another part of the URI, or not by a URI
  std::string unit;
  std::string defaultValue;
  std::string range;
};

/// All options in the order of the struct.
RLOCK_EXPORT std::vector<OptionRow> optionRows();

}  // namespace detail
}  // namespace rlock

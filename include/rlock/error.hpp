// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/export.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace rlock {

/// Why a call failed. "Not obtained in time" is no error: the try-calls say that with `false` or an
/// empty value.
///
/// The numbers are frozen once released. `docs/errors.md` has the long form of each entry.
enum class Errc {
  /// The caller does not hold the lock or permit that it released or asked about: it never did, the
  /// lease expired, or somebody forced it. Stop working on the protected resource; do not retry.
  notOwner = 1,
  /// A kind of lock without re-entry is already held by this owner. Release it first, or use a kind
  /// that counts holds.
  reentry,
  /// A node did not answer in time, or another owner held the lock for the whole wait of acquire()
  /// or hold(). A lock or permit that the call may have obtained is given back in the background.
  /// For another change the message says whether it may have happened, or still will. Try again
  /// later.
  timedOut,
  /// The caller's own stop request ended the call. Nothing is held; do what the stop asks for.
  cancelled,
  /// The client was closed before or during the call. Create a new client, or stop.
  closed,
  /// No node could be reached, or the name could not be resolved, for as long as the call may wait.
  /// A request that was on its way when the connection ended is treated as with timedOut. Check
  /// address, network and server; try again later.
  connectionFailed,
  /// The server refused the user name or password, or demands one; or, with TLS, it has not proved
  /// who it is, or refused the client's certificate. Correct the credentials.
  authenticationFailed,
  /// The server's access rules forbid a command, key or channel (NOPERM). Have the rule changed.
  denied,
  /// The key holds data of another type: the name is used for something else. Choose another name.
  wrongType,
  /// The server is at its memory limit (OOM). Free memory or raise maxmemory; then try again.
  outOfMemory,
  /// The node takes no writes: it is a replica, often in the middle of a failover. Try again in a
  /// few seconds.
  readOnly,
  /// A grant was not acknowledged as its SyncPolicy asks: it was undone, or is being undone in the
  /// background. Or the server takes no writes because too few replicas are connected to it
  /// (NOREPLICAS). Nothing is held; try again later.
  notSynced,
  /// A majority of the independent nodes did not agree in time. The members that were obtained were
  /// given back; try again later.
  noQuorum,
  /// An argument or option is outside its documented range. Nothing was sent; correct the program
  /// or its configuration.
  invalidArgument,
  /// The call would wait for its own caller. Either it blocks on the client's loop thread: use the
  /// async twin there. Or it waits for the write side while the same owner reads: release the read
  /// holds first. Or it acquires, for a new owner, a lock that the same thread holds by lock(). Or
  /// a thread locks a Mutex that it has locked already.
  wouldDeadlock,
  /// The handle belongs to a client of the parent process. Create a new client after fork().
  forked,
  /// The server answered with an error that has no entry of its own; serverMessage() quotes it.
  serverError,
  /// The server sent data that is not the Redis protocol, or not a reply to the request. Check what
  /// listens at that address.
  protocolError,
  /// More operations are under way than `Options::maxOperations` allows, or the process has no
  /// memory for another. Nothing was sent; start fewer at a time and try again later.
  overloaded,
};

/// The enumerator's name, such as "notOwner"; "unknown" for any other number.
RLOCK_EXPORT std::string_view toString(Errc errc) noexcept;

/// The category named "rlock".
RLOCK_EXPORT const std::error_category& errorCategory() noexcept;

/// `std::error_code` finds this function, so that an Errc converts to it.
RLOCK_EXPORT std::error_code make_error_code(Errc errc) noexcept;

/// Where and to whom an error happened. Empty fields are unknown and not printed.
struct ErrorContext {
  std::string key{};                      ///< the name the user gave the object
  std::string owner{};                    ///< the owner field, `uuid:counter`
  std::string node{};                     ///< `host:port` or `unix:///path`
  std::chrono::milliseconds elapsed{-1};  ///< since the call began; negative = unknown
  std::string serverMessage{};            ///< the server's own error text
  std::string kind{"lock"};               ///< what `key` names: lock, semaphore, latch, ...
};

/// The exception that every failing call throws, and the error that a `Result` carries.
///
/// **Thread safety:** Immutable, safe from any thread. Copying never throws.
///
/// what() is one line for a person: the object, what happened, then node, time and the server's
/// words. It contains no credentials. Programs compare errc() or code() and never parse what().
///
///     lock "orders:17": not held by owner 71b9:3 (node 127.0.0.1:6379, after 12 ms)
class RLOCK_EXPORT Error : public std::system_error {
 public:
  /// @param errc  the kind of failure; its standard sentence becomes the message
  explicit Error(Errc errc);
  /// @param errc  the kind of failure
  /// @param what  the failure, without the context; empty = the standard sentence of `errc`
  Error(Errc errc, std::string_view what);
  /// @param errc     the kind of failure
  /// @param what     the failure, without the context; empty = the standard sentence of `errc`
  /// @param context  where and to whom; shown escaped and shortened, kept whole
  Error(Errc errc, std::string_view what, ErrorContext context);

  ///@{
  /// Copies share the text. Moving is copying, so a moved-from error still has its text.
  Error(const Error&) noexcept = default;
  Error& operator=(const Error&) noexcept = default;
  ///@}
  ~Error() override;

  /// Message and context in one line.
  const char* what() const noexcept override;
  /// The kind of failure; the same as code().
  Errc errc() const noexcept;

  /// The failure, without the context.
  const std::string& message() const noexcept;
  /// All circumstances together.
  const ErrorContext& context() const noexcept;
  ///@{
  /// As in ErrorContext, not shortened; empty when unknown.
  const std::string& key() const noexcept;
  const std::string& owner() const noexcept;
  const std::string& node() const noexcept;
  const std::string& serverMessage() const noexcept;
  ///@}
  /// The time since the call began; negative when unknown.
  std::chrono::milliseconds elapsed() const noexcept;

  /// The same error with the empty fields of its context filled from `more`: each layer adds what
  /// it knows.
  Error withContext(const ErrorContext& more) const;

 private:
  struct Detail;

  std::shared_ptr<const Detail> detail_;
};

namespace detail {

/// Throws a copy. In a function of its own, so that code that is compiled without exceptions can
/// include what throws.
[[noreturn]] RLOCK_EXPORT void throwError(const Error& error);

/// Returns `text` for a log line or an error: bytes outside printable ASCII, `"` and `\` are
/// escaped as in C. A result longer than `limit` characters is cut there, and "..." follows.
RLOCK_EXPORT std::string escapeForDisplay(std::string_view text, std::size_t limit = 120);

}  // namespace detail
}  // namespace rlock

/// @cond
template <>
struct std::is_error_code_enum<rlock::Errc> : std::true_type {};
/// @endcond

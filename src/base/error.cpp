// SPDX-License-Identifier: Apache-2.0

// Errc, its category and Error. An Error is immutable and shares its text, so copying never throws;
// it may be made and read on any thread, also while the process ends.

#include <rlock/error.hpp>

#include <cstddef>
#include <new>
#include <utility>

namespace rlock {
namespace {

constexpr std::size_t kServerMessageLimit = 300;

std::string_view sentence(Errc errc) noexcept {
  switch (errc) {
    case Errc::notOwner:
      return "not held by this owner";
    case Errc::reentry:
      return "already held by this owner, and this kind of lock has no re-entry";
    case Errc::timedOut:
      return "the server did not answer in time";
    case Errc::cancelled:
      return "the call was ended by its stop request";
    case Errc::closed:
      return "the client is closed";
    case Errc::connectionFailed:
      return "the server could not be reached";
    case Errc::authenticationFailed:
      return "the server refused the credentials";
    case Errc::denied:
      return "the server's access rules forbid this; docs/configuration.md has those that are "
             "needed";
    case Errc::wrongType:
      return "the key holds data of another type; choose a name that nothing else uses";
    case Errc::outOfMemory:
      return "the server is at its memory limit";
    case Errc::readOnly:
      return "the node takes no writes; if it is a replica, give its master's address";
    case Errc::notSynced:
      return "too few replicas confirmed the write";
    case Errc::noQuorum:
      return "no majority of the nodes agreed in time";
    case Errc::invalidArgument:
      return "invalid argument";
    case Errc::wouldDeadlock:
      return "the caller would wait for itself, for ever; let it release what it holds first";
    case Errc::forked:
      return "the client belongs to the parent process; create a new one after fork()";
    case Errc::serverError:
      return "the server answered with an error";
    case Errc::protocolError:
      return "the server's answer is not what the Redis protocol allows";
    case Errc::overloaded:
      return "too many operations are under way";
  }
  return "unknown error";
}

class Category final : public std::error_category {
 public:
  const char* name() const noexcept override { return "rlock"; }

  std::string message(int value) const override {
    return std::string(sentence(static_cast<Errc>(value)));
  }

  std::error_condition default_error_condition(int value) const noexcept override {
    switch (static_cast<Errc>(value)) {
      case Errc::notOwner:
        return std::errc::operation_not_permitted;
      case Errc::reentry:
      case Errc::wouldDeadlock:
        return std::errc::resource_deadlock_would_occur;
      case Errc::timedOut:
        return std::errc::timed_out;
      case Errc::cancelled:
        return std::errc::operation_canceled;
      case Errc::closed:
        return std::errc::bad_file_descriptor;
      case Errc::connectionFailed:
        return std::errc::not_connected;
      case Errc::authenticationFailed:
      case Errc::denied:
        return std::errc::permission_denied;
      case Errc::readOnly:
        return std::errc::read_only_file_system;
      case Errc::noQuorum:
      case Errc::notSynced:
      case Errc::overloaded:
        return std::errc::resource_unavailable_try_again;
      case Errc::invalidArgument:
        return std::errc::invalid_argument;
      case Errc::serverError:
        return std::errc::io_error;
      case Errc::protocolError:
        return std::errc::protocol_error;
      case Errc::wrongType:
      case Errc::outOfMemory:
      case Errc::forked:
        // outOfMemory means the server's memory: with not_enough_memory generic code would blame
        // this process.
        break;
    }
    return {value, *this};
  }
};

std::string compose(const std::string& message, const ErrorContext& context) {
  std::string text;
  if (!context.key.empty()) {
    text.append(context.kind).append(" \"");
    text.append(detail::escapeForDisplay(context.key)).append("\": ");
  }
  text.append(message);

  std::string notes;
  const auto note = [&notes](std::string_view label, std::string_view value) {
    notes.append(notes.empty() ? " (" : ", ").append(label).append(value);
  };
  if (!context.owner.empty() && message.find(context.owner) == std::string::npos) {
    note("owner ", detail::escapeForDisplay(context.owner));
  }
  if (!context.node.empty()) {
    note("node ", detail::escapeForDisplay(context.node));
  }
  if (context.elapsed.count() >= 0) {
    note("after ", std::to_string(context.elapsed.count()) + " ms");
  }
  if (!context.serverMessage.empty()) {
    note("server said: ", detail::escapeForDisplay(context.serverMessage, kServerMessageLimit));
  }
  if (!notes.empty()) {
    text.append(notes).append(")");
  }
  return text;
}

}  // namespace

std::string_view toString(Errc errc) noexcept {
  switch (errc) {
    case Errc::notOwner:
      return "notOwner";
    case Errc::reentry:
      return "reentry";
    case Errc::timedOut:
      return "timedOut";
    case Errc::cancelled:
      return "cancelled";
    case Errc::closed:
      return "closed";
    case Errc::connectionFailed:
      return "connectionFailed";
    case Errc::authenticationFailed:
      return "authenticationFailed";
    case Errc::denied:
      return "denied";
    case Errc::wrongType:
      return "wrongType";
    case Errc::outOfMemory:
      return "outOfMemory";
    case Errc::readOnly:
      return "readOnly";
    case Errc::notSynced:
      return "notSynced";
    case Errc::noQuorum:
      return "noQuorum";
    case Errc::invalidArgument:
      return "invalidArgument";
    case Errc::wouldDeadlock:
      return "wouldDeadlock";
    case Errc::forked:
      return "forked";
    case Errc::serverError:
      return "serverError";
    case Errc::protocolError:
      return "protocolError";
    case Errc::overloaded:
      return "overloaded";
  }
  return "unknown";
}

const std::error_category& errorCategory() noexcept {
  // The category is never destroyed: the destructors of static objects, and loop threads that still
  // run while the process ends, make errors, too.
  alignas(Category) static std::byte storage[sizeof(Category)];
  static const Category* const category = new (storage) Category;
  return *category;
}

std::error_code make_error_code(Errc errc) noexcept {
  return {static_cast<int>(errc), errorCategory()};
}

struct Error::Detail {
  std::string message;
  ErrorContext context;
  std::string what;
};

Error::Error(Errc errc) : Error(errc, {}, {}) {}

Error::Error(Errc errc, std::string_view what) : Error(errc, what, {}) {}

Error::Error(Errc errc, std::string_view what, ErrorContext context)
    : std::system_error(make_error_code(errc)) {
  auto detail = std::make_shared<Detail>();
  detail->message = what.empty() ? sentence(errc) : what;
  detail->context = std::move(context);
  detail->what = compose(detail->message, detail->context);
  detail_ = std::move(detail);
}

Error::~Error() = default;

const char* Error::what() const noexcept {
  return detail_->what.c_str();
}

Errc Error::errc() const noexcept {
  return static_cast<Errc>(code().value());
}

const std::string& Error::message() const noexcept {
  return detail_->message;
}

const ErrorContext& Error::context() const noexcept {
  return detail_->context;
}

const std::string& Error::key() const noexcept {
  return detail_->context.key;
}

const std::string& Error::owner() const noexcept {
  return detail_->context.owner;
}

const std::string& Error::node() const noexcept {
  return detail_->context.node;
}

const std::string& Error::serverMessage() const noexcept {
  return detail_->context.serverMessage;
}

std::chrono::milliseconds Error::elapsed() const noexcept {
  return detail_->context.elapsed;
}

Error Error::withContext(const ErrorContext& more) const {
  ErrorContext merged = context();
  if (merged.key.empty()) {
    merged.key = more.key;
    merged.kind = more.kind;
  }
  if (merged.owner.empty()) {
    merged.owner = more.owner;
  }
  if (merged.node.empty()) {
    merged.node = more.node;
  }
  if (merged.elapsed.count() < 0) {
    merged.elapsed = more.elapsed;
  }
  if (merged.serverMessage.empty()) {
    merged.serverMessage = more.serverMessage;
  }
  return Error(errc(), message(), std::move(merged));
}

namespace detail {

std::string escapeForDisplay(std::string_view text, std::size_t limit) {
  constexpr std::string_view kHex = "0123456789abcdef";
  constexpr char kDelete = 0x7f;
  std::string result;
  for (const char c : text) {
    std::string piece;
    switch (c) {
      case '\n':
        piece = "\\n";
        break;
      case '\r':
        piece = "\\r";
        break;
      case '\t':
        piece = "\\t";
        break;
      case '"':
      case '\\':
        piece = {'\\', c};
        break;
      default:
        if (c >= ' ' && c < kDelete) {
          piece = c;
        } else {
          const auto byte = static_cast<unsigned char>(c);
          piece = {'\\', 'x', kHex[byte >> 4U], kHex[byte & 0xfU]};
        }
    }
    if (result.size() + piece.size() > limit) {
      return result.append("...");
    }
    result.append(piece);
  }
  return result;
}

void throwError(const Error& error) {
  throw Error(error);
}

}  // namespace detail
}  // namespace rlock

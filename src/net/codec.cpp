// SPDX-License-Identifier: Apache-2.0

// ReplyReader: hiredis cuts the bytes into items and calls a function of ours for each, which puts
// the item into the tree of Reply objects that is being made. The functions refuse what a server
// must not send (RESP3, arrays that are too deep or too long), and findOversize() refuses lengths
// before their bytes have come. An error is final: nobody knows where the next reply begins.

#include "net/codec.hpp"

#include "net/hiredis_compat.hpp"

#include <charconv>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

namespace rlock::detail::net {

/// Where the reply under construction grows. hiredis hands its address to each callback.
///
/// hiredis keeps pointers to this object, to its `functions` and, within a reply, to the arrays
/// that are being filled. So it has a place in memory of its own that a move of the ReplyReader
/// leaves alone, and an array gets all its places at once and never moves afterwards. Callbacks run
/// within next(), on its thread. They let no exception through, for hiredis is C: null is their
/// refusal, and `error` the reason unless it is want of memory. Once `failed` is set, hiredis
/// gets no more bytes and is asked for no more replies.
///
/// **Thread safety:** as ReplyReader.
struct ReplyReader::State {
  Reply root;
  std::size_t elements = 0;
  const char* error = "";
  bool failed = false;
  redisReplyObjectFunctions functions{};

  static State& of(const redisReadTask* task) noexcept {
    return *static_cast<State*>(task->privdata);
  }

  /// The reply that `task` is to fill: the root, or its place in the parent array.
  static Reply& target(const redisReadTask* task) noexcept {
    if (task->parent == nullptr) {
      // A reply that was taken has left its place to the caller's old one, which is used again.
      Reply& root = of(task).root;
      root.text.clear();
      root.elements.clear();
      return root;
    }
    auto* const parent = static_cast<Reply*>(task->parent->obj);
    return parent->elements[static_cast<std::size_t>(task->idx)];
  }

  static bool refuseResp3(const redisReadTask* task) noexcept {
    if (task->type <= compat::kLastResp2Type) {
      return false;
    }
    of(task).error = "reply of the newer protocol RESP3, which was not asked for";
    return true;
  }

  static void* createString(const redisReadTask* task, char* data, std::size_t size) noexcept {
    if (refuseResp3(task)) {
      return nullptr;
    }
    Reply& reply = target(task);
    try {
      reply.text.assign(data, size);
    } catch (const std::bad_alloc&) {
      return nullptr;  // which hiredis reports as want of memory; no exception may cross its code
    }
    switch (task->type) {
      case REDIS_REPLY_STATUS:
        reply.type = Reply::Type::status;
        break;
      case REDIS_REPLY_ERROR:
        reply.type = Reply::Type::error;
        break;
      default:
        reply.type = Reply::Type::string;
        break;
    }
    return &reply;
  }

  static void* createArray(const redisReadTask* task, compat::ArrayCount count) noexcept {
    if (refuseResp3(task)) {
      return nullptr;
    }
    State& state = of(task);
    // A server that nests arrays without end must not use up the memory of the process.
    std::size_t depth = 1;
    for (const redisReadTask* outer = task->parent; outer != nullptr; outer = outer->parent) {
      if (++depth > kMaxDepth) {
        state.error = "reply is nested too deep";
        return nullptr;
      }
    }
    const auto size = static_cast<std::size_t>(count);
    // The count is what the server says, and the places are made before any of them has come.
    if (size > kMaxElements - state.elements) {
      state.error = "reply has too many elements";
      return nullptr;
    }
    Reply& reply = target(task);
    try {
      reply.elements.resize(size);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
    state.elements += size;
    reply.type = Reply::Type::array;
    return &reply;
  }

  static void* createInteger(const redisReadTask* task, long long value) noexcept {
    Reply& reply = target(task);
    reply.type = Reply::Type::integer;
    reply.integer = value;
    return &reply;
  }

  static void* createNil(const redisReadTask* task) noexcept {
    Reply& reply = target(task);
    reply.type = Reply::Type::nil;
    return &reply;
  }

  // RESP3 only, as createBool(): both refuse.
  static void* createDouble(const redisReadTask* task,
                            double,
                            char* text,
                            std::size_t size) noexcept {
    return createString(task, text, size);
  }

  static void* createBool(const redisReadTask* task, int) noexcept {
    refuseResp3(task);
    return nullptr;
  }

  /// The reader owns no reply objects: the tree belongs to the root.
  static void freeObject(void*) noexcept {}
};

namespace {

constexpr const char* kOutOfMemory = "out of memory while reading a reply";

/// Finds errors early that hiredis would only find when the whole item has come.
const char* findOversize(const redisReader& reader) noexcept {
  const std::size_t pending = reader.len - reader.pos;
  if (pending > ReplyReader::kMaxPendingBytes) {
    return "reply is too long";
  }
  const redisReadTask* const task = compat::currentTask(reader);
  if (task == nullptr || task->type < 0) {
    return nullptr;
  }
  // The position stands behind the item's type byte while the item is incomplete.
  constexpr std::size_t kMaxHeader = 32;
  const bool isLine = task->type == REDIS_REPLY_STATUS || task->type == REDIS_REPLY_ERROR;
  const std::size_t limit = isLine ? ReplyReader::kMaxLineBytes : kMaxHeader;
  const char* const item = reader.buf + reader.pos;
  if (pending > limit) {
    const void* const end = std::memchr(item, '\r', limit);
    if (end == nullptr) {
      return "reply line is too long";
    }
    if (task->type == REDIS_REPLY_STRING) {
      std::size_t declared = 0;
      const auto parsed = std::from_chars(item, static_cast<const char*>(end), declared);
      if (parsed.ec == std::errc() && declared > ReplyReader::kMaxPendingBytes) {
        return "reply is too long";
      }
    }
  }
  return nullptr;
}

}  // namespace

void ReplyReader::ReaderDeleter::operator()(redisReader* reader) const noexcept {
  redisReaderFree(reader);
}

ReplyReader::ReplyReader() : state_(std::make_unique<State>()) {
  redisReplyObjectFunctions& functions = state_->functions;
  functions.createString = &State::createString;
  functions.createArray = &State::createArray;
  functions.createInteger = &State::createInteger;
  functions.createNil = &State::createNil;
  functions.freeObject = &State::freeObject;
  compat::setResp3Functions(functions, &State::createDouble, &State::createBool);
  reader_.reset(redisReaderCreateWithFunctions(&functions));
  if (!reader_) {
    throw std::bad_alloc();
  }
  // By this each callback finds the reply under construction, through its task.
  reader_->privdata = state_.get();
}

ReplyReader::ReplyReader(ReplyReader&&) noexcept = default;
ReplyReader& ReplyReader::operator=(ReplyReader&& other) noexcept {
  // The old reader goes first: in the middle of an array, hiredis frees it through the old state.
  reader_ = std::move(other.reader_);
  state_ = std::move(other.state_);
  return *this;
}
ReplyReader::~ReplyReader() = default;

void ReplyReader::feed(const char* data, std::size_t size) noexcept {
  if (size == 0 || state_->failed) {
    return;
  }
  // hiredis copies the bytes. If it cannot, a part of the stream is missing, which no later call
  // can repair.
  if (redisReaderFeed(reader_.get(), data, size) != REDIS_OK) {
    state_->failed = true;
    state_->error = reader_->err == REDIS_ERR_OOM ? kOutOfMemory : reader_->errstr;
  }
}

ReplyReader::Next ReplyReader::next(Reply& out) noexcept {
  if (state_->failed) {
    return Next::protocolError;
  }
  void* reply = nullptr;
  if (redisReaderGetReply(reader_.get(), &reply) != REDIS_OK) {
    state_->failed = true;
    // A callback that refused has said why; hiredis only knows that it has no object.
    if (*state_->error == '\0') {
      state_->error = reader_->err == REDIS_ERR_OOM ? kOutOfMemory : reader_->errstr;
    }
    return Next::protocolError;
  }
  if (reply == nullptr) {
    if (const char* const oversize = findOversize(*reader_); oversize != nullptr) {
      state_->failed = true;
      state_->error = oversize;
      return Next::protocolError;
    }
    return Next::needMore;
  }
  // The limit of elements is one for each reply. The swap gives the caller's old reply back for its
  // memory: target() uses it for the next root.
  state_->elements = 0;
  std::swap(out, state_->root);
  return Next::reply;
}

const char* ReplyReader::errorText() const noexcept {
  return state_->error;
}

bool ReplyReader::betweenReplies() const noexcept {
  // hiredis prepares an item of no type yet before it looks whether there are bytes.
  const redisReadTask* const item = compat::currentTask(*reader_);
  const bool begun = item != nullptr && (item->parent != nullptr || item->type >= 0);
  return reader_->len == reader_->pos && !begun;
}

}  // namespace rlock::detail::net

// SPDX-License-Identifier: Apache-2.0
// Without #pragma once: <rlock/asio.hpp> and <rlock/boost_asio.hpp> each include this file inside a
// namespace of their own, in which `net` is Asio's namespace. They define RLOCK_DETAIL_ASIO_SLOTS
// where that Asio has cancellation slots (1.19, Boost 1.77).

/// Ends the calls of an execution context that is being destroyed.
class ContextService final : public net::execution_context::service {
 public:
  static inline net::execution_context::id id;

  explicit ContextService(net::execution_context& context) : service(context) {}
  ContextService(const ContextService&) = delete;
  ContextService& operator=(const ContextService&) = delete;
  // A service that is made while its context is being destroyed is not shut down.
  ~ContextService() override { calls_->endAll(); }

  [[nodiscard]] const std::shared_ptr<ContextCalls>& calls() const noexcept { return calls_; }

 private:
  void shutdown() noexcept override { calls_->endAll(); }

  const std::shared_ptr<ContextCalls> calls_ = std::make_shared<ContextCalls>();
};

template <class Executor>
std::shared_ptr<ContextCalls> callsOf(const Executor& executor) {
  if constexpr (requires {
                  {
                    net::query(executor, net::execution::context)
                    } -> std::convertible_to<net::execution_context&>;
                }) {
    net::execution_context& context = net::query(executor, net::execution::context);
    return net::use_service<ContextService>(context).calls();
  } else if constexpr (requires {
                         { executor.context() } -> std::convertible_to<net::execution_context&>;
                       }) {
    net::execution_context& context = executor.context();
    return net::use_service<ContextService>(context).calls();
  } else {
    return std::make_shared<ContextCalls>();
  }
}

/// One operation that was started with a completion token, from its start until its handler is
/// called. Its memory comes from the handler's allocator, which may belong to the handler's
/// executor: so it is given back there, or where the context is destroyed.
///
/// Threads: start() runs on the initiating thread. The client delivers the result on its own thread
/// (Delivery), which only posts it. The handler runs on its executor (complete()), and so does the
/// end of this object. If the context is destroyed first, end() does the same on the thread that
/// destroys it.
///
/// Invariants: a call is owned by one of the client's Delivery (through the ContextCalls), the
/// executor's queue, and complete(); whoever takes it out of the ContextCalls owns it. The handler
/// is called once, or is destroyed uncalled where its context ends, or where the executor has no
/// memory for it. A result that nobody gets is dropped, which releases a hold in it; what an
/// executor has refused is given back also where the result has no object for it (Undelivered).
template <class T, class Handler>
class Call final : public ContextCall {
 public:
  static void start(Handler handler, Operation<T> operation);

  explicit Call(Handler handler)
      : handler_(std::move(handler)), work_(net::get_associated_executor(handler_)) {}

 private:
  using Executor = net::associated_executor_t<Handler>;
  using Allocator = typename std::allocator_traits<
      net::associated_allocator_t<Handler>>::template rebind_alloc<Call>;
  using AllocatorTraits = std::allocator_traits<Allocator>;

  struct Destroy {
    void operator()(Call* call) const noexcept {
      // The allocator may be the handler's, so the handler goes last.
      Handler handler(std::move(call->handler_));
      Allocator allocator(net::get_associated_allocator(handler));
      AllocatorTraits::destroy(allocator, call);
      AllocatorTraits::deallocate(allocator, call, 1);
    }
  };
  using Pointer = std::unique_ptr<Call, Destroy>;

  class Delivery;

  /// Runs on the handler's executor.
  struct Completion {
    Pointer call;

    void operator()() { complete(std::move(call)); }
  };

  struct RequestStop {
    std::stop_source stop;

    void operator()() noexcept { stop.request_stop(); }
#ifdef RLOCK_DETAIL_ASIO_SLOTS
    // A cancelled call has changed nothing, so it is all that any type of cancellation asks for.
    void operator()(net::cancellation_type_t type) noexcept {
      if (type != net::cancellation_type::none) {
        stop.request_stop();
      }
    }
#endif
  };

  /// Memory that is not an object yet. No try: the headers compile without exceptions.
  struct Memory {
    Allocator allocator;
    Call* place = AllocatorTraits::allocate(allocator, 1);

    explicit Memory(const Allocator& from) : allocator(from) {}
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory() {
      if (place != nullptr) {
        AllocatorTraits::deallocate(allocator, place, 1);
      }
    }
  };

  static Pointer make(Handler handler) {
    Memory memory(Allocator(net::get_associated_allocator(handler)));
    AllocatorTraits::construct(memory.allocator, memory.place, std::move(handler));
    return Pointer(std::exchange(memory.place, nullptr));
  }

  /// Lets the handler's cancellation slot and endAll() stop the call, beside the caller's token.
  void connect(std::stop_token& stop);

  /// Gives back what was obtained, unless the executor has taken its handler. No try, as above.
  struct Undelivered {
    UniqueFunction<void()> undo;
    bool obtained;

    ~Undelivered() {
      if (obtained && undo) {
        undo();
      }
    }
  };

  [[nodiscard]] static bool obtains(const Result<T>& result) {
    if constexpr (std::is_same_v<T, bool>) {
      return result.has_value() && *result;
    } else if constexpr (requires { result->has_value(); }) {
      return result.has_value() && result->has_value();
    } else if constexpr (requires { result->empty(); }) {
      return result.has_value() && !result->empty();
    } else {
      return result.has_value();
    }
  }

  static void post(Pointer call, Result<T> result) {
    Undelivered undelivered{std::move(call->undo_), obtains(result)};
    call->result_.emplace(std::move(result));
    const Executor executor = call->work_.get_executor();
    net::post(executor, Completion{std::move(call)});
    // The handler may be running already.
    undelivered.obtained = false;
  }

  static void complete(Pointer call);

  void end() noexcept override {
    const Pointer self(this);
    stop_.request_stop();
  }

  Handler handler_;
  net::executor_work_guard<Executor> work_;
  std::stop_source stop_{std::nostopstate};
  std::optional<std::stop_callback<RequestStop>> callersStop_;
  UniqueFunction<void()> undo_;
  std::optional<Result<T>> result_;
};

/// The handler that the client is given: it calls it with the result, once, or destroys it.
template <class T, class Handler>
class Call<T, Handler>::Delivery {
 public:
  Delivery(std::shared_ptr<ContextCalls> calls, Call* call) noexcept
      : calls_(std::move(calls)), call_(call) {}
  Delivery(Delivery&& other) noexcept
      : calls_(std::move(other.calls_)), call_(std::exchange(other.call_, nullptr)) {}
  Delivery& operator=(Delivery&&) = delete;
  ~Delivery() {
    if (call_ != nullptr) {
      if (const ContextCalls::Taking taking(*calls_, call_); taking) {
        const Pointer unfinished(call_);
      }
    }
  }

  void operator()(Result<T> result) {
    Call* const call = std::exchange(call_, nullptr);
    // A call whose context is gone drops the result: a hold in it is released.
    if (const ContextCalls::Taking taking(*calls_, call); taking) {
      post(Pointer(call), std::move(result));
    }
  }

 private:
  std::shared_ptr<ContextCalls> calls_;
  Call* call_;
};

template <class T, class Handler>
void Call<T, Handler>::start(Handler handler, Operation<T> operation) {
  Pointer call = make(std::move(handler));
  if (std::optional<Error> why = OperationAccess::refuseToAwait(operation)) {
    post(std::move(call), std::move(*why));
    return;
  }
  const std::unique_ptr<OperationBody<T>> body = OperationAccess::take(operation);
  if (std::stop_token* stop = body->stop()) {
    call->connect(*stop);
  }
  call->undo_ = body->undo();
  std::shared_ptr<ContextCalls> calls = callsOf(call->work_.get_executor());
  if (calls->add(*call)) {
    body->start(Delivery(std::move(calls), call.release()));
  }
}

template <class T, class Handler>
void Call<T, Handler>::connect(std::stop_token& stop) {
  stop_ = std::stop_source();
  if (stop.stop_possible()) {
    callersStop_.emplace(std::move(stop), RequestStop{stop_});
  }
  stop = stop_.get_token();
#ifdef RLOCK_DETAIL_ASIO_SLOTS
  // The slot keeps this function until it gets another one, and has a share in the stop source
  // for that time: only the thread that uses the handler may touch the slot, and by the time the
  // call is done its signal may be gone.
  if (auto slot = net::get_associated_cancellation_slot(handler_); slot.is_connected()) {
    slot.assign(RequestStop{stop_});
  }
#endif
}

template <class T, class Handler>
void Call<T, Handler>::complete(Pointer call) {
  Handler handler(std::move(call->handler_));
  Result<T> result(std::move(*call->result_));
  // Asio wants the memory back before the handler runs, which may need it for its next call.
  Allocator allocator(net::get_associated_allocator(handler));
  Call* const memory = call.release();
  AllocatorTraits::destroy(allocator, memory);
  AllocatorTraits::deallocate(allocator, memory, 1);

  std::exception_ptr failure;
  if (!result.has_value()) {
    failure = std::make_exception_ptr(std::move(result).error());
  }
  if constexpr (std::is_void_v<T>) {
    std::move(handler)(std::move(failure));
  } else if (failure) {
    std::move(handler)(std::move(failure), T());
  } else {
    std::move(handler)(std::exception_ptr(), *std::move(result));
  }
}

template <class T>
struct Signature {
  using Type = void(std::exception_ptr, T);
};
template <>
struct Signature<void> {
  using Type = void(std::exception_ptr);
};

struct Initiation {
  template <class Handler, class T>
  void operator()(Handler&& handler, Operation<T> operation) const {
    Call<T, std::decay_t<Handler>>::start(std::forward<Handler>(handler), std::move(operation));
  }
};

template <class T, class Token>
decltype(auto) initiate(Operation<T> operation, Token& token) {
  return net::async_initiate<Token, typename Signature<T>::Type>(
      Initiation(), token, std::move(operation));
}

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "integration/lock_harness.hpp"

#include <iterator>
#include <tuple>

namespace rlock::test {

enum class Fault {
  stallReply,          // executed; the reply never comes, the connection stays
  swallowReplyAndCut,  // executed; the connection breaks instead of the reply
  cutMidReply,         // executed; half of the reply comes
  cutMidRequest,       // not executed; half of the request went out
  cutBeforeForward,    // not executed; the server saw nothing
  dropRequest,         // not executed; nothing comes, the connection stays
  stallRequest,        // executed long after everybody gave up
};

inline const char* toString(Fault fault) {
  switch (fault) {
    case Fault::stallReply:
      return "stallReply";
    case Fault::swallowReplyAndCut:
      return "swallowReplyAndCut";
    case Fault::cutMidReply:
      return "cutMidReply";
    case Fault::cutMidRequest:
      return "cutMidRequest";
    case Fault::cutBeforeForward:
      return "cutBeforeForward";
    case Fault::dropRequest:
      return "dropRequest";
    case Fault::stallRequest:
      return "stallRequest";
  }
  return "unknown";
}

inline TcpProxy::Action actionOf(Fault fault) {
  using Action = TcpProxy::Action;
  switch (fault) {
    case Fault::stallReply:
      return Action::stallReply();
    case Fault::swallowReplyAndCut:
      return Action::swallowReplyAndCut();
    case Fault::cutMidReply:
      return Action::cutMidReply();
    case Fault::cutMidRequest:
      return Action::cutMidRequest();
    case Fault::cutBeforeForward:
      return Action::cutBeforeForward();
    case Fault::dropRequest:
      return Action::dropRequest();
    case Fault::stallRequest:
      return Action::stallRequest();
  }
  return Action::pass();
}

using LostReplyParams = std::tuple<LostReplyPolicy, Fault>;

/// Breaks requests in all ways by turns for some seconds, then heals the proxy.
/// @param between  called after each
template <class Between>
void breakUnderLoad(TcpProxy& proxy, Between between) {
  constexpr Fault kTurns[] = {Fault::swallowReplyAndCut,
                              Fault::cutMidRequest,
                              Fault::cutMidReply,
                              Fault::cutBeforeForward,
                              Fault::stallReply,
                              Fault::dropRequest,
                              Fault::stallRequest};
  const Deadline stop(4s);
  for (std::size_t i = 0; !stop.expired(); ++i) {
    TcpProxy::RuleOptions once;
    once.limit = 1;
    once.skip = i % 7;
    const auto rule =
        proxy.addRule(TcpProxy::command("EVALSHA"), actionOf(kTurns[i % std::size(kTurns)]), once);
    static_cast<void>(rule.waitForHits(1, 500ms));
    between();
    // The client has time to mend what is broken before the next.
    std::this_thread::sleep_for(30ms);
    proxy.clearRules();
  }
  proxy.heal();
}

/// A client behind a proxy that can break one request.
class LostReplyTest : public SafetyTest, public ::testing::WithParamInterface<LostReplyParams> {
 protected:
  void SetUp() override {
    LockTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) {
      return;
    }
    client_.emplace(Client::connect(settings()));
    // The server knows all scripts from here on, so that rules meet the request that matters.
    RLock warm = warmLock();
    warm.lock();
    warm.unlock();
    warm.forceUnlock();
  }

  [[nodiscard]] virtual int handOverLimit() const { return 0; }
  /// A lock of the kind that is tested.
  [[nodiscard]] virtual RLock warmLock() { return client().getLock("warm"); }

  [[nodiscard]] Options settings() {
    Options options = proxied();
    options.lostReplyPolicy = std::get<0>(GetParam());
    if (options.lostReplyPolicy == LostReplyPolicy::marker) {
      // Where killing is allowed it is done as well, and no late request would meet its tombstone.
      raw().run({"ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all"});
      raw().denyClient("weak", {"kill"});
      options.username = "weak";
      options.password = "pw";
    }
    options.commandTimeout = 250ms;
    // A new connection and one more try are within twice commandTimeout, as when this is left out,
    // unless the host is busy; what is tested is the answer and not the moment.
    options.callTimeout = scaled(10 * options.commandTimeout);
    options.reconnectDelayMin = 5ms;
    // A hold that is left behind stays long enough to be found.
    options.watchdogTimeout = 30s;
    options.handOverLimit = handOverLimit();
    return options;
  }

  [[nodiscard]] Client& client() { return *client_; }

  TcpProxy::Rule breakOnce(const lua::Script& script, std::size_t times = 1) {
    TcpProxy::RuleOptions once;
    once.limit = times;
    return proxy().addRule(running(script), actionOf(std::get<1>(GetParam())), once);
  }

  /// The request that was held back arrives now, when nobody wants it any more.
  void deliverLate() {
    proxy().releaseStalled();
    std::this_thread::sleep_for(30ms);
  }

  [[nodiscard]] std::string countOnServer(const std::string& name, OwnerId owner) {
    return raw().hget(name, ownerField(client(), owner)).value_or("0");
  }

 private:
  std::optional<Client> client_;
};

inline const auto kLostReplyPolicies =
    ::testing::Values(LostReplyPolicy::fence, LostReplyPolicy::marker);

inline const auto kAllFaults = ::testing::Values(Fault::stallReply,
                                                 Fault::swallowReplyAndCut,
                                                 Fault::cutMidReply,
                                                 Fault::cutMidRequest,
                                                 Fault::cutBeforeForward,
                                                 Fault::dropRequest,
                                                 Fault::stallRequest);
/// Executed, not executed, executed late; for kinds that share most of their ways with others.
inline const auto kFewFaults =
    ::testing::Values(Fault::swallowReplyAndCut, Fault::dropRequest, Fault::stallRequest);

inline std::string lostReplyName(const ::testing::TestParamInfo<LostReplyParams>& test) {
  return std::string(rlock::toString(std::get<0>(test.param))) + "_" +
         toString(std::get<1>(test.param));
}

}  // namespace rlock::test

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/engine/closing.hpp>
#include <rlock/detail/engine/engine_context.hpp>
#include <rlock/detail/engine/hold_ledger.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/inspection_scripts.hpp>
#include <rlock/detail/executor/reply_error.hpp>

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {

/// Writes the labels of holds to the server, where they are shown to whoever inspects the lock.
/// Only the end of the client waits for that, because a label that is left there lasts as long as
/// the lock is in use. A failure is not told.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class HoldLabels {
 public:
  HoldLabels(EngineContext& context, Closing& closing) noexcept
      : context_(context), closing_(closing) {}

  /// @param label    empty: take it away
  /// @param atLeast  how long the label lasts
  void note(const Hold& hold, std::string_view label, std::chrono::milliseconds atLeast) noexcept {
    try {
      note(
          {{std::string(hold.name), context_.ownerField(hold.owner), std::string(label), atLeast}});
    } catch (const std::bad_alloc&) {
      // Nothing depends on a label.
    }
  }
  void note(std::vector<LabelNote> notes);

 private:
  class LabelCall;

  EngineContext& context_;
  Closing& closing_;
};

class HoldLabels::LabelCall final : public Call {
 public:
  LabelCall(std::shared_ptr<HoldLabels> labels, std::vector<LabelNote> notes)
      : labels_(std::move(labels)), notes_(std::move(notes)) {
    composeLabels(*this, notes_, keys_);
    labels_->closing_.deliveryBegan();
  }
  ~LabelCall() override { labels_->closing_.deliveryEnded(); }

 private:
  void finished(Outcome outcome) noexcept override {
    if (outcome.kind == Outcome::Kind::failed && mayConcernOneKey(outcome.error->errc()) &&
        notes_.size() > 1) {
      const auto half = notes_.begin() + static_cast<std::ptrdiff_t>(notes_.size() / 2);
      try {
        labels_->note({half, notes_.end()});
        labels_->note({notes_.begin(), half});
      } catch (const std::bad_alloc&) {
        // Nothing depends on a label.
      }
    }
  }

  const std::shared_ptr<HoldLabels> labels_;
  const std::vector<LabelNote> notes_;
  std::vector<std::string> keys_;
};

inline void HoldLabels::note(std::vector<LabelNote> notes) {
  // One request for each slot.
  std::map<Dispatcher::Place, std::vector<LabelNote>> bySlot;
  for (LabelNote& note : notes) {
    bySlot[context_.dispatcher().placeOf(note.name)].push_back(std::move(note));
  }
  for (auto& [place, there] : bySlot) {
    context_.dispatcher().start(makeIntrusive<LabelCall>(context_.sharing(*this), std::move(there)),
                                context_.now() + context_.callTimeout());
  }
}

}  // namespace rlock::detail

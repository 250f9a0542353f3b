// SPDX-License-Identifier: Apache-2.0
// Fenced writes to an object store, which knows nothing of tokens but writes under a condition: the
// version that an object must have (If-Match, or a generation number). The token is in the object's
// metadata.
#include "server_uri.hpp"
#include <rlock/rlock.hpp>

#include <cstdint>
#include <iostream>
#include <map>
#include <optional>
#include <string>

namespace {

/// The part that S3, Azure and Google's store have in common; here in memory.
class ObjectStore {
 public:
  struct Head {
    std::string version;      ///< ETag or generation
    std::uint64_t token = 0;  ///< metadata that the application has written
  };

  /// Empty: there is no such object.
  std::optional<Head> head(const std::string& key) const {
    const auto object = objects_.find(key);
    return object == objects_.end() ? std::nullopt : std::optional(object->second.head);
  }
  /// PUT with `If-Match: version`, or without a version `If-None-Match: *`.
  /// @returns false for 412, another version is there
  bool put(const std::string& key,
           const std::optional<std::string>& version,
           std::uint64_t token,
           const std::string& body) {
    const auto present = head(key);
    if (present.has_value() != version.has_value() || (present && present->version != *version)) {
      return false;
    }
    objects_[key] = {{std::to_string(++versions_), token}, body};
    return true;
  }
  std::string body(const std::string& key) const { return objects_.at(key).body; }

 private:
  struct Object {
    Head head;
    std::string body;
  };
  std::map<std::string, Object> objects_;
  int versions_ = 0;
};

/// @returns false if a younger holder has written: nothing was changed, and the caller must stop
bool fencedPut(ObjectStore& store,
               const std::string& key,
               std::uint64_t token,
               const std::string& body) {
  for (;;) {
    const auto seen = store.head(key);
    if (seen && seen->token > token) {
      return false;
    }
    const auto version = seen ? std::optional(seen->version) : std::nullopt;
    if (store.put(key, version, token, body)) {
      return true;
    }
    // Somebody has written since: look again who.
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    auto client = rlock::Client::connect(serverUri(argc, argv));
    rlock::FencedLock lock = client.getFencedLock("example:object-store");
    ObjectStore store;

    rlock::Lease first = lock.acquire();
    const std::uint64_t early = first.token().value();
    bool good = fencedPut(store, "ledger/17", early, "by the first");

    // The first writer stands still, and somebody frees the lock.
    lock.forceUnlock();
    rlock::Lease second = lock.acquire();
    const std::uint64_t late = second.token().value();
    good = good && fencedPut(store, "ledger/17", late, "by the second");

    const bool refused = !fencedPut(store, "ledger/17", early, "by the first, too late");
    std::cout << "token " << early << " after " << late << (refused ? " is" : " is not")
              << " refused; the object is " << store.body("ledger/17") << '\n';
    return good && refused && store.body("ledger/17") == "by the second" ? 0 : 1;
  } catch (const rlock::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}

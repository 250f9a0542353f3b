// SPDX-License-Identifier: Apache-2.0
// The component rlock::prometheus: a client whose numbers are shown.
#include <rlock/prometheus.hpp>
#include <rlock/rlock.hpp>

#include <cstdio>
#include <cstdlib>
#include <prometheus/text_serializer.h>
#include <string>

int main() {
  const char* uri = std::getenv("RLOCK_URI");
  if (uri == nullptr) {
    std::fputs("RLOCK_URI is not set\n", stderr);
    return EXIT_FAILURE;
  }
  rlock::prometheus::Collector collector;
  rlock::Options options = rlock::Options::fromUri(uri);
  options.observer = collector.observer();
  rlock::Client client = rlock::Client::connect(options);
  collector.add(client, "package");
  rlock::RLock lock = client.getLock("package-test");
  lock.lock();
  lock.unlock();
  const std::string page = ::prometheus::TextSerializer().Serialize(collector.Collect());
  const bool shown =
      page.find("rlock_releases_total{client=\"package\"} 1") != std::string::npos &&
      page.find("rlock_releases_by_kind_total{kind=\"lock\"} 1") != std::string::npos;
  if (!shown) {
    std::fputs(page.c_str(), stderr);
  }
  return shown ? EXIT_SUCCESS : EXIT_FAILURE;
}

// SPDX-License-Identifier: Apache-2.0
#include "cli/connection.hpp"

#include "cli/exit_codes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <poll.h>
#include <stdexcept>
#include <string_view>
#include <unistd.h>

namespace rlock::cli {

namespace {

bool takesText(int stream) {
  pollfd watched{stream, POLLOUT, 0};
  return ::poll(&watched, 1, 0) == 1 && (watched.revents & POLLOUT) != 0;
}

}  // namespace

Options clientOptions(const Arguments& arguments, const std::string& uri) {
  Options options = Options::fromUri(uri);
  if (options.clientName.empty()) {
    options.clientName = "rlock-" + arguments.subcommand;
  }
  // The hold has been released before; a server that does not answer must not keep us.
  options.closeTimeout = std::chrono::milliseconds(500);
  if (arguments.lock.lease) {
    options.watchdogTimeout = arguments.lock.lease->ceilMilliseconds();
  }
  options.log = [verbose = arguments.verbose](LogLevel level, std::string_view text) {
    // Often on the loop thread, which renews the hold: a pipe that is full must not keep it.
    if (verbose && level >= LogLevel::warning && takesText(STDERR_FILENO)) {
      complain(std::string(text));
    }
  };
  return options;
}

Client connectClient(const Arguments& arguments) {
  return Client::connect(clientOptions(arguments, arguments.uri));
}

void writeError(std::string_view text) noexcept {
  if (std::fwrite(text.data(), 1, text.size(), stderr) < text.size()) {
    // Nobody can be told. A command under a lock goes on all the same.
  }
}

void complain(const std::string& text) {
  writeError(fmt::format("rlock: {}\n", text));
}

void flushOutput() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw std::runtime_error("standard output cannot be written");
  }
}

bool complainWithoutWaiting(const std::string& text) {
  const bool taken = takesText(STDERR_FILENO);
  if (taken) {
    complain(text);
  }
  return taken;
}

int reportError(const std::exception& error) {
  complain(error.what());
  const auto* const own = dynamic_cast<const Error*>(&error);
  return number(own != nullptr ? exitCodeOf(own->errc()) : ExitCode::internal);
}

std::string uriWithoutSecrets(const std::string& uri) {
  const std::size_t scheme = uri.find("://");
  if (scheme == std::string::npos) {
    return uri;
  }
  const std::size_t begin = scheme + 3;
  const std::size_t query = uri.find('?', begin);
  // A path of a Unix socket may have an @ of its own; user and password end before the first slash.
  const std::size_t at = uri.rfind('@', std::min(uri.find('/', begin), query));
  const std::size_t host = at == std::string::npos || at < begin ? begin : at + 1;
  return uri.substr(0, begin) + uri.substr(host, query == std::string::npos ? query : query - host);
}

}  // namespace rlock::cli

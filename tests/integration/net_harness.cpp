// SPDX-License-Identifier: Apache-2.0
#include "integration/net_harness.hpp"

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <filesystem>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>

namespace rlock::test {

struct ScriptedServer::Connection {
  int fd = -1;
  std::size_t index = 0;
  std::size_t step = 0;
  std::string unseen;
};

ScriptedServer::ScriptedServer(std::vector<Step> script,
                               Then then,
                               std::uint16_t port,
                               std::uint32_t where)
    : script_(std::move(script)), then_(then) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(where);
  socklen_t size = sizeof(address);
  if (listener_ < 0 || ::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(listener_, 64) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      ::pipe2(wake_, O_CLOEXEC) != 0) {
    throw std::system_error(errno, std::generic_category(), "ScriptedServer");
  }
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { serve(); });
}

ScriptedServer::~ScriptedServer() {
  ::close(wake_[1]);
  thread_.join();
  ::close(wake_[0]);
  ::close(listener_);
}

std::size_t ScriptedServer::accepted() const {
  const std::lock_guard lock(mutex_);
  return received_.size();
}

std::vector<std::string> ScriptedServer::received() const {
  const std::lock_guard lock(mutex_);
  return received_;
}

void ScriptedServer::serve() {
  std::vector<Connection> connections;
  // Returns false when the connection is to be closed.
  const auto advance = [this](Connection& connection) {
    while (connection.step < script_.size()) {
      const Step& step = script_[connection.step];
      const std::size_t found = connection.unseen.find(step.awaited);
      if (found == std::string::npos) {
        return true;
      }
      connection.unseen.erase(0, found + step.awaited.size());
      ++connection.step;
      std::string_view rest = step.answer;
      while (!rest.empty()) {
        const ssize_t sent = ::send(connection.fd, rest.data(), rest.size(), MSG_NOSIGNAL);
        if (sent <= 0) {
          return false;
        }
        rest.remove_prefix(static_cast<std::size_t>(sent));
      }
    }
    return then_ == Then::hold;
  };
  while (true) {
    std::vector<pollfd> polled = {{wake_[0], POLLIN, 0}, {listener_, POLLIN, 0}};
    for (const Connection& connection : connections) {
      polled.push_back({connection.fd, POLLIN, 0});
    }
    ::poll(polled.data(), polled.size(), -1);
    if (polled[0].revents != 0) {
      break;
    }
    for (std::size_t i = connections.size(); i-- > 0;) {
      if (polled[i + 2].revents == 0) {
        continue;
      }
      Connection& connection = connections[i];
      std::array<char, 4096> buffer;
      const ssize_t count = ::recv(connection.fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
      bool open = count > 0 || (count < 0 && errno == EAGAIN);
      if (count > 0) {
        const std::string_view bytes(buffer.data(), static_cast<std::size_t>(count));
        connection.unseen.append(bytes);
        {
          const std::lock_guard lock(mutex_);
          received_[connection.index].append(bytes);
        }
        open = advance(connection);
      }
      if (!open) {
        ::close(connection.fd);
        connections.erase(connections.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    if (polled[1].revents != 0) {
      Connection connection;
      connection.fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection.fd < 0) {
        continue;
      }
      {
        const std::lock_guard lock(mutex_);
        connection.index = received_.size();
        received_.emplace_back();
      }
      if (advance(connection)) {
        connections.push_back(connection);
      } else {
        ::close(connection.fd);
      }
    }
  }
  for (const Connection& connection : connections) {
    ::close(connection.fd);
  }
}

std::string handshakeAnswer(bool named) {
  return std::string("*4\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$2\r\nid\r\n:7\r\n") +
         (named ? "+OK\r\n" : "") +
         "$26\r\nid=7 addr=127.0.0.1:50000 \r\n"
         "+PONG\r\n";
}

std::size_t openDescriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

}  // namespace rlock::test

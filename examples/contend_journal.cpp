// SPDX-License-Identifier: Apache-2.0
#include "contend_journal.hpp"

#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <fstream>
#include <sys/mman.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace contend {

namespace {

int openFile(const std::string& path, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_CLOEXEC, 0600);
  if (descriptor < 0) {
    throw std::system_error(errno, std::generic_category(), path);
  }
  return descriptor;
}

}  // namespace

void Journal::create(const std::filesystem::path& directory) {
  std::ofstream(directory / "counter") << "0\n";
  const std::string board = directory / "board";
  std::ofstream{board}.flush();
  std::filesystem::resize_file(board, sizeof(Board));  // zeros: nobody started, not going
}

Journal::Journal(std::filesystem::path directory) : directory_(std::move(directory)) {
  const int file = openFile(directory_ / "board", O_RDWR);
  void* memory = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory == MAP_FAILED) {
    throw std::system_error(errno, std::generic_category(), "mmap");
  }
  board_ = static_cast<Board*>(memory);
  counter_ = openFile(directory_ / "counter", O_RDWR);
}

Journal::~Journal() {
  ::munmap(board_, sizeof(Board));
  ::close(counter_);
  if (own_ >= 0) {
    ::close(own_);
  }
}

Slot& Journal::slot(int worker) const {
  return board_->slots.at(static_cast<std::size_t>(worker - 1));
}

std::uint64_t Journal::readCounter() const {
  std::array<char, 32> text{};
  const ssize_t size = ::pread(counter_, text.data(), text.size(), 0);
  if (size < 0) {
    throw std::system_error(errno, std::generic_category(), "reading the counter");
  }
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + size, value);
  return value;
}

void Journal::writeCounter(std::uint64_t value) const {
  const std::string text = std::to_string(value) + '\n';
  if (::pwrite(counter_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    throw std::system_error(errno, std::generic_category(), "writing the counter");
  }
}

void Journal::append(int worker, const Entry& entry) {
  if (own_ < 0) {
    own_ = openFile(fileOf(worker), O_WRONLY | O_CREAT | O_APPEND);
  }
  if (::write(own_, &entry, sizeof entry) != static_cast<ssize_t>(sizeof entry)) {
    throw std::system_error(errno, std::generic_category(), "writing the journal");
  }
}

std::vector<Entry> Journal::entries(int worker) const {
  std::vector<Entry> result;
  std::ifstream file(fileOf(worker), std::ios::binary);
  Entry entry;
  while (file.read(reinterpret_cast<char*>(&entry), sizeof entry)) {
    result.push_back(entry);
  }
  return result;
}

std::string Journal::fileOf(int worker) const {
  return directory_ / ("journal." + std::to_string(worker));
}

}  // namespace contend

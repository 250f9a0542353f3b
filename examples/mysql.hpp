// SPDX-License-Identifier: Apache-2.0
// A session with MySQL or MariaDB through their command-line client, so that the example needs
// neither's library. A service would use one.
#pragma once

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <memory>
#include <stdexcept>
#include <string>
#include <sys/types.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

/// One thread at a time.
class MySql {
 public:
  /// @param client  starts the client, such as `mariadb -h db1 -u shop shop`
  explicit MySql(const std::string& client) {
    const std::string command = "exec " + client + " --batch --skip-column-names --unbuffered";
    std::array<int, 2> questions{};
    std::array<int, 2> answers{};
    if (::pipe2(questions.data(), O_CLOEXEC) != 0 || ::pipe2(answers.data(), O_CLOEXEC) != 0) {
      throw std::system_error(errno, std::generic_category(), "pipe");
    }
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(questions[0], STDIN_FILENO);
      ::dup2(answers[1], STDOUT_FILENO);
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(questions[0]);
    ::close(answers[1]);
    questions_.reset(::fdopen(questions[1], "w"));
    answers_.reset(::fdopen(answers[0], "r"));
    if (pid_ < 0) {
      throw std::runtime_error("the client of MySQL does not start");
    }
  }
  MySql(const MySql&) = delete;
  MySql& operator=(const MySql&) = delete;
  ~MySql() {
    questions_.reset();  // ends the client
    ::waitpid(pid_, nullptr, 0);
  }

  /// Executes statements that have one line of one column as their answer. @returns the line
  std::string query(const std::string& statements) {
    std::fputs((statements + "\n").c_str(), questions_.get());
    std::fflush(questions_.get());
    std::string line;
    for (int next = 0; (next = std::fgetc(answers_.get())) != '\n';
         line.push_back(static_cast<char>(next))) {
      if (next == EOF) {
        throw std::runtime_error("MySQL has refused: " + statements);
      }
    }
    return line;
  }
  /// Executes statements without an answer.
  void execute(const std::string& statements) { query(statements + "; SELECT 'done';"); }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  pid_t pid_ = -1;
  std::unique_ptr<std::FILE, Close> questions_;
  std::unique_ptr<std::FILE, Close> answers_;
};

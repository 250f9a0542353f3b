// SPDX-License-Identifier: Apache-2.0
package rlock.interop;

import java.util.Deque;

/** {@code ID VERB CLIENT OWNER KIND NAME ARGUMENT...} */
final class Command {
  final long id;
  final String verb;
  final String client;
  final String owner;
  final String kind;
  final String name;
  private final Deque<String> arguments;

  Command(Deque<String> words) {
    id = Long.parseLong(words.remove());
    verb = words.remove();
    client = words.isEmpty() ? "" : words.remove();
    owner = words.isEmpty() ? "" : words.remove();
    kind = words.isEmpty() ? "" : words.remove();
    name = words.isEmpty() ? "" : words.remove();
    arguments = words;
  }

  String text() {
    return arguments.remove();
  }

  long number() {
    return Long.parseLong(text());
  }

  int count() {
    return Integer.parseInt(text());
  }
}

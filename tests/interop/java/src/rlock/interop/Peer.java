// SPDX-License-Identifier: Apache-2.0
package rlock.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;

/**
 * Uses Redisson on command: one line is one command, its answer one line of JSON. The protocol is in
 * ../../../../README.md; rlock's side of it is cpp_driver.cpp.
 */
public final class Peer {
  private final Map<String, RedissonClient> clients = new ConcurrentHashMap<>();
  private final Map<String, ExecutorService> owners = new ConcurrentHashMap<>();
  private final Map<String, Thread> threads = new ConcurrentHashMap<>();
  // The answers alone go here: a library that prints must not come between them.
  private final PrintStream out;

  private Peer(PrintStream out) {
    this.out = out;
  }

  public static void main(String[] args) throws Exception {
    PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    System.setOut(System.err);
    new Peer(out).run();
    // Redisson's threads, and owners that still wait, would keep the process alive.
    Runtime.getRuntime().halt(0);
  }

  private void run() throws Exception {
    answer(new Json().add("id", 0).add("value", "Redisson " + Clients.version()));
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      Deque<String> words = new ArrayDeque<>();
      for (String word : line.trim().split(" +")) {
        words.add(word);
      }
      Command command = new Command(words);
      if (command.verb.equals("exit")) {
        return;
      }
      owners
          .computeIfAbsent(command.owner, number -> Executors.newSingleThreadExecutor())
          .execute(() -> obey(command));
    }
  }

  private void obey(Command command) {
    threads.put(command.owner, Thread.currentThread());
    Json json = new Json().add("id", command.id);
    long begin = System.nanoTime();
    try {
      Object value = perform(command);
      long end = System.nanoTime();
      json.add("begin", begin).add("end", end).add("value", value);
    } catch (Throwable failure) {
      long end = System.nanoTime();
      json.add("begin", begin).add("end", end).add("error", errorName(command, failure))
          .add("message", String.valueOf(failure.getMessage()));
    }
    answer(json);
  }

  private Object perform(Command command) throws Exception {
    switch (command.verb) {
      case "open": {
        RedissonClient client = Clients.open(command.name, command.number(), command.number(),
            command.number(), command.number(), command.number() != 0);
        clients.put(command.client, client);
        return Clients.id(client);
      }
      case "close":
        clients.remove(command.client).shutdown();
        return true;
      case "owner":
        return Clients.id(clients.get(command.client)) + ":" + Thread.currentThread().getId();
      case "asleep":
        return sleepsUntilMessage(threads.get(command.text()));
      default:
        return new Objects(clients.get(command.client)).perform(command);
    }
  }

  /** Redisson's waiters sleep on a semaphore of the channel, and nowhere else on one. */
  private static boolean sleepsUntilMessage(Thread thread) {
    if (thread == null || (thread.getState() != Thread.State.WAITING
        && thread.getState() != Thread.State.TIMED_WAITING)) {
      return false;
    }
    for (StackTraceElement frame : thread.getStackTrace()) {
      if (frame.getClassName().equals("java.util.concurrent.Semaphore")) {
        return true;
      }
    }
    return false;
  }

  /** The words that rlock's errors have, where there is such a word. */
  private static String errorName(Command command, Throwable failure) {
    if (failure instanceof IllegalMonitorStateException) {
      return command.verb.equals("lock") || command.verb.equals("tryLock") ? "reentry" : "notOwner";
    }
    if (failure instanceof RedisException
        && failure.getCause() instanceof IllegalArgumentException) {
      return errorName(command, failure.getCause());
    }
    if (failure instanceof IllegalArgumentException) {
      boolean unknownPermit = command.kind.equals("permits")
          && (command.verb.equals("release") || command.verb.equals("leaseTime"));
      return unknownPermit ? "notOwner" : "invalidArgument";
    }
    return failure.getClass().getSimpleName();
  }

  private void answer(Json json) {
    synchronized (out) {
      out.print(json + "\n");
      out.flush();
    }
  }
}

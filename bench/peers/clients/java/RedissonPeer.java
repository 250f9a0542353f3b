// SPDX-License-Identifier: Apache-2.0

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Function;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson with its defaults; obeys the commands of measure.py (see README.md) on standard input.
 *
 * <p>Usage: RedissonPeer PORT [first-lock]
 */
public final class RedissonPeer {
  private static final PrintStream out =
      new PrintStream(new FileOutputStream(FileDescriptor.out), true);
  private static final long OWNER = 4242;

  private final RedissonClient client;
  private final List<RLock> held = new ArrayList<>();

  private RedissonPeer(RedissonClient client) {
    this.client = client;
  }

  private interface Operation {
    void run(int worker) throws Exception;
  }

  /** One thread, or one chain of asynchronous operations. */
  private static final class Worker {
    final AtomicLong done = new AtomicLong();
    volatile Throwable failure;
    private int[] latencies = new int[1 << 14];
    private int size;

    void add(long nanoseconds) {
      if (size == latencies.length) {
        latencies = Arrays.copyOf(latencies, 2 * size);
      }
      latencies[size++] = (int) Math.min(nanoseconds, Integer.MAX_VALUE);
    }

    int[] latencies() {
      return Arrays.copyOf(latencies, size);
    }
  }

  private static final class Load {
    final Worker[] workers;
    volatile boolean ended;
    volatile boolean measuring;

    Load(int count) {
      workers = new Worker[count];
      Arrays.setAll(workers, i -> new Worker());
    }

    void count(int worker, long began) {
      if (measuring) {
        workers[worker].add(System.nanoTime() - began);
      }
      workers[worker].done.lazySet(workers[worker].done.get() + 1);
    }

    long total() {
      return Arrays.stream(workers).mapToLong(w -> w.done.get()).sum();
    }

    String measure(double warmUp, double seconds, Runnable join) throws Exception {
      pause(warmUp);
      out.println("BEGIN");
      measuring = true;
      long began = System.nanoTime();
      long before = total();
      pause(seconds);
      long operations = total() - before;
      double took = (System.nanoTime() - began) / 1e9;
      measuring = false;
      out.println("END");
      pause(0.06); // the driver reads the processor times of all threads now
      ended = true;
      join.run();
      for (Worker worker : workers) {
        if (worker.failure != null) {
          throw new Exception(worker.failure);
        }
      }
      int[] all = Arrays.stream(workers).flatMapToInt(w -> Arrays.stream(w.latencies())).toArray();
      Arrays.sort(all);
      return String.format(
          Locale.ROOT, "%d %.6f %.1f %.1f", operations, took, percentile(all, .5), percentile(all, .99));
    }

    String runThreads(double warmUp, double seconds, Operation operation) throws Exception {
      Thread[] threads = new Thread[workers.length];
      for (int i = 0; i < threads.length; i++) {
        int worker = i;
        threads[i] =
            new Thread(
                () -> {
                  try {
                    while (!ended) {
                      long began = System.nanoTime();
                      operation.run(worker);
                      count(worker, began);
                    }
                  } catch (Throwable failure) {
                    workers[worker].failure = failure;
                  }
                });
        threads[i].start();
      }
      return measure(warmUp, seconds, () -> joinAll(threads));
    }
  }

  /** Counts those that were inside at the same time as another one. */
  private static final class Section {
    private final AtomicInteger inside = new AtomicInteger();
    private final AtomicLong overlaps = new AtomicLong();
    private volatile long unprotected;

    void pass() {
      if (inside.getAndIncrement() != 0) {
        overlaps.incrementAndGet();
      }
      unprotected = unprotected + 1;
      inside.decrementAndGet();
    }

    long overlaps(long passed) {
      return overlaps.get() + passed - unprotected;
    }
  }

  private static double percentile(int[] sorted, double part) {
    return sorted.length == 0
        ? 0
        : sorted[Math.min(sorted.length - 1, (int) (sorted.length * part))] / 1e3;
  }

  private static void pause(double seconds) throws InterruptedException {
    Thread.sleep((long) (seconds * 1e3));
  }

  private static void joinAll(Thread[] threads) {
    try {
      for (Thread thread : threads) {
        thread.join();
      }
    } catch (InterruptedException interrupted) {
      throw new IllegalStateException(interrupted);
    }
  }

  private String pairs(int threads, double warmUp, double seconds) throws Exception {
    RLock[] locks = new RLock[threads];
    Arrays.setAll(locks, i -> client.getLock("peers:pairs:" + i));
    return new Load(threads)
        .runThreads(
            warmUp,
            seconds,
            i -> {
              locks[i].lock();
              locks[i].unlock();
            });
  }

  private String contend(String name, int threads, double warmUp, double seconds)
      throws Exception {
    RLock lock = client.getLock(name);
    Section section = new Section();
    Load load = new Load(threads);
    String result =
        load.runThreads(
            warmUp,
            seconds,
            i -> {
              lock.lock();
              section.pass();
              lock.unlock();
            });
    return result + " " + section.overlaps(load.total());
  }

  private String async(int chains, double warmUp, double seconds) throws Exception {
    Load load = new Load(chains);
    CountDownLatch running = new CountDownLatch(chains);
    for (int i = 0; i < chains; i++) {
      next(client.getLock("peers:async:" + i), load, i, running);
    }
    return load.measure(
        warmUp,
        seconds,
        () -> {
          try {
            running.await();
          } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
          }
        });
  }

  /** One pair of a chain, and then the next. */
  private static void next(RLock lock, Load load, int worker, CountDownLatch running) {
    if (load.ended) {
      running.countDown();
      return;
    }
    long began = System.nanoTime();
    long owner = OWNER + worker;
    lock.lockAsync(owner)
        .thenCompose(locked -> lock.unlockAsync(owner))
        .whenComplete(
            (unlocked, failure) -> {
              if (failure != null) {
                load.workers[worker].failure = failure;
                running.countDown();
                return;
              }
              load.count(worker, began);
              next(lock, load, worker, running);
            });
  }

  private String handOff(String name, double seconds, String file) throws Exception {
    RLock lock = client.getLock(name);
    StringBuilder holds = new StringBuilder();
    int count = 0;
    long end = System.nanoTime() + (long) (seconds * 1e9);
    out.println("BEGIN");
    while (System.nanoTime() < end) {
      long called = System.nanoTime();
      lock.lock();
      long returned = System.nanoTime();
      LockSupport.parkNanos(1_500_000);
      long unlocking = System.nanoTime();
      lock.unlock();
      holds.append(called).append(' ').append(returned).append(' ').append(unlocking).append('\n');
      count++;
      LockSupport.parkNanos(500_000);
    }
    Files.writeString(Path.of(file), holds);
    out.println("END");
    return String.valueOf(count);
  }

  private String waiters(String name, int count) throws Exception {
    RLock lock = client.getLock(name);
    Section section = new Section();
    AtomicLong passed = new AtomicLong();
    AtomicLong first = new AtomicLong();
    AtomicLong last = new AtomicLong();
    Thread[] threads = new Thread[count];
    for (int i = 0; i < count; i++) {
      threads[i] =
          new Thread(
              () -> {
                lock.lock();
                first.compareAndSet(0, System.nanoTime());
                section.pass();
                passed.incrementAndGet();
                lock.unlock();
                last.set(System.nanoTime());
              });
      threads[i].start();
    }
    out.println("BEGIN");
    joinAll(threads);
    return passed + " " + section.overlaps(passed.get()) + " " + first + " " + last;
  }

  private static long heapBytes() throws InterruptedException {
    for (int i = 0; i < 3; i++) {
      System.gc();
      Thread.sleep(100);
    }
    Runtime runtime = Runtime.getRuntime();
    return runtime.totalMemory() - runtime.freeMemory();
  }

  private String hold(int locks) throws Exception {
    long before = heapBytes();
    long began = System.nanoTime();
    for (int i = 0; i < locks; i++) {
      held.add(client.getLock(String.format("peers:hold:%08d", i)));
    }
    forEachHeld(lock -> lock.lockAsync(OWNER));
    double seconds = (System.nanoTime() - began) / 1e9;
    return String.format(
        Locale.ROOT, "%.0f %.3f", (heapBytes() - before) / (double) locks, seconds);
  }

  private String free() throws Exception {
    forEachHeld(lock -> lock.unlockAsync(OWNER));
    held.clear();
    return "";
  }

  /** With 512 under way at a time. */
  private void forEachHeld(Function<RLock, CompletionStage<?>> start) throws Exception {
    int atOnce = 512;
    Semaphore room = new Semaphore(atOnce);
    AtomicInteger failures = new AtomicInteger();
    for (RLock lock : held) {
      room.acquire();
      start
          .apply(lock)
          .whenComplete(
              (result, failure) -> {
                if (failure != null) {
                  failures.incrementAndGet();
                }
                room.release();
              });
    }
    room.acquire(atOnce);
    if (failures.get() > 0) {
      throw new Exception(failures + " failed");
    }
  }

  private String obey(String[] words) throws Exception {
    switch (words[0]) {
      case "pairs":
        return pairs(Integer.parseInt(words[1]), Double.parseDouble(words[2]), Double.parseDouble(words[3]));
      case "async":
        return async(Integer.parseInt(words[1]), Double.parseDouble(words[2]), Double.parseDouble(words[3]));
      case "contend":
        return contend(
            words[1],
            Integer.parseInt(words[2]),
            Double.parseDouble(words[3]),
            Double.parseDouble(words[4]));
      case "handoff":
        return handOff(words[1], Double.parseDouble(words[2]), words[3]);
      case "waiters":
        return waiters(words[1], Integer.parseInt(words[2]));
      case "hold":
        return hold(Integer.parseInt(words[1]));
      case "free":
        return free();
      default:
        throw new IllegalArgumentException("not offered");
    }
  }

  public static void main(String[] arguments) throws Exception {
    Config config = new Config();
    config.useSingleServer().setAddress("redis://127.0.0.1:" + arguments[0]);
    RedissonPeer peer = new RedissonPeer(Redisson.create(config));
    if (arguments.length > 1) {
      RLock lock = peer.client.getLock("peers:first");
      lock.lock();
      out.println("LOCKED");
      lock.unlock();
      Runtime.getRuntime().halt(0);
    }
    out.println("READY");
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null && !line.equals("quit"); line = in.readLine()) {
      try {
        out.println("RESULT " + peer.obey(line.split(" ")));
      } catch (Exception failure) {
        out.println("REFUSED " + String.valueOf(failure.getMessage()).replace('\n', ' '));
      }
    }
    Runtime.getRuntime().halt(0);
  }
}

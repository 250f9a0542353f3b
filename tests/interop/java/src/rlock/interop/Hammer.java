// SPDX-License-Identifier: Apache-2.0
package rlock.interop;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;

/** Many acquisitions by one command, each around something that only the lock protects. */
final class Hammer {
  private Hammer() {}

  private interface Step {
    void run() throws Exception;
  }

  static Object lock(RLock lock, Command command) throws Exception {
    return sections(command, lock::lock, lock::unlock);
  }

  static Object semaphore(RSemaphore semaphore, Command command) throws Exception {
    return sections(command, semaphore::acquire, semaphore::release);
  }

  static Object permits(RPermitExpirableSemaphore permits, Command command) throws Exception {
    String[] id = new String[1];
    return sections(command, () -> id[0] = permits.acquire(), () -> permits.release(id[0]));
  }

  /** {@code hammer TIMES COUNTER JOURNAL TAG HOLD_US} */
  private static Object sections(Command command, Step acquire, Step release) throws Exception {
    int times = command.count();
    String counterFile = command.text();
    String journalFile = command.text();
    String tag = command.text();
    long holdUs = command.number();
    boolean shared = command.kind.equals("read");
    try (FileChannel counter = FileChannel.open(Path.of(counterFile), StandardOpenOption.READ,
             StandardOpenOption.WRITE);
        FileChannel journal = FileChannel.open(Path.of(journalFile), StandardOpenOption.CREATE,
            StandardOpenOption.WRITE, StandardOpenOption.APPEND)) {
      for (int i = 0; i < times; i++) {
        acquire.run();
        try {
          note(journal, shared ? 'S' : 'E', tag);
          if (shared) {
            LockSupport.parkNanos(holdUs * 1000);
          } else {
            increment(counter, holdUs);
          }
          note(journal, 'L', tag);
        } finally {
          release.run();
        }
      }
    }
    return times;
  }

  /** As UnprotectedCounter::increment() of tests/support. */
  private static void increment(FileChannel counter, long pauseUs) throws IOException {
    ByteBuffer bytes = ByteBuffer.allocate(20);
    counter.read(bytes, 0);
    String text = new String(bytes.array(), 0, bytes.position(), StandardCharsets.US_ASCII).trim();
    long next = (text.isEmpty() ? 0 : Long.parseLong(text)) + 1;
    if (pauseUs > 0) {
      LockSupport.parkNanos(pauseUs * 1000);
    }
    byte[] padded = String.format("%20d", next).getBytes(StandardCharsets.US_ASCII);
    counter.write(ByteBuffer.wrap(padded), 0);
  }

  /** As OverlapDetector of tests/support: one atomic append. */
  private static void note(FileChannel journal, char kind, String tag) throws IOException {
    String line = kind + " " + tag + " " + System.nanoTime() + "\n";
    journal.write(ByteBuffer.wrap(line.getBytes(StandardCharsets.US_ASCII)));
  }

  /** {@code churn OPERATIONS SEED}: random operations that leave as many permits as there were. */
  static Object churn(RSemaphore semaphore, Command command) throws Exception {
    int operations = command.count();
    Random random = new Random(command.number());
    int held = 0;
    int grants = 0;
    for (int i = 0; i < operations; i++) {
      int permits = 1 + random.nextInt(2);
      if (held >= permits && random.nextBoolean()) {
        semaphore.release(permits);
        held -= permits;
      } else if (random.nextInt(16) == 0) {
        held += semaphore.drainPermits();
      } else if (semaphore.tryAcquire(permits, random.nextInt(3), TimeUnit.MILLISECONDS)) {
        held += permits;
        grants++;
        Thread.sleep(random.nextInt(3));
      }
    }
    if (held > 0) {
      semaphore.release(held);
    }
    return grants;
  }

  static Object churn(RPermitExpirableSemaphore permits, Command command) throws Exception {
    int operations = command.count();
    Random random = new Random(command.number());
    List<String> held = new ArrayList<>();
    int grants = 0;
    for (int i = 0; i < operations; i++) {
      if (!held.isEmpty() && random.nextBoolean()) {
        String id = held.remove(random.nextInt(held.size()));
        if (random.nextInt(4) == 0 && !permits.updateLeaseTime(id, 90_000, TimeUnit.MILLISECONDS)) {
          throw new IllegalStateException("a permit that is held has no lease time");
        }
        permits.release(id);
        if (random.nextInt(4) == 0 && permits.tryRelease(id)) {
          throw new IllegalStateException("a permit was released twice");
        }
      } else {
        String id = permits.tryAcquire(random.nextInt(3), 60_000, TimeUnit.MILLISECONDS);
        if (id != null) {
          held.add(id);
          grants++;
          Thread.sleep(random.nextInt(3));
        }
      }
    }
    for (String id : held) {
      permits.release(id);
    }
    return grants;
  }

  /** {@code churn TIMES SEED}: counts down so often, and tries between what must not succeed. */
  static Object churn(RCountDownLatch latch, Command command) throws Exception {
    int times = command.count();
    Random random = new Random(command.number());
    for (int i = 0; i < times; i++) {
      while (random.nextBoolean()) {
        if (random.nextBoolean() ? latch.trySetCount(7)
                : latch.await(random.nextInt(3), TimeUnit.MILLISECONDS)) {
          throw new IllegalStateException("a latch that is not open was set, or let through");
        }
      }
      latch.countDown();
    }
    return times;
  }
}

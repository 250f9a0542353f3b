# SPDX-License-Identifier: Apache-2.0
"""redis-py's Lock with the hiredis parser; obeys the commands of measure.py (see README.md) on standard input.

Usage: peer.py PORT [first-lock]
"""
import sys
import threading
import time

import redis

LEASE = 30


def say(*words):
    print(*words, flush=True)


class Load:
    """Threads that do an operation again and again."""

    def __init__(self, threads, operation):
        self.counts = [0] * threads
        self.latencies = []
        self.ended = self.measuring = False
        self.operation = operation
        self.threads = [threading.Thread(target=self.work, args=(i,)) for i in range(threads)]

    def work(self, i):
        while not self.ended:
            began = time.monotonic_ns()
            self.operation(i)
            if self.measuring:
                self.latencies.append(time.monotonic_ns() - began)
            self.counts[i] += 1

    def percentile(self, part):
        values = sorted(self.latencies)
        return values[min(len(values) - 1, int(len(values) * part))] / 1e3 if values else 0

    def run(self, warm_up, seconds):
        for thread in self.threads:
            thread.start()
        time.sleep(warm_up)
        say('BEGIN')
        self.measuring = True
        began, before = time.monotonic(), sum(self.counts)
        time.sleep(seconds)
        operations, took = sum(self.counts) - before, time.monotonic() - began
        self.measuring = False
        say('END')
        time.sleep(.06)  # the driver reads the processor times of all threads now
        self.ended = True
        for thread in self.threads:
            thread.join()
        return f'{operations} {took:.6f} {self.percentile(.5):.1f} {self.percentile(.99):.1f}'


class Section:
    """Counts those that were inside at the same time as another one."""

    def __init__(self):
        self.inside = self.overlaps = 0

    def enter(self):
        self.inside += 1
        if self.inside != 1:
            self.overlaps += 1
        self.inside -= 1


class Peer:
    def __init__(self, port):
        self.redis = redis.Redis(host='127.0.0.1', port=port)

    def lock(self, name):
        return self.redis.lock(name, timeout=LEASE)

    def first_lock(self):
        lock = self.lock('peers:first')
        lock.acquire()
        say('LOCKED')
        lock.release()

    def pairs(self, threads, warm_up, seconds):
        locks = [self.lock(f'peers:pairs:{i}') for i in range(int(threads))]

        def pair(i):
            locks[i].acquire()
            locks[i].release()

        say('RESULT', Load(len(locks), pair).run(float(warm_up), float(seconds)))

    def contend(self, name, threads, warm_up, seconds):
        locks = [self.lock(name) for _ in range(int(threads))]
        section = Section()

        def pass_through(i):
            locks[i].acquire()
            section.enter()
            locks[i].release()

        say('RESULT', Load(len(locks), pass_through).run(float(warm_up), float(seconds)), section.overlaps)

    def handoff(self, name, seconds, file):
        lock = self.lock(name)
        holds = []
        end = time.monotonic() + float(seconds)
        say('BEGIN')
        while time.monotonic() < end:
            called = time.monotonic_ns()
            lock.acquire()
            returned = time.monotonic_ns()
            time.sleep(.0015)
            unlocking = time.monotonic_ns()
            lock.release()
            holds.append(f'{called} {returned} {unlocking}\n')
            time.sleep(.0005)
        with open(file, 'w') as out:
            out.writelines(holds)
        say('END')
        say('RESULT', len(holds))


def main():
    peer = Peer(int(sys.argv[1]))
    if sys.argv[2:] == ['first-lock']:
        return peer.first_lock()
    commands = {'pairs': peer.pairs, 'contend': peer.contend, 'handoff': peer.handoff}
    say('READY')
    for line in sys.stdin:
        command, *words = line.split()
        if command == 'quit':
            break
        if command in commands:
            commands[command](*words)
        else:
            say('REFUSED not offered')


main()

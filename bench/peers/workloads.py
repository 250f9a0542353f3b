# SPDX-License-Identifier: Apache-2.0
"""What is measured. In each the clients take turns, so that all see the same machine."""
import collections
import os
import statistics
import subprocess
import sys
import time

from peer import NotOffered, Peer, PeerFailed, processor_micros
from report import median, number


class Run:
    """The server, the clients, and how long things take."""

    def __init__(self, server, clients, directory, report, effort):
        self.server, self.clients, self.directory, self.report, self.effort = server, clients, directory, report, effort

    def start(self, warm_up=(), clients=None):
        """A process of each client that can be started."""
        peers = []
        for client in clients or self.clients:
            try:
                peers.append(Peer(client, self.server.port, self.directory))
            except (PeerFailed, OSError) as error:
                complain(client, error)
        for peer in peers:
            if peer.client.warms_up:
                for command in warm_up:
                    self.load(peer, command, *self.effort.long_warm_up)
        return peers

    def load(self, peer, command, warm_up, seconds):
        """One load of a peer: its figures, and what it took of the processors and of the server."""
        peer.say(command, warm_up, seconds)
        peer.expect('BEGIN', 60 + warm_up)
        before = self._spent(peer)
        peer.expect('END', 60 + seconds)
        after = self._spent(peer)
        operations, took, p50, p99, *overlaps = map(float, peer.expect('RESULT', 120))
        count = max(1, operations)
        calls = after[2] - before[2]
        return {
            'per_second': operations / took,
            'p50_us': p50,
            'p99_us': p99,
            'client_us': (after[0] - before[0]) / count,
            'server_us': (after[1] - before[1]) / count,
            'commands': peer.client.sent(calls) / count,
            'overlaps': overlaps[0] if overlaps else None,
        }

    def _spent(self, peer):
        return processor_micros(peer.pid), processor_micros(self.server.pid), self.server.calls()

    def loads(self, commands, warm_up):
        """Each command of each client, in turns: a row with medians for each."""
        peers = self.start(warm_up)
        results = collections.defaultdict(list)
        for _ in range(self.effort.rounds):
            for command in commands:
                for peer in peers:
                    if peer.alive():
                        try:
                            results[command, peer.client].append(self.load(peer, command, *self.effort.load))
                        except NotOffered:
                            pass
                        except PeerFailed as error:
                            complain(peer.client, error)
        for peer in peers:
            peer.stop()
        rows = []
        for command in commands:
            ours = results.get((command, self.clients[0]))
            for client in self.clients:
                runs = results.get((command, client))
                if runs:
                    row = {'client': client.name, 'command': command, **{key: median(runs, key) for key in runs[0]}}
                    row['overlaps'] = sum(run['overlaps'] or 0 for run in runs)
                    row['ours_to_it'] = median(ours, 'per_second') / row['per_second'] if ours else None
                    row['rounds'] = [run['per_second'] for run in runs]
                    rows.append(row)
        return rows


def complain(client, error):
    print(f'{client.name}: {error}', file=sys.stderr)


LOAD_COLUMNS = [
    ('Client', lambda row: row['client']),
    ('Per second', lambda row: number(row['per_second'])),
    ('rlock to it', lambda row: number(row['ours_to_it'], 2)),
    ('p50, us', lambda row: number(row['p50_us'])),
    ('p99, us', lambda row: number(row['p99_us'])),
    ('Client, us', lambda row: number(row['client_us'], 1)),
    ('Server, us', lambda row: number(row['server_us'], 1)),
    ('Commands', lambda row: number(row['commands'], 2)),
]


def pairs(run):
    """lock and unlock of a free lock, a lock for each thread."""
    threads = run.effort.threads
    rows = run.loads([f'pairs {n}' for n in threads] + ['async 256'], ['pairs 16', 'async 256'])
    run.report.add('pairs', rows)
    for n in threads:
        run.report.table(f'Uncontended pairs, {n} thread{"s" if n > 1 else ""}', LOAD_COLUMNS,
                         [row for row in rows if row['command'] == f'pairs {n}'])
    run.report.table('Uncontended pairs, 256 asynchronous chains', LOAD_COLUMNS,
                     [row for row in rows if row['command'] == 'async 256'])


def contended(run):
    """Threads of one process on one lock."""
    threads = sorted({2, *run.effort.threads} - {1})
    rows = run.loads([f'contend peers:contended:{n} {n}' for n in threads], ['contend peers:warm 16'])
    run.report.add('contended', rows)
    for n in threads:
        run.report.table(f'One lock, {n} threads of one process: acquisitions',
                         LOAD_COLUMNS + [('Overlaps', lambda row: number(row['overlaps']))],
                         [row for row in rows if row['command'].endswith(f' {n}')])


def hand_off_times(files):
    """Microseconds from the beginning of an unlock to the return of another process' lock, if that had waited for
    0.6 ms at least; and how many holds overlapped."""
    holds = []
    for process, file in enumerate(files):
        with open(file) as lines:
            for line in lines:
                called, returned, unlocking = map(int, line.split())
                holds.append((returned, unlocking, called, process))
    holds.sort()
    times = []
    overlaps = 0
    for one, next_one in zip(holds, holds[1:]):
        if next_one[0] < one[1]:
            overlaps += 1
        elif one[3] != next_one[3] and next_one[2] < one[1] - 600_000:
            times.append((next_one[0] - one[1]) / 1e3)
    return times, overlaps


def hand_off(run):
    """From one process to another."""
    peers = [(run.start(['pairs 4'], [client]), run.start(['pairs 4'], [client])) for client in run.clients]
    contests = [(one[0], other[0]) for one, other in peers if one and other]
    rows = collections.defaultdict(lambda: {'times': [], 'overlaps': 0})
    for turn in range(run.effort.rounds):
        for one, other in contests:
            files = [f'{run.directory}/handoff.{one.pid}.{turn}', f'{run.directory}/handoff.{other.pid}.{turn}']
            try:
                for peer, file in zip((one, other), files):
                    peer.say('handoff', f'peers:handoff:{one.pid}', run.effort.hand_off_seconds, file)
                    peer.expect('BEGIN', 30)
                for peer in (one, other):
                    peer.expect('END', 60)
                    peer.expect('RESULT', 30)
            except NotOffered:
                continue
            except PeerFailed as error:
                complain(one.client, error)
                continue
            times, overlaps = hand_off_times(files)
            rows[one.client]['times'] += times
            rows[one.client]['overlaps'] += overlaps
    for one, other in contests:
        one.stop()
        other.stop()
    table = []
    for client, row in rows.items():
        times = sorted(row['times'])
        if times:
            table.append({'client': client.name, 'count': len(times), 'p50_us': statistics.median(times),
                          'p99_us': times[len(times) * 99 // 100], 'overlaps': row['overlaps']})
    run.report.add('handoff', table)
    run.report.table('Hand-off between two processes', [
        ('Client', lambda row: row['client']), ('Hand-offs', lambda row: number(row['count'])),
        ('p50, us', lambda row: number(row['p50_us'])), ('p99, us', lambda row: number(row['p99_us'])),
        ('Overlaps', lambda row: number(row['overlaps']))], table)


class ForeignHold:
    """A lock that the driver holds, as the client writes it."""

    def __init__(self, server, client, name):
        self.server, self.hashed = server, client.redissons_layout
        self.channel = 'redisson_lock__channel:{' + name + '}'
        # rueidislock numbers its keys.
        self.key = f'rueidislock:0:{name}' if client.name == 'rueidislock' else name
        if self.hashed:
            server.run('HSET', self.key, 'driver:1', 1)
            server.run('PEXPIRE', self.key, 60_000)
        else:
            server.run('SET', self.key, 'driver', 'PX', 60_000)

    def release(self):
        released = time.monotonic_ns()
        self.server.run('DEL', self.key)
        if self.hashed:
            self.server.run('PUBLISH', self.channel, 0)
        return released


def waiters(run):
    """1,000 threads of one process that wait for a lock which somebody else holds; each takes it once."""
    table = []
    for peer in run.start(['pairs 16']):
        name = f'peers:waiters:{peer.pid}'
        try:
            held = ForeignHold(run.server, peer.client, name)
            peer.say('waiters', name, run.effort.waiters)
            peer.expect('BEGIN', 60)
            time.sleep(run.effort.settle_seconds)
            before = run.server.calls(), processor_micros(peer.pid)
            time.sleep(run.effort.wait_seconds)
            after = run.server.calls(), processor_micros(peer.pid)
            released = held.release()
            passed, overlaps, _, last = map(int, peer.expect('RESULT', 200))
            table.append({
                'client': peer.client.name,
                'commands_per_second': peer.client.sent(after[0] - before[0]) / run.effort.wait_seconds,
                'client_ms_per_second': (after[1] - before[1]) / 1e3 / run.effort.wait_seconds,
                'passed': passed,
                'overlaps': overlaps,
                'drained_ms': (last - released) / 1e6,
                'commands': peer.client.sent(run.server.calls() - after[0]) / passed,
            })
        except NotOffered:
            pass
        except PeerFailed as error:
            complain(peer.client, error)
        peer.stop()
    run.report.add('waiters', table)
    run.report.table(f'{run.effort.waiters:,} threads wait for one lock, then each gets it', [
        ('Client', lambda row: row['client']),
        ('Commands a second while they wait', lambda row: number(row['commands_per_second'], 1)),
        ('Processor, ms a second', lambda row: number(row['client_ms_per_second'], 1)),
        ('All had it after, ms', lambda row: number(row['drained_ms'])),
        ('Commands for each', lambda row: number(row['commands'], 2)),
        ('Overlaps', lambda row: number(row['overlaps']))], table)


def holds(run):
    """100,000 locks that are held and renewed."""
    table = []
    count = run.effort.holds
    run.server.run('FLUSHALL')
    for peer in run.start(['pairs 16', 'async 256']):
        try:
            peer.say('hold', count)
            size, seconds = map(float, peer.expect('RESULT', 300))
            before = processor_micros(peer.pid), processor_micros(run.server.pid), run.server.calls(), time.monotonic()
            time.sleep(run.effort.renewal_seconds)
            after = processor_micros(peer.pid), processor_micros(run.server.pid), run.server.calls(), time.monotonic()
            took = after[3] - before[3]
            table.append({
                'client': peer.client.name, 'bytes': size, 'taken_seconds': seconds,
                'client_percent': (after[0] - before[0]) / took / 1e4,
                'server_percent': (after[1] - before[1]) / took / 1e4,
                'commands_per_second': peer.client.sent(after[2] - before[2]) / took,
                'kept': run.server.run('DBSIZE'),
            })
            peer.say('free')
            peer.expect('RESULT', 300)
        except NotOffered:
            pass
        except PeerFailed as error:
            complain(peer.client, error)
        peer.stop()
        run.server.run('FLUSHALL')
    run.report.add('holds', table)
    run.report.table(f'{count:,} locks held with a watchdog of 30 s', [
        ('Client', lambda row: row['client']),
        ('Bytes for each, with its object', lambda row: number(row['bytes'])),
        ('Taken in, s', lambda row: number(row['taken_seconds'], 1)),
        ('Client, % of a core', lambda row: number(row['client_percent'], 1)),
        ('Server, % of a core', lambda row: number(row['server_percent'], 1)),
        ('Commands a second', lambda row: number(row['commands_per_second'])),
        ('Kept', lambda row: number(row['kept']))], table)


def first_lock(run):
    """From the start of the process to its first lock."""
    times = collections.defaultdict(list)
    for _ in range(run.effort.starts):
        for client in run.clients:
            began = time.monotonic()
            process = subprocess.Popen(client.argv(run.server.port, 'first-lock'), stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL, cwd=run.directory,
                                       env={**os.environ, **client.environment})
            if any(line.startswith(b'LOCKED') for line in process.stdout):
                times[client.name].append((time.monotonic() - began) * 1e3)
            process.wait()
    table = [{'client': name, 'median_ms': statistics.median(values), 'least_ms': min(values), 'most_ms': max(values)}
             for name, values in times.items()]
    run.report.add('first_lock', table)
    run.report.table('From the start of a process to its first lock, ms', [
        ('Client', lambda row: row['client']), ('Median', lambda row: number(row['median_ms'], 1)),
        ('Least', lambda row: number(row['least_ms'], 1)), ('Most', lambda row: number(row['most_ms'], 1))], table)


ALL = {'pairs': pairs, 'contended': contended, 'handoff': hand_off, 'waiters': waiters, 'holds': holds,
       'first-lock': first_lock}

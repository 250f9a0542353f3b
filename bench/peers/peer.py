# SPDX-License-Identifier: Apache-2.0
"""The clients that are measured: how each is started, what it guarantees, and a process of it that obeys."""
import dataclasses
import os
import select
import shutil
import subprocess
import time


class PeerFailed(Exception):
    """The peer ended, was silent for too long, or refused a command."""


class NotOffered(PeerFailed):
    """The client does not have what was asked for."""


@dataclasses.dataclass(frozen=True, eq=False)
class Client:
    name: str
    command: tuple  # without the port
    guarantees: str
    installed: str = ''  # what must be there beside the program of the command
    environment: dict = dataclasses.field(default_factory=dict)
    redissons_layout: bool = False  # a hash, and a message for each release
    # Redisson deletes the latch of an unlock by a command of its own.
    deletes_latch: bool = False
    # A virtual machine that compiles while it runs is slow at first.
    warms_up: bool = False
    # The commands that only clients send; those that scripts run are counted by the server, too.
    commands: tuple = ('eval', 'evalsha', 'subscribe', 'unsubscribe', 'ping')

    def sent(self, calls):
        """Commands that came from clients, of all that ran."""
        sent = sum(calls[command] for command in self.commands)
        # The DEL of a script goes with a PUBLISH.
        return sent + max(0, calls['del'] - calls['publish']) if self.deletes_latch else sent

    def available(self):
        return shutil.which(self.command[0]) and (not self.installed or os.path.exists(self.installed))

    def argv(self, port, *more):
        return [*self.command, str(port), *more]


def clients(programs):
    """All clients; some may not be available().

    programs: the directory into which run.sh has built them
    """
    set_commands = Client.commands + ('set',)
    java = ('java', '-cp', f'{programs}/java/classes:{programs}/java/lib/*', 'RedissonPeer')
    return [
        Client('rlock', (f'{programs}/rlock_peer',),
               're-entry, watchdog, woken by message, lost replies reconciled, fencing tokens on demand',
               redissons_layout=True),
        Client('Redisson', java,
               're-entry, watchdog, woken by message, unlock is resent by a latch',
               installed=f'{programs}/java/classes', redissons_layout=True, deletes_latch=True, warms_up=True),
        Client("hiredis, Redisson's scripts", (f'{programs}/hiredis_peer',),
               'what is sent only: no wait, no watchdog, a lost reply is an error', redissons_layout=True,
               deletes_latch=True),
        Client('hiredis, SET', (f'{programs}/hiredis_peer',),
               'what is sent only: no wait, no re-entry, no watchdog, a lost reply is an error',
               environment={'RLOCK_PEER_PROTOCOL': 'set'}, commands=set_commands),
        Client('redsync', (f'{programs}/go_peer', 'redsync'),
               'no re-entry, no watchdog, waiters poll', commands=set_commands),
        Client('rueidislock', (f'{programs}/go_peer', 'rueidislock'),
               'no re-entry, renewed, woken by client-side caching, unlock does not wait for its reply',
               commands=set_commands),
        Client('node redlock', ('node', f'{programs}/node/peer.mjs'),
               'no re-entry, waiters poll', installed=f'{programs}/node/node_modules', commands=set_commands),
        Client('redis-py', (f'{programs}/python/bin/python', f'{programs}/python/peer.py'),
               'no re-entry, no watchdog, waiters poll', commands=set_commands),
    ]


def processor_micros(pid):
    """Processor time of all living threads of a process."""
    total = 0
    for thread in os.listdir(f'/proc/{pid}/task'):
        try:
            with open(f'/proc/{pid}/task/{thread}/schedstat') as file:
                total += int(file.read().split()[0])
        except OSError:
            pass  # it has just ended
    return total / 1e3


class Peer:
    """A running process of a client."""

    def __init__(self, client, port, directory):
        self.client = client
        self.log = open(f'{directory}/{client.name.replace(" ", "_")}.log', 'a')
        self.process = subprocess.Popen(
            client.argv(port), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
            env={**os.environ, **client.environment}, cwd=directory)
        self.unread = b''
        self.expect('READY', 60)

    @property
    def pid(self):
        return self.process.pid

    def say(self, *words):
        try:
            self.process.stdin.write((' '.join(map(str, words)) + '\n').encode())
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise PeerFailed('it has ended') from error

    def expect(self, word, seconds):
        """The words after this one, in the next line."""
        first, *rest = self._line(seconds).split(' ')
        if first == word:
            return rest
        reason = ' '.join(rest)
        raise NotOffered(reason) if 'not offered' in reason else PeerFailed(f'{first} {reason}')

    def _line(self, seconds):
        deadline = time.monotonic() + seconds
        while b'\n' not in self.unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                self.process.kill()
                raise PeerFailed(f'it said nothing for {seconds} s')
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                raise PeerFailed(f'it ended with {self.process.wait()}')
            self.unread += data
        line, self.unread = self.unread.split(b'\n', 1)
        return line.decode().rstrip()

    def alive(self):
        return self.process.poll() is None

    def stop(self):
        try:
            self.say('quit')
            self.process.wait(5)
        except (PeerFailed, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self.log.close()

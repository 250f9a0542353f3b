# SPDX-License-Identifier: Apache-2.0
"""A redis-server of one's own on a free port of the loopback interface, and what it counts."""
import collections
import re
import socket
import subprocess
import time


class RedisServer:
    def __init__(self, program, directory):
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen(
            [program, '--port', str(self.port), '--bind', '127.0.0.1', '--save', '', '--appendonly', 'no',
             '--maxclients', '4000'],
            stdout=open(f'{directory}/redis.log', 'w'), stderr=subprocess.STDOUT, cwd=directory)
        self.socket = self._connect()
        self.replies = self.socket.makefile('rb')

    def _connect(self):
        deadline = time.monotonic() + 10
        while True:
            try:
                return socket.create_connection(('127.0.0.1', self.port))
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise
                time.sleep(.02)

    @property
    def pid(self):
        return self.process.pid

    def run(self, *words):
        encoded = [str(word).encode() for word in words]
        self.socket.sendall(b'*%d\r\n' % len(encoded) + b''.join(b'$%d\r\n%s\r\n' % (len(w), w) for w in encoded))
        return self._reply()

    def _reply(self):
        line = self.replies.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b'$':
            size = int(rest)
            return None if size < 0 else self.replies.read(size + 2)[:-2]
        if kind == b'*':
            return [self._reply() for _ in range(int(rest))]
        if kind == b'-':
            raise RuntimeError(rest.decode())
        return int(rest) if kind == b':' else rest

    def calls(self):
        """How often each command ran, those of scripts among them."""
        found = re.findall(r'cmdstat_([^:|]+)[^:]*:calls=(\d+)', self.run('INFO', 'commandstats').decode())
        calls = collections.Counter()
        for command, count in found:
            calls[command] += int(count)
        return calls

    def stop(self):
        self.socket.close()
        self.process.terminate()
        self.process.wait()

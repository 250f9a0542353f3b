#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures rlock beside other lock clients against one redis-server of its own; run.sh builds them and calls this.

Prints tables in Markdown, and writes all figures to results.json in the output directory.
"""
import argparse
import dataclasses
import datetime
import os
import subprocess
import sys
import tempfile

import peer
import workloads
from redis_server import RedisServer
from report import Report


@dataclasses.dataclass
class Effort:
    """How long things take."""
    rounds: int = 7
    threads: tuple = (1, 4, 16, 64)
    load: tuple = (.25, .6)  # to warm up, and to measure, in seconds
    long_warm_up: tuple = (.1, 5)
    hand_off_seconds: float = 2.5
    waiters: int = 1000
    settle_seconds: float = 2
    wait_seconds: float = 5
    holds: int = 100_000
    renewal_seconds: float = 30
    starts: int = 9


SMOKE = Effort(rounds=1, threads=(1, 2), load=(.05, .1), long_warm_up=(.1, .2), hand_off_seconds=.3, waiters=20,
               settle_seconds=.1, wait_seconds=.2, holds=200, renewal_seconds=.5, starts=1)


def facts():
    def said(*command):
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True,
                                  cwd=os.path.dirname(os.path.abspath(__file__))).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return 'unknown'

    return {'date': datetime.date.today().isoformat(), 'commit': said('git', 'rev-parse', '--short', 'HEAD'),
            'processors': os.cpu_count(), 'load': os.getloadavg()[0], 'server': said('redis-server', '--version')}


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--programs', required=True, help='the directory into which run.sh has built the clients')
    parser.add_argument('--clients', help='only these, separated by semicolons; rlock is among them always')
    parser.add_argument('--out', help='the directory for results.json and the logs (default: a temporary one)')
    parser.add_argument('--server', default='redis-server', help='the redis-server to start')
    parser.add_argument('--smoke', action='store_true', help='each for a moment, only to see that it works; '
                        'what fails is a failure of the program')
    parser.add_argument('workload', nargs='*', help=' '.join(workloads.ALL))
    arguments = parser.parse_args()
    for name in arguments.workload:
        if name not in workloads.ALL:
            parser.error(f'there is no workload {name}')
    return arguments


def main():
    arguments = parse()
    clients = [client for client in peer.clients(os.path.abspath(arguments.programs)) if client.available()]
    if arguments.clients:
        wanted = ['rlock', *arguments.clients.split(';')]
        clients = [client for client in clients if client.name in wanted]
    if not clients or clients[0].name != 'rlock':
        sys.exit(f'{arguments.programs} has no rlock_peer')
    directory = os.path.abspath(arguments.out or tempfile.mkdtemp(prefix='rlock-peers-'))
    os.makedirs(directory, exist_ok=True)
    report = Report(facts())
    print(', '.join(f'{key} {value}' for key, value in report.figures['facts'].items()))
    report.table('What each guarantees', [('Client', lambda client: client.name),
                                          ('Guarantees', lambda client: client.guarantees)], clients)
    server = RedisServer(arguments.server, directory)
    try:
        run = workloads.Run(server, clients, directory, report, SMOKE if arguments.smoke else Effort())
        for name in arguments.workload or workloads.ALL:
            workloads.ALL[name](run)
            report.write(f'{directory}/results.json')
    finally:
        server.stop()
    print(f'\n{directory}/results.json')
    if arguments.smoke and not report.complete(arguments.workload or workloads.ALL):
        sys.exit('a workload has no figures of rlock')


if __name__ == '__main__':
    main()

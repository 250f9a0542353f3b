# SPDX-License-Identifier: Apache-2.0
"""Tables in Markdown, and all figures as JSON."""
import json
import statistics


def number(value, digits=0):
    return '' if value is None else f'{value:,.{digits}f}'


def median(rows, key):
    values = [row[key] for row in rows if row.get(key) is not None]
    return statistics.median(values) if values else None


class Report:
    def __init__(self, facts):
        self.figures = {'facts': facts, 'workloads': {}}

    def add(self, workload, rows):
        """rows: a dictionary for each client and setting, with medians"""
        self.figures['workloads'][workload] = rows

    @staticmethod
    def table(title, columns, rows):
        """columns: a pair of heading and function of the row for each"""
        print(f'\n### {title}\n')
        print('| ' + ' | '.join(heading for heading, _ in columns) + ' |')
        print('|' + '---|' * len(columns))
        for row in rows:
            print('| ' + ' | '.join(str(cell(row)) for _, cell in columns) + ' |')

    def complete(self, names):
        """Whether each of the workloads has a row of rlock, and none an overlap."""
        rows = [self.figures['workloads'].get(name.replace('-', '_'), []) for name in names]
        return all(any(row['client'] == 'rlock' for row in each) and not any(row.get('overlaps') for row in each)
                   for each in rows)

    def write(self, file):
        with open(file, 'w') as out:
            json.dump(self.figures, out, indent=1)

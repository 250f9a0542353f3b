#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Executes the SQL of docs/fencing.md: a late write is refused by each database that it is for and that is here.
#
# Usage: check_sql.sh ROOT           calls itself with each database
#
# Exit status 77: there is none of them.
set -euo pipefail
root=$(realpath "$1")
self=$(realpath "$0")

# The block of that number, with values for its parameters.
statement() {  # NUMBER TOKEN BALANCE
  awk -v wanted="$1" '/^```sql/ { number++; inside = 1; next } /^```/ { inside = 0 } inside && number == wanted' \
    "$root/docs/fencing.md" | sed "s/:token/$2/g; s/:balance/$3/g; s/:id/17/g"
}

# The steps for all databases, by a function sql() that executes its input and prints the rows, with | between
# the fields.
expect() {  # ROWS; input: statements
  local found
  found=$(sql | tr '\n' ' ' | sed 's/ *$//')
  if [[ $found != "$1" ]]; then
    echo "$database: expected '$1', found '$found'" >&2
    exit 1
  fi
}
state='SELECT balance, token FROM ledger ORDER BY id;'
run_all() {  # NUMBER OF BLOCKS THAT IT UNDERSTANDS
  sql <<<'CREATE TABLE ledger (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL);
    INSERT INTO ledger VALUES (17, 100);
    CREATE TABLE fence (name VARCHAR(64) PRIMARY KEY, token BIGINT NOT NULL);
    INSERT INTO fence VALUES ('"'transfers'"', 0);'
  statement 1 0 0 | sql
  expect '90|33' <<<"$(statement 2 33 90) $state"
  expect '80|34' <<<"$(statement 2 34 80) $state"
  expect '80|34' <<<"$(statement 2 33 70) $state"
  expect '60|34' <<<"$(statement 2 34 60) $state"
  expect '9' <<<"$(statement 3 9 0) SELECT token FROM fence;"
  # An older one changes nothing, after which the program rolls back.
  expect '9' <<<"$(statement 3 8 0 | sed -n '/fence/,/;/p')"$'\n'"SELECT token FROM fence;"
  expect '40|34 10|0' <<<"INSERT INTO ledger VALUES (18, 0, 0); $(statement 3 10 0) $state"
  if (($1 >= 4)); then
    expect '45|35 10|0' <<<"$(statement 4 35 45) $state"
    expect '45|35 10|0' <<<"$(statement 4 34 30) $state"
    expect '30|36' <<<"DELETE FROM ledger; $(statement 4 36 30) $state"
  fi
  echo "executed by $database"
}

case ${2:-} in
  sqlite)
    database="SQLite $(sqlite3 --version | cut -d' ' -f1)"
    file=$(mktemp)
    trap 'rm -f "$file"' EXIT
    sql() { sqlite3 -bail "$file"; }
    run_all 4
    ;;
  postgresql)
    database="PostgreSQL $($RLOCK_TEST_PSQL -c 'SHOW server_version')"
    sql() { $RLOCK_TEST_PSQL; }
    run_all 4
    ;;
  --mysql)
    database="MariaDB $(${3} -N -B -e 'SELECT VERSION()')"
    mysql=$3
    sql() { $mysql -N -B | tr '\t' '|'; }
    run_all 3
    ;;
  *)
    ran=0
    if command -v sqlite3 >/dev/null; then
      "$self" "$root" sqlite
      ran=1
    fi
    status=0
    "$root/tests/with_postgresql.sh" "$self" "$root" postgresql || status=$?
    case $status in
      0) ran=1 ;;
      77) ;;
      *) exit "$status" ;;
    esac
    if command -v mariadbd >/dev/null && command -v mariadb >/dev/null; then
      "$root/tests/with_mariadb.sh" mariadbd mariadb "$self" "$root"
      ran=1
    fi
    if ((ran == 0)); then
      echo "check_sql.sh: NOT RUN: neither SQLite nor PostgreSQL nor MariaDB is here" >&2
      exit 77
    fi
    ;;
esac

// SPDX-License-Identifier: Apache-2.0
// node redlock on one connection of ioredis; obeys the commands of measure.py (see README.md) on standard
// input. Node has one thread: what others do with threads are promises here.
//
// Usage: node peer.mjs PORT [first-lock]
import readline from 'node:readline';
import Redis from 'ioredis';
import RedlockModule from 'redlock';

const Redlock = RedlockModule.default ?? RedlockModule;
const lease = 30_000;
const redis = new Redis(Number(process.argv[2]), '127.0.0.1');
const redlock = new Redlock([redis], { retryCount: -1 });

const now = () => Number(process.hrtime.bigint());
const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1e3));
const say = (...words) => process.stdout.write(words.join(' ') + '\n');

async function run(chains, warmUp, seconds, operation) {
  let done = 0;
  let ended = false;
  let measuring = false;
  const latencies = [];
  const all = [...Array(chains).keys()].map(async (i) => {
    while (!ended) {
      const began = now();
      await operation(i);
      done += 1;
      if (measuring) latencies.push(now() - began);
    }
  });
  await sleep(warmUp);
  say('BEGIN');
  measuring = true;
  const began = now();
  const before = done;
  await sleep(seconds);
  const operations = done - before;
  const took = (now() - began) / 1e9;
  measuring = false;
  say('END');
  await sleep(0.06); // the driver reads the processor times now
  ended = true;
  await Promise.all(all);
  latencies.sort((a, b) => a - b);
  const percentile = (part) =>
    (latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * part))] ?? 0) / 1e3;
  return [operations, took.toFixed(6), percentile(0.5).toFixed(1), percentile(0.99).toFixed(1)].join(' ');
}

const commands = {
  async pairs(chains, warmUp, seconds) {
    say('RESULT', await run(Number(chains), Number(warmUp), Number(seconds), async (i) => {
      const lock = await redlock.acquire([`peers:pairs:${i}`], lease);
      await lock.release();
    }));
  },
};

if (process.argv[3] === 'first-lock') {
  const lock = await redlock.acquire(['peers:first'], lease);
  say('LOCKED');
  await lock.release();
  process.exit(0);
}
say('READY');
for await (const line of readline.createInterface({ input: process.stdin })) {
  const [command, ...words] = line.split(' ');
  if (command === 'quit') break;
  if (commands[command]) await commands[command](...words);
  else say('REFUSED not offered');
}
process.exit(0);

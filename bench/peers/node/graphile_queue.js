// graphile-worker: `graphile_queue ACTION ADDRESS COUNT [FIRST SPACING]`.
// ACTION is `enqueue`, `schedule`, `consume` or `remaining`.

import fs from "node:fs";
import { Logger, run, runMigrations } from "graphile-worker";
import pg from "pg";

const ENQUEUED_AT_ONCE = 1000;
const quiet = new Logger(() => () => {});

// As in `bench.stamps`: a tick is eight bytes of monotonic nanoseconds, a mark has due and now.
function stamper() {
  const file = fs.openSync(process.env.BENCH_STAMPS, "a", 0o600);
  const stamp = Buffer.alloc(8);
  const pair = Buffer.alloc(16);
  return {
    tick() {
      stamp.writeBigInt64LE(process.hrtime.bigint());
      fs.writeSync(file, stamp);
    },
    mark(due) {
      pair.writeDoubleLE(due);
      pair.writeDoubleLE((performance.timeOrigin + performance.now()) / 1000, 8);
      fs.writeSync(file, pair);
    },
  };
}

async function query(connectionString, work) {
  const client = new pg.Client({ connectionString });
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

// Install it, and fill its queue.
async function enqueue(connectionString, count) {
  await runMigrations({ connectionString, logger: quiet });
  const add = `SELECT count(*) FROM graphile_worker.add_jobs(array(
    SELECT json_populate_record(null::graphile_worker.job_spec, '{"identifier": "noop"}')
    FROM generate_series(1, $1::int)))`;
  await query(connectionString, async (client) => {
    for (let done = 0; done < count; done += ENQUEUED_AT_ONCE) {
      await client.query(add, [Math.min(ENQUEUED_AT_ONCE, count - done)]);
    }
  });
}

// Fill its queue with jobs for later.
async function schedule(connectionString, count, first, spacing) {
  const add = `SELECT count(*) FROM graphile_worker.add_jobs(array(
    SELECT json_populate_record(null::graphile_worker.job_spec, json_build_object(
      'identifier', 'mark', 'payload', json_build_object('due', due),
      'run_at', to_timestamp(due)))
    FROM (SELECT $1::float8 + number * $2::float8 AS due
          FROM generate_series($3::int, $4::int) AS number) AS times))`;
  await query(connectionString, async (client) => {
    for (let done = 0; done < count; done += ENQUEUED_AT_ONCE) {
      const last = Math.min(done + ENQUEUED_AT_ONCE, count) - 1;
      await client.query(add, [first, spacing, done, last]);
    }
  });
}

// Work until it is stopped. The local queue and the batches are what its documentation
// recommends for many quick jobs.
async function consume(connectionString) {
  const { tick, mark } = stamper();
  const runner = await run({
    connectionString,
    logger: quiet,
    taskList: { noop: async () => tick(), mark: async ({ due }) => mark(due) },
    preset: {
      worker: {
        concurrentJobs: 24,
        maxPoolSize: 10,
        pollInterval: 1000,
        localQueue: { size: 500 },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
      },
    },
  });
  await runner.promise;
}

// Print how many jobs are not done.
async function remaining(connectionString) {
  const left = "SELECT count(*) FROM graphile_worker.jobs";
  const found = await query(connectionString, (client) => client.query(left));
  console.log(found.rows[0].count);
}

const [action, address, ...numbers] = process.argv.slice(2);
await { enqueue, schedule, consume, remaining }[action](address, ...numbers.map(Number));

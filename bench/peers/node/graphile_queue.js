// graphile-worker: `graphile_queue enqueue|consume|remaining ADDRESS COUNT`.

import fs from "node:fs";
import { Logger, run, runMigrations } from "graphile-worker";
import pg from "pg";

const ENQUEUED_AT_ONCE = 1000;
const quiet = new Logger(() => () => {});

// As `bench.stamps.tick`: eight bytes of monotonic nanoseconds.
function ticker() {
  const file = fs.openSync(process.env.BENCH_STAMPS, "a", 0o600);
  const stamp = Buffer.alloc(8);
  return () => {
    stamp.writeBigInt64LE(process.hrtime.bigint());
    fs.writeSync(file, stamp);
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

// Work until it is stopped. The local queue and the batches are what its documentation
// recommends for many quick jobs.
async function consume(connectionString) {
  const tick = ticker();
  const runner = await run({
    connectionString,
    logger: quiet,
    taskList: { noop: async () => tick() },
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

const [action, address, count] = process.argv.slice(2);
await { enqueue, consume, remaining }[action](address, Number(count));

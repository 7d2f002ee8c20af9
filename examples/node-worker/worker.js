'use strict';

const fs = require('node:fs');
const path = require('node:path');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');
const { Attempt } = require('./attempt');
const { guardMargin } = require('./lease');
const { Specs } = require('./specs');

const PROTO = process.env.ROTA_PROTO ?? path.join(__dirname, '../../contracts/rota/v2/worker.proto');
const RETRY_MS = 500;
const ANSWER_MS = 10_000;

const { rota } = grpc.loadPackageDefinition(
  loader.loadSync(PROTO, { keepCase: true, longs: Number, enums: String, oneofs: true }),
);

/** A worker's presence in the cluster: registers, renews, takes work, reports ends. */
class Worker {
  constructor({ server, authorities, token, name, pool, slots }) {
    this.server = server;
    this.credentials = authorities
      ? grpc.credentials.createSsl(fs.readFileSync(authorities))
      : grpc.credentials.createInsecure();
    this.token = token;
    const offers = [
      { kind: 'type', name: 'shell' },
      { kind: 'type', name: 'python', reason: 'this worker runs no Python functions' },
      { kind: 'wall', name: 'process' },
      { kind: 'wall', name: 'sandbox', reason: 'this worker knows process groups only' },
      { kind: 'wall', name: 'container', reason: 'this worker knows process groups only' },
    ];
    this.hello = { worker: name, pool, slots, offers, version: 'node example', guard_mode: 'timer' };
    this.attempts = new Map();
    this.givenUp = []; // attempts whose end no server takes, until a beat was answered
    this.specs = new Specs();
    this.isConnected = false;
    this.isStopping = false;
  }

  /** Serve until stopped; a broken stream is mended, and running attempts do not notice it. */
  async run() {
    while (!(this.isStopping && this.attempts.size === 0)) {
      try {
        await this.serve();
      } catch (error) {
        console.error(`disconnected: ${error.message}`);
        if (error.code === grpc.status.UNAUTHENTICATED || error.code === grpc.status.PERMISSION_DENIED) {
          throw error;
        }
        await pause(RETRY_MS);
      }
    }
  }

  stop() {
    this.isStopping = true;
    this.beatSoon?.();
  }

  async serve() {
    const client = new rota.v2.Workers(this.server, this.credentials);
    const metadata = new grpc.Metadata();
    metadata.set('authorization', `Bearer ${this.token}`);
    this.waiting = new Map();
    this.numbers = 0;
    this.received = 0; // items of work, in this stream
    this.stream = client.Work(metadata);
    this.stream.on('data', (message) => this.accept(message));
    const ended = new Promise((_, reject) => {
      this.stream.on('error', reject);
      this.stream.on('end', () => reject(new Error('the server ended the stream')));
    });
    try {
      await Promise.race([ended, this.converse()]);
    } finally {
      this.isConnected = false;
      this.stream.cancel();
      for (const { reject } of this.waiting.values()) reject(new Error('the stream is over'));
      client.close();
    }
  }

  async converse() {
    const sentAt = performance.now();
    const { welcome } = await this.ask({ hello: this.hello });
    if (this.hello.resumes && welcome.session !== this.hello.resumes) this.killAll();
    this.hello.resumes = welcome.session;
    this.streamNumber = welcome.stream;
    this.lease = welcome.lease_seconds * 1000;
    this.renewed(sentAt, welcome.store_now);
    console.log(`registered as ${this.hello.worker}: ${welcome.session}`);
    this.isConnected = true;
    await this.beat();
  }

  async beat() {
    for (;;) {
      if (this.isStopping && this.attempts.size === 0) return this.ask({ leave: {} });
      const sentAt = performance.now();
      const held = columns([...this.attempts.values()].map((attempt) => attempt.fence));
      const { received, streamNumber: stream, isStopping: stopping, givenUp } = this;
      const given_up = columns(givenUp);
      const { beat } = await this.ask({ beat: { held, stopping, received, stream, given_up } });
      this.givenUp = this.givenUp.filter((fence) => !givenUp.includes(fence));
      if (!beat.alive) {
        this.killAll();
        this.hello.resumes = '';
        throw new Error('the session is over');
      }
      this.renewed(sentAt, beat.store_now);
      this.cancel(beat.cancel);
      for (const fence of rows(beat.unknown)) this.forget(fence, (attempt) => attempt.kill());
      await new Promise((resolve) => {
        this.beatSoon = resolve;
        setTimeout(resolve, sentAt + this.lease / 3 - performance.now());
      });
    }
  }

  /** The lease counts from when its renewal was sent; past it, nothing of ours may be alive. */
  renewed(sentAt, storeNow) {
    this.clock = { storeNow, at: performance.now() };
    clearTimeout(this.guard);
    const end = sentAt + this.lease - guardMargin(this.lease);
    this.guard = setTimeout(() => this.killAll(), end - performance.now());
  }

  storeNow() {
    return Math.round(this.clock.storeNow + (performance.now() - this.clock.at) * 1000);
  }

  ask(request) {
    const number = ++this.numbers;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error('the server does not answer')), ANSWER_MS);
      this.waiting.set(number, { resolve, reject, timer });
      this.stream.write({ number, ...request });
    }).finally(() => {
      clearTimeout(this.waiting.get(number)?.timer);
      this.waiting.delete(number);
    });
  }

  accept(message) {
    if (message.number) {
      const { resolve, reject } = this.waiting.get(message.number) ?? {};
      if (message.refusal) reject?.(Object.assign(new Error(message.refusal.message), message.refusal));
      else resolve?.(message);
    } else if (message.dispatch) {
      this.take(message.dispatch);
    } else if (message.cancel) {
      this.cancel(message.cancel.fences);
    }
  }

  take(dispatch) {
    const { specs = [], first = 0 } = dispatch;
    const works = worksOf(dispatch);
    if (first > this.received + 1) {
      this.stream.destroy(new Error('a part of the stream is missing'));
      return;
    }
    if (first && first <= this.received) return; // it came before
    this.received += works.length;
    this.specs.learn(specs);
    for (const item of works) {
      const attempt = new Attempt(item, this.specs.of(item), () => this.storeNow());
      this.attempts.set(key(item), attempt);
      this.settle(attempt);
    }
  }

  /** From the permit to the acknowledged outcome, over as many streams as that takes. */
  async settle(attempt) {
    // At most once: the store has to know that it begins before it does.
    const start = { ...columns([attempt.fence]), started_at: [this.storeNow()] };
    const answer = await this.insist(attempt, { start });
    if (!answer) return this.forget(attempt.fence);
    const isAmong = (fences) => rows(fences).some((fence) => key(fence) === key(attempt.fence));
    if (isAmong(answer.start.refused)) return this.forget(attempt.fence);
    if (isAmong(answer.start.cancelled)) attempt.ending = 'CANCELLED';
    await attempt.run((progress) => this.tell(attempt, progress));
    await this.report(attempt);
    this.forget(attempt.fence);
  }

  async report(attempt) {
    const output = attempt.output.inline();
    const chunks = output === undefined ? attempt.output.chunks() : [];
    const arrived = { output_bytes: 0, output_lines: 0 };
    for (const chunk of chunks) {
      const items = [{ ...attempt.fence, ...chunk }];
      const answer = await this.deliver(attempt, { output: { items } });
      if (!answer || rows(answer.report.refused).length) {
        // The store would wait for what it is told of and does not get.
        Object.assign(attempt.outcome, arrived, { truncated: true });
        break;
      }
      arrived.output_bytes += chunk.text_bytes;
      arrived.output_lines += chunk.lines;
    }
    const report = { outcomes: [{ ...attempt.outcome, output }] };
    const answer = await this.deliver(attempt, { report });
    if (!answer && this.isOurs(attempt)) this.givenUp.push(attempt.fence);
  }

  /** Insist until the server does not want to get it again. */
  async deliver(attempt, request) {
    let answer;
    do {
      if (answer) await pause(RETRY_MS); // the server could not take it yet
      answer = await this.insist(attempt, request);
    } while (answer && rows(answer.report.again).length);
    return answer;
  }

  /** Tell how far an attempt is; if that is lost, the next one tells more. */
  async tell(attempt, progress) {
    if (!this.isConnected) return;
    const items = [{ ...attempt.fence, ...progress }];
    await this.ask({ progress: { items } }).catch((error) => console.error(`not told: ${error.message}`));
  }

  /** Ask until there is an answer; undefined if that is in vain, or the attempt not ours any more. */
  async insist(attempt, request) {
    while (this.isOurs(attempt)) {
      try {
        if (this.isConnected) return await this.ask(request);
      } catch (error) {
        if (error.kind === 'REFUSAL_KIND_INVALID') {
          console.error(`given up for ${key(attempt.fence)}: ${error.message}`);
          return;
        }
        console.error(`to be asked again: ${error.message}`);
      }
      await pause(RETRY_MS);
    }
  }

  isOurs(attempt) {
    return this.attempts.get(key(attempt.fence)) === attempt;
  }

  cancel(fences) {
    for (const fence of rows(fences)) this.attempts.get(key(fence))?.end('CANCELLED');
  }

  forget(fence, first = () => {}) {
    const attempt = this.attempts.get(key(fence));
    if (attempt) first(attempt);
    this.attempts.delete(key(fence));
    if (this.isStopping) this.beatSoon?.();
  }

  killAll() {
    for (const attempt of this.attempts.values()) attempt.kill();
    this.attempts.clear();
  }
}

function key({ run, fence }) {
  return `${run} ${fence}`;
}

/** Names of attempts as the contract has them: a column of runs and one of fences. */
function columns(named) {
  return { runs: named.map(({ run }) => run), fences: named.map(({ fence }) => fence) };
}

function rows(message) {
  return (message?.runs ?? []).map((run, at) => ({ run, fence: message.fences[at] }));
}

/** The attempts of a dispatch, one by one. */
function worksOf({ runs = [], fences, due_at, jobs, job_of = [], inputs_json = {} }) {
  return runs.map((run, at) => ({
    run,
    fence: fences[at],
    due_at: due_at[at],
    job_id: jobs[job_of[at] ?? 0].job_id,
    job_version: jobs[job_of[at] ?? 0].version,
    inputs_json: inputs_json[at],
  }));
}

function pause(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

const worker = new Worker({
  server: process.env.ROTA_SERVER ?? '127.0.0.1:7701',
  authorities: process.env.ROTA_TLS_CA,
  token: process.env.ROTA_WORKER_TOKEN,
  name: process.env.ROTA_WORKER_NAME ?? 'node',
  pool: process.env.ROTA_POOL ?? 'default',
  slots: Number(process.env.ROTA_SLOTS ?? 4),
});
process.on('SIGTERM', () => worker.stop());
process.on('SIGINT', () => worker.stop());
worker.run().then(
  () => process.exit(0),
  (error) => {
    console.error(error.message);
    process.exit(1);
  },
);

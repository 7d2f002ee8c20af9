'use strict';

const fs = require('node:fs/promises');
const os = require('node:os');
const path = require('node:path');
const { spawn } = require('node:child_process');
const { Output } = require('./output');

const PROGRESS_MS = 1_000;

/** One try of a run: executes the steps of a shell job, one after the other. */
class Attempt {
  constructor(work, spec, storeNow) {
    this.fence = { run: work.run, fence: work.fence };
    this.work = work;
    this.spec = spec;
    this.storeNow = storeNow;
    this.output = new Output(spec.log_limit);
    this.child = undefined;
    this.ending = undefined; // the result that somebody decided on before the steps did
    this.outcome = undefined; // set when it has ended, kept until the server has it
  }

  /** Execute everything, and tell how far it is; resolves to the outcome, whatever happens. */
  async run(tell) {
    const startedAt = this.storeNow();
    const limit = seconds(this.spec.timeout);
    const timer = limit && setTimeout(() => this.end('TIMED_OUT'), limit * 1000);
    let end = { result: 'FAILED' };
    try {
      end = await this.inFolder((folder) => this.watched(folder, tell));
    } catch (error) {
      end.message = String(error.message);
    }
    clearTimeout(timer);
    this.output.close();
    const { result, ...rest } = end;
    this.outcome = {
      ...this.fence,
      ...rest,
      result: `ATTEMPT_RESULT_${this.ending ?? result}`,
      started_at: startedAt,
      ended_at: this.storeNow(),
      output_bytes: this.output.bytes,
      output_lines: this.output.records.length,
      truncated: this.output.truncated,
    };
    return this.outcome;
  }

  /** Ask the processes to end, and kill them when their grace is over. */
  end(result) {
    this.ending ??= result;
    this.signal('SIGTERM');
    setTimeout(() => this.signal('SIGKILL'), seconds(this.spec.grace) * 1000).unref();
  }

  kill() {
    this.ending ??= 'INTERRUPTED';
    this.signal('SIGKILL');
  }

  signal(name) {
    if (!this.child?.pid) return;
    try {
      process.kill(-this.child.pid, name); // its whole process group
    } catch (error) {
      if (error.code !== 'ESRCH') throw error; // ESRCH: nobody of it is left
    }
  }

  async inFolder(execute) {
    if (this.spec.path) return execute(this.spec.path);
    const folder = await fs.mkdtemp(path.join(os.tmpdir(), 'rota-'));
    try {
      return await execute(folder);
    } finally {
      await fs.rm(folder, { recursive: true, force: true });
    }
  }

  /** Execute the steps, and look every second what they wrote to $ROTA_PROGRESS. */
  async watched(folder, tell) {
    this.progress = path.join(os.tmpdir(), `rota-progress-${this.fence.run}-${this.fence.fence}`);
    let told;
    const look = async () => {
      const line = await lastLine(this.progress);
      const progress = line === told ? undefined : parseProgress(line);
      told = line;
      if (progress) await tell(progress);
    };
    const timer = setInterval(look, PROGRESS_MS);
    try {
      return await this.steps(folder);
    } finally {
      clearInterval(timer);
      await look();
      await fs.rm(this.progress, { force: true });
    }
  }

  async steps(folder) {
    const steps = [];
    let failure;
    for (const [index, step] of this.spec.steps.entries()) {
      const isWanted = { success: !failure, failure: !!failure, always: true }[step.condition];
      if (!isWanted || this.ending) {
        steps.push({ name: step.name, result: 'STEP_RESULT_SKIPPED' });
        continue;
      }
      const ended = await this.step(step, index, folder);
      this.signal('SIGKILL'); // whatever it left behind ends with it
      steps.push({ name: step.name, ...ended });
      if (ended.result !== 'STEP_RESULT_COMPLETED' && !step.continue_on_error) {
        failure ??= { ...ended, message: `${labelOf(step)}: ${wordsOf(ended)}` };
      }
    }
    const { exit_code, signal, message } = failure ?? { exit_code: 0 };
    return { result: failure ? 'FAILED' : 'COMPLETED', exit_code, signal, message, steps };
  }

  async step(step, index, folder) {
    const began = process.hrtime.bigint();
    const [program, ...args] = argumentsOf(step);
    const options = {
      cwd: folder,
      detached: true, // a process group of its own
      env: this.environment(step),
      stdio: ['ignore', 'pipe', 'pipe'],
    };
    const end = await new Promise((resolve, reject) => {
      this.child = spawn(program, args, options);
      this.child.stdout.on('data', (data) => this.output.feed('stdout', index, data));
      this.child.stderr.on('data', (data) => this.output.feed('stderr', index, data));
      this.child.on('error', reject);
      this.child.on('close', (code, signal) => resolve({ code, signal }));
    });
    return {
      result: `STEP_RESULT_${this.resultOf(end)}`,
      exit_code: end.code ?? undefined,
      signal: end.signal ? os.constants.signals[end.signal] : undefined,
      seconds: Number(process.hrtime.bigint() - began) / 1e9,
      tries: 1,
    };
  }

  /** How a step ended; one that somebody stopped did not end by itself, whatever its exit code. */
  resultOf(end) {
    if (this.ending === 'TIMED_OUT' || this.ending === 'CANCELLED') return this.ending;
    return end.code === 0 ? 'COMPLETED' : 'FAILED';
  }

  environment(step) {
    const { PATH, HOME, LANG, TZ } = process.env;
    const inputs = this.work.inputs_json ? JSON.parse(this.work.inputs_json) : {};
    return {
      PATH, HOME, LANG, TZ,
      ...this.spec.env,
      ...step.env,
      ...Object.fromEntries(
        Object.entries(inputs).map(([name, value]) => [`INPUT_${name.toUpperCase()}`, String(value)]),
      ),
      ROTA_RUN_ID: this.work.run,
      ROTA_ATTEMPT: String(this.work.fence % 2 ** 32), // above these bits is the store's incarnation
      ROTA_FENCE: String(this.work.fence),
      ROTA_PROGRESS: this.progress,
      ROTA_JOB: this.spec.name,
      ROTA_PROJECT: this.spec.project,
      ROTA_DUE_AT: new Date(this.work.due_at / 1000).toISOString(),
    };
  }
}

/** The command of a step: this small worker knows `sh` and plain argument lists. */
function argumentsOf(step) {
  if (Array.isArray(step.run)) return step.run;
  if (step.shell !== 'sh' || step.interpreter.length) {
    throw new Error(`step ${step.name}: this worker runs sh only`);
  }
  // Not the sh of the job's PATH; it stops at the first command that fails, and sees `sh` as $0.
  return ['/bin/sh', '-e', '-c', step.run, 'sh'];
}

/** `step Build`; without a name of its own it is called `step 2` already. */
function labelOf({ name }) {
  return name.startsWith('step ') ? name : `step ${name}`;
}

function wordsOf({ result, exit_code, signal }) {
  if (result !== 'STEP_RESULT_FAILED') return result.slice(12).toLowerCase().replace('_', ' ');
  return signal === undefined ? `exit ${exit_code}` : `killed by signal ${signal}`;
}

async function lastLine(file) {
  const text = await fs.readFile(file, 'utf8').catch(() => '');
  return text.trimEnd().split('\n').at(-1);
}

/** `DONE[/TOTAL] [MESSAGE]`; undefined if it is something else. */
function parseProgress(line) {
  const [, done, total, message] = /^([\d.]+)(?:\/([\d.]+))?(?: (.*))?$/.exec(line) ?? [];
  if (done === undefined) return undefined;
  return { done: Number(done), total: total && Number(total), message: message ?? '' };
}

/** Seconds of an ISO 8601 duration in days and seconds, such as P1DT0.5S; 0 for none. */
function seconds(duration) {
  const [, days, rest] = /^P(?:(\d+)D)?(?:T([\d.]+)S)?$/.exec(duration ?? 'PT0S');
  return Number(days ?? 0) * 86_400 + Number(rest ?? 0);
}

module.exports = { Attempt };

'use strict';

const KNOWN_SPECS = 10_000; // as many as a server may take for known, see Dispatch in worker.proto

/** The definitions of jobs that came with dispatches; those told longest ago are forgotten. */
class Specs {
  constructor(limit = KNOWN_SPECS) {
    this.limit = limit;
    this.known = new Map(); // job and version → spec, in the order they were told
  }

  learn(entries) {
    for (const entry of entries) {
      this.known.delete(name(entry));
      this.known.set(name(entry), JSON.parse(entry.spec_json));
    }
    for (const oldest of this.known.keys()) {
      if (this.known.size <= this.limit) return;
      this.known.delete(oldest);
    }
  }

  of(work) {
    return this.known.get(name(work));
  }
}

function name({ job_id, job_version }) {
  return `${job_id} ${job_version}`;
}

module.exports = { Specs };

'use strict';

const zlib = require('node:zlib');

const INLINE_LIMIT = 4 * 1024;
const CHUNK_LIMIT = 256 * 1024;
const TEXT_LIMIT = 64 * 1024; // of one record: a longer line is split

/** What an attempt prints, written down as records: see OutputChunks in worker.proto. */
class Output {
  constructor(limit) {
    this.limit = limit;
    this.records = [];
    this.open = new Map(); // stream and step → the beginning of a line that has not ended
    this.bytes = 0;
    this.truncated = false;
  }

  feed(stream, step, data) {
    const kept = data.subarray(0, Math.max(0, this.limit - this.bytes));
    this.truncated ||= kept.length < data.length;
    this.bytes += kept.length;
    const key = `${stream} ${step}`;
    const lines = splitLines(Buffer.concat([this.open.get(key) ?? Buffer.alloc(0), kept]));
    const rest = lines.pop();
    for (const line of lines) this.write(key, '|', line);
    this.open.set(key, this.split(key, rest));
  }

  close() {
    for (const [key, rest] of this.open) if (rest.length) this.write(key, '+', rest);
    this.open.clear();
  }

  write(key, mark, text) {
    this.record(key, mark, this.split(key, text));
  }

  /** Record the beginning of a line that is too long for one record; what is left of it. */
  split(key, text) {
    for (; text.length > TEXT_LIMIT; text = text.subarray(TEXT_LIMIT)) {
      this.record(key, '+', text.subarray(0, TEXT_LIMIT));
    }
    return text;
  }

  record(key, mark, text) {
    this.records.push(Buffer.concat([Buffer.from(`${Date.now()} ${key}${mark}`), text, Buffer.from('\n')]));
  }

  /** All records, if they are few enough to ride in the outcome; undefined: send them as chunks. */
  inline() {
    const all = Buffer.concat(this.records);
    return all.length <= INLINE_LIMIT ? all : undefined;
  }

  /** The records in pieces that a server takes. */
  chunks() {
    const pieces = [];
    let size = CHUNK_LIMIT; // the first record begins a piece
    for (const record of this.records) {
      if (size + record.length > CHUNK_LIMIT) {
        pieces.push([]);
        size = 0;
      }
      pieces.at(-1).push(record);
      size += record.length;
    }
    let firstLine = 0;
    return pieces.map((records, number) => {
      const first = firstLine;
      firstLine += records.length;
      return { number, first_line: first, ...piece(records) };
    });
  }
}

function piece(records) {
  const at = (record) => Number.parseInt(record.subarray(0, 20).toString(), 10);
  const text = records.reduce((sum, record) => sum + record.length, 0);
  return {
    lines: records.length,
    text_bytes: text,
    first_at_ms: at(records[0]),
    last_at_ms: at(records.at(-1)),
    data: zlib.gzipSync(Buffer.concat(records)),
  };
}

/** The lines of a text without their line feeds; the last one has none, and may be empty. */
function splitLines(data) {
  const lines = [];
  let start = 0;
  for (let end = data.indexOf(10); end >= 0; end = data.indexOf(10, start)) {
    lines.push(data.subarray(start, end));
    start = end + 1;
  }
  lines.push(data.subarray(start));
  return lines;
}

module.exports = { Output };

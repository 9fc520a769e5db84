// What both programs of the benchmark on the official TypeScript SDK share.
import { readFileSync } from "node:fs";

export const FILE_BYTES = 4096;

/** What this process has used so far. */
export function usage() {
  const status = readFileSync("/proc/self/status", "utf8");
  const kib = (field) => Number(status.match(new RegExp(`${field}:\\s+(\\d+)`))[1]);
  const { user, system } = process.cpuUsage();
  return { cpu_us: user + system, rss_kib: kib("VmRSS"), peak_kib: kib("VmHWM"), allocations: null };
}

/** Times things that are done one after the other, in nanoseconds. */
export class Watch {
  begun = process.hrtime.bigint();
  last = this.begun;
  took = [];

  lap() {
    const now = process.hrtime.bigint();
    this.took.push(Number(now - this.last));
    this.last = now;
  }

  again() {
    this.last = process.hrtime.bigint();
  }

  wall() {
    return Number(process.hrtime.bigint() - this.begun);
  }

  latency() {
    const took = this.took.sort((a, b) => a - b);
    const last = took.length - 1;
    const mean = took.reduce((sum, ns) => sum + ns, 0) / took.length;
    return { mean, p50: took[Math.floor(last / 2)], p99: took[Math.floor((last * 99) / 100)] };
  }
}

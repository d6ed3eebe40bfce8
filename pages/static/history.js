// The statements that were run, kept by this browser for the instance until they are cleared.

const KEPT = 100;
const DAYS = 30;
const PREFIX = "menagerie console history ";
// Statements that set or hold a secret are run, and not written down.
const SECRET = /password|passwd|identified\s+(by|with)|secret|token|credential|api_?key|private\s+key/i;

export class History {
  constructor(instanceId) {
    this.key = PREFIX + instanceId;
    this.past = this.#read();
    this.place = this.past.length;
    this.draft = "";
  }

  #read() {
    const oldest = Date.now() - DAYS * 86_400_000;
    try {
      const found = JSON.parse(localStorage.getItem(this.key));
      return found.filter((one) => typeof one.sql === "string" && one.at > oldest);
    } catch {
      return [];
    }
  }

  #write() {
    try {
      localStorage.setItem(this.key, JSON.stringify(this.past));
    } catch {
      // A full or forbidden store costs the history, and nothing else.
    }
  }

  /** Answers whether it is kept. */
  add(sql) {
    this.place = this.past.length;
    this.draft = "";
    if (SECRET.test(sql)) return false;
    // Another tab of the instance may have added its own meanwhile.
    const others = this.#read().filter((one) => one.sql !== sql);
    this.past = [...others, { sql, at: Date.now() }].slice(-KEPT);
    this.place = this.past.length;
    this.#write();
    return true;
  }

  clear() {
    this.past = [];
    this.place = 0;
    try {
      localStorage.removeItem(this.key);
    } catch {
      // See above.
    }
  }

  /** The statement one further back or on; null where there is none. */
  step(by, shown) {
    const next = this.place + by;
    if (next < 0 || next > this.past.length) return null;
    if (this.place === this.past.length) this.draft = shown;
    this.place = next;
    return next === this.past.length ? this.draft : this.past[next].sql;
  }
}

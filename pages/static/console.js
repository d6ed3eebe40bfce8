// The SQL console's page. Whatever comes from the engine is put in as text and never as HTML.
"use strict";

const SHORT = 200; // characters of a value that are shown at first
const KEPT = 100; // statements in the history

const at = (id) => document.getElementById(id);
const proof = document.body.dataset.proof;
const HISTORY = `history ${proof.slice(0, 16)}`; // of this session, and of no other in the same tab
const [ask, sql, run, stop, status] = ["ask", "sql", "run", "stop", "status"].map(at);
let past = read();
let place = past.length;
let draft = "";

function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

function several(number, word) {
  return `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
}

function duration(ms) {
  return ms < 1000 ? `${ms.toLocaleString("en")} ms` : `${(ms / 1000).toFixed(2)} s`;
}

// The history, which lasts as long as the session and the tab.

function read() {
  try {
    const found = JSON.parse(sessionStorage.getItem(HISTORY));
    return Array.isArray(found) ? found.filter((one) => typeof one === "string") : [];
  } catch {
    return [];
  }
}

function remember(statement) {
  past = [...past.filter((one) => one !== statement), statement].slice(-KEPT);
  place = past.length;
  draft = "";
  try {
    sessionStorage.setItem(HISTORY, JSON.stringify(past));
  } catch {
    // A full or forbidden store costs the history, and nothing else.
  }
  showHistory();
}

function showHistory() {
  at("count").textContent = past.length;
  const items = past.toReversed().map((statement) => {
    const button = make("button", statement.replace(/\s+/g, " "));
    button.type = "button";
    button.title = statement;
    button.addEventListener("click", () => {
      sql.value = statement;
      sql.focus();
    });
    const item = make("li");
    item.append(button);
    return item;
  });
  at("past").replaceChildren(...items);
}

function step(by) {
  const next = place + by;
  if (next < 0 || next > past.length) return;
  if (place === past.length) draft = sql.value;
  place = next;
  sql.value = place === past.length ? draft : past[place];
}

// The answer.

function cell(value, column) {
  const found = make("td", undefined, column.numeric ? "number" : "");
  if (value === null) {
    found.append(make("span", "NULL", "null"));
  } else if (value.length <= SHORT) {
    found.textContent = value;
  } else {
    const text = make("span", `${value.slice(0, SHORT)}…`);
    const more = make("button", `all ${several(value.length, "character")}`);
    more.type = "button";
    more.setAttribute("aria-expanded", "false");
    more.addEventListener("click", () => {
      const open = more.getAttribute("aria-expanded") !== "true";
      more.setAttribute("aria-expanded", String(open));
      text.textContent = open ? value : `${value.slice(0, SHORT)}…`;
      more.textContent = open ? "less" : `all ${several(value.length, "character")}`;
    });
    found.className = "long";
    found.append(text, more);
  }
  return found;
}

function table(answer) {
  const head = make("tr");
  const corner = make("th", "#", "place");
  corner.scope = "col";
  head.append(corner);
  for (const column of answer.columns) {
    const name = make("th", column.name, column.numeric ? "number" : "");
    name.scope = "col";
    if (column.type) name.append(make("small", column.type));
    head.append(name);
  }
  const body = make("tbody");
  answer.rows.forEach((values, index) => {
    const row = make("tr");
    const number = make("th", index + 1, "place");
    number.scope = "row";
    row.append(number, ...values.map((value, i) => cell(value, answer.columns[i])));
    body.append(row);
  });
  const [whole, top] = [make("table"), make("thead")];
  top.append(head);
  whole.append(top, body);
  return whole;
}

function outcome(answer) {
  if (answer.columns.length) return several(answer.row_count, "row");
  if (answer.changed === null) return answer.message || "Done";
  return `${answer.message || "Done"}, ${several(answer.changed, "row")} affected`;
}

function clear() {
  for (const id of ["error", "notes", "result", "empty"]) at(id).hidden = true;
  at("result").replaceChildren();
  at("notes").replaceChildren();
}

function fail(text, elapsed) {
  clear();
  at("error").textContent = text;
  at("error").hidden = false;
  status.textContent = elapsed === undefined ? "Failed" : `Failed after ${duration(elapsed)}`;
}

function show(answer) {
  clear();
  const notes = [...answer.notes];
  if (answer.truncated) notes.push(`Only the first ${several(answer.row_count, "row")} are shown: there are more.`);
  if (answer.cut) notes.push("Very long values were cut.");
  at("notes").replaceChildren(...notes.map((note) => make("li", note)));
  at("notes").hidden = notes.length === 0;
  at("result").replaceChildren(
    answer.columns.length ? table(answer) : make("p", outcome(answer), "done"),
  );
  at("result").hidden = false;
  const more = answer.truncated ? " (more exist)" : "";
  status.textContent = `${outcome(answer)}${more} in ${duration(answer.elapsed_ms)}`;
}

// What is asked.

function send(verb, body) {
  return fetch(verb, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Console-Proof": proof },
    body: JSON.stringify(body),
    cache: "no-store",
  });
}

function busy(working) {
  run.disabled = working;
  stop.disabled = !working;
  ask.setAttribute("aria-busy", String(working));
  if (working) status.textContent = "Running…";
}

async function perform() {
  const statement = sql.value.trim();
  if (!statement || run.disabled) return;
  remember(statement);
  busy(true);
  try {
    const response = await send("run", { sql: statement });
    const answer = await response.json();
    if (response.ok && answer.error === undefined) show(answer);
    else fail(answer.error ?? `The console answered ${response.status}.`, answer.elapsed_ms);
  } catch {
    fail("The console could not be reached.");
  } finally {
    busy(false);
  }
}

ask.addEventListener("submit", (event) => {
  event.preventDefault();
  perform();
});
stop.addEventListener("click", () => {
  stop.disabled = true;
  send("stop", {}).catch(() => {});
  sql.focus();
});
sql.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    perform();
  } else if (event.altKey && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
    event.preventDefault();
    step(event.key === "ArrowUp" ? -1 : 1);
  }
});
at("leave").addEventListener("submit", () => sessionStorage.clear());
for (const key of Object.keys(sessionStorage)) {
  if (key !== HISTORY) sessionStorage.removeItem(key);
}
showHistory();

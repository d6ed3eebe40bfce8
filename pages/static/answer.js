// What a statement answered: a table, a line of words, or an error.
import { at, duration, make, makeButton, several } from "./page.js";

const SHORT = 200; // characters of a value that are shown at first

function cell(value, column) {
  const found = make("td", undefined, column.numeric ? "number" : "");
  if (value === null) {
    found.append(make("span", "NULL", "null"));
  } else if (value.length <= SHORT) {
    found.textContent = value;
  } else {
    const text = make("span", `${value.slice(0, SHORT)}…`);
    const all = `all ${several(value.length, "character")}`;
    const more = makeButton(all, "", () => {
      const open = more.getAttribute("aria-expanded") !== "true";
      more.setAttribute("aria-expanded", String(open));
      text.textContent = open ? value : `${value.slice(0, SHORT)}…`;
      more.textContent = open ? "less" : all;
    });
    more.setAttribute("aria-expanded", "false");
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
  for (const id of ["error", "notes", "result", "empty", "files"]) at(id).hidden = true;
  at("result").replaceChildren();
  at("notes").replaceChildren();
}

export function fail(answer) {
  clear();
  at("error").textContent = answer.error;
  at("error").hidden = false;
  const after = answer.elapsed_ms ? ` after ${duration(answer.elapsed_ms)}` : "";
  at("status").textContent = `Failed${after}`;
}

export function show(answer) {
  clear();
  const notes = [...answer.notes];
  if (answer.truncated) {
    const first = several(answer.row_count, "row");
    notes.push(`The result is longer: only the first ${first} are shown and can be downloaded.`);
  }
  if (answer.cut) notes.push("Very long values were truncated.");
  at("notes").replaceChildren(...notes.map((note) => make("li", note)));
  at("notes").hidden = notes.length === 0;
  const isTable = answer.columns.length > 0;
  at("result").replaceChildren(isTable ? table(answer) : make("p", outcome(answer), "done"));
  at("result").hidden = false;
  at("files").hidden = !isTable;
  const more = answer.truncated ? " (more exist)" : "";
  at("status").textContent = `${outcome(answer)}${more} in ${duration(answer.elapsed_ms)}`;
}

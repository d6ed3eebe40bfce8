// The SQL console's page: what is typed, run, shown, kept and taken along.
import { fail, show } from "./answer.js";
import { makeEditor } from "./editor.js";
import { csv, json, save } from "./files.js";
import { History } from "./history.js";
import { ask, at, make, makeButton } from "./page.js";
import { Tables } from "./tables.js";

const { engine, instance, name, nonce } = document.body.dataset;
const [form, run, stop] = ["ask", "run", "stop"].map(at);
// A statement of these may change what there is.
const CHANGES = /\b(create|alter|drop|rename|attach|detach|import|comment|select\s.*\sinto)\b/is;
const past = new History(instance);
let answer = null;

const editor = makeEditor({
  parent: at("editor"),
  engine,
  nonce,
  label: "SQL",
  describedBy: "keys",
  hint: "SELECT …",
  onSelection: (some) => {
    run.textContent = some ? "Run selection" : "Run";
  },
  keys: [
    { key: "Mod-Enter", run: () => (perform(), true) },
    // Whoever is used to Ctrl has it on a Mac too.
    { key: "Ctrl-Enter", run: () => (perform(), true) },
    { key: "Alt-ArrowUp", run: () => (step(-1), true) },
    { key: "Alt-ArrowDown", run: () => (step(1), true) },
  ],
});
const tables = new Tables(engine, {
  select: (sql) => {
    editor.replace(sql);
    perform();
  },
  complete: editor.complete,
});

function showHistory() {
  at("count").textContent = past.past.length;
  at("clear").hidden = past.past.length === 0;
  const items = past.past.toReversed().map(({ sql, at: when }) => {
    const button = makeButton(sql.replace(/\s+/g, " "), "", () => {
      editor.replace(sql);
      editor.focus();
    });
    button.title = `${new Date(when).toLocaleString()}\n${sql}`;
    const item = make("li");
    item.append(button);
    return item;
  });
  at("past").replaceChildren(...items);
}

function step(by) {
  const found = past.step(by, editor.text());
  if (found !== null) editor.replace(found);
}

function busy(working) {
  run.disabled = working;
  stop.disabled = !working;
  form.setAttribute("aria-busy", String(working));
  if (working) at("status").textContent = "Running…";
}

async function perform() {
  const sql = (editor.selected() || editor.text()).trim();
  if (!sql || run.disabled) return;
  past.add(sql);
  showHistory();
  busy(true);
  answer = await ask("run", { sql });
  if (answer.error === undefined) show(answer);
  else fail(answer);
  busy(false);
  if (CHANGES.test(sql)) tables.load();
}

function file(suffix, type, content) {
  at(suffix).addEventListener("click", () => {
    const time = new Date().toISOString().slice(0, 19).replaceAll(/[-:]/g, "").replace("T", "-");
    save(`${name}-${time}.${suffix}`, type, content(answer));
  });
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  perform();
});
stop.addEventListener("click", () => {
  stop.disabled = true;
  ask("stop");
  editor.focus();
});
at("clear").addEventListener("click", () => {
  past.clear();
  showHistory();
  editor.focus();
});
// To sign out is to leave nothing behind.
at("leave").addEventListener("submit", () => past.clear());
file("csv", "text/csv;charset=utf-8", csv);
file("json", "application/json", json);
showHistory();
editor.focus();
tables.load();

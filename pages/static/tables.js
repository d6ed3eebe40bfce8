// What the database holds, as a tree of schemas, tables and columns, and for completion.
import { ask, at, make, makeButton, several } from "./page.js";

const PLAIN = /^[a-z_][a-z0-9_]*$/;
const ROWS = 100;

/** As the engine reads it, whatever the name holds. */
function identifier(name, mark) {
  return mark + name.replaceAll(mark, mark + mark) + mark;
}

function folder(title, className) {
  const [details, summary] = [make("details", undefined, className), make("summary", title)];
  details.append(summary);
  return [details, summary];
}

export class Tables {
  /** `select` is told a statement to run, `complete` what there is to complete. */
  constructor(engine, { select, complete }) {
    this.mark = ["mariadb", "mysql"].includes(engine) ? "`" : '"';
    this.select = select;
    this.complete = complete;
    this.wanted = 0; // how often they were asked for since the last answer
    at("reload").addEventListener("click", () => this.load());
  }

  /** One at a time; asked for meanwhile, they are listed once more, as they may have changed. */
  async load() {
    this.wanted += 1;
    if (this.wanted > 1) return;
    at("tree").setAttribute("aria-busy", "true");
    let found;
    do {
      this.wanted = 1;
      found = await ask("tables");
    } while (this.wanted > 1);
    this.wanted = 0;
    at("tree").setAttribute("aria-busy", "false");
    this.#show(found);
  }

  #show(found) {
    if (found.error) {
      this.#say(found.error);
      return;
    }
    const count = found.schemas.reduce((sum, schema) => sum + schema.tables.length, 0);
    this.#say(count ? "" : "No tables yet.");
    if (found.truncated) this.#say(`Only the first ${several(count, "table")} are listed.`);
    const open = this.#open();
    const one = found.schemas.length === 1;
    at("schemas").replaceChildren(
      ...found.schemas.map((schema) => this.#schema(schema, found.usual, one, open)),
    );
    this.complete(...this.#words(found));
  }

  #say(text) {
    at("tables-note").textContent = text;
    at("tables-note").hidden = !text;
  }

  // Whoever has opened a table finds it open after it was listed again.
  #open() {
    const all = document.querySelectorAll("#schemas details[open]");
    return new Set(Array.from(all, (each) => each.dataset.name));
  }

  #schema(schema, usual, one, open) {
    const [details, summary] = folder(schema.name, "schema");
    details.dataset.name = schema.name;
    details.open = one || schema.name === usual || open.has(schema.name);
    summary.append(make("span", schema.tables.length, "count"));
    const list = make("ul");
    list.append(...schema.tables.map((table) => this.#table(table, schema.name, usual, open)));
    details.append(list);
    return details;
  }

  #table(table, schema, usual, open) {
    const [details, summary] = folder(table.name, table.kind);
    details.dataset.name = `${schema}\u0000${table.name}`;
    details.open = open.has(details.dataset.name);
    if (table.kind === "view") summary.append(make("span", "view", "count"));
    const own = identifier(table.name, this.mark);
    const whole = schema === usual ? own : `${identifier(schema, this.mark)}.${own}`;
    const show = makeButton("Show rows", "small", () =>
      this.select(`SELECT * FROM ${whole} LIMIT ${ROWS}`),
    );
    show.setAttribute("aria-label", `Show rows of ${table.name}`);
    const columns = make("ul", undefined, "columns");
    for (const column of table.columns) {
      const item = make("li");
      item.append(make("span", column.name, "name"), make("span", column.type, "type"));
      columns.append(item);
    }
    details.append(show, columns);
    const item = make("li");
    item.append(details);
    return item;
  }

  // As the editor takes it; what is no plain name is completed as the engine reads it.
  #words({ schemas, usual }) {
    const word = (name, type) => {
      const apply = PLAIN.test(name) ? name : identifier(name, this.mark);
      return { label: name, apply, type };
    };
    const tree = Object.create(null);
    for (const schema of schemas) {
      const tables = Object.create(null);
      for (const table of schema.tables) {
        const children = table.columns.map((column) => ({
          ...word(column.name, "property"),
          detail: column.type,
        }));
        tables[table.name] = { self: word(table.name, "type"), children };
      }
      tree[schema.name] = { self: word(schema.name, "namespace"), children: tables };
    }
    return [tree, usual];
  }
}

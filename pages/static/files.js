// The rows that are shown, as files. Values are what the engine answered and nothing else.

function quoted(text) {
  return `"${text.replaceAll('"', '""')}"`;
}

/** RFC 4180. NULL is empty, and an empty text is "", so that the two can be told apart. */
export function csv(answer) {
  const field = (value) => {
    if (value === null) return "";
    return value === "" || /[",\r\n]|^\s|\s$/.test(value) ? quoted(value) : value;
  };
  const lines = [answer.columns.map((column) => column.name), ...answer.rows];
  return lines.map((values) => `${values.map(field).join(",")}\r\n`).join("");
}

function names(columns) {
  const taken = new Set();
  return columns.map(({ name }) => {
    let own = name;
    for (let number = 2; taken.has(own); number += 1) own = `${name}_${number}`;
    taken.add(own);
    return own;
  });
}

/** An object a row. A number stays one where JavaScript reads it as the same figures. */
export function json(answer) {
  const keys = names(answer.columns);
  const value = (text, column) =>
    text !== null && column.numeric && String(Number(text)) === text ? Number(text) : text;
  const rows = answer.rows.map((values) =>
    Object.fromEntries(values.map((text, i) => [keys[i], value(text, answer.columns[i])])),
  );
  return `${JSON.stringify(rows, null, 2)}\n`;
}

export function save(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

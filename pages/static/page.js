// What the parts of the console share: elements made of text, and figures as people read them.

export const at = (id) => document.getElementById(id);

/** Whatever comes from the engine goes through here: it is put in as text and never as HTML. */
export function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

export function makeButton(text, className, onClick) {
  const button = make("button", text, className);
  button.type = "button";
  button.addEventListener("click", onClick);
  return button;
}

export function several(number, word) {
  return `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
}

export function duration(ms) {
  return ms < 1000 ? `${ms.toLocaleString("en")} ms` : `${(ms / 1000).toFixed(2)} s`;
}

const proof = document.body.dataset.proof;

/** Asks the cell; `error` says what is wrong, whether the engine, the cell or the way there says so. */
export async function ask(verb, body = {}) {
  try {
    const response = await fetch(verb, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Console-Proof": proof },
      body: JSON.stringify(body),
      cache: "no-store",
    });
    if (response.status === 204) return {};
    const answer = await response.json();
    if (response.ok || answer.error !== undefined) return answer;
    return { error: `The console returned status ${response.status}.` };
  } catch {
    return { error: "The console could not be reached." };
  }
}

// The SQL editor of the console: CodeMirror with what the console needs of it, as one module.
import {
  acceptCompletion,
  autocompletion,
  closeBrackets,
  closeBracketsKeymap,
  completionKeymap,
} from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { MariaSQL, MySQL, PostgreSQL, sql } from "@codemirror/lang-sql";
import { bracketMatching, syntaxHighlighting } from "@codemirror/language";
import { Compartment, EditorState, Prec } from "@codemirror/state";
import {
  drawSelection,
  EditorView,
  highlightActiveLine,
  keymap,
  lineNumbers,
  placeholder,
} from "@codemirror/view";
import { classHighlighter } from "@lezer/highlight";

const DIALECTS = { postgres: PostgreSQL, duckdb: PostgreSQL, mariadb: MariaSQL, mysql: MySQL };

/** `keys` are bindings that win over the editor's own; `nonce` lets it add its own styles. */
export function makeEditor({ parent, engine, nonce, label, describedBy, hint, keys, onSelection }) {
  const dialect = DIALECTS[engine] ?? PostgreSQL;
  const language = new Compartment();
  const speak = (schema, defaultSchema) =>
    sql({ dialect, schema, defaultSchema, upperCaseKeywords: true });
  const view = new EditorView({
    parent,
    state: EditorState.create({
      extensions: [
        EditorView.cspNonce.of(nonce),
        Prec.highest(keymap.of(keys)),
        lineNumbers(),
        highlightActiveLine(),
        history(),
        drawSelection(),
        EditorView.lineWrapping,
        bracketMatching(),
        EditorState.languageData.of(() => [{ closeBrackets: { brackets: ["(", "[", "{"] } }]),
        closeBrackets(),
        autocompletion({ activateOnTypingDelay: 150 }),
        syntaxHighlighting(classHighlighter),
        placeholder(hint),
        EditorView.contentAttributes.of({
          id: "sql",
          "aria-label": label,
          "aria-describedby": describedBy,
          spellcheck: "false",
          autocapitalize: "off",
        }),
        EditorView.updateListener.of((update) => {
          if (update.selectionSet || update.docChanged) {
            onSelection(!update.state.selection.main.empty);
          }
        }),
        // Tab stays the browser's, so that nobody is caught in here who works by keyboard.
        keymap.of([
          { key: "Tab", run: acceptCompletion },
          ...closeBracketsKeymap,
          ...completionKeymap,
          ...defaultKeymap,
          ...historyKeymap,
        ]),
        language.of(speak()),
      ],
    }),
  });
  return {
    focus: () => view.focus(),
    text: () => view.state.doc.toString(),
    selected() {
      const { from, to } = view.state.selection.main;
      return view.state.sliceDoc(from, to);
    },
    replace(text) {
      view.dispatch({
        changes: { from: 0, to: view.state.doc.length, insert: text },
        selection: { anchor: text.length },
        scrollIntoView: true,
      });
    },
    insert(text) {
      view.dispatch(view.state.replaceSelection(text));
      view.focus();
    },
    complete: (schema, defaultSchema) =>
      view.dispatch({ effects: language.reconfigure(speak(schema, defaultSchema)) }),
  };
}

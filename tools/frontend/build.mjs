// Builds what the pages take from npm, pinned by package-lock.json: see README.md beside this file.
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "..", "..");
const modules = join(here, "node_modules");

function described(name) {
  return JSON.parse(readFileSync(join(modules, name, "package.json"), "utf8"));
}

function licence(name) {
  const folder = join(modules, name);
  const file = readdirSync(folder).find((one) => /^licen[cs]e(\.(md|txt))?$/i.test(one));
  if (file) return readFileSync(join(folder, file), "utf8").trim();
  const kept = join(here, "licences", `${name.split("/")[0].replace("@", "")}.txt`);
  return existsSync(kept) ? readFileSync(kept, "utf8").trim() : "";
}

// Packages that share a text share a place; one whose text is in no file is named with its licence.
function notice(title, names) {
  const byText = new Map();
  for (const name of [...names].sort()) {
    const { version, license } = described(name);
    const text = licence(name);
    byText.set(text, [...(byText.get(text) ?? []), `${name} ${version} (${license})`]);
  }
  const parts = [...byText].map(([text, packages]) => `${packages.join("\n")}\n\n${text}`.trim());
  return `${title}\n\n${parts.join(`\n\n${"-".repeat(72)}\n\n`)}\n`;
}

// Everything a package needs at run time, itself included.
function closure(name, found = new Set()) {
  if (found.has(name) || !existsSync(join(modules, name))) return found;
  found.add(name);
  for (const each of Object.keys(described(name).dependencies ?? {})) closure(each, found);
  return found;
}

function write(path, content) {
  const file = join(root, path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, content);
  const sum = createHash("sha256").update(content).digest("hex").slice(0, 12);
  console.log(`${path}  ${content.length.toLocaleString("en")} bytes  ${sum}`);
}

const bundled = await build({
  entryPoints: [join(here, "editor.js")],
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  legalComments: "none",
  write: false,
  metafile: true,
});
const inputs = Object.keys(bundled.metafile.inputs)
  .map((path) => path.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//)?.[1])
  .filter(Boolean);
write("pages/static/editor.js", bundled.outputFiles[0].contents);
write("pages/static/editor.LICENSE.txt", notice("editor.js is made of:", new Set(inputs)));

const scalar = readFileSync(join(modules, "@scalar/api-reference/dist/browser/standalone.js"), "utf8")
  .replace(/\n\/\/# sourceMappingURL=.*\s*$/, "\n");
write("specserver/static/scalar.js.gz", gzipSync(scalar, { level: 9 }));
write(
  "specserver/static/scalar.LICENSE.txt",
  notice("scalar.js is the browser build of @scalar/api-reference, made of:", closure("@scalar/api-reference")),
);

write(
  "tools/site/mermaid.min.js.gz",
  gzipSync(readFileSync(join(modules, "mermaid/dist/mermaid.min.js")), { level: 9 }),
);
write("tools/site/mermaid.LICENSE.txt", notice("mermaid.min.js is made of:", closure("mermaid")));

write("contract_tests/end_to_end/axe.min.js", readFileSync(join(modules, "axe-core/axe.min.js")));

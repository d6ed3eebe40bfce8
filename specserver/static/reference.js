// Starts the API reference. Nothing of it asks any other host: no fonts, proxy, assistant, telemetry.
"use strict";

const KEY = "Idempotency-Key";
const REPEATABLE = new Set(["POST", "PATCH"]);
const place = document.getElementById("reference");
const described = new URL(place.dataset.url, document.baseURI).href;

// Not crypto.randomUUID, which a browser has only where the page came by TLS or from this machine.
function fresh() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (each) => each.toString(16).padStart(2, "0")).join("");
}

// An example of a key would be sent as the key of every try, and the second answered as the first.
function withoutKeys(_name, value) {
  if (value?.in !== "header" || value.name !== KEY) return value;
  const { example, examples, ...parameter } = value;
  const { example: one, examples: several, ...schema } = value.schema ?? {};
  return { ...parameter, schema };
}

// Each try is a request of its own, unless somebody typed a key to see an answer repeated.
async function send(input, init) {
  const request = new Request(input, init);
  if (REPEATABLE.has(request.method) && !request.headers.has(KEY)) request.headers.set(KEY, fresh());
  const response = await fetch(request, { credentials: "omit" });
  if (request.url !== described || !response.ok) return response;
  return Response.json(JSON.parse(await response.text(), withoutKeys));
}

// These buttons show an icon alone; whoever hears the page is told what they do.
function nameButtons() {
  for (const each of document.querySelectorAll("button.scalar-code-copy:not([aria-label])")) {
    each.setAttribute("aria-label", "Copy");
  }
}

new MutationObserver(nameButtons).observe(document.body, { childList: true, subtree: true });
Scalar.createApiReference(place, {
  url: place.dataset.url,
  customFetch: send,
  withDefaultFonts: false,
  telemetry: false,
  agent: { disabled: true },
  mcp: { disabled: true },
  hideClientButton: true,
  showDeveloperTools: "never",
  externalUrls: { dashboardUrl: "", registryUrl: "", proxyUrl: "", apiBaseUrl: "" },
  persistAuth: false,
  theme: "none",
  documentDownloadType: "json",
  defaultHttpClient: { targetKey: "shell", clientKey: "curl" },
  orderSchemaPropertiesBy: "preserve",
});

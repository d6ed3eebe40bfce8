// Walks through the API with Meilisearch's own client; what is seen is printed as JSON.
import { pathToFileURL } from "node:url";

const [modules, host, apiKey] = process.argv.slice(2);
const place = pathToFileURL(`${modules}/meilisearch/dist/index.js`);
const { Meilisearch } = await import(place);
const { generateTenantToken } = await import(pathToFileURL(`${modules}/meilisearch/dist/token.js`));
const client = new Meilisearch({ host, apiKey });
const books = client.index("walked");
const seen = { healthy: await client.isHealthy() };

await books.updateSettings({
  filterableAttributes: ["genre"],
  sortableAttributes: ["year"],
  synonyms: { "sea novel": ["moby dick"] },
  embedders: { own: { source: "userProvided", dimensions: 2 } },
}).waitTask();
const added = await books.addDocuments([
  { id: 1, title: "Moby Dick", genre: "Adventure", year: 1851, _vectors: { own: [1, 0] } },
  { id: 2, title: "Emma", genre: "Romance", year: 1815, _vectors: { own: [0, 1] } },
  { id: 3, title: "Persuasion", genre: "Romance", year: 1817, _vectors: { own: [0.1, 1] } },
]).waitTask();
seen.added = added.status;

const ids = (answer) => answer.hits.map((hit) => hit.id);
seen.typo = ids(await books.search("persuaison"));
seen.synonym = ids(await books.search("sea novel"));
seen.sorted = ids(await books.search("", { filter: "genre = Romance", sort: ["year:desc"] }));
seen.facets = (await books.search("", { facets: ["genre"] })).facetDistribution;
seen.facetHits = (await books.searchForFacetValues({ facetName: "genre", facetQuery: "rom" })).facetHits;
const details = await books.search("emma", { showRankingScoreDetails: true });
seen.details = Object.keys(details.hits[0]._rankingScoreDetails);
seen.near = ids(await books.search("", { vector: [1, 0], hybrid: { embedder: "own", semanticRatio: 1 } }));
seen.similar = ids(await books.searchSimilarDocuments({ id: 2, embedder: "own", limit: 1 }));
const queries = [{ indexUid: "walked", q: "emma" }, { indexUid: "walked", q: "moby" }];
seen.several = (await client.multiSearch({ queries })).results.map(ids);
seen.merged = ids(await client.multiSearch({ federation: { limit: 5 }, queries })).sort();
seen.batch = (await client.batches.getBatch(added.batchUid)).stats.totalNbTasks;
seen.documents = (await books.getDocuments({ fields: ["id"], limit: 1 })).total;

// What a page may show: it searches, and that is all.
const key = await client.createKey({ actions: ["search"], indexes: ["walked"], expiresAt: null });
const as = (credential) => new Meilisearch({ host, apiKey: credential }).index("walked");
seen.byKey = ids(await as(key.key).search("emma"));
const searchRules = { walked: { filter: "genre = Adventure" } };
const token = await generateTenantToken({ apiKey: key.key, apiKeyUid: key.uid, searchRules });
seen.byToken = ids(await as(token).search(""));
try {
  await as(key.key).addDocuments([{ id: 4 }]);
} catch (error) {
  seen.refused = error.cause.code;
}
try {
  await client.index("none").search("x");
} catch (error) {
  seen.missing = error.cause.code;
}
seen.deleted = (await client.deleteIndex("walked").waitTask()).status;
console.log(JSON.stringify(seen));

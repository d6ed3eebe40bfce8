// A shop's page as the guide of InstantSearch makes one; the engine and the key are in its address.
import { instantMeiliSearch } from "@meilisearch/instant-meilisearch";

const given = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
const { searchClient } = instantMeiliSearch(given.host, given.key, {
  primaryKey: "id",
  finitePagination: true,
});
const search = window.instantsearch({ indexName: "shop", searchClient });
const {
  searchBox, stats, sortBy, refinementList, hierarchicalMenu, rangeInput, hits, pagination, configure,
} = window.instantsearch.widgets;
search.addWidgets([
  configure({ hitsPerPage: 3 }),
  searchBox({ container: "#search" }),
  stats({ container: "#stats" }),
  sortBy({
    container: "#sort",
    items: [
      { label: "Best", value: "shop" },
      { label: "Newest", value: "shop:year:desc" },
    ],
  }),
  refinementList({ container: "#genres", attribute: "genre", searchable: true }),
  hierarchicalMenu({ container: "#shelves", attributes: ["shelf.lvl0", "shelf.lvl1"] }),
  rangeInput({ container: "#years", attribute: "year" }),
  hits({
    container: "#hits",
    templates: {
      item: (hit, { html, components }) => html`<b>${components.Highlight({ hit, attribute: "title" })}</b>`,
    },
  }),
  pagination({ container: "#pages" }),
]);
search.start();

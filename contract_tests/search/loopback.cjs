// Names below localhost are this machine, as browsers have it.
const dns = require("node:dns");

const lookup = dns.lookup;
dns.lookup = (host, ...more) => lookup(host.endsWith(".localhost") ? "127.0.0.1" : host, ...more);

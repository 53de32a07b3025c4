// SPDX-License-Identifier: Apache-2.0
// One pair of endpoints: what its probes meet, port by port, and where the time goes.

import { path } from "./api.js";
import { h } from "./dom.js";
import { facts, incidents, link, name, none, section, series, spread, step, table, to } from "./parts.js";
import { count, loss, rtt } from "./words.js";

export const title = (_, query) => `${query.source ?? ""} → ${query.target ?? ""}`;
export const source = (_, query) => path("pair", { source: query.source, target: query.target });
export const every = 3;

export function view(data) {
  const both = { source: data.source, target: data.target };
  const [from, until] = [data.source_host, data.target_host];
  return [
    h("h1", {}, name(data.source), " → ", name(data.target)),
    h("p", { class: "crumbs" }, h("a", { href: to.diagnose(both) }, "Walk it now, hop by hop"), " · ",
      h("a", { href: to.pair(data.target, data.source) }, "The other way")),
    facts([
      ["task", data.task ? link(to.task(data.task), data.task) : "–"],
      ["from host", from ? link(to.host(from), from) : "–"],
      ["to host", until ? link(to.host(until), until) : "–"],
      ["p50, p95, p99", data.now ? [rtt(data.now.p50_ns), rtt(data.now.p95_ns), rtt(data.now.p99_ns)].join(", ") : "–"],
      ["lost now", data.now ? h("span", { class: `chip ${step(data.now.sent, data.now.lost)}` }, loss(data.now.sent, data.now.lost)) : "–"],
      ["probes now", data.now ? `${count(data.now.lost)} lost of ${count(data.now.sent)}` : "none heard"],
    ]),
    section("Where the time goes", "rtt", breakdown(data.now?.rtt)),
    data.incidents.length ? section("Incidents", "incidents", incidents(data.incidents, "Incidents that this pair is part of")) : null,
    section("The last hour", "series", series("Probes of this pair by minute", data.series ?? [], spread(data.series ?? [], 3, [[8, "largest round trip"], [7, "mean"], [6, "least"]]), "pair")),
    section("By source port", "ports", ports(data.ports ?? [])),
  ];
}

const STAGES = [["prober_ns", "prober's host"], ["network_ns", "network, there and back"], ["responder_ns", "responder's host"]];

function breakdown(found) {
  if (!found) return none("No probe came back in the newest window, so there is no time to tell.");
  const all = STAGES.reduce((sum, [key]) => sum + (found[key] ?? 0), 0) || 1;
  let x = 0;
  const bars = STAGES.map(([key], n) => {
    const w = (640 * (found[key] ?? 0)) / all;
    const bar = h("rect", { class: `part p${n}`, x, y: 0, width: Math.max(w, 0), height: 18 });
    x += w;
    return bar;
  });
  const text = STAGES.map(([key, stage]) => `${stage} ${rtt(found[key])}`).join(", ");
  return h("figure", {}, h("svg", { class: "stack", viewBox: "0 0 640 18", role: "img", "aria-label": text, preserveAspectRatio: "none" }, bars),
    h("figcaption", {}, STAGES.map(([key, stage], n) => h("span", { class: "step" }, h("span", { class: `swatch p${n}`, "aria-hidden": "true" }), `${stage} ${rtt(found[key])}`))));
}

function ports(rows) {
  if (!rows.length) return none("No probe of it was heard lately.");
  const way = (hops) => (hops?.length ? hops.map((hop, n) => [n ? " › " : "", hop ? name(hop) : "?"]) : h("span", { class: "quiet" }, "not traced"));
  return table("Each source port takes a way of its own through the fabric", [
    ["Port", (row) => String(row.port)],
    ["Lost", (row) => h("span", { class: `chip ${step(row.sent, row.lost)}` }, loss(row.sent, row.lost)), "num"],
    ["Probes", (row) => `${count(row.lost)} of ${count(row.sent)}`, "num"],
    ["Round trip", (row) => rtt(row.rtt_ns), "num"],
    ["Way there", (row) => way(row.path), "wide"],
    ["Way back", (row) => way(row.back), "wide"],
  ], [...rows].sort((a, b) => (b.sent ? b.lost / b.sent : 0) - (a.sent ? a.lost / a.sent : 0) || a.port - b.port));
}
